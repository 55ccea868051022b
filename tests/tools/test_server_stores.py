# stasis serve over a store in trouble: slow, full, failing at any call, damaged, cut off in an
# object, with a clock that jumps. Nothing is lost or wrong, and what fails says so.
import http.client
import json
import pathlib
import resource
import signal
import threading
import time

import seaweedfs
from served import ServerTest
from stasis_process import LLAMA, share, turns_of
from troubled_s3 import TroubledService

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"


class Stores(ServerTest):
    def ask(self, server, turn, before, **members):
        """The status and body of a turn of the conversation; each has its own text."""
        users = turns_of(LLAMA)
        text = f"{users[turn % len(users)]['user']} ({turn // len(users)})"
        return server.ask("POST", RESPONSES, {
            "input": text, "max_output_tokens": 4, "temperature": 1.5,
            "previous_response_id": before, **members})

    def turn(self, server, turn, before):
        return self.answered(self.ask(server, turn, before))

    def answered(self, reply):
        self.assertEqual(reply[0], 200, reply[1])
        return json.loads(reply[1])["id"]

    def undisturbed(self, turns):
        server, ids = self.serve(LLAMA), [None]
        for turn in range(turns):
            ids.append(self.turn(server, turn, ids[-1]))
        return ids

    def failed(self, reply):
        self.assertEqual(reply[0], 500, reply[1])
        self.assertIn(b"the store failed; the server's log says why", reply[1])


class ObjectStorage(Stores):
    def setUp(self):
        super().setUp()
        seaweedfs.give_keys(self.addCleanup)
        self.service = TroubledService(self)
        # Each turn is at the server that did not have the one before, and takes it from the store.
        self.servers = [self.serve(LLAMA, "--store", self.service.uri) for _ in range(2)]

    def test_trouble_at_any_call(self):
        """A turn each with the nth call in trouble. What passes is not noticed; after what does not
        the same request gives what it would have given."""
        before, calls = None, 0
        before = self.turn(self.servers[1], 0, before)
        self.service.trouble()
        self.turn(self.servers[0], 1, before)
        calls = self.service.calls()
        self.assertGreater(calls, 10)
        troubles = [(passes, {name: call, **more}) for passes, name, more in (
            (True, "cut", {}), (True, "lose", {}), (True, "refuse", {"status": 503}),
            (False, "refuse", {"status": 507, "code": "Full"}), (False, "damage", {}))
            for call in range(1, calls + 1)]
        troubles = share(troubles, 5)
        ids = self.undisturbed(len(troubles) + 1)
        failures = 0
        for number, (passes, trouble) in enumerate(troubles):
            turn, server = number + 1, self.servers[number % 2]
            self.service.trouble(**trouble)
            reply = self.ask(server, turn, ids[turn])
            self.service.trouble()
            if reply[0] != 200:
                self.assertFalse(passes, (trouble, reply))
                self.failed(reply)
                failures += 1
                reply = self.ask(server, turn, ids[turn])
            self.assertEqual(self.answered(reply), ids[turn + 1], trouble)
        self.assertGreater(failures, 0)

    def test_clocks_that_jump(self):
        ids = self.undisturbed(8)
        for turn, ahead in enumerate((0, 100000, 100000, 0, -100000, -100000, 10**9, 0)):
            self.service.trouble(ahead=ahead)
            self.assertEqual(self.turn(self.servers[turn % 2], turn, ids[turn]), ids[turn + 1])

    def test_a_store_that_stands_still(self):
        ids = self.undisturbed(1)
        self.turn(self.servers[0], 0, None)
        self.service.trouble(stall_every=1)
        found = []
        threads = [threading.Thread(target=lambda: found.append(self.ask(
            self.servers[0], 0, None, metadata={"a": "b"}))) for _ in range(8)]
        for thread in threads:
            thread.start()
        # Others, who do not need it, are served meanwhile.
        self.get(self.servers[0], "/health")
        self.assertEqual(self.ask(self.servers[0], 1, None, store=False)[0], 200)
        self.assertEqual(found, [])
        self.service.trouble()
        for thread in threads:
            thread.join()
        self.assertEqual([self.answered(reply) for reply in found], ids[1:] * 8)

    def test_the_end_does_not_wait_for_a_store_that_stands_still(self):
        ids = self.undisturbed(1)
        server = self.serve(LLAMA, "--store", self.service.uri, "--shutdown-seconds", 0)
        self.service.trouble(stall_every=1)
        cut = []

        def ask():
            try:
                cut.append(self.ask(server, 0, None)[0])
            except (OSError, http.client.HTTPException):
                cut.append(None)

        thread = threading.Thread(target=ask)
        thread.start()
        limit = time.monotonic() + 60
        while self.service.calls() == 0:
            self.assertLess(time.monotonic(), limit)
        self.assertEqual(server.end(), 1)
        thread.join()
        self.assertEqual(cut, [None])
        self.service.trouble()
        self.assertEqual(self.turn(self.servers[0], 0, None), ids[1])

    def test_a_chat_is_answered_without_its_store(self):
        users = [turn["user"] for turn in turns_of(LLAMA)]
        long = " ".join(users * 3)
        messages = [{"role": "user", "content": long}]
        body = {"messages": messages, "max_tokens": 4}
        first = self.post(self.servers[0], CHAT, body)["choices"][0]["message"]
        messages += [{"role": "assistant", "content": first["content"]},
                     {"role": "user", "content": users[0]}]
        alone = self.post(self.serve(LLAMA), CHAT, body)
        self.service.trouble(refuse_every=1, status=507, code="Full")
        self.assertEqual(self.post(self.servers[1], CHAT, body)["choices"], alone["choices"])
        self.assertIn("HTTP status 507", self.said())
        self.service.trouble()
        self.assertEqual(self.post(self.servers[1], CHAT, body)["choices"], alone["choices"])


