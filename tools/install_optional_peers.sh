#!/usr/bin/env bash
# Installs what the server is tested together with where it is there: a test whose peer is missing
# skips and says so.
set -euo pipefail

packages=(
  python3-grpcio python3-protobuf  # python_interop, python_client
  python3-numpy                    # python_client
  shellcheck systemd               # shell_scripts, systemd_unit
  prometheus                       # prometheus_scrape (with systemd: starts as a service)
)
exec "$(dirname "$0")/install_dependencies.sh" "${packages[@]}"
