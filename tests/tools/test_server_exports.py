# Exports and reports on their way to clients that read slowly, or not at all: they lie on the disk,
# a piece of each is in memory, and nothing of them stays when they have come or the client leaves.
import os
import random
import resource
import signal
import time

from served import ServerTest
from stasis_process import LLAMA, comma
from test_server_limits import Client

PIECE = 256 << 10  # bytes of one reply that are in memory
CLIENTS = 24
SENT = 128  # at a time, at most


class Exports(ServerTest):
    def setUp(self):
        super().setUp()
        tokens = random.Random(2).choices(range(5, 1000), k=3900)
        self.ok("run", LLAMA, "--tokens", comma(tokens), "-n", 0, "--save", self.path("long"))
        with open(self.path("long"), "rb") as file:
            self.file = file.read()
        self.assertGreater(len(self.file), 6 << 20)  # more than the system's buffers take
        (self.folder / "tmp").mkdir()
        os.environ["TMPDIR"] = str(self.folder / "tmp")
        self.addCleanup(os.environ.pop, "TMPDIR")

    def begin(self, **options):
        self.server = self.serve(LLAMA, **options)
        status, _ = self.server.ask("POST", "/v1/sessions", self.file)
        self.assertEqual(status, 200)
        self.session = self.json("inspect", self.path("long"))["digest"]

    def asking(self, kind):
        client = Client(self, self.server, receive_bytes=4096)
        client.send(f"GET /v1/sessions/{self.session}/{kind} HTTP/1.1\nHost: a\n\n")
        return client

    def spooled(self):
        """The files without a name that the server has open."""
        folder = f"/proc/{self.server.process.pid}/fd"
        found = []
        for name in os.listdir(folder):
            try:
                target = os.readlink(f"{folder}/{name}")
            except FileNotFoundError:  # closed meanwhile
                continue
            if "stasis-serve-" in target:
                found.append(target)
        return found

    def until(self, metric, value):
        limit = time.monotonic() + 60
        while (metrics := self.metrics(self.server))[metric] != value:
            self.assertLess(time.monotonic(), limit, metrics)
        return metrics

    def test_clients_that_read_nothing(self):
        self.begin()
        clients = [self.asking("export") for _ in range(CLIENTS)]
        self.assertEqual({client.status() for client in clients}, {200})
        metrics = self.until("stasis_sending", CLIENTS)  # none has come whole
        self.assertLessEqual(metrics["stasis_reply_waiting_bytes"], CLIENTS * (PIECE + 1000))
        self.assertEqual(len(self.spooled()), CLIENTS)
        self.assertEqual(os.listdir(self.folder / "tmp"), [])
        # Whoever reads has all of it, whatever the others do.
        self.assertEqual(self.json("inspect", self.exported())["digest"], self.session)
        path = f"/v1/sessions/{self.session}/verify"
        self.assertTrue(self.post(self.server, path, {})["verified"])
        for client in clients:
            client.close()
        self.until("stasis_sending", 0)
        self.assertEqual(self.spooled(), [])
        self.until("stasis_reply_waiting_bytes", 0)
        self.assertEqual(self.server.end(), 0)

    def test_no_more_are_made_than_are_sent(self):
        """Where all places are taken nothing is looked for, and nothing is written."""
        self.begin()
        clients = []
        for _ in range(SENT):
            clients.append(self.asking("export"))
            self.assertEqual(clients[-1].status(), 200)
        self.until("stasis_sending", SENT)
        path = f"/v1/sessions/{'0' * len(self.session)}/export"
        status, data = self.server.ask("GET", path)
        self.assertEqual(status, 429)
        self.assertIn(b"128 exports and reports are sent already", data)
        for client in clients:
            client.close()
        self.until("stasis_sending", 0)
        self.assertEqual(self.spooled(), [])
        self.assertEqual(self.server.ask("GET", path)[0], 404)

    def test_no_place_on_the_disk(self):
        """The client is told, before anything is sent."""
        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

        for before, folder in (small_files, "tmp"), (None, "missing"):
            os.environ["TMPDIR"] = str(self.folder / folder)
            self.begin(before=before)
            for kind in "export", "report":
                status, data = self.server.ask("GET", f"/v1/sessions/{self.session}/{kind}")
                self.assertEqual(status, 503)
                self.assertIn(b"no place for what is to be sent", data)
            self.assertEqual(self.spooled(), [])
            self.until("stasis_sending", 0)
            self.server.kill()

    def test_pages_are_sent_so_too(self):
        self.begin()
        client = self.asking("report")
        self.assertEqual(client.status(), 200)
        page = self.server.ask("GET", f"/v1/sessions/{self.session}/report")[1].decode()
        self.assertEqual(page, self.ok("report", self.exported()))
        client.close()
        self.until("stasis_sending", 0)
        self.assertEqual(self.spooled(), [])

    def exported(self):
        file = self.folder / f"{self.session}.stasis"
        file.write_bytes(self.server.ask("GET", f"/v1/sessions/{self.session}/export")[1])
        return file

    def test_a_server_that_ends_cuts_them(self):
        self.begin()
        self.server.kill()
        self.server = self.serve(LLAMA, "--shutdown-seconds", 0)
        self.assertEqual(self.server.ask("POST", "/v1/sessions", self.file)[0], 200)
        client = self.asking("export")
        self.assertEqual(client.status(), 200)
        self.until("stasis_sending", 1)
        self.assertEqual(self.server.end(), 0)
