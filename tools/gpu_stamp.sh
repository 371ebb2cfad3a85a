#!/usr/bin/env bash
# Says whether the device sources are those that last passed their tests on a GPU. CI has none, so
# tests/gpu_stamp.txt, written by run.sh of the GPU bundle, is what it can check.
#
#   tools/gpu_stamp.sh hash    of the device sources in the work tree
#   tools/gpu_stamp.sh check   prints one line; fails if the stamp is missing or tells of a failure
set -euo pipefail
cd "$(dirname "$0")/.."
stamp=tests/gpu_stamp.txt

sources_hash() {
  git ls-files attention/cuda attention/score | LC_ALL=C sort | xargs sha256sum | sha256sum |
    cut -c1-16
}

field() { sed -n "s/^$1: //p" "$stamp"; }

check() {
  if [[ ! -f $stamp ]]; then
    echo "gpu stamp: none, the device code was never tested on a GPU" >&2
    return 1
  fi
  if [[ $(field result) != passed ]]; then
    echo "gpu stamp: tests failed on $(field device) at $(field commit)" >&2
    return 1
  fi
  if [[ $(field sources) == "$(sources_hash)" ]]; then
    echo "gpu stamp: these sources passed on $(field device), $(field date)"
    return 0
  fi
  behind=$(git rev-list --count "$(field commit)..HEAD" -- attention/cuda attention/score \
           2>/dev/null || echo "an unknown number of")
  echo "gpu stamp: STALE, $behind commits to the device sources since $(field commit)"
}

case "${1:-}" in
  hash) sources_hash ;;
  check) check ;;
  *) echo "usage: $0 hash|check" >&2; exit 2 ;;
esac
