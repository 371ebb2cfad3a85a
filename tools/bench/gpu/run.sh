#!/bin/sh
# Entry of the bundle that tools/gpu_bundle.sh packs.
#
#   run.sh test [<folder>]    device tests; what they say of these sources goes to gpu_stamp.txt
#   run.sh sanitize           a reduced suite under compute-sanitizer
#   run.sh bench <folder>     benchmarks, and cuDNN beside them where there is PyTorch: JSON lines
#                             in prefill.jsonl, decode.jsonl and others. More arguments go to
#                             gpu_bench.
#   run.sh serve <folder>     the server on the GPU under load: as much as it can take, three times
#                             as much, and with too little memory. serve.jsonl and the logs.
set -u
root=$(cd "$(dirname "$0")" && pwd)
here=$root/content
if [ ! -e "$here/commit" ]; then
  mkdir -p "$here" && tar -C "$here" -xJf "$root/content.tar.xz" || exit 1
fi
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export ATTN_GOLDEN="$here/golden"
commit=$(cat "$here/commit")

run_tests() {
  failed=0
  for test in append_gpu decode_gpu forward_gpu cuda_backend_gpu conformance_cuda invariance_cuda \
    isolation_cuda golden_backend_cuda ragged_mates_cuda; do
    timeout 200 "$here/${test}_test" --gtest_brief=1 || failed=1
  done
  [ $# -eq 0 ] || write_stamp "$1" $failed
  return $failed
}

write_stamp() {
  {
    echo "# Written by run.sh of the GPU bundle; checked by tools/gpu_stamp.sh."
    echo "sources: $(cat "$here/sources")"
    echo "commit: $commit"
    echo "device: $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader)"
    echo "date: $(date -u +%Y-%m-%d)"
    echo "result: $([ "$2" = 0 ] && echo passed || echo failed)"
  } > "$1/gpu_stamp.txt"
}

# Test and filter, one pair a line; each takes some hundred times as long as usual.
reduced_suite() {
  cat << 'END'
append_gpu *PageBytes*
decode_gpu *SlowTools*
forward_gpu *SlowTools*
conformance_cuda *Seed1001:*Seed1002:*Seed1004
cuda_backend_gpu *SlowTools*
END
}

sanitize() {
  failed=0
  for tool in memcheck racecheck; do
    while read -r test filter; do
      echo "$tool $test"
      timeout 150 compute-sanitizer --tool "$tool" --error-exitcode 9 "$here/${test}_test" \
        --gtest_brief=1 --gtest_filter="$filter" || failed=1
    done << END
$(reduced_suite)
END
  done
  return $failed
}

bench() {
  out=$1
  shift
  for what in mixed backend; do
    timeout 100 "$here/gpu_bench" $what --commit="$commit" "$@" > "$out/$what.jsonl"
  done
  for what in prefill decode; do
    timeout 250 "$here/gpu_bench" $what --commit="$commit" "$@" > "$out/$what.ours.jsonl"
    if python3 -c 'import torch' 2> "$out/torch.log"; then
      timeout 250 python3 "$here/torch_rival.py" "$out/$what.ours.jsonl" > "$out/$what.jsonl"
      rm "$out/$what.ours.jsonl"
    else
      mv "$out/$what.ours.jsonl" "$out/$what.jsonl"
    fi
  done
}

# Starts the server with the given flags; sets $server and $address.
start_server() {
  server_log=$1
  shift
  "$here/attn-server" --listen=127.0.0.1:0 "$@" > "$server_log" 2>&1 &
  server=$!
  address=
  tries=0
  while [ -z "$address" ] && [ $tries -lt 300 ]; do
    address=$(sed -n 's/^listening .*address=\([^ ]*\).*/\1/p' "$server_log")
    kill -0 "$server" 2> /dev/null || break
    tries=$((tries + 1))
    sleep 0.1
  done
  [ -n "$address" ] || { cat "$server_log" >&2; return 1; }
}

# SIGTERM; fails unless the server ends well and has not lost a page.
stop_server() {
  kill -TERM "$server"
  wait "$server" || return 1
  tail -n 1 "$server_log"
  grep -q 'leaked_sequences=0 leaked_pages=0 accounts=exact$' "$server_log"
}

# load <name> <flags>: one run of the load generator; its report becomes a line of serve.jsonl.
load() {
  name=$1
  shift
  rm -f "$out/report.json"
  timeout 120 "$here/attn-loadgen" --target="$address" --trace="$here/trace.csv" \
    --dtype=bfloat16 --head-dim=128 --q-heads=16 --kv-heads=4 --layers=4 --windowed-layers=2 \
    --window=256 --sinks=1 --clients=4 --max-active=400 --max-requests=0 \
    --allow-late --json="$out/report.json" "$@" \
    > "$out/load_$name.txt" 2>&1
  status=$?
  [ -e "$out/report.json" ] || return $status
  sed "s/^{/{\"run\": \"$name\", \"commit\": \"$commit\", /; s,$here/,,g" "$out/report.json" \
    >> "$out/serve.jsonl"
  grep -E '^(requests|tokens/s|goodput|verified|first token|per output|attn-loadgen)' \
    "$out/load_$name.txt"
  return $status
}

# Is a Python expression over the last report r true?
holds() {
  [ "$(python3 -c "
import json
r = json.load(open('$out/report.json'))
print($1)")" = True ] || { echo "not so: $1"; return 1; }
}

# For --time-scale: the trace's requests arrive this many times as fast as the last report's run
# was answered.
arrivals_at() {
  python3 -c "
import csv, datetime, json
rows = list(csv.DictReader(open('$here/trace.csv')))
first, last = [datetime.datetime.fromisoformat(rows[i]['TIMESTAMP'][:26]) for i in (0, -1)]
answered = json.load(open('$out/report.json'))['seconds']
print(answered / $1 / (last - first).total_seconds())"
}

serve() {
  out=$1
  failed=0
  rm -f "$out/serve.jsonl"
  start_server "$out/server.txt" --backend=cuda --kv-bytes=32G || return 1
  # All at once: the time that this takes is what the server needs for the trace.
  load capacity --time-scale=0 --verify=0.002 || failed=1
  once=$(arrivals_at 1)
  three=$(arrivals_at 3)
  load once --time-scale="$once" --verify=0.01 || failed=1
  load three_times --time-scale="$three" --verify=0.01 || failed=1
  load refused --head-dim=64 --max-requests=1
  grep -q 'layer_groups\[0\].head_dim_qk: got 64, the CUDA backend supports 128' \
    "$out/load_refused.txt" || { echo "no refusal by field"; failed=1; }
  stop_server || failed=1

  # Memory for some of the sequences only: the others' items are refused by name, and nothing else
  # goes wrong.
  start_server "$out/server_small.txt" --backend=auto --kv-bytes=512M || return 1
  load small_memory --time-scale="$three" --verify=0.01
  holds "r['requests_done'] > 0 and r['requests_done'] + r['requests_failed'] == 400" || failed=1
  holds "r['requests_failed'] > 0 and 'RESOURCE_EXHAUSTED: kv_new_lens[' in r['why']" || failed=1
  holds "r['verify']['rows'] > 0 and r['verify']['mismatches'] == 0" || failed=1
  holds "r['sequences_left'] == 0 and r['device'].startswith('cuda, ')" || failed=1
  stop_server || failed=1
  rm -f "$out/report.json"
  [ $failed = 0 ] && echo "serve: passed" || echo "serve: FAILED"
  return $failed
}

case "${1:-}" in
  test) shift; run_tests "$@" ;;
  sanitize) sanitize ;;
  bench) shift; bench "$@" ;;
  serve) shift; serve "$@" ;;
  *) echo "usage: run.sh test|sanitize|bench <folder>|serve <folder>" >&2; exit 2 ;;
esac
