#!/usr/bin/env bash
# Writes the messages of attn.v1 into src/attnserve/_descriptors.py, or into the file given:
#
#   client/python/generate_descriptors.sh [FILE]
#
# Needs protoc. A test compares the result with what is committed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/src/attnserve/_descriptors.py}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cd "$here/../../proto"
protoc -I . --include_imports --descriptor_set_out="$work/set" \
  attn/v1/attention.proto attn/v1/admin.proto attn/v1/rpc_status.proto
{
  cat <<'PYTHON'
"""Written by generate_descriptors.sh from proto/attn/v1. Do not edit."""

# A google.protobuf.FileDescriptorSet, base64.
DESCRIPTORS = """\
PYTHON
  base64 -w 96 "$work/set"
  echo '"""'
} >"$out"
