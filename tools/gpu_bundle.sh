#!/bin/sh
# Packs what a host with a Hopper GPU needs to test and measure the device code into one folder: the
# programs, the shared libraries they need beside the C library, and run.sh.
#
#   tools/gpu_bundle.sh <build folder> <folder to write>
set -eu
build=$1
bundle=$2
source=$(cd "$(dirname "$0")/.." && pwd)

rm -rf "$bundle"
mkdir -p "$bundle/lib"
for program in forward_gpu_test decode_gpu_test append_gpu_test gpu_bench; do
  cp "$build/bin/$program" "$bundle/"
  strip "$bundle/$program"
  ldd "$build/bin/$program" | awk '/=> \// {print $3}' |
    grep -E '/lib(absl|stdc\+\+|gcc_s|gtest|gmock)' | xargs -r -I{} cp -L -n {} "$bundle/lib/"
done
cp "$source/tools/bench/gpu/torch_rival.py" "$source/tools/bench/gpu/run.sh" "$bundle/"
git -C "$source" describe --always --dirty --abbrev=12 > "$bundle/commit"
"$source/tools/gpu_stamp.sh" hash > "$bundle/sources"
du -sh "$bundle"
