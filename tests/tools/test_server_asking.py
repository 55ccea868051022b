# Requests for what stasis serve has stored: while the store stands still a few of them wait, more
# are told to come later, and all else goes on; the server ends after them. Names that a state had
# too many of, and a conversation whose session is damaged.
import http.client
import pathlib
import queue
import threading
import time

import seaweedfs
from served import ServerTest
from stasis_process import LLAMA, turns_of
from troubled_s3 import TroubledService

CHAT, CONVERSATIONS, RESPONSES = "/v1/chat/completions", "/v1/conversations", "/v1/responses"
PLACES = 64  # of requests for what is stored
NAMES = 128  # of one state
CUT = (OSError, http.client.HTTPException)


def users():
    return [turn["user"] for turn in turns_of(LLAMA)]


class StandingStill(ServerTest):
    def setUp(self):
        super().setUp()
        seaweedfs.give_keys(self.addCleanup)
        self.service = TroubledService(self)
        first = self.serve(LLAMA, "--store", self.service.uri)
        self.conversation = self.post(first, CONVERSATIONS, {})["id"]
        self.response = self.post(first, RESPONSES, {
            "input": users()[0], "max_output_tokens": 4, "conversation": self.conversation})["id"]
        first.kill()
        self.digest = self.response.removeprefix("resp_")
        self.paths = [f"{RESPONSES}/{self.response}", f"{RESPONSES}/{self.response}/input_items",
                      f"/v1/sessions/{self.digest}", f"{CONVERSATIONS}/{self.conversation}",
                      f"{CONVERSATIONS}/{self.conversation}/items"]
        self.answers, self.threads = queue.Queue(), []

    def ask(self, server, path):
        """Asks on a thread of its own, for the store stands still."""
        def one():
            try:
                connection, reply = server.open("GET", path)
                self.answers.put((reply.status, reply.getheader("Retry-After"), reply.read()))
                connection.close()
            except CUT:
                self.answers.put((None, None, b""))

        self.threads.append(threading.Thread(target=one))
        self.threads[-1].start()

    def answer(self):
        return self.answers.get(timeout=60)

    def join(self):
        for thread in self.threads:
            thread.join()
        self.assertTrue(self.answers.empty())

    def test_a_few_wait_and_the_rest_goes_on(self):
        # Who would keep all workers waiting, were there no limit.
        server = self.serve(LLAMA, "--store", self.service.uri, "--running", 4)
        self.service.trouble(stall_every=1)
        more = 9
        for index in range(PLACES + more):
            self.ask(server, self.paths[index % len(self.paths)])
        for _ in range(more):
            status, later, data = self.answer()
            self.assertEqual((status, later), (429, "1"), data)
        self.get(server, "/health")
        self.assertEqual(self.metrics(server)["stasis_stored_requests"], PLACES)
        reply = self.post(server, RESPONSES, {"input": "hello", "max_output_tokens": 4,
                                              "store": False})
        self.assertEqual(reply["usage"]["output_tokens"], 4)
        self.assertTrue(self.answers.empty())  # the others wait
        self.service.trouble()
        for _ in range(PLACES):
            self.assertEqual(self.answer()[0], 200)
        self.join()
        self.get(server, self.paths[0])
        self.assertEqual(server.end(), 0)

    def asking(self, server):
        """Each kind of request waits for the store. Returns how many do."""
        self.service.trouble(stall_every=1)
        paths = [*self.paths, f"/v1/sessions/{self.digest}/export"]
        for path in paths:
            self.ask(server, path)
        limit = time.monotonic() + 60
        while self.service.calls() < len(paths):
            self.assertLess(time.monotonic(), limit)
        return len(paths)

    def until_said(self, words):
        limit = time.monotonic() + 60
        while words not in self.said():
            self.assertLess(time.monotonic(), limit, self.said())

    def test_the_end_waits_for_all_kinds(self):
        server = self.serve(LLAMA, "--store", self.service.uri, "--shutdown-seconds", 60)
        count = self.asking(server)
        server.process.terminate()
        self.until_said(f"stopping: no new requests; running ones ({count}) have 60 seconds")
        self.assertTrue(self.answers.empty())
        self.service.trouble()
        for _ in range(count):
            self.assertEqual(self.answer()[0], 200)
        self.join()
        self.assertEqual(server.process.wait(timeout=60), 0)


