# A service that answers as S3 does and makes trouble as it is told (tests/modules/fake_s3.py), for
# one test.
import json
import subprocess
import sys
import urllib.request

import seaweedfs
from stasis_process import ROOT


class TroubledService:
    def __init__(self, test, certificate=None):
        process = subprocess.Popen(
            [sys.executable, ROOT / "tests/modules/fake_s3.py", seaweedfs.ACCESS, seaweedfs.SECRET,
             *["", certificate] * (certificate is not None)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        test.addCleanup(process.wait)
        test.addCleanup(process.stdout.close)
        test.addCleanup(process.stdin.close)  # with which it ends
        scheme = "http" if certificate is None else "https"
        self.origin = f"{scheme}://127.0.0.1:{int(process.stdout.readline())}"
        self.uri = f"s3://test/p?endpoint={self.origin}"

    def ask(self, path, trouble=None):
        request = urllib.request.Request(self.origin + path, json.dumps(trouble).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def trouble(self, **trouble):
        """From now on this is wrong, and nothing else."""
        self.ask("/_trouble", trouble)

    def calls(self):
        return self.ask("/_counts")["calls"]
