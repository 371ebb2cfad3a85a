#!/usr/bin/env bash
# Configures and builds one preset: tools/build.sh [release|dev|asan|tsan] [cmake --build arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
shift || true
cmake --preset "$preset" >"/tmp/attnserve-configure-$$.log" 2>&1 || {
  cat "/tmp/attnserve-configure-$$.log" >&2
  rm -f "/tmp/attnserve-configure-$$.log"
  exit 1
}
rm -f "/tmp/attnserve-configure-$$.log"
cmake --build --preset "$preset" "$@"
