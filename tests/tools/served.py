# `stasis serve` as a client meets it: a process, and requests over its socket. Must not know what
# replies say.
import contextlib
import http.client
import json
import signal
import subprocess
import urllib.parse

from stasis_process import CommandTest, command


class Served:
    """A server of models, on a port of its own."""

    def __init__(self, test, *arguments, before=None):
        """`before` runs in the new process first."""
        with open(test.path("server.log"), "ab") as log:
            self.process = subprocess.Popen(
                [str(command()), "serve", *map(str, arguments), "--listen", "127.0.0.1:0"],
                stdout=subprocess.PIPE, stderr=log, text=True, preexec_fn=before)
        test.addCleanup(self.kill)
        line = self.process.stdout.readline()
        if not line.startswith("listening on http://"):
            self.process.wait()
            raise AssertionError(f"the server did not begin: {line!r} {test.said()}")
        self.address = urllib.parse.urlsplit(line.split()[-1]).netloc

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def end(self):
        """Ends it in order; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=120)

    def open(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection(self.address, timeout=120)
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        connection.request(method, path, body, headers or {})
        return connection, connection.getresponse()

    def ask(self, method, path, body=None, headers=None):
        """The status and the bytes of a reply."""
        connection, reply = self.open(method, path, body, headers)
        with contextlib.closing(connection):
            return reply.status, reply.read()

    def events(self, path, body):
        """The data of a stream's events, as they come."""
        connection, reply = self.open("POST", path, dict(body, stream=True))
        with contextlib.closing(connection):
            if reply.status != 200:
                raise AssertionError(f"{reply.status}: {reply.read()!r}")
            for line in reply:
                if line.startswith(b"data: ") and line != b"data: [DONE]\n":
                    yield json.loads(line[6:])


class ServerTest(CommandTest):
    def serve(self, *arguments, before=None):
        return Served(self, *arguments, before=before)

    def said(self):
        """What the servers of this test have said on stderr, but for requests."""
        with open(self.path("server.log"), encoding="utf-8") as log:
            return "".join(line for line in log if not line.startswith("{"))

    def metrics(self, server):
        """The values of the metrics that have no labels, or those of the first model."""
        values = {}
        for line in server.ask("GET", "/metrics")[1].decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values.setdefault(name.split("{")[0], float(value))
        return values

    def post(self, server, path, body, status=200, headers=None):
        got, data = server.ask("POST", path, body, headers)
        self.assertEqual(got, status, data)
        return json.loads(data)

    def get(self, server, path, status=200, headers=None):
        got, data = server.ask("GET", path, None, headers)
        self.assertEqual(got, status, data)
        return json.loads(data)