class Disks(Stores):
    def test_a_full_disk(self):
        """No file grows beyond a limit, which is all that a process can be told of a full disk
        without one. What was refused is there once there is room."""
        ids = self.undisturbed(3)
        for scheme in "dir", "sqlite":
            server = self.serve(LLAMA, "--quiet", "--store", f"{scheme}:{self.path(scheme)}",
                                before=lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN))
            self.assertEqual(self.turn(server, 0, None), ids[1])
            for turn in 1, 2:
                resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (100, -1))
                self.failed(self.ask(server, turn, ids[turn]))
                self.get(server, f"{RESPONSES}/{ids[turn]}")
                resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (-1, -1))
                self.assertEqual(self.turn(server, turn, ids[turn]), ids[turn + 1])
            server.kill()
            server = self.serve(LLAMA, "--store", f"{scheme}:{self.path(scheme)}")
            for name in ids[1:]:
                self.get(server, f"{RESPONSES}/{name}")

    def stored(self):
        """The files of the store's objects and roots."""
        files = [path for folder in ("objects", "roots") for path in
                 pathlib.Path(self.path("store"), folder).rglob("*") if path.is_file()]
        self.assertGreater(len(files), 3)
        return sorted(files)

    def damage(self, path):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)

    def test_damaged_files(self):
        """Each file of a directory in turn has a wrong byte: the turn after goes on from what is
        right, or is refused; and a request that gives the damaged state again mends it."""
        ids = self.undisturbed(2)
        uri = f"dir:{self.path('store')}"
        server = self.serve(LLAMA, "--store", uri)
        self.turn(server, 0, None)
        server.kill()
        refused = 0
        for path in self.stored():
            self.damage(path)
            server = self.serve(LLAMA, "--store", uri)
            reply = self.ask(server, 1, ids[1])
            if reply[0] != 200:
                self.failed(reply)
                refused += 1
                self.assertEqual(self.turn(server, 0, None), ids[1], path)
                reply = self.ask(server, 1, ids[1])
            self.assertEqual(self.answered(reply), ids[2], path)
            server.kill()
            server = self.serve(LLAMA, "--store", uri)
            self.assertEqual(self.turn(server, 1, ids[1]), ids[2], path)
            server.kill()
        self.assertGreater(refused, 0)

    def test_what_is_damaged_is_mended(self):
        """Whatever of a chat's session is damaged: when the same is asked again it is stored as it
        was, so that the next turn goes on from there."""
        uri = f"dir:{self.path('store')}"
        body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
        server = self.serve(LLAMA, "--store", uri)
        first = self.post(server, CHAT, body)["choices"]
        server.kill()
        said = {"role": "assistant", "content": first[0]["message"]["content"]}
        more = {"messages": [*body["messages"], said,
                             {"role": "user", "content": "and?"}], "max_tokens": 4}
        alone = self.post(self.serve(LLAMA), CHAT, more)["choices"]
        for path in self.stored():
            self.damage(path)
            server = self.serve(LLAMA, "--store", uri)
            self.assertEqual(self.post(server, CHAT, body)["choices"], first, path)
            server.kill()
            server = self.serve(LLAMA, "--store", uri)
            reply = self.post(server, CHAT, more)
            server.kill()
            self.assertEqual(reply["choices"], alone)
            self.assertGreater(reply["usage"]["prompt_tokens_details"]["cached_tokens"], 0, path)
