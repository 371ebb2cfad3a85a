#!/usr/bin/env bash
# Does the probe of the health checks, `attnctl health`, tell a serving server from all else?
#
#   health_probe.sh SERVER ATTNCTL
set -euo pipefail
server=$1 attnctl=$2
work=$(mktemp -d) pid=''
trap 'kill "$pid" 2>/dev/null || true; rm -rf "$work"' EXIT
address=unix:$work/socket

expect() {
  local want=$1 status=0
  shift
  "$attnctl" health "$@" || status=$?
  if [ "$status" -ne "$want" ]; then
    echo "health_probe: $* ended with $status, want $want" >&2
    exit 1
  fi
}

mkfifo "$work/out"
"$server" --listen="$address" --kv-bytes=1M --linger-ms=0 >"$work/out" &
pid=$!
exec 3<"$work/out"
while read -r line <&3; do
  case $line in listening*) break ;; esac
done

expect 0 --address="$address"
expect 0 --address="$address" ""
expect 1 --address="$address" attn.model.of-nobody
expect 1 --address="unix:$work/nobody"
expect 2 --address="$address" attn.v1.Attention surplus
expect 2 "$address" --adress="$address"

kill -TERM "$pid"
wait "$pid"
expect 1 --address="$address"
