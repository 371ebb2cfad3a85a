#!/usr/bin/env bash
# Installs what is missing, builds the fuzzers and runs all at once, each for SECONDS, from the
# kept corpora:
#   tests/fuzz/run_fuzzers.sh SECONDS
# Fails on a finding and prints it with the input that makes it. To keep new inputs:
#   build/fuzz/bin/NAME_fuzz -set_cover_merge=1 -use_counters=0 tests/fuzz/corpus/NAME build/fuzz/grown/NAME
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:?usage: tests/fuzz/run_fuzzers.sh SECONDS}

tools/install_dependencies.sh
tools/install_dependencies.sh clang libclang-rt-dev
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz

names=(codec kvcache plan)
declare -A started
for name in "${names[@]}"; do
  grown=build/fuzz/grown/$name
  found=build/fuzz/found/$name
  rm -rf "$found"
  mkdir -p "$grown" "$found"
  "build/fuzz/bin/${name}_fuzz" -max_total_time="$seconds" -max_len=1500 -len_control=20 \
    -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$found/" \
    "$grown" "tests/fuzz/corpus/$name" >"build/fuzz/$name.log" 2>&1 &
  started[$name]=$!
done

failed=0
for name in "${names[@]}"; do
  if wait "${started[$name]}"; then
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "build/fuzz/$name.log")
    echo "${name}_fuzz: $runs inputs, nothing found"
    continue
  fi
  failed=1
  echo "${name}_fuzz: FOUND"
  grep -vE '^#[0-9]+|^INFO' "build/fuzz/$name.log" | head -60
  for input in "build/fuzz/found/$name"/*; do
    [[ -f $input ]] || continue
    echo "base64 of $input, to be run with build/fuzz/bin/${name}_fuzz FILE:"
    base64 "$input"
  done
done
exit $failed
