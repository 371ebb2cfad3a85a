#!/usr/bin/env python3
"""A real Prometheus scrapes a real server under a little load, and promtool lints the names.

Exits 77, which CTest counts as skipped, where prometheus or promtool is missing.
"""

import argparse
import json
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

PATIENCE = 15.0  # seconds, for everything that must happen
LOAD = ["--rate=50", "--context=64", "--generated=8", "--max-requests=20", "--clients=2",
        "--layers=2", "--q-heads=4", "--kv-heads=2", "--head-dim=64", "--allow-late"]


def fail(message):
    sys.exit(f"prometheus_scrape: {message}")


def wait_for(what, condition):
    """Polls until `condition` gives something true, and returns that."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(0.05)
    return fail(f"{what} did not happen within {PATIENCE} s")


def get(url):
    """The body of an answer with status 200, None without one."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.read()
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Process:
    """A child that is ended, and waited for, when the block ends."""

    def __init__(self, command, log_file):
        self._log_file = log_file
        with open(log_file, "wb") as log:
            self._child = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()

    def log(self):
        if self._child.poll() not in (None, 0):
            fail(f"{self._child.args[0]} ended:\n{self._log_file.read_text()}")
        return self._log_file.read_text()

    def stop(self):
        """Asks it to end; it must do so cleanly."""
        self._child.send_signal(signal.SIGTERM)
        status = self._child.wait(timeout=PATIENCE)
        if status != 0:
            fail(f"{self._child.args[0]} ended with {status}:\n{self._log_file.read_text()}")


def address_in(server, kind):
    found = re.search(rf"^{kind} address=(\S+)", server.log(), re.MULTILINE)
    return found and found.group(1)


def check_names(text):
    """promtool finds nothing to say about the scrape."""
    lint = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True,
                          timeout=PATIENCE, check=False)
    said = (lint.stdout + lint.stderr).decode()
    if lint.returncode != 0 or said.strip():
        fail(f"promtool ended with {lint.returncode} and says:\n{said}")
    # Were it deaf, a wrong name would pass as well.
    wrong = b"# HELP attn_wrong x\n# TYPE attn_wrong counter\nattn_wrong 1\n"
    if subprocess.run(["promtool", "check", "metrics"], input=wrong, capture_output=True,
                      timeout=PATIENCE, check=False).returncode == 0:
        fail("promtool accepts a counter without _total")


def value_in(text, name):
    found = re.search(rf"^{re.escape(name)} (\S+)$", text.decode(), re.MULTILINE)
    if found is None:
        fail(f"the scrape has no {name}")
    return float(found.group(1))


def query(prometheus, expression):
    """The value of the one series that the expression gives, None if there is none."""
    body = get(f"{prometheus}/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
    result = json.loads(body)["data"]["result"] if body else []
    return float(result[0]["value"][1]) if len(result) == 1 else None


def run_prometheus(directory, target, expected):
    """Prometheus sees the server, and its counters as the server gave them."""
    config = directory / "prometheus.yml"
    config.write_text("global: {scrape_interval: 200ms, scrape_timeout: 200ms}\n"
                      "scrape_configs:\n- job_name: attn\n  static_configs:\n"
                      f"  - targets: ['{target}']\n")
    port = free_port()
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={directory}/data",
               f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
    with Process(command, directory / "prometheus.log") as prometheus:
        url = f"http://127.0.0.1:{port}"
        wait_for("a start of Prometheus", lambda: prometheus.log() is not None and
                 get(f"{url}/-/ready"))
        wait_for("up == 1", lambda: query(url, 'up{job="attn"}') == 1)
        for name, value in expected.items():
            wait_for(f"{name} == {value}", lambda n=name, v=value: query(url, n) == v)
        prometheus.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--load", required=True)
    arguments = parser.parse_args()
    for peer in ("prometheus", "promtool"):
        if shutil.which(peer) is None:
            print(f"SKIP: {peer} is not installed (Debian package prometheus)")
            return 77

    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        command = [arguments.server, "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0",
                   "--kv-bytes=256M", "--threads=1", "--linger-ms=0"]
        with Process(command, directory / "server.log") as server:
            metrics = wait_for("a start of the server", lambda: address_in(server, "metrics"))
            target = address_in(server, "listening")
            subprocess.run([arguments.load, f"--target={target}", *LOAD], check=True,
                           stdout=subprocess.DEVNULL, timeout=PATIENCE)
            text = get(f"http://{metrics}/metrics")
            check_names(text)
            counters = ["attn_items_total", "attn_appended_tokens_total",
                        "attn_launch_items_count", 'attn_calls_total{kind="attend"}']
            expected = {counter: value_in(text, counter) for counter in counters}
            if min(expected.values()) < 1:
                fail(f"the load left no trace: {expected}")
            run_prometheus(directory, metrics, expected)
            server.stop()
    print(f"prometheus_scrape: promtool is content, and Prometheus has {expected}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
