#!/bin/sh
# Entry of the bundle that tools/gpu_bundle.sh packs.
#
#   run.sh test [<folder>]    device tests; what they say of these sources goes to gpu_stamp.txt
#   run.sh sanitize           a reduced suite under compute-sanitizer
#   run.sh bench <folder>     benchmarks, and cuDNN beside them where there is PyTorch: JSON lines
#                             in prefill.jsonl and decode.jsonl. More arguments go to gpu_bench.
set -u
here=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
commit=$(cat "$here/commit")

run_tests() {
  failed=0
  for test in append decode forward; do
    timeout 200 "$here/${test}_gpu_test" --gtest_brief=1 || failed=1
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

sanitize() {
  for tool in memcheck racecheck; do
    for test in append decode forward; do
      timeout 100 compute-sanitizer --tool "$tool" --error-exitcode 9 "$here/${test}_gpu_test" \
        --gtest_brief=1 --gtest_filter='*SlowTools*:*PageBytes*' || return 1
    done
  done
}

bench() {
  out=$1
  shift
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

case "$1" in
  test) shift; run_tests "$@" ;;
  sanitize) sanitize ;;
  bench) shift; bench "$@" ;;
  *) echo "usage: run.sh test|sanitize|bench <folder>" >&2; exit 2 ;;
esac
