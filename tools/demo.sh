#!/usr/bin/env bash
# Installs what is missing, builds in release mode, starts the server on the CPU backend, replays
# real requests against it with verification on, prints the table, and stops the server cleanly.
#
#   tools/demo.sh                          # the sample trace that ships: 240 requests
#   tools/demo.sh path/to/azure_trace.csv  # any trace the load generator reads
set -euo pipefail
cd "$(dirname "$0")/.."
trace=${1:-tools/loadgen/traces/azure_conversation_sample.csv}

tools/install_dependencies.sh
tools/build.sh release --target attn-server attn-loadgen

log=$(mktemp)
build/release/bin/attn-server --listen=127.0.0.1:0 --kv-bytes=4G >"$log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true; rm -f "$log"' EXIT
for _ in $(seq 100); do
  address=$(sed -n 's/^listening .*address=\([^ ]*\).*/\1/p' "$log")
  [ -n "$address" ] && break
  kill -0 "$server" 2>/dev/null || { cat "$log" >&2; exit 1; }
  sleep 0.1
done
[ -n "$address" ] || { cat "$log" >&2; exit 1; }
echo "server: $(grep -m 1 '^options' "$log")"

status=0
# Arrivals 2.5 times as dense as in the trace, lengths as they are: keeps two cores busy with dozens
# of sequences at once.
build/release/bin/attn-loadgen --target="$address" --trace="$trace" --max-requests=240 \
  --time-scale=0.4 \
  --layers=4 --q-heads=8 --kv-heads=2 --head-dim=64 --dtype=bfloat16 \
  --windowed-layers=2 --window=1024 --sinks=1 --verify=0.02 || status=$?

kill -TERM "$server"
wait "$server" || status=$?
trap 'rm -f "$log"' EXIT
echo "server: $(tail -n 1 "$log")"
exit "$status"
