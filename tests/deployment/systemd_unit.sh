#!/usr/bin/env bash
# Is the unit one that systemd understands whole, and does it confine the server?
#
#   systemd_unit.sh FILE    ends with 77, skipped, where there is no systemd-analyze
set -euo pipefail
unit=$1
# Of 100. What is left is the network, and the devices of a GPU.
max_exposure=25

if ! command -v systemd-analyze >/dev/null; then
  echo "skipped: no systemd-analyze (see tools/install_optional_peers.sh)"
  exit 77
fi

# Unknown keys are warnings with exit status 0; lines about other units are not ours.
said=$(systemd-analyze verify "$unit" 2>&1) || { echo "$said"; exit 1; }
if grep -F "$(basename "$unit")" <<<"$said"; then exit 1; fi

systemd-analyze security --offline=yes --no-pager --threshold="$max_exposure" "$unit" | tail -n 1

# The unit must not kill a drain that the server's own default allows.
server=$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$unit")
stop_seconds=$(sed -n 's/^TimeoutStopSec=//p' "$unit")
grace_ms=$("$server" --help | sed -n 's/.*--grace-ms.*(default \([0-9]*\)).*/\1/p')
echo "TimeoutStopSec=$stop_seconds s, --grace-ms=$grace_ms"
[ $((stop_seconds * 1000)) -gt "$grace_ms" ]
