# stasis serve under clients in trouble: without a key, with too much to send, with nothing to say,
# and gone while something long is computed for them.
import json
import random
import resource
import socket
import time

import scripted_model
from served import ServerTest
from stasis_process import DATA, LLAMA, comma, turns_of

RESPONSES = "/v1/responses"


class Client:
    """A connection, of which a test sees each byte."""

    def __init__(self, test, server, receive_bytes=None):
        host, port = server.address.split(":")
        self.socket = socket.socket()
        test.addCleanup(self.socket.close)
        self.socket.settimeout(60)
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.connect((host, int(port)))

    def send(self, text, body=b""):
        self.socket.sendall(text.replace("\n", "\r\n").encode() + body)

    def status(self):
        """The status of the reply that comes."""
        line = b""
        while not line.endswith(b"\n"):
            byte = self.socket.recv(1)
            if not byte:
                return None
            line += byte
        return int(line.split()[1])

    def close(self):
        self.socket.close()


class Limits(ServerTest):
    def test_a_body_without_a_key_is_not_read(self):
        with open(self.path("keys"), "w", encoding="ascii") as file:
            file.write("alpha-key-1\n")
        server = self.serve(LLAMA, "--api-key-file", self.path("keys"))
        head = f"POST {RESPONSES} HTTP/1.1\nHost: a\nContent-Length: 50000000\n"
        for more in "", "Authorization: Bearer other\n", "Expect: 100-continue\n":
            client = Client(self, server)
            client.send(head + more + "\n")  # and no byte of the body
            self.assertEqual(client.status(), 401)
        client = Client(self, server)
        client.send("GET /health HTTP/1.1\nHost: a\nContent-Length: 2\n\n")
        client.send("", b"{}")
        self.assertEqual(client.status(), 200)
        client = Client(self, server)
        client.send(head + "x-api-key: alpha-key-1\nExpect: 100-continue\n\n")
        self.assertEqual(client.status(), 100)

    def test_the_bodies_of_all_requests_have_a_limit(self):
        server = self.serve(LLAMA, "--bodies-max", 1000000)
        head = f"POST {RESPONSES} HTTP/1.1\nHost: a\nContent-Length: 2000000\n\n"
        slow = Client(self, server)
        slow.send(head, b" " * 900000)
        # Clients come until one finds that the others' bodies leave no place for its own.
        limit = time.monotonic() + 60
        while True:
            client = Client(self, server)
            client.send(head, b" " * 900000)
            client.socket.settimeout(1)
            try:
                self.assertEqual(client.status(), 503)
                break
            except TimeoutError:
                self.assertLess(time.monotonic(), limit)
        answer = self.post(server, RESPONSES, {"input": "hello", "max_output_tokens": 2})
        self.assertTrue(answer["id"])  # small requests go on

    def test_a_thousand_idle_connections(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < 1200:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
            self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        # As a login shell has it: the server lets itself have more.
        server = self.serve(LLAMA, before=lambda: resource.setrlimit(
            resource.RLIMIT_NOFILE, (256, hard)))
        idle = [Client(self, server) for _ in range(1000)]
        ask = "GET /health HTTP/1.1\nHost: a\n\n"
        for client in idle:  # each is served, and stays
            client.send(ask)
        self.assertEqual({client.status() for client in idle}, {200})
        self.assertTrue(self.post(server, RESPONSES, {"input": "hello", "max_output_tokens": 2}))
        self.assertEqual(server.end(), 0)  # which waits for nobody who is idle

    def test_too_few_descriptors_are_said(self):
        server = self.serve(LLAMA, before=lambda: resource.setrlimit(
            resource.RLIMIT_NOFILE, (330, 330)))
        self.assertIn("at most 10 connections: the process may open only 330 files", self.said())
        clients = [Client(self, server) for _ in range(10)]
        for client in clients:
            client.send("GET /health HTTP/1.1\nHost: a\n\n")
        self.assertEqual({client.status() for client in clients}, {200})
        self.assertEqual(Client(self, server).status(), 503)


class Streams(ServerTest):
    """Clients of streams that vanish, and that read nothing."""

    def stream(self, server, **members):
        body = json.dumps({"messages": [{"role": "user", "content": "hello"}], "stream": True,
                           "temperature": 1, "logit_bias": {"2": -100, "4": -100}, **members})
        client = Client(self, server, receive_bytes=4096)
        client.send(f"POST /v1/chat/completions HTTP/1.1\nHost: a\nContent-Length: {len(body)}\n\n",
                    body.encode())
        self.assertEqual(client.status(), 200)
        return client

    def until_left(self, server, count):
        """Waits until so many replies were given up, and none runs."""
        limit = time.monotonic() + 60
        while (metrics := self.metrics(server))["stasis_replies_left_total"] < count or (
                metrics["stasis_running"] > 0):
            self.assertLess(time.monotonic(), limit, metrics)

    def test_clients_that_vanish(self):
        server = self.serve(LLAMA)
        clients = [self.stream(server, seed=seed) for seed in range(8)]
        for client in clients:
            client.close()
        self.until_left(server, len(clients))
        self.post(server, RESPONSES, {"input": "hello", "max_output_tokens": 2})

    def test_clients_that_read_nothing(self):
        server = self.serve(LLAMA)
        client = self.stream(server, n=4, logprobs=True, top_logprobs=20)
        self.post(server, RESPONSES, {"input": "hello", "max_output_tokens": 2})
        self.until_left(server, 4)
        with open(self.path("server.log"), encoding="utf-8") as log:
            self.assertIn("the client reads too slowly", log.read())
        client.close()


class Leaving(ServerTest):
    """What is long is cut where nobody waits for it: to compute a session again takes seconds."""

    def setUp(self):
        super().setUp()
        tokens = random.Random(1).choices(range(5, 1000), k=3900)
        self.ok("run", LLAMA, "--tokens", comma(tokens), "-n", 0, "--save", self.path("long"))
        with open(self.path("long"), "rb") as file:
            self.file = file.read()
        self.server = self.serve(LLAMA, "--kernels", "reference", "--threads", 1,
                                 "--shutdown-seconds", 0)

    def importing(self):
        """Clients whose imports are computed, two, and wait, the others."""
        clients = [Client(self, self.server) for _ in range(4)]
        for client in clients:
            client.send("POST /v1/sessions HTTP/1.1\nHost: a\nContent-Length: "
                        f"{len(self.file)}\n\n", self.file)
        self.until("stasis_kv_used_bytes", 1)  # a session of these is in memory
        return clients

    def until(self, metric, least):
        limit = time.monotonic() + 60
        while self.metrics(self.server)[metric] < least:
            self.assertLess(time.monotonic(), limit, metric)

    def test_clients_that_leave(self):
        for client in self.importing():
            client.close()
        self.until("stasis_slow_cut_total", 4)
        self.assertEqual(self.server.end(), 0)

    def test_a_client_that_leaves_its_prompt(self):
        """It is cut in the middle: no token is drawn."""
        body = json.dumps({"prompt": [5 + i % 900 for i in range(3900)], "max_tokens": 50})
        client = Client(self, self.server)
        client.send("POST /v1/completions HTTP/1.1\nHost: a\nContent-Length: "
                    f"{len(body)}\n\n{body}")
        self.until("stasis_passes_total", 1)
        client.close()
        self.until("stasis_replies_left_total", 1)
        metrics = self.metrics(self.server)
        self.assertEqual(metrics["stasis_reply_tokens_total"], 0)
        self.assertEqual(metrics["stasis_replies_failed_total"], 0)
        self.assertEqual(self.server.end(), 0)

    def test_a_server_that_ends(self):
        clients = self.importing()
        self.assertEqual(self.server.end(), 0)
        self.assertEqual([client.status() for client in clients], [503] * 4)


class Preparing(ServerTest):
    def test_a_client_that_leaves_while_its_reply_is_prepared(self):
        """It is told apart from a failure, nothing of it is in its conversation, and the next turn
        is answered. The template is one that is rendered for each message that is new."""
        template = DATA / "chat" / "templates" / "Qwen-Qwen3-0.6B.jinja"
        scripted_model.write(self.folder / "model", {"\n": ["Yes", "."]},
                             template.read_text(encoding="utf-8"))
        server = self.serve(self.folder / "model")
        path = "/v1/conversations"
        conversation = self.post(server, path, {})["id"]
        said = [{"role": role, "content": "a"} for role in ("user", "assistant") * 140]
        body = {"input": [*said, {"role": "user", "content": "b"}], "conversation": conversation,
                "max_output_tokens": 8, "reasoning": {"effort": "none"}}
        client = Client(self, server)
        text = json.dumps(body)
        client.send(f"POST {RESPONSES} HTTP/1.1\nHost: a\nContent-Length: {len(text)}\n\n{text}")
        limit = time.monotonic() + 60
        while (metrics := self.metrics(server))["stasis_running"] == 0 and (
                metrics["stasis_replies_total"] == 0):
            self.assertLess(time.monotonic(), limit)
        client.close()
        while (metrics := self.metrics(server))["stasis_running"] > 0:
            self.assertLess(time.monotonic(), limit)
        counted = {name: metrics[f"stasis_replies_{name}_total"] for name in (
            "left", "failed", "refused")}
        if metrics["stasis_replies_total"] == 0:  # else it was faster than its client
            self.assertEqual(counted, {"left": 1, "failed": 0, "refused": 0})
            items = self.get(server, f"{path}/{conversation}/items")
            self.assertEqual(items["data"], [])
        reply = self.post(server, RESPONSES, dict(body, input="b"))
        self.assertEqual(reply["output"][-1]["content"][0]["text"], "Yes.")
