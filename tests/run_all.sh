#!/usr/bin/env bash
# Installs what is missing, builds in release mode and runs all tests.
#
#   tests/run_all.sh [ctest arguments, for example -R kv_cache]
set -euo pipefail
cd "$(dirname "$0")/.."
tools/install_dependencies.sh
tools/build.sh release
ctest --test-dir build/release --output-on-failure -j "$(nproc)" "$@"
