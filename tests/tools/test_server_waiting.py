# Replies of stasis serve that wait for memory after they have begun: clients see each byte that
# they would have seen without the wait, and a reply's time counts from its request.
import json
import time

import scripted_model
from served import ServerTest
from stasis_process import LLAMA, turns_of

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
PAGE = 64  # positions
CHOICES = 4
NOW = [{"type": "function", "function": {
    "name": "now", "description": "It is now", "parameters": {"type": "object",
                                                              "properties": {}}}}]
ENDLESS = {"2": -100, "4": -100}  # no end token: as many tokens as were asked for
# So many tokens come behind the first, that all choices are there before one has ended.
MORE = [f"{index} " for index in range(200)]
# By name: what a reply has before it must wait and after it, and what is asked for. Numbers are
# bytes; each token comes once.
CASES = {
    "a stop string": (["It ", "is", " st"], ["op", " here", " and", " on"], {"stop": [" stop h"]}),
    "a text that is no stop string": (["It ", "is", " st"], ["ill", " so"], {"stop": [" stop"]}),
    "a character": (["Z", 0xc3], [0xbc, "rich"], {}),
    "a long character": (["! ", 0xf0, 0x9f], [0x98, 0x80, "!"], {}),
    "the end of thoughts": (["<think>", "Hm, ", "so", "</thi"], ["nk>", "Yes", "."], {}),
    "thoughts": (["<think>", "Hm, "], ["so", "</think>", "Yes", "."], {}),
    "a call": (["I look. ", "<tool_", "call>\n", '{"name": "now",'],
               [' "arguments": {}}', "\n</tool_call>"], {"tools": NOW}),
}


