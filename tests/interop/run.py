#!/usr/bin/env python3
"""Calls every RPC of the server from Python, through gRPC's own Python library and generated stubs.

  run.py --stubs=FOLDER --server=PROGRAM    starts and stops attn-server itself
  run.py --stubs=FOLDER --target=ADDRESS    calls one that runs

FOLDER was filled by generate_stubs.sh. Ends with 77 where Python has no gRPC: skipped."""

import argparse
import os
import pathlib
import sys
import unittest

SKIPPED = 77


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stubs", required=True)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--server")
    where.add_argument("--target")
    return parser.parse_args()


def run_tests(service, current):
    service.current = current
    here = str(pathlib.Path(__file__).parent)
    suite = unittest.TestLoader().discover(here, pattern="test_*.py", top_level_dir=here)
    assert suite.countTestCases() > 0, "no tests found in " + here
    return unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful()


def generated_modules(stubs):
    files = sorted(pathlib.Path(stubs).glob("*/**/*_pb2.py"))
    return [".".join(file.relative_to(stubs).with_suffix("").parts) for file in files]


def check_all_called(current):
    """Every method of every service in every generated file."""
    for method in current.uncalled():
        print("interop: no test calls %s" % method)
    called = len(current.methods & current.called)
    print("interop: %d of %d methods called" % (called, len(current.methods)))
    return not current.uncalled()


def check_stop(process):
    status, last_line = process.stop()
    print("interop: exit status %d: %s" % (status, last_line))
    said = set(last_line.split())
    return status == 0 and {"leaked_sequences=0", "leaked_pages=0", "accounts=exact"} <= said


def main():
    arguments = parse_arguments()
    try:
        import google.protobuf  # noqa: F401
        import grpc  # noqa: F401
    except ImportError as error:
        print("skipped: %s (see tools/install_optional_peers.sh)" % error)
        return SKIPPED
    sys.path.insert(0, arguments.stubs)
    import server_process
    import service

    print("interop: seed %d" % arguments.seed, flush=True)
    process = server_process.Process(arguments.server, "--threads=1", "--kv-bytes=256M",
                              "--linger-ms=0") if arguments.server else None
    try:
        address = process.address if process else arguments.target
        current = service.Service(address, arguments.seed, generated_modules(arguments.stubs))
        passed = run_tests(service, current)
        passed = check_all_called(current) and passed
        current.close()
        if process is not None:
            passed = check_stop(process) and passed
    finally:
        if process is not None:
            process.kill()
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
