#!/usr/bin/env python3
"""Runs the tests of the package against a server's program:

  run.py --server=PROGRAM

Ends with 77 where Python lacks what the package needs: skipped."""

import argparse
import os
import pathlib
import sys
import unittest


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    os.environ["ATTN_SERVER"] = parser.parse_args().server
    try:
        import google.protobuf  # noqa: F401
        import grpc  # noqa: F401
        import numpy  # noqa: F401
    except ImportError as error:
        print("skipped: %s (see tools/install_optional_peers.sh)" % error)
        return 77
    here = str(pathlib.Path(__file__).parent)
    suite = unittest.TestLoader().discover(here, pattern="test_*.py", top_level_dir=here)
    assert suite.countTestCases() > 0, "no tests found in " + here
    return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
