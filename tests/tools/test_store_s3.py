# Stores in object storage (libstasis_s3), in a real service: SeaweedFS, as tools/get_seaweedfs
# fetches it; and in a service that makes trouble (tests/modules/fake_s3.py).
import contextlib
import http.client
import http.server
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import seaweedfs
from stasis_process import CommandTest, GEMMA, LLAMA, comma, command
from troubled_s3 import TroubledService


class Refused(CommandTest):
    def test_without_credentials(self):
        self.refused("store", "s3://bucket/p", "list", names=["AWS_ACCESS_KEY_ID"],
                     before=lambda: os.environ.pop("AWS_ACCESS_KEY_ID", None))
        self.refused("store", "s3://b", "list", names=["no bucket's name"])

    def test_where_the_module_is_not_installed(self):
        library = command().parent / "abi/libstasis.so.0"
        (self.folder / "bin").mkdir()
        shutil.copy(library, self.folder / "bin/libstasis.so.0")
        done = subprocess.run([command(), "store", "s3://bucket/p", "list"], capture_output=True,
                              text=True, check=False,
                              env={**os.environ, "LD_LIBRARY_PATH": self.path("bin")})
        if "AWS_ACCESS_KEY_ID" in done.stderr:
            self.skipTest("this command finds its own library before LD_LIBRARY_PATH's")
        self.assertEqual(done.returncode, 2)
        self.assertIn("the module libstasis_s3.so.0 is not installed", done.stderr)
        self.assertIn("UNSUPPORTED", done.stderr)


