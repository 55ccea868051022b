# Requests that come and go, computed together under a KV budget: each gets the bits that it gets
# alone, whatever runs beside it, however passes are cut and however many threads compute.
import http.client
import json
import random
import shutil
import threading
import time

from served import ServerTest
from stasis_process import GEMMA, LLAMA, WITHOUT_TOKENIZER, turns_of

RESPONSES, COMPLETIONS = "/v1/responses", "/v1/completions"


def request(rng, texts):
    """A path and a body: prompts, settings and ends of every kind."""
    body = {"seed": rng.randrange(2**32), "temperature": rng.choice((0, 0.5, 0.8, 1.4)),
            "top_k": rng.choice((0, 20, 60)), "top_p": rng.choice((1, 0.9)),
            "repetition_penalty": rng.choice((1, 1.1))}
    most = rng.randint(4, 64)
    if not texts:  # a model without a tokenizer
        return COMPLETIONS, {**body, "prompt": [rng.randrange(192) for _ in range(
            rng.randint(10, 200))], "max_tokens": most}
    text = " ".join(rng.choice(texts) for _ in range(rng.choice((1, 1, 3, 12))))
    return RESPONSES, {**body, "input": text, "max_output_tokens": most, "top_logprobs": 2,
                       "stop": rng.choice((["."], [" is ", "\n\n"], []))}


def said(reply):
    """What must be equal: the digest of the whole state, or every number there is."""
    if "choices" in reply:
        return reply["choices"]
    return reply["id"], reply["status"], reply["output"][0]["content"]


class Together(ServerTest):
    def ask(self, server, path, body):
        status = 503
        while status == 503:  # memory is short: it says so, and the same comes later
            status, data = server.ask("POST", path, body)
        self.assertEqual(status, 200, data)
        return said(json.loads(data))

    def leave(self, server, path, body):
        """A client that leaves as soon as its reply has begun."""
        connection = http.client.HTTPConnection(server.address, timeout=120)
        connection.request("POST", path, json.dumps(dict(body, stream=True)))
        reply = connection.getresponse()
        reply.readline()
        reply.close()
        connection.close()

    def at_once(self, server, requests):
        replies = [None] * len(requests)

        def one(index):
            replies[index] = self.ask(server, *requests[index])

        threads = [threading.Thread(target=one, args=(index,)) for index in range(len(requests))]
        threads += [threading.Thread(target=self.leave, args=(server, *requests[index]))
                    for index in (0, len(requests) // 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return replies

    def check(self, model, budget, count=32):
        rng = random.Random(model.name)
        texts = None if model == WITHOUT_TOKENIZER else [turn["user"] for turn in turns_of(model)]
        requests = [request(rng, texts) for _ in range(count)]
        server = self.serve(model)
        alone = [self.ask(server, *each) for each in requests]
        server.kill()
        for options in ((), ("--threads", 1), ("--sessions", 3, "--kernels", "reference")):
            server = self.serve(model, "--kv-budget", budget, *options)
            self.assertEqual(self.at_once(server, requests), alone)
            server.kill()
        return alone

    def test_each_gets_what_it_gets_alone(self):
        alone = self.check(LLAMA, 4 << 20)
        # Every kind of end was among them, and no two were alike.
        self.assertEqual({status for _, status, _ in alone}, {"completed", "incomplete"})
        self.assertGreater(len({name for name, _, _ in alone}), 20)

    def test_replies_wait_for_memory(self):
        """Nothing fails while one that will end has the memory."""
        endless = {"input": turns_of(LLAMA)[0]["user"], "max_output_tokens": 1000,
                   "logit_bias": {"2": -100, "4": -100}}
        long = " ".join([turn["user"] for turn in turns_of(LLAMA)] * 4)
        short = [{"input": f"{index} {long}", "max_output_tokens": 2} for index in range(12)]
        alone = self.serve(LLAMA)
        replies = [self.ask(alone, RESPONSES, body) for body in (endless, *short)]
        sessions = [self.get(alone, f"/v1/sessions/{name.removeprefix('resp_')}")
                    for name, _, _ in replies]
        alone.kill()
        # What the long one needs, and not one of the others beside it.
        sizes = [session["kv_bytes"] for session in sessions]
        self.assertGreater(2 * min(sizes), max(sizes))
        budget = max(sizes) + min(sizes) // 2
        server = self.serve(LLAMA, "--kv-budget", budget)
        events = server.events(RESPONSES, endless)
        for _ in range(40):
            next(events)
        answers = [None] * len(short)

        def one(index):
            answers[index] = server.ask("POST", RESPONSES, short[index])

        threads = [threading.Thread(target=one, args=(index,)) for index in range(len(short))]
        for thread in threads:
            thread.start()
        last = list(events)[-1]
        for thread in threads:
            thread.join()
        self.assertEqual(last["type"], "response.incomplete", last)
        self.assertEqual(last["response"]["output"][0]["content"], replies[0][2])
        self.assertEqual([status for status, _ in answers], [200] * len(short), answers)
        self.assertEqual([said(json.loads(data)) for _, data in answers], replies[1:])

    def test_a_stream_that_waits_is_pinged(self):
        endless = {"input": "a", "max_output_tokens": 900, "logit_bias": {"2": -100, "4": -100}}
        server = self.serve(LLAMA)
        reply = self.post(server, RESPONSES, endless)
        session = self.get(server, f"/v1/sessions/{reply['id'].removeprefix('resp_')}")
        server.kill()
        server = self.serve(LLAMA, "--kv-budget", session["kv_bytes"], "--ping-ms", 1)
        long = " ".join([turn["user"] for turn in turns_of(LLAMA)] * 4)
        for path, body, sign in (
                ("/v1/messages", {"max_tokens": 3, "messages": [
                    {"role": "user", "content": long}]}, b'data: {"type":"ping"}\n'),
                (RESPONSES, {"input": long + " ", "max_output_tokens": 3}, b": ping\n")):
            lines, limit = [], time.monotonic() + 60
            while sign not in lines:  # until it came in time to be kept waiting
                self.assertLess(time.monotonic(), limit, lines)
                busy, first = server.open("POST", RESPONSES, {**endless, "stream": True})
                connection, stream = server.open("POST", path, {**body, "stream": True})
                lines = list(stream)
                self.assertGreater(len(lines), 6)
                first.read()
                connection.close()
                busy.close()

    def test_what_memory_can_never_hold(self):
        server = self.serve(LLAMA, "--kv-budget", 10000)
        body = {"input": turns_of(LLAMA)[0]["user"]}
        for _ in range(2):
            status, data = server.ask("POST", RESPONSES, body)
            self.assertEqual(status, 503, data)

    def test_a_hostile_name(self):
        named = self.folder / "named"
        shutil.copytree(WITHOUT_TOKENIZER, named)
        config = json.loads((named / "config.json").read_text())
        config["architectures"] = ["\x1b]52;c;eA==\x07\u202e"]
        (named / "config.json").write_text(json.dumps(config))
        done = self.refused("serve", named, names=["\\u001b]52;c;eA==\\u0007"])
        self.assertNotRegex(done or "", "[\x1b\x07\u202e]")

    def test_another_model(self):
        self.check(GEMMA, 2 << 20)

    def test_without_a_tokenizer(self):
        self.check(WITHOUT_TOKENIZER, 1 << 20, 16)
