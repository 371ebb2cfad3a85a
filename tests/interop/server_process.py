"""A server of a test's own."""

import re
import signal
import subprocess
import sys

STOP_SECONDS = 60


class Process:
    """attn-server, on a free port unless `flags` say otherwise."""

    def __init__(self, program, *flags):
        self._process = subprocess.Popen(
            [program, "--listen=127.0.0.1:0", *flags], stdout=subprocess.PIPE, text=True
        )
        self.address = None
        for line in self._process.stdout:
            found = re.search(r"\blistening\b.*\baddress=(\S+)", line)
            if found:
                self.address = found.group(1)
                break
        if self.address is None:
            sys.exit("%s did not start, exit status %s" % (program, self._process.wait()))

    def stop(self):
        """Exit status and last line after SIGTERM."""
        self._process.send_signal(signal.SIGTERM)
        text, _ = self._process.communicate(timeout=STOP_SECONDS)
        lines = text.strip().splitlines()
        return self._process.returncode, lines[-1] if lines else ""

    def kill(self):
        """Without a word; again: does nothing."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
