#!/usr/bin/env bash
# Builds the CPU image without a container engine's daemon, measures it, and runs it: as its own
# user, with its own health check, called from outside, stopped by SIGTERM. Needs root and buildah.
#
#   docker/build_with_buildah.sh --base=debian:12-slim   # an image that buildah can find or pull
#   docker/build_with_buildah.sh --base-tar=root.tar     # a Debian 12 root filesystem
#   docker/build_with_buildah.sh                         # made with debootstrap
#   docker/build_with_buildah.sh --image=NAME            # no build: measure and run this image
#
# A base that is made here gets this machine's apt configuration. The last line says "image: ok".
set -euo pipefail
cd "$(dirname "$0")/.."
export BUILDAH_ISOLATION=${BUILDAH_ISOLATION:-chroot} STORAGE_DRIVER=${STORAGE_DRIVER:-vfs}

image=localhost/attnserve:cpu
max_mb_over_base=120
base='' base_tar='' build=yes
for argument in "$@"; do
  case $argument in
    --base=*) base=${argument#*=} ;;
    --base-tar=*) base_tar=${argument#*=} ;;
    --image=*) image=${argument#*=} build=no ;;
    *) echo "got $argument, want --base=, --base-tar= or --image=" >&2; exit 2 ;;
  esac
done

work=$(mktemp -d)
containers=()
server_pid=''
clean_up() {
  if [ -n "$server_pid" ]; then kill -KILL "$server_pid" 2>/dev/null || true; fi
  if [ "${#containers[@]}" -gt 0 ]; then buildah rm "${containers[@]}" >/dev/null 2>&1 || true; fi
  rm -rf "$work"
}
trap clean_up EXIT
fail() { echo "image: $1" >&2; exit 1; }

# The container's name in $container.
new_container() {
  container=$(buildah from "$1")
  containers+=("$container")
}

# A root filesystem with the packages of Debian 12 that must be there, and how apt works here.
make_base() {
  local root=$work/root
  mkdir "$root"
  if [ -n "$base_tar" ]; then
    tar -C "$root" --exclude='./dev/*' -xf "$base_tar"
  else
    local mirror
    # shellcheck disable=SC2016  # a field of apt-get
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
      'Codename: bookworm' | head -n 1)
    debootstrap --variant=minbase bookworm "$root" ${mirror:+"$mirror"} >"$work/debootstrap.log" ||
      { tail "$work/debootstrap.log" >&2; fail "debootstrap failed"; }
  fi
  rm -rf "$root/etc/apt/sources.list" "$root/etc/apt/sources.list.d" "$root/var/lib/apt/lists"/* \
    "$root/var/cache/apt/archives"/*.deb
  cp -r /etc/apt/sources.list* /etc/apt/apt.conf.d "$root/etc/apt/"
  container=$(buildah from scratch)
  containers+=("$container")
  buildah add --quiet "$container" "$root" / >/dev/null
  buildah config --cmd bash "$container"
  base=localhost/attnserve-base:bookworm
  buildah commit --quiet "$container" "$base" >/dev/null
  rm -rf "$root"
}

# Bytes of the files of an image, in $bytes.
measure_files() {
  new_container "$1"
  bytes=$(du --apparent-size --block-size=1 -sx "$(buildah mount "$container")" | cut -f1)
}

measure() {
  local base_bytes over_mb
  measure_files "$base"
  base_bytes=$bytes
  measure_files "$image"
  over_mb=$(((bytes - base_bytes + 999999) / 1000000))
  echo "size: base $((base_bytes / 1000000)) MB, image $((bytes / 1000000)) MB," \
    "over base $over_mb MB (at most $max_mb_over_base)"
  [ "$over_mb" -le "$max_mb_over_base" ] || fail "too large"
}

setting() { buildah inspect --type image --format "{{range .$1}}{{.}} {{end}}" "$image"; }

# Starts the image's entrypoint. With chroot isolation network and process ids are this machine's:
# the server is reached, and stopped, like any process here, so it listens on the loopback only.
start_server() {
  local entrypoint identity address=''
  read -r -a entrypoint <<<"$(setting OCIv1.Config.Entrypoint)"
  new_container "$image"
  # shellcheck disable=SC2016  # expanded by the shell inside
  buildah run "$container" -- sh -c 'echo "pid $$ uid $(id -u)"; exec "$@"' start \
    "${entrypoint[@]}" --listen=127.0.0.1:50051 --metrics-listen=127.0.0.1:9464 \
    --kv-bytes=256M --threads=1 >"$work/log" 2>&1 &
  run_job=$!
  for _ in $(seq 100); do
    address=$(sed -n 's/^listening address=\([^ ]*\).*/\1/p' "$work/log")
    if [ -n "$address" ] || ! kill -0 "$run_job" 2>/dev/null; then break; fi
    sleep 0.1
  done
  [ -n "$address" ] || { cat "$work/log" >&2; fail "the server did not start"; }
  identity=$(grep '^pid ' "$work/log")
  server_pid=$(cut -d' ' -f2 <<<"$identity")
  echo "server: $identity, $address"
  [ "$(cut -d' ' -f4 <<<"$identity")" -ne 0 ] || fail "the server runs as root"
}

# The image's own command, in the image, as its user.
check_health() {
  local command
  read -r -a command <<<"$(setting Docker.Config.Healthcheck.Test)"
  [ "${command[0]:-}" = CMD ] || fail "the image has no health check"
  buildah run "$container" -- "${command[@]:1}" || fail "unhealthy"
  echo "health: ok (${command[*]:1})"
}

call_from_outside() {
  local stubs=$work/stubs metrics
  tests/interop/generate_stubs.sh "$stubs"
  /usr/bin/python3 -B tests/interop/run.py --stubs="$stubs" --target=127.0.0.1:50051
  metrics=$(/usr/bin/python3 - <<'PYTHON'
import urllib.request
page = urllib.request.urlopen("http://127.0.0.1:9464/metrics", timeout=10).read().decode()
print(len({line.split()[2] for line in page.splitlines() if line.startswith("# TYPE ")}))
PYTHON
  )
  echo "metrics: $metrics"
  [ "$metrics" -gt 0 ] || fail "no metrics"
}

stop_server() {
  local status=0
  kill -TERM "$server_pid"
  wait "$run_job" || status=$?
  server_pid=''
  grep '^stopped ' "$work/log" || true
  [ "$status" -eq 0 ] || fail "exit status $status after SIGTERM"
  grep -q 'leaked_sequences=0 leaked_pages=0' "$work/log" || fail "leaked"
  echo "stop: exit status 0"
}

if [ "$build" = no ]; then
  buildah inspect --type image "$image" >/dev/null || fail "no image $image"
else
  if [ -z "$base" ]; then make_base; fi
  # The format docker is the one that keeps a health check.
  buildah build --quiet --format docker --build-arg BASE="$base" \
    -f docker/Dockerfile.cpu -t "$image" .
fi
if [ -n "$base" ]; then measure; fi
start_server
check_health
call_from_outside
stop_server
echo "image: ok"