class Waiting(ServerTest):
    def whole(self, server, path, body):
        """What a client gets, but for the time, and for what others have computed."""
        reply = self.post(server, path, body)
        reply.pop("created")
        reply["usage"].pop("prompt_tokens_details", None)
        return reply

    def stream(self, server, path, body):
        """The same by choice, piece by piece."""
        pieces = {}
        for event in server.events(path, body):
            for choice in event["choices"]:
                pieces.setdefault(choice["index"], []).append(choice)
        return pieces

    def prompt_of(self, server, path, body, before):
        """Lengthens the prompt, so that the page is full before the next token."""
        tokens = self.post(server, path, dict(body, n=1))["usage"]["prompt_tokens"]
        more = "x" * (-(tokens + before) % PAGE)
        if path == CHAT:
            body["messages"][0]["content"] += more
        else:
            body["prompt"] = more + body["prompt"]
        return tokens + len(more)

    def page_bytes(self, server):
        reply = self.post(server, RESPONSES, {"input": "a", "max_output_tokens": 1})
        session = self.get(server, f"/v1/sessions/{reply['id'].removeprefix('resp_')}")
        return session["kv_bytes"] // -(-session["position"] // PAGE)

    def check(self, name, path, body):
        (first, *before), after, members = CASES[name]
        before = [first, *MORE, *before]
        model = self.folder / f"{name} {path.count('chat')}"
        scripted_model.write(model, {"\n": [*before, *after]})
        body = {**body, **members, "n": CHOICES, "temperature": 0}
        server = self.serve(model)
        tokens = self.prompt_of(server, path, body, len(before))
        kinds = self.whole, self.stream
        alone = [kind(server, path, body) for kind in kinds]
        full, page = (tokens + len(before)) // PAGE, self.page_bytes(server)
        server.kill()
        # They share what comes before, for it is the same, and one of them has no page for more.
        budget, limit = (full + CHOICES - 1) * page, time.monotonic() + 60
        for kind, expected in zip(kinds, alone):
            waited = False
            while not waited:  # until they ran together
                self.assertLess(time.monotonic(), limit)
                server = self.serve(model, "--kv-budget", budget)
                self.assertEqual(kind(server, path, body), expected)
                waited = self.metrics(server)["stasis_waits_begun_total"] > 0
                server.kill()
        return alone[0]["choices"][-1]

    def test_chats(self):
        replies = {}
        for name in CASES:
            with self.subTest(name):
                body = {"messages": [{"role": "user", "content": "a"}], "logprobs": True,
                        "top_logprobs": 2}
                replies[name] = self.check(name, CHAT, body)
        more = "".join(MORE)
        said = {name: reply["message"]["content"].replace(more, "")
                for name, reply in replies.items()}
        self.assertEqual(said["a stop string"], "It is")
        self.assertEqual(said["a text that is no stop string"], "It is still so")
        self.assertEqual(said["a character"], "Zürich")
        self.assertEqual(said["a long character"], "! \U0001f600!")
        for name in "the end of thoughts", "thoughts":
            self.assertEqual(said[name], "Yes.")
            self.assertEqual(replies[name]["message"]["reasoning_content"], more + "Hm, so")
        self.assertEqual(replies["a call"]["finish_reason"], "tool_calls")

    def test_completions(self):
        for name, said in (("a stop string", "It is"), ("a character", "Zürich"),
                           ("a text that is no stop string", "It is still so")):
            with self.subTest(name):
                body = {"prompt": "a\n", "logprobs": 2, "max_tokens": 300}
                text = self.check(name, COMPLETIONS, body)["text"]
                self.assertEqual(text.replace("".join(MORE), ""), said)

    def test_a_prompt_that_fills_its_page(self):
        """It is computed, and has no place for a token behind it: it is not computed twice."""
        model, texts = self.folder / "model", MORE[:50]
        scripted_model.write(model, {"\n": texts})
        for path, body in ((CHAT, {"messages": [{"role": "user", "content": "a"}]}),
                           (COMPLETIONS, {"prompt": "a\n", "max_tokens": 60})):
            body.update(n=CHOICES, temperature=0)
            server = self.serve(model)
            pages = self.prompt_of(server, path, body, 0) // PAGE
            alone, page = self.whole(server, path, body), self.page_bytes(server)
            self.assertEqual(alone["usage"]["prompt_tokens"], pages * PAGE)
            server.kill()
            limit, waited = time.monotonic() + 60, False
            while not waited:  # until they ran together
                self.assertLess(time.monotonic(), limit)
                server = self.serve(model, "--kv-budget", (pages + CHOICES - 1) * page)
                self.assertEqual(self.whole(server, path, body), alone)
                waited = self.metrics(server)["stasis_waits_total"] > 0
                server.kill()

    def test_a_client_leaves_choices_that_wait(self):
        """They go, and what they held is another's."""
        body = {"messages": [{"role": "user", "content": turns_of(LLAMA)[0]["user"]}],
                "max_tokens": 20}
        server = self.serve(LLAMA)
        alone = self.post(server, CHAT, body)["choices"]
        reply = self.post(server, RESPONSES, {"input": "a", "max_output_tokens": 600,
                                              "logit_bias": ENDLESS})
        size = self.get(server, f"/v1/sessions/{reply['id'].removeprefix('resp_')}")["kv_bytes"]
        server.kill()
        server = self.serve(LLAMA, "--kv-budget", 3 * size, "--kernels", "reference")
        limit, waited, left = time.monotonic() + 60, False, 0
        while not waited or not left:  # until the client was there to see them wait
            self.assertLess(time.monotonic(), limit)
            connection, stream = server.open("POST", CHAT, dict(
                body, n=CHOICES, max_tokens=2000, stream=True, logit_bias=ENDLESS))
            stream.readline()
            before = self.metrics(server)["stasis_replies_left_total"]
            waited = False
            while not waited and (metrics := self.metrics(server))["stasis_running"] > 0:
                waited = metrics["stasis_waiting"] > 0
            stream.close()
            connection.close()
            while (metrics := self.metrics(server))["stasis_running"] > 0:
                self.assertLess(time.monotonic(), limit, metrics)
            left = metrics["stasis_replies_left_total"] - before
            self.assertEqual(metrics["stasis_waiting"], 0)
        self.assertEqual(self.post(server, CHAT, body)["choices"], alone)

    def test_time_counts_from_the_request(self):
        """One that waits until its time is over gets no other."""
        prompt = [5 + i % 900 for i in range(63 * PAGE - 32)]
        long = {"prompt": prompt, "max_tokens": 2, "temperature": 0}
        server = self.serve(LLAMA)
        page, began = self.page_bytes(server), time.monotonic()
        self.post(server, COMPLETIONS, long)
        enough = round(2000 * (time.monotonic() - began)) + 100  # milliseconds
        server.kill()
        server = self.serve(LLAMA, "--kv-budget", 63 * page, "--timeout-ms", enough)
        limit, status, last = time.monotonic() + 60, 200, None
        while status != 504:  # until it came in time to wait for most of its own
            self.assertLess(time.monotonic(), limit, last)
            busy, stream = server.open("POST", RESPONSES, {
                "input": "a", "max_output_tokens": 3900, "logit_bias": ENDLESS, "stream": True})
            stream.readline()
            prompt[0] += 1  # no page of it is there
            status, data = server.ask("POST", COMPLETIONS, long)
            last = json.loads(stream.read().split(b"data: ")[-1])["response"]
            busy.close()
        self.assertEqual(json.loads(data)["error"]["code"], "timeout")
        self.assertEqual(last["status"], "incomplete")  # whose time was over as well
        self.assertLess(last["usage"]["output_tokens"], 3900)
        self.assertGreater(self.metrics(server)["stasis_waits_total"], 0)
