#!/usr/bin/env bash
# Does attnctl tell what a real server does?
#
#   attnctl_run.sh SERVER ATTNCTL LOADGEN
set -euo pipefail
server=$1 attnctl=$2 loadgen=$3
work=$(mktemp -d) pid='' load=''
trap 'kill "$pid" "$load" 2>/dev/null || true; rm -rf "$work"' EXIT

# Starts a server with the flags given; its address in $address.
start() {
  address=''
  "$server" --kv-bytes=64M --threads=1 --linger-ms=0 "$@" >"$work/out" 2>"$work/log" &
  pid=$!
  for _ in $(seq 200); do
    address=$(sed -n 's/^listening address=\([^ ]*\).*/\1/p' "$work/out")
    [ -n "$address" ] && return
    sleep 0.05
  done
  cat "$work/log" >&2
  exit 1
}
stop() {
  kill -TERM "$pid"
  wait "$pid"
}
ask() { "$attnctl" "$@" --address="$address" >"$work/answer"; }
expect() {
  if ! grep -Eq -- "$1" "$work/answer"; then
    echo "attnctl_run: no \"$1\" in:" >&2
    cat "$work/answer" >&2
    exit 1
  fi
}
refused() {
  local want=$1 status=0
  shift
  "$attnctl" "$@" 2>"$work/answer" || status=$?
  [ "$status" -eq "$want" ] || { echo "attnctl_run: $* ended with $status, want $want" >&2; exit 1; }
}

start --listen=127.0.0.1:0
ask models && expect '^no models$'
"$loadgen" --target="$address" --max-requests=200 --rate=20 --context=64 --generated=64 \
  --allow-late=true >"$work/load" 2>&1 &
load=$!
for _ in $(seq 100); do
  ask models
  grep -q '^loadgen' "$work/answer" && break
  sleep 0.05
done
expect '^loadgen[^ ]* +4 +2 +8/2 +64 '
model=$(sed -n 's/^\(loadgen[^ ]*\).*/\1/p' "$work/answer")
ask model "$model" && expect 'num_layers: 4'
ask info && expect '^version: "'
ask top --count=2 --interval-ms=500
expect '^attn-server .*SERVING'
expect '^calls +attend [1-9][0-9.]*k?/s'
expect '^launches .*in kernels [0-9]+ %'
[ "$(grep -c '^sequences ' "$work/answer")" -eq 2 ]
for _ in $(seq 100); do
  ask sequences --model="$model" --limit=1 --json
  grep -q '"owner": "loadgen' "$work/answer" && break
  sleep 0.05
done
expect '"owner": "loadgen'
ask sequences --owner=nobody && expect '^no sequences$'
ask stats && expect '^calls_total +kind=attend +[1-9]'
ask stats --json && expect '"name": "attn_calls_total"'
refused 1 model of-nobody --address="$address"
grep -q 'of-nobody' "$work/answer"
refused 1 sequences --model=of-nobody --address="$address"
kill "$load"
stop
refused 1 stats --address="$address"
grep -q 'no server answers' "$work/answer"

start --listen=127.0.0.1:0 --admin=off
ask info
ask health && expect '^SERVING$'
refused 1 stats --address="$address"
grep -q -- '--admin=on' "$work/answer"
stop
start --listen=0.0.0.0:0
address=127.0.0.1:${address##*:}
refused 1 sequences --address="$address"
grep -q -- '--admin=on' "$work/answer"
stop
start --listen="unix:$work/socket"
ask stats
stop
echo "attnctl_run: ok"
