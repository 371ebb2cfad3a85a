#!/usr/bin/env bash
# Are the repository's shell scripts free of what bash and shellcheck can see?
#
#   shell_scripts.sh REPOSITORY    ends with 77, skipped, where there is no shellcheck or no git
set -euo pipefail
cd "$1"
for tool in git shellcheck; do
  if ! command -v "$tool" >/dev/null; then
    echo "skipped: no $tool (see tools/install_optional_peers.sh)"
    exit 77
  fi
done
mapfile -t scripts < <(git ls-files '*.sh' .ci/run)
if [ "${#scripts[@]}" -eq 0 ]; then
  echo "skipped: not a git checkout"
  exit 77
fi
for script in "${scripts[@]}"; do bash -n "$script"; done
shellcheck "${scripts[@]}"
echo "${#scripts[@]} scripts"
