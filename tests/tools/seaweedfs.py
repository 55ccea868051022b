# SeaweedFS as a service for one test class: fetched by tools/get_seaweedfs, started on ports of its
# own, stopped at the end. Knows S3 as far as making a bucket takes.
import ctypes
import functools
import hashlib
import hmac
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from stasis_process import ROOT

ACCESS, SECRET, BUCKET = "AKIATESTS", "secret/of+tests", "sessions"
UNREACHABLE = 3
# What listens, with a port for each; 0: not at all.
PORTS = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port",
         "filer.port.grpc", "s3.port", "s3.port.grpc")


def give_keys(add_cleanup):
    """Puts the service's keys into the environment until the cleanup."""
    keys = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}
    os.environ.update(keys)
    add_cleanup(lambda: [os.environ.pop(name) for name in keys])


@functools.cache
def fetch():
    return subprocess.run([ROOT / "tools/get_seaweedfs"], capture_output=True, text=True,
                          check=False)


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def signed(port, method, path):
    """The status of a signed request without a body."""
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    digest, scope = hashlib.sha256(b"").hexdigest(), f"{moment[:8]}/us-east-1/s3/aws4_request"
    headers = {"host": f"127.0.0.1:{port}", "x-amz-content-sha256": digest, "x-amz-date": moment}
    text = "\n".join([method, path, "", *(f"{name}:{value}" for name, value in headers.items()), "",
                      ";".join(headers), digest])
    text = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(text.encode()).hexdigest()])
    key = ("AWS4" + SECRET).encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    headers["authorization"] = (f"AWS4-HMAC-SHA256 Credential={ACCESS}/{scope}, SignedHeaders="
                                f"{';'.join(list(headers)[:3])}, Signature={signature}")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, headers=headers)
    return connection.getresponse().status


class Service:
    def __init__(self, program):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="stasis-seaweedfs-"))
        self.process = None
        identity = {"name": "tests", "credentials": [{"accessKey": ACCESS, "secretKey": SECRET}],
                    "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
        (self.folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        (self.folder / "data").mkdir()
        for _ in range(3):  # another program may take a port that was free
            if self.start(program):
                return
        log = (self.folder / "log").read_text(errors="replace")[-2000:]
        self.stop()
        raise RuntimeError(f"SeaweedFS did not start: {log}")

    def start(self, program):
        ports = dict(zip(PORTS, free_ports(len(PORTS))))
        self.port = ports["s3.port"]
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                [program, "server", f"-dir={self.folder}/data", "-s3",
                 f"-s3.config={self.folder}/s3.json", "-master.telemetry=false", "-ip=127.0.0.1",
                 "-ip.bind=127.0.0.1", "-master.electionTimeout=1s", "-s3.port.iceberg=0",
                 "-s3.port.lance=0", "-volume.max=20", "-master.volumeSizeLimitMB=256",
                 f"-filer.localSocket={self.folder}/filer", f"-s3.localSocket={self.folder}/s3",
                 *(f"-{name}={port}" for name, port in ports.items())],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                # It ends with this process, however this ends.
                preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL))
        limit = time.monotonic() + 60
        while time.monotonic() < limit and self.process.poll() is None:
            try:
                if signed(self.port, "PUT", f"/{BUCKET}") in (200, 409):
                    return True
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.05)
        self.kill()
        return False

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def uri(self, prefix):
        return f"s3://{BUCKET}/{prefix}?endpoint=http://127.0.0.1:{self.port}"


def start(test_class):
    """The service, until the class's tests have ended; they skip where it cannot be fetched."""
    done = fetch()
    if done.returncode == UNREACHABLE:
        raise unittest.SkipTest("the package index cannot be reached, so there is no SeaweedFS")
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    service = Service(done.stdout.strip())
    test_class.addClassCleanup(service.stop)
    return service


def environment():
    return {**os.environ, "AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}
