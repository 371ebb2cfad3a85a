#!/usr/bin/env bash
# Generates the Python messages and stubs of the interop test into a folder:
#
#   tests/interop/generate_stubs.sh FOLDER
#
# Needs protoc and the grpc_python_plugin of Debian's protobuf-compiler-grpc.
set -euo pipefail
out=$(mkdir -p "$1" && cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
plugin=$(command -v grpc_python_plugin)

cd "$here/../../proto"
protoc -I . -I "$here" --python_out="$out" --grpc_python_out="$out" \
  --plugin=protoc-gen-grpc_python="$plugin" \
  attn/v1/*.proto "$here"/standard/*.proto
