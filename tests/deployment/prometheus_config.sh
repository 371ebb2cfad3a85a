#!/usr/bin/env bash
# Is the configuration of the image's Prometheus one that Prometheus takes?
#
#   prometheus_config.sh FILE    ends with 77, skipped, where there is no promtool
set -euo pipefail
if ! command -v promtool >/dev/null; then
  echo "skipped: no promtool (see tools/install_optional_peers.sh)"
  exit 77
fi
promtool check config "$1"
