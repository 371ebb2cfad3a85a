#!/bin/sh
# Packs what a host with a Hopper GPU needs to test and measure the device code and the server on
# it into one folder: run.sh, and an archive with the programs, the shared libraries they need
# beside the C library, the golden cases and the trace sample.
#
#   tools/gpu_bundle.sh <build folder> <folder to write>
set -eu
build=$1
bundle=$2
source=$(cd "$(dirname "$0")/.." && pwd)
content=$(mktemp -d)
trap 'rm -rf "$content"' EXIT

programs="append_gpu_test decode_gpu_test forward_gpu_test conformance_cuda_test
  invariance_cuda_test isolation_cuda_test ragged_mates_cuda_test golden_backend_cuda_test
  cuda_backend_gpu_test gpu_bench"
# Where the server was built too.
for program in attn-server attn-loadgen; do
  [ ! -x "$build/bin/$program" ] || programs="$programs $program"
done

mkdir "$content/lib"
for program in $programs; do
  cp "$build/bin/$program" "$content/"
  strip "$content/$program"
  ldd "$build/bin/$program" | awk '/=> \// {print $3}' |
    grep -vE '/(libc|libm|libpthread|libdl|librt|libresolv|ld-linux[^/]*)\.so' |
    xargs -r -I{} cp -L -n {} "$content/lib/"
done
strip --strip-unneeded "$content"/lib/*
cp -r "$source/tests/golden" "$content/golden"
cp "$source/tools/loadgen/traces/azure_conversation_sample.csv" "$content/trace.csv"
cp "$source/tools/bench/gpu/torch_rival.py" "$content/"
git -C "$source" describe --always --dirty --abbrev=12 > "$content/commit"
"$source/tools/gpu_stamp.sh" hash > "$content/sources"

rm -rf "$bundle"
mkdir -p "$bundle"
tar -C "$content" -cf - . | xz -T0 -6 > "$bundle/content.tar.xz"
cp "$source/tools/bench/gpu/run.sh" "$bundle/"
du -sh "$bundle"
