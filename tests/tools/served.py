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

    def __init__(self, test, *arguments):
        with open(test.path("server.log"), "ab") as log:
            self.process = subprocess.Popen(
                [str(command()), "serve", *map(str, arguments), "--listen", "127.0.0.1:0"],
                stdout=subprocess.PIPE, stderr=log, text=True)
        test.addCleanup(self.kill)
        line = self.process.stdout.readline()
        if not line.startswith("listening on http://"):
            self.process.wait()
            with open(test.path("server.log"), encoding="utf-8") as log:
                raise AssertionError(f"the server did not begin: {line!r} {log.read()}")
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
    def serve(self, *arguments):
        return Served(self, *arguments)

    def post(self, server, path, body, status=200, headers=None):
        got, data = server.ask("POST", path, body, headers)
        self.assertEqual(got, status, data)
        return json.loads(data)

    def get(self, server, path, status=200, headers=None):
        got, data = server.ask("GET", path, None, headers)
        self.assertEqual(got, status, data)
        return json.loads(data)