class Stores(CommandTest):
    """Sessions in the store `self.uri`."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        seaweedfs.give_keys(cls.addClassCleanup)

    def save(self, name, model, tokens):
        return self.json("run", model, "--tokens", comma(tokens), "-n", 0, "--save",
                         self.path(name))["digest"]

    def names(self):
        return {session["name"]: session["position"]
                for session in self.json("store", self.uri, "list")["sessions"]}

    def put_in_place(self, path, name):
        """The service may still be at the last request of a process that was killed: a CONFLICT
        then, as with any other writer."""
        for _ in range(20):
            done = self.run_command("store", self.uri, "import", self.path(path), name,
                                    "--overwrite")
            if done.returncode == 0:
                return
            self.assertIn(b"CONFLICT", done.stderr)
        self.fail(done.stderr)

    def same(self, name, path):
        self.ok("store", self.uri, "export", name, self.path("out"), "--overwrite")
        self.assertEqual(pathlib.Path(self.path("out")).read_bytes(),
                         pathlib.Path(self.path(path)).read_bytes())


class Cutting(http.server.BaseHTTPRequestHandler):
    """Passes requests on to the service, but of the first PUT of each path its headers alone."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def pass_on(self):
        size = int(self.headers.get("Content-Length", 0))
        with contextlib.closing(http.client.HTTPConnection(
                "127.0.0.1", self.server.service.port, timeout=60)) as there:
            there.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                there.putheader(name, value)
            there.endheaders()
            if self.command == "PUT" and size > 0 and self.path not in self.server.cut:
                self.server.cut.add(self.path)
                there.sock.shutdown(socket.SHUT_WR)
                there.sock.recv(65536)  # the service has seen it
                self.close_connection = True
                return
            there.send(self.rfile.read(size))
            reply = there.getresponse()
            body = reply.read()
        self.send_response_only(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in ("connection", "content-length", "transfer-encoding"):
                self.send_header(name, value)
        length = reply.getheader("Content-Length") if self.command == "HEAD" else len(body)
        self.send_header("Content-Length", length or 0)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = pass_on


class S3(Stores):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.service = seaweedfs.start(cls)

    def setUp(self):
        super().setUp()
        self.uri = self.service.uri(self.id().rsplit(".", 1)[1])

    def test_there_and_back(self):
        digest = self.save("a", GEMMA, range(3, 200))
        self.refused("store", self.uri, "list", names=["there is no store"])
        imported = self.json("store", self.uri, "import", self.path("a"), "my talk")
        self.assertEqual((imported["digest"], imported["shared_bytes"]), (digest, 0))
        again = self.json("store", self.uri, "import", self.path("a"), "again")
        self.assertGreater(again["shared_bytes"], 10 * again["written_bytes"])
        self.ok("store", self.uri, "fork", "my talk", "fork")
        self.assertEqual(self.names(), {"my talk": 197, "again": 197, "fork": 197})
        self.assertIn(f"my talk: 197 tokens, digest {digest}\n", self.ok("store", self.uri, "list"))
        self.same("fork", "a")
        self.ok("verify", self.path("out"), GEMMA)
        self.refused("store", self.uri, "remove", "none", names=["no session 'none'"])
        for name in "my talk", "again", "fork":
            self.ok("store", self.uri, "remove", name)
        # Without locks the age decides, and these are young.
        collected = self.json("store", self.uri, "collect")
        self.assertEqual((collected["sessions"], collected["removed_objects"]), (0, 0))
        self.assertGreater(collected["objects"], 2)
        self.assertEqual(self.names(), {})

    def test_a_put_that_is_cut_off_before_its_first_byte_puts_nothing(self):
        """A writer that is killed then ends its connection so."""
        proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Cutting)
        proxy.service, proxy.cut = self.service, set()
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        self.addCleanup(proxy.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(proxy.shutdown)
        self.save("a", GEMMA, range(3, 200))
        direct = self.uri
        self.uri = direct.replace(f":{self.service.port}", f":{proxy.server_address[1]}")
        self.ok("store", self.uri, "import", self.path("a"), "s")
        self.assertGreater(len(proxy.cut), 5)
        self.uri = direct
        self.assertEqual(self.names(), {"s": 197})
        self.same("s", "a")

    def test_refusals(self):
        self.save("a", GEMMA, range(3, 50))
        self.save("b", LLAMA, range(3, 60))
        self.ok("store", self.uri, "import", self.path("a"), "s")
        self.refused("store", self.uri, "import", self.path("b"), "s", names=["CONFLICT"])
        self.same("s", "a")
        self.ok("store", self.uri, "import", self.path("b"), "s", "--overwrite")
        self.same("s", "b")
        message = self.refused("store", self.uri, "list", before=lambda: os.environ.update(
            AWS_SECRET_ACCESS_KEY="a wrong one"), names=["403", "SignatureDoesNotMatch"])
        self.assertNotIn("a wrong one", message)
        self.refused("store", self.uri.replace("sessions", "others"), "list",
                     names=["404", "NoSuchBucket"])
        self.refused("store", self.service.uri(""), "import", self.path("a"), "s",
                     names=["not empty"])

    def test_of_processes_that_race_for_a_name_one_wins(self):
        digests = [self.save(str(i), GEMMA, range(3 + i, 20 + i)) for i in range(4)]
        self.ok("store", self.uri, "import", self.path("0"), "first")  # makes the store
        for round_ in range(5):
            with ThreadPoolExecutor(4) as pool:
                done = list(pool.map(lambda i, name=f"r{round_}": self.run_command(
                    "store", self.uri, "import", self.path(str(i)), name), range(4)))
            winners = [i for i, each in enumerate(done) if each.returncode == 0]
            self.assertEqual(len(winners), 1, [each.stderr for each in done])
            for i, each in enumerate(done):
                self.assertIn(b"CONFLICT" if i != winners[0] else b"", each.stderr)
            stored = {session["name"]: session["digest"]
                      for session in self.json("store", self.uri, "list")["sessions"]}
            self.assertEqual(stored[f"r{round_}"], digests[winners[0]])

    def test_of_processes_that_make_a_store_all_succeed(self):
        self.save("a", GEMMA, range(3, 20))
        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(lambda i: self.run_command(
                "store", self.uri, "import", self.path("a"), f"n{i}"), range(4)))
        self.assertEqual([each.returncode for each in done], [0] * 4, done)
        self.assertEqual(sorted(self.names()), ["n0", "n1", "n2", "n3"])

    def test_a_writer_that_is_killed_leaves_all_or_nothing(self):
        self.save("a", GEMMA, range(3, 400))
        self.save("b", GEMMA, range(4, 400))
        self.ok("store", self.uri, "import", self.path("a"), "kept")
        seconds = random.Random(int(os.environ.get("STASIS_TEST_SEED", 0)))
        for round_ in range(10):  # at any moment: each is as good as the others
            process = subprocess.Popen([command(), "store", self.uri, "import", self.path("b"),
                                        f"k{round_}"], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            try:
                time.sleep(seconds.uniform(0, 0.05))
            finally:
                process.kill()
                process.wait()
            for name, position in self.names().items():
                self.assertEqual(position, 397 if name == "kept" else 396)
            self.put_in_place("b", f"k{round_}")
            self.same(f"k{round_}", "b")
        self.same("kept", "a")

    def test_a_cache_that_is_damaged_is_only_slower(self):
        self.save("a", GEMMA, range(3, 200))
        self.uri += f"&cache={self.path('cache')}&cache_bytes=100000000"
        self.ok("store", self.uri, "import", self.path("a"), "s")
        self.same("s", "a")
        kept = [path for path in pathlib.Path(self.path("cache")).rglob("*") if path.is_file()]
        self.assertGreater(len(kept), 3)
        for number, path in enumerate(kept):
            whole = path.read_bytes()
            path.write_bytes([b"", whole[:-1], b"x" + whole[1:]][number % 3])
        self.same("s", "a")
        self.assertEqual([path for path in kept if path.read_bytes()[:1] in (b"", b"x")], [])
        shutil.rmtree(self.path("cache"))
        self.same("s", "a")


class Trouble(Stores):
    def setUp(self):
        super().setUp()
        self.service = TroubledService(self)
        self.origin, self.uri = self.service.origin, self.service.uri

    def ask(self, path, trouble=None):
        return self.service.ask(path, trouble)

    def counted(self, *arguments):
        """Requests by their methods, but for the one that opens the store."""
        self.ask("/_trouble", {})
        self.ok("store", self.uri, *arguments)
        counts = self.ask("/_counts")
        counts["GET"] -= 1
        return {method: count for method, count in counts.items() if method != "calls" and count}

    def test_how_many_requests_a_session_takes(self):
        self.save("a", GEMMA, range(3, 200))
        self.ok("store", self.uri, "import", self.path("a"), "other")  # makes the store
        self.ok("store", self.uri, "remove", "other")
        # A root is read and put; each payload is looked for and put, or touched; a segment is read,
        # for it may be damaged, and touched.
        again = self.counted("import", self.path("a"), "s")
        payloads = again["HEAD"]
        self.assertGreater(payloads, 3)
        self.assertEqual(again, {"GET": 2, "HEAD": payloads, "PUT": payloads + 3})
        self.assertEqual(self.counted("export", "s", self.path("out")), {"GET": payloads + 2})
        self.assertEqual(self.counted("fork", "s", "t"), {"GET": 2, "PUT": 1})
        self.assertEqual(self.counted("remove", "t"), {"GET": 1, "DELETE": 1})
        self.assertEqual(self.counted("list"), {"GET": 2})

    def test_passing_trouble_is_not_noticed(self):
        self.save("a", GEMMA, range(3, 200))
        for number, trouble in enumerate(({"lose_every": 5}, {"cut_every": 4}, {
                "refuse_every": 4, "status": 503, "code": "SlowDown"}, {"page": 2},
                {"ahead": 100000})):
            self.ask("/_trouble", trouble)
            name = f"s{number}"
            self.ok("store", self.uri, "import", self.path("a"), name)
            self.ok("store", self.uri, "fork", name, name + " fork")
            self.same(name + " fork", "a")
            self.ok("store", self.uri, "remove", name + " fork")
            self.assertEqual(len(self.names()), number + 1)

    def test_lasting_trouble_is_told_and_loses_nothing(self):
        self.save("a", GEMMA, range(3, 200))
        self.save("b", GEMMA, range(4, 200))
        self.ok("store", self.uri, "import", self.path("a"), "s")
        for call in range(2, 12):  # the nth request finds the service full
            self.ask("/_trouble", {"refuse": call, "status": 507, "code": "Full"})
            self.refused("store", self.uri, "import", self.path("b"), "s", "--overwrite",
                         names=["HTTP status 507", self.origin, "IO"])
            self.ask("/_trouble", {})
            self.same("s", "a")
        self.ask("/_trouble", {"damage_every": 1})
        self.refused("store", self.uri, "export", "s", self.path("new"))
        self.assertFalse(pathlib.Path(self.path("new")).exists())
        self.ask("/_trouble", {})
        self.same("s", "a")

    def test_what_is_old_and_unnamed_is_collected(self):
        self.save("a", GEMMA, range(3, 200))
        self.save("b", GEMMA, range(404, 600))
        self.ok("store", self.uri, "import", self.path("a"), "s")
        self.ok("store", self.uri, "import", self.path("b"), "t")
        self.ok("store", self.uri, "remove", "t")
        self.assertEqual(self.json("store", self.uri, "collect")["removed_objects"], 0)
        self.ask("/_trouble", {"ahead": 25 * 3600})  # the service's clock alone tells the age
        collected = self.json("store", self.uri, "collect")
        self.assertGreater(collected["removed_objects"], 3)
        self.assertLess(collected["removed_objects"], collected["objects"])
        self.same("s", "a")
        # What is put again is young, whatever it was before.
        self.ok("store", self.uri, "remove", "s")
        self.ok("store", self.uri, "import", self.path("a"), "u")
        self.ok("store", self.uri, "remove", "u")
        self.assertEqual(self.json("store", self.uri, "collect")["removed_objects"], 0)
        self.ask("/_trouble", {"ahead": 50 * 3600})
        collected = self.json("store", self.uri, "collect")
        self.assertEqual(collected["removed_objects"], collected["objects"])