class Names(ServerTest):
    def test_a_state_has_no_end_of_names(self):
        """Streams that differ in what changes no state give it ever new ids, of which the last are
        kept, also in the store; it is removed with all of them."""
        uri = f"dir:{self.path('store')}"
        server, ids = self.serve(LLAMA, "--store", uri), []
        for index in range(NAMES + 9):
            body = {"input": "a", "max_output_tokens": 1, "metadata": {"index": str(index)}}
            events = list(server.events(RESPONSES, body))
            ids.append(events[-1]["response"]["id"])
        self.assertEqual(len(set(ids)), len(ids))
        server.kill()
        named = lambda: {session["name"] for session in self.json("store", uri, "list")["sessions"]}
        requests = lambda names: {name for name in names if "/r_" in name}
        self.assertEqual(requests(named()), {
            "all/r_" + name.removeprefix("resp_") for name in ids[-NAMES:]})
        server = self.serve(LLAMA, "--store", uri)
        for name in ids[:9]:
            self.get(server, f"{RESPONSES}/{name}", status=404)
        for name in ids[-NAMES], ids[-1]:
            self.assertEqual(self.get(server, f"{RESPONSES}/{name}")["id"], name)
        again = self.get(server, f"/v1/sessions/{ids[-1].removeprefix('resp_')}")["id"]
        self.assertEqual(server.ask("DELETE", f"/v1/sessions/{again}")[0], 200)
        self.assertEqual(requests(named()), set())

    def test_a_whole_response_has_no_other_name(self):
        uri = f"dir:{self.path('store')}"
        server = self.serve(LLAMA, "--store", uri)
        reply = self.post(server, RESPONSES, {"input": "a", "max_output_tokens": 1})
        self.get(server, f"{RESPONSES}/{reply['id']}")
        server.kill()
        names = [session["name"] for session in self.json("store", uri, "list")["sessions"]]
        self.assertFalse([name for name in names if "/r_" in name], names)


class Damage(ServerTest):
    def stored(self):
        files = [path for path in pathlib.Path(self.path("store"), "objects").rglob("*")
                 if path.is_file()]
        files += [path for path in pathlib.Path(self.path("store"), "roots").rglob("*")
                  if path.is_file()]
        return sorted(files)

    def talk(self, server, turns, conversation=None):
        """The ids of turns of a conversation; and the conversation."""
        ids = []
        conversation = conversation or self.post(server, CONVERSATIONS, {})["id"]
        for turn in turns:
            reply = self.post(server, RESPONSES, {
                "input": users()[turn], "max_output_tokens": 4, "conversation": conversation})
            ids.append(reply["id"])
        return ids, conversation

    def test_a_conversation_whose_last_session_is_damaged(self):
        """Whatever of that session is damaged: the next turn is what it would have been, and is
        there for the one after; while the conversation itself can be read."""
        uri = f"dir:{self.path('store')}"
        whole, _ = self.talk(self.serve(LLAMA), (0, 1, 2))
        server = self.serve(LLAMA, "--store", uri)
        conversation = self.post(server, CONVERSATIONS, {})["id"]
        before = set(self.stored())
        ids, _ = self.talk(server, (0,), conversation)
        server.kill()
        kept = {path: path.read_bytes() for path in self.stored()}
        went_on = refused = 0
        for path in sorted(set(kept) - before):
            with self.subTest(path.relative_to(self.path("store"))):
                for each in self.stored():
                    each.unlink()
                for each, data in kept.items():
                    each.parent.mkdir(parents=True, exist_ok=True)
                    each.write_bytes(data)
                damaged = bytearray(kept[path])
                damaged[len(damaged) // 2] ^= 4
                path.write_bytes(damaged)
                server = self.serve(LLAMA, "--store", uri)
                status, _ = server.ask("GET", f"{CONVERSATIONS}/{conversation}")
                if status != 200:  # what is damaged is the conversation, not its session
                    self.assertEqual(status, 500)
                    refused += 1
                    continue
                self.assertEqual(self.talk(server, (1, 2), conversation)[0], whole[1:])
                server.kill()
                server = self.serve(LLAMA, "--store", uri)
                items = self.get(server, f"{CONVERSATIONS}/{conversation}/items?limit=100")
                self.assertEqual(len(items["data"]), 6)
                went_on += 1
        self.assertEqual(ids, whole[:1])
        self.assertGreater(went_on, 2)
        self.assertLess(refused, went_on)
