#!/usr/bin/env bash
# clang-tidy, with the checks of .clang-tidy:
#
#   tools/tidy.sh             sources that differ from the branch main, or from the last commit on it
#   tools/tidy.sh FILE...     these
#   tools/tidy.sh --all       all, which takes a while
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v clang-tidy >/dev/null; then
  echo "tidy: install clang-tidy first" >&2
  exit 1
fi

if [ "${1:-}" = --all ]; then
  mapfile -t files < <(git ls-files '*.cc')
elif [ "$#" -gt 0 ]; then
  files=("$@")
else
  base=main
  if [ "$(git rev-parse HEAD)" = "$(git rev-parse main)" ]; then base=HEAD~1; fi
  mapfile -t files < <(git diff --name-only --diff-filter=d "$base" -- '*.cc')
fi
if [ "${#files[@]}" -eq 0 ]; then
  echo "tidy: nothing differs"
  exit 0
fi

# Headers that are generated must be there, and no precompiled header that clang cannot read.
cmake --preset dev >/dev/null
cmake --build --preset dev --target attn_proto >/dev/null
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy -p build/dev --quiet \
  --extra-arg=-Wno-unknown-warning-option
