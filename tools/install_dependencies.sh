#!/usr/bin/env bash
# Installs the Debian packages that the build and the tests need and that are missing, or those
# named as arguments. Needs root, or sudo, only if something is missing.
set -euo pipefail

packages=(
  g++ cmake ninja-build git pkg-config
  libgrpc++-dev protobuf-compiler-grpc
  libprotobuf-dev protobuf-compiler
  libabsl-dev
  libhwy-dev
  libssl-dev libjemalloc-dev prometheus-cpp-dev
  libgtest-dev libgmock-dev
)
if [ "$#" -gt 0 ]; then packages=("$@"); fi

missing=()
for package in "${packages[@]}"; do
  if ! dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed; then
    missing+=("$package")
  fi
done
if [ "${#missing[@]}" -eq 0 ]; then
  echo "install: nothing is missing"
  exit 0
fi

echo "install: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install: run as root, or install sudo first" >&2
    exit 1
  fi
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
