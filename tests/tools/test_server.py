# stasis serve: replies, and sessions that go on where they were: after a restart, twice from one
# place, and from a file; and what is refused.
import json
import os
import subprocess
import sys
import threading
import time

from served import ServerTest
from stasis_process import LLAMA, ROOT, WITHOUT_TOKENIZER, command, turns_of

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"


def users():
    return [turn["user"] for turn in turns_of(LLAMA)]


# Messages of a file, each without something that is read of it.
LACKING = ({"role": "user"}, {"role": "tool", "content": "x"}, {"content": "x"},
           {"role": "assistant", "content": "", "tool_calls": [{}]},
           {"role": "assistant", "content": "", "tool_calls": [
               {"id": "1", "function": {"name": "f"}}]},
           {"role": "assistant", "content": "", "tool_calls": {}},
           {"role": "assistant", "content": "", "reasoning_content": 1})


class Server(ServerTest):
    def say(self, server, messages, **members):
        return self.post(server, CHAT, {"messages": messages, "max_tokens": 40, **members})

    def respond(self, server, text, before=None, **members):
        return self.post(server, RESPONSES, {"input": text, "max_output_tokens": 40,
                                             "previous_response_id": before, **members})

    def until(self, ask, holds):
        """The first reply for which it holds."""
        limit = time.monotonic() + 60
        reply = ask()
        while not holds(reply):
            self.assertLess(time.monotonic(), limit, reply)
            reply = ask()
        return reply

    def test_a_conversation_is_what_the_command_says(self):
        server = self.serve(LLAMA, "--store", f"dir:{self.path('store')}")
        said = [turn["text"] for turn in self.chat(LLAMA, users()[:3], "-n", 40)]
        messages, cached = [], []
        for user, text in zip(users(), said):
            messages.append({"role": "user", "content": user})
            reply = self.say(server, messages, temperature=0)
            message = reply["choices"][0]["message"]
            self.assertEqual(message["content"], text)
            self.assertEqual(reply["model"], LLAMA.name)
            messages.append({"role": "assistant", "content": message["content"]})
            cached.append(reply["usage"]["prompt_tokens_details"]["cached_tokens"])
        self.assertEqual(cached[0], 0)
        self.assertTrue(0 < cached[1] < cached[2])

        # The state behind a response is a session file as the command writes and proves them.
        response = self.respond(server, users()[0], temperature=0)
        self.assertEqual(response["output"][0]["content"][0]["text"], said[0])
        digest = response["id"].removeprefix("resp_")
        status, data = server.ask("GET", f"/v1/sessions/{digest}/export")
        self.assertEqual(status, 200)
        with open(self.path("a.stasis"), "wb") as file:
            file.write(data)
        self.assertEqual(self.json("inspect", self.path("a.stasis"))["digest"], digest)
        self.ok("verify", self.path("a.stasis"), LLAMA)

    def test_responses_survive_a_restart_and_fork(self):
        for store in "dir", "sqlite":
            options = LLAMA, "--store", f"{store}:{self.path(store)}"
            first = self.serve(*options)
            a = self.respond(first, users()[0], temperature=0.8, seed=5)
            b = self.respond(first, users()[1], a["id"])
            items = self.get(first, f"{RESPONSES}/{b['id']}/input_items")
            self.assertEqual(first.end(), 0)

            second = self.serve(*options)
            self.assertEqual(self.get(second, f"{RESPONSES}/{a['id']}")["output"], a["output"])
            self.assertEqual(self.get(second, f"{RESPONSES}/{b['id']}/input_items"), items)
            again = self.respond(second, users()[1], a["id"])
            self.assertEqual((again["id"], again["output"]), (b["id"], b["output"]))
            # A stream has an id of its own, which is as good.
            def stream(server):
                body = {"input": users()[1], "previous_response_id": a["id"],
                        "max_output_tokens": 40}
                events = [event["response"]["id"] for event in server.events(RESPONSES, body)
                          if "response" in event]
                self.assertEqual(len(set(events)), 1)
                return events[0]

            streamed = stream(first_again := self.serve(*options))
            self.assertEqual(stream(second), streamed)
            self.assertEqual(self.get(second, f"/v1/sessions/{streamed.removeprefix('resp_')}")
                             ["id"], b["id"].removeprefix("resp_"))
            self.assertEqual(self.get(second, f"{RESPONSES}/{streamed}")["id"], streamed)
            said = [self.respond(*where)["output"][0]["content"] for where in
                    ((first_again, users()[0], streamed), (second, users()[0], b["id"]))]
            self.assertEqual(said[0], said[1])
            # All that was there is there: no token of it is computed.
            usage = again["usage"]
            self.assertGreaterEqual(usage["input_tokens_details"]["cached_tokens"],
                                    a["usage"]["total_tokens"] - 1)
            other = self.respond(second, users()[2], a["id"])
            self.assertNotEqual(other["id"], b["id"])
            self.assertEqual(self.respond(second, users()[0], temperature=0.8, seed=5)["id"],
                             a["id"])
            self.assertEqual(second.ask("DELETE", f"{RESPONSES}/{a['id']}")[0], 200)
            self.get(second, f"{RESPONSES}/{a['id']}", status=404)
            self.get(second, f"{RESPONSES}/{b['id']}")  # is whole without it
            self.post(second, RESPONSES, {"input": "x", "previous_response_id": a["id"]}, 404)

    def test_a_plain_chat_goes_on_after_a_restart(self):
        options = LLAMA, "--store", f"dir:{self.path('store')}"
        server = self.serve(*options)
        messages = [{"role": "user", "content": users()[0]}]
        reply = self.say(server, messages)
        messages += [{"role": "assistant",
                      "content": reply["choices"][0]["message"]["content"]},
                     {"role": "user", "content": users()[1]}]
        alone = self.say(self.serve(LLAMA), messages)
        self.assertEqual(alone["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertEqual(server.end(), 0)
        server = self.serve(*options)
        reply = self.say(server, messages)
        self.assertEqual(reply["choices"], alone["choices"])
        self.assertGreater(reply["usage"]["prompt_tokens_details"]["cached_tokens"],
                           len(users()[0]) // 8)

    def test_a_beginning_is_computed_once_for_all_servers(self):
        system = {"role": "system", "content": " ".join(users() * 3)}

        def ask(server, user, **members):
            return self.say(server, [system, {"role": "user", "content": user}], **members)

        for scheme in "dir", "sqlite":
            options = LLAMA, "--store", f"{scheme}:{self.path(scheme)}"
            first = self.serve(*options)
            usage = ask(first, users()[0])["usage"]
            self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"], 0)
            self.assertGreater(usage["prompt_tokens"], 300)
            # In this process, by another one over the store, and after an end.
            second = self.serve(*options)
            alone = ask(self.serve(LLAMA), users()[1])
            for server in first, second:
                # Beginnings get their names after the reply was sent.
                other = self.until(lambda: ask(server, users()[1]), lambda reply: reply["usage"][
                    "prompt_tokens_details"]["cached_tokens"] >= usage["prompt_tokens"] * 2 // 3)
                self.assertEqual(other["choices"], alone["choices"])
            prompt = {"prompt": system["content"] + " x", "max_tokens": 4}
            text = self.post(first, "/v1/completions", prompt)["choices"]
            again = self.until(
                lambda: self.post(second, "/v1/completions", prompt),
                lambda reply: reply["usage"]["prompt_tokens_details"]["cached_tokens"] > 256)
            self.assertEqual(again["choices"], text)

    def test_what_is_deleted_is_gone(self):
        uri = f"dir:{self.path('store')}"
        server = self.serve(LLAMA, "--store", uri)
        response = self.respond(server, " ".join(users() * 3))
        other = self.respond(server, users()[0])
        self.assertEqual(server.ask("DELETE", f"{RESPONSES}/{response['id']}")[0], 200)
        self.assertEqual(server.ask("DELETE", f"{RESPONSES}/{response['id']}")[0], 404)
        self.assertEqual(server.end(), 0)
        left = [session["digest"] for session in self.json("store", uri, "list")["sessions"]]
        self.assertEqual(set(left), {other["id"].removeprefix("resp_")})

    def test_streams_are_the_same_replies(self):
        server = self.serve(LLAMA)
        body = {"messages": [{"role": "user", "content": users()[0]}], "max_tokens": 20,
                "temperature": 2, "top_k": 0, "top_p": 1, "min_p": 0, "seed": 3, "n": 3,
                "logprobs": True, "top_logprobs": 2}
        whole = self.post(server, CHAT, body)["choices"]
        texts, likelihoods, ends = [""] * 3, [[], [], []], [None] * 3
        for event in server.events(CHAT, body):
            for choice in event["choices"]:
                index = choice["index"]
                texts[index] += choice["delta"].get("content") or ""
                likelihoods[index] += (choice["logprobs"] or {"content": []})["content"]
                ends[index] = choice["finish_reason"] or ends[index]
        self.assertEqual(texts, [choice["message"]["content"] for choice in whole])
        self.assertEqual(likelihoods, [choice["logprobs"]["content"] for choice in whole])
        self.assertEqual(ends, [choice["finish_reason"] for choice in whole])
        self.assertGreater(len(set(texts)), 1)

    def test_stop_strings_are_never_seen(self):
        server = self.serve(LLAMA)
        body = {"messages": [{"role": "user", "content": users()[0]}], "temperature": 0}
        text = self.post(server, CHAT, body)["choices"][0]["message"]["content"]
        stop = text[len(text) // 2:len(text) // 2 + 3]
        body["stop"] = [stop]
        whole = self.post(server, CHAT, body)["choices"][0]
        self.assertEqual(whole["message"]["content"], text[:text.index(stop)])
        self.assertEqual(whole["finish_reason"], "stop")
        streamed = "".join(choice["delta"].get("content") or ""
                           for event in server.events(CHAT, body) for choice in event["choices"])
        self.assertEqual(streamed, text[:text.index(stop)])

    def test_forms_are_kept(self):
        server = self.serve(LLAMA)
        schema = {"type": "object", "properties": {"k": {"enum": [5, 7]}}, "required": ["k"],
                  "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": "k", "schema": schema}}
        reply = self.say(server, [{"role": "user", "content": users()[0]}], max_tokens=60,
                         response_format=form)
        choice = reply["choices"][0]
        self.assertEqual(choice["finish_reason"], "stop")
        self.assertIn(json.loads(choice["message"]["content"]), ({"k": 5}, {"k": 7}))

    def test_sessions(self):
        server = self.serve(LLAMA)
        response = self.respond(server, users()[0])
        digest = response["id"].removeprefix("resp_")
        session = self.get(server, f"/v1/sessions/{digest}")
        self.assertEqual(session["position"], response["usage"]["total_tokens"])
        self.assertTrue(self.post(server, f"/v1/sessions/{digest}/verify", {})["verified"])
        _, data = server.ask("GET", f"/v1/sessions/{digest}/export")
        short = self.post(server, f"/v1/sessions/{digest}/rewind", {"position": 5})
        self.assertEqual(self.get(server, f"/v1/sessions/{short['id']}")["position"], 5)
        self.post(server, f"/v1/sessions/{digest}/rewind", {"position": 5000}, 400)

        other = self.serve(LLAMA)
        self.get(other, f"/v1/sessions/{digest}", status=404)
        self.assertEqual(self.post(other, "/v1/sessions", data)["id"], digest)
        follow = users()[1]
        self.assertEqual(self.respond(other, follow, response["id"])["id"],
                         self.respond(server, follow, response["id"])["id"])
        broken = bytearray(data)
        broken[len(data) // 2] ^= 1
        self.post(other, "/v1/sessions", bytes(broken), 400)
        self.post(other, "/v1/sessions", b"nothing", 400)
        self.assertEqual(other.ask("DELETE", f"/v1/sessions/{digest}")[0], 200)
        self.get(other, f"/v1/sessions/{digest}", status=404)

    def test_a_store_that_fails(self):
        store = self.folder / "store"
        server = self.serve(LLAMA, "--store", f"dir:{store}")
        first = self.respond(server, users()[0])
        kept = self.folder / "elsewhere"
        store.rename(kept)
        store.write_text("in its place")
        error = self.post(server, RESPONSES, {"input": users()[1]}, 500)["error"]
        self.assertIn("store", error["message"])
        said = self.say(server, [{"role": "user", "content": users()[1]}])
        self.assertTrue(said["choices"][0]["message"]["content"])
        store.unlink()
        kept.rename(store)
        second = self.respond(server, users()[1], first["id"])
        self.assertEqual(self.get(server, f"{RESPONSES}/{second['id']}")["id"], second["id"])

    def test_a_state_that_several_requests_reach(self):
        for options in (), ("--store", f"dir:{self.path('store')}"):
            server = self.serve(LLAMA, *options)
            body = {"input": users()[0], "max_output_tokens": 40}
            streams = [[event["response"]["id"] for event in server.events(
                RESPONSES, {**body, **more}) if "response" in event][-1]
                for more in ({}, {"metadata": {"a": "b"}})]
            self.assertEqual(len(set(streams)), 2)
            response = self.respond(server, users()[0])["id"]
            self.say(server, [{"role": "user", "content": users()[0]}])
            digest = response.removeprefix("resp_")
            end = self.get(server, f"/v1/sessions/{digest}")["position"]
            again = self.post(server, f"/v1/sessions/{digest}/rewind", {"position": end})
            self.assertEqual(again["id"], digest)
            for name in (response, *streams):  # what came after has taken nothing from them
                self.get(server, f"{RESPONSES}/{name}")
            self.assertEqual(server.ask("DELETE", f"{RESPONSES}/{streams[0]}")[0], 200)
            for name in (response, *streams):
                self.get(server, f"{RESPONSES}/{name}", status=404)

    def test_forged_data(self):
        server = self.serve(LLAMA)
        for name, value in (("serve.conversation", "[" * 100000), ("serve.names", "no end"),
                            ("serve.conversation", '{"messages": []}'),
                            *(("serve.conversation", json.dumps({"messages": [message]}))
                              for message in LACKING),
                            ("serve.response", "<script>"), ("serve.response.001", "behind"),
                            ("serve.conversation.002", "behind")):
            path = self.path("forged.stasis")
            forge = ("import sys, stasis; s = stasis.Model(sys.argv[1]).session(); "
                     "s.append([5, 6, 7]); s.data[sys.argv[2]] = sys.argv[3].encode(); "
                     "s.save(sys.argv[4], replace=True)")
            subprocess.run([sys.executable, "-c", forge, LLAMA, name, value, path], check=True,
                           env={**os.environ, "PYTHONPATH": ROOT / "bindings/python",
                                "STASIS_LIBRARY": command().parent / "abi/libstasis.so.0"})
            with open(path, "rb") as file:
                status, data = server.ask("POST", "/v1/sessions", file.read())
            if name == "serve.conversation":
                self.assertEqual(status, 400, (data, value[:80]))
                continue
            digest = json.loads(data)["id"]
            self.assertNotIn(name.encode(), server.ask("GET", f"/v1/sessions/{digest}/export")[1])
            self.get(server, f"{RESPONSES}/resp_{digest}", status=404)
            self.assertEqual(server.ask("DELETE", f"/v1/sessions/{digest}")[0], 200)

    def test_names_of_one_state(self):
        """Each stream's id names the session; only the last ones keep it in memory."""
        server = self.serve(LLAMA)
        names = []
        for i in range(12):
            events = list(server.events(RESPONSES, {
                "input": users()[0], "max_output_tokens": 3, "metadata": {"n": str(i)}}))
            names.append(events[-1]["response"]["id"])
        self.assertEqual(len(set(names)), 12)
        self.get(server, f"{RESPONSES}/{names[0]}", status=404)
        for name in names[-4:]:
            self.get(server, f"{RESPONSES}/{name}")

    def test_keys_are_of_one_tenant_each(self):
        with open(self.path("keys"), "w", encoding="ascii") as file:
            file.write("# two\nalpha-key-1\nbeta-key-2\n")
        server = self.serve(LLAMA, "--api-key-file", self.path("keys"), "--store",
                            f"dir:{self.path('store')}")
        alpha, beta = ({"authorization": f"Bearer {key}"} for key in ("alpha-key-1", "beta-key-2"))
        body = {"input": users()[0], "max_output_tokens": 5}
        self.post(server, RESPONSES, body, 401)
        self.post(server, RESPONSES, body, 401, {"x-api-key": "gamma"})
        name = self.post(server, RESPONSES, body, headers=alpha)["id"]
        self.get(server, f"{RESPONSES}/{name}", headers=alpha)
        self.get(server, f"{RESPONSES}/{name}", status=404, headers=beta)
        self.post(server, RESPONSES, {**body, "previous_response_id": name}, 404, beta)
        self.get(server, "/health")

        # No prompt is cheaper for what another tenant has asked, in memory or from the store.
        long = {"input": " ".join(users() * 3), "max_output_tokens": 5}
        cached = lambda server, key: self.post(server, RESPONSES, long, headers=key)[
            "usage"]["input_tokens_details"]["cached_tokens"]
        self.assertEqual(cached(server, alpha), 0)
        self.assertGreater(cached(server, alpha), 256)
        self.assertEqual(cached(server, beta), 0)
        self.assertEqual(server.end(), 0)
        server = self.serve(LLAMA, "--api-key-file", self.path("keys"), "--store",
                            f"dir:{self.path('store')}")
        self.assertGreater(cached(server, alpha), 256)
        gamma = {"authorization": "Bearer gamma-key-3"}
        with open(self.path("keys"), "a", encoding="ascii") as file:
            file.write("gamma-key-3\n")
        self.assertEqual(server.end(), 0)
        server = self.serve(LLAMA, "--api-key-file", self.path("keys"), "--store",
                            f"dir:{self.path('store')}")
        self.assertGreater(cached(server, alpha), 256)
        self.assertEqual(cached(server, gamma), 0)

    def test_refusals(self):
        self.refused("serve", self.path("none"), names=["none"])
        self.refused("serve", LLAMA, LLAMA, names=["two models"])
        self.refused("serve", LLAMA, "--listen", "nowhere", names=["nowhere"])
        self.refused("serve", LLAMA, "--store", "ftp:x", names=["ftp"])
        server = self.serve(LLAMA, WITHOUT_TOKENIZER, "--running", 2)
        hello = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}
        self.post(server, CHAT, {**hello, "model": "gpt-5"}, 404)
        self.post(server, CHAT, b"{", 400)
        self.post(server, CHAT, {**hello, "model": WITHOUT_TOKENIZER.name}, 400)
        self.post(server, CHAT, {**hello, "temperature": "hot"}, 400)
        self.post(server, CHAT, {**hello, "n": 3}, 429)
        self.post(server, CHAT, {**hello, "n": 2})
        long = {"messages": [{"role": "user", "content": "again and again " * 4000}]}
        error = self.post(server, CHAT, long, 400)["error"]
        self.assertEqual(error["code"], "context_length_exceeded")
        self.post(server, RESPONSES, {"input": "x", "previous_response_id": "resp_none"}, 404)
        error = self.post(server, "/v1/messages", {"messages": []}, 400)
        self.assertEqual(error["type"], "error")
        self.get(server, "/v1/nothing", status=404)
        self.get(server, "/v1/sessions/../../etc/passwd", status=404)
        self.get(server, f"/v1/sessions/{'0' * 64}", status=404)
        # Prompts of tokens need no tokenizer.
        self.post(server, "/v1/completions", {"model": WITHOUT_TOKENIZER.name, "prompt": [1, 2],
                                              "max_tokens": 2})
        self.post(server, "/v1/completions", {"model": WITHOUT_TOKENIZER.name, "prompt": "a"}, 400)
        self.assertEqual(self.get(server, "/ready"), {"status": "ready"})

    def test_the_end_lets_replies_end(self):
        server = self.serve(LLAMA)
        events = server.events(CHAT, {"messages": [{"role": "user", "content": users()[0]}],
                                      "max_tokens": 2000, "logit_bias": {"2": -100}})
        next(events)
        ended = []
        waiter = threading.Thread(target=lambda: ended.append(server.end()))
        waiter.start()
        finishes = [choice["finish_reason"] for event in events for choice in event["choices"]]
        waiter.join()
        self.assertEqual(ended, [0])
        self.assertIsNotNone(finishes[-1])
