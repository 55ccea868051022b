# Conversations of /v1/conversations: a turn in one is the turn that previous_response_id gives,
# after a restart and at another server; two requests at once lose none; keys are kept apart.
import http.client
import json
import random
import threading

import scripted_model
from served import ServerTest
from stasis_process import DATA, GEMMA, LLAMA, turns_of

CONVERSATIONS, RESPONSES = "/v1/conversations", "/v1/responses"
ENDLESS = {"2": -100, "4": -100}  # no end token: as many tokens as were asked for


def users():
    return [turn["user"] for turn in turns_of(LLAMA)]


class Conversations(ServerTest):
    def create(self, server, **members):
        return self.post(server, CONVERSATIONS, members)["id"]

    def turn(self, server, text, status=200, headers=None, **members):
        return self.post(server, RESPONSES, {"input": text, "max_output_tokens": 40, **members},
                         status, headers)

    def texts(self, server, conversation):
        """What was said, in its order."""
        items = self.get(server, f"{CONVERSATIONS}/{conversation}/items?order=asc&limit=100")
        self.assertFalse(items["has_more"])
        return [item["content"][0]["text"] for item in items["data"]]

    def places(self):
        return (), ("--store", f"dir:{self.path('dir')}"), ("--store",
                                                            f"sqlite:{self.path('sqlite')}")

    def test_a_turn_is_that_of_previous_response_id(self):
        for place in self.places():
            server = self.serve(LLAMA, *place)
            conversation = self.create(server, metadata={"topic": "numbers"})
            before, said = None, []
            for text in users()[:3]:
                given = {"id": conversation} if before else conversation
                kept = self.turn(server, text, conversation=given)
                plain = self.turn(server, text, previous_response_id=before)
                self.assertEqual(kept["id"], plain["id"])  # the digest of the whole state
                self.assertEqual(kept["conversation"], {"id": conversation})
                usage = kept["usage"]["input_tokens_details"]["cached_tokens"]
                if before:
                    self.assertGreater(usage, 20)
                before = kept["id"]
                said += [text, kept["output"][0]["content"][0]["text"]]
                self.assertEqual(self.texts(server, conversation), said)
                if place:  # after an end, and after kill -9
                    self.assertEqual(server.end(), 0) if len(said) == 2 else server.kill()
                    server = self.serve(LLAMA, *place)
            self.assertEqual(self.get(server, f"{CONVERSATIONS}/{conversation}")["metadata"],
                             {"topic": "numbers"})

    def test_beside_a_model_that_makes_embeddings_alone(self):
        """It comes first, and has no sessions: what is stored is the other model's."""
        for place in self.places():
            server = self.serve(DATA / "zoo/embedding-gemma", LLAMA, *place)
            conversation = self.create(server)
            kept = self.turn(server, users()[0], model=LLAMA.name, conversation=conversation)
            self.assertEqual(server.end(), 0)
            if place:
                server = self.serve(DATA / "zoo/embedding-gemma", LLAMA, *place)
                self.assertEqual(self.get(server, f"{RESPONSES}/{kept['id']}")["id"], kept["id"])
                self.assertEqual(len(self.texts(server, conversation)), 2)
                state = kept["id"].removeprefix("resp_")
                self.assertGreater(self.get(server, f"/v1/sessions/{state}")["position"], 20)

    def test_instructions_are_of_their_turn(self):
        server = self.serve(LLAMA)
        conversation = self.create(server)
        first = self.turn(server, users()[0], conversation=conversation, instructions="Be short.")
        kept = self.turn(server, users()[1], conversation=conversation, instructions="Be long.")
        plain = self.turn(server, users()[1], previous_response_id=first["id"],
                          instructions="Be long.")
        self.assertEqual(kept["id"], plain["id"])
        self.assertNotIn("Be short.", self.texts(server, conversation))

    def test_items_that_are_given(self):
        for place in self.places()[:2]:
            server = self.serve(LLAMA, *place)
            first = {"role": "user", "content": users()[0]}
            reply = {"role": "assistant", "content": "k is 5."}
            conversation = self.create(server, items=[first])
            self.assertEqual(self.texts(server, conversation), [users()[0]])
            path = f"{CONVERSATIONS}/{conversation}/items"
            added = self.post(server, path, {"items": [reply, first]})
            self.assertEqual([item["role"] for item in added["data"]], ["assistant", "user"])
            self.assertEqual(self.get(server, f"{path}/{added['data'][1]['id']}"),
                             added["data"][1])
            self.get(server, f"{path}/msg_none", status=404)
            page = self.get(server, f"{path}?limit=2")
            self.assertTrue(page["has_more"])
            self.assertEqual(page["data"], added["data"][::-1])
            rest = self.get(server, f"{path}?limit=2&after={page['last_id']}")
            self.assertEqual(len(rest["data"]), 1)
            kept = self.turn(server, users()[1], conversation=conversation)
            plain = self.turn(server, [first, reply, first,
                                       {"role": "user", "content": users()[1]}])
            self.assertEqual(kept["id"], plain["id"])
            # Without input the conversation itself is what is answered.
            self.post(server, path, {"items": [first]})
            body = {"conversation": conversation, "max_output_tokens": 5}
            self.assertEqual(self.post(server, RESPONSES, body)["status"], "incomplete")
            self.assertEqual(len(self.texts(server, conversation)), 7)

    def items(self, server, conversation):
        return self.get(server, f"{CONVERSATIONS}/{conversation}/items?order=asc&limit=100")["data"]

    def test_ids_of_items_stay(self):
        """When a result gets its call's name, after a restart, and beside items that go."""
        script = {"\n": ["Let me look.", "\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}"
                                         "\n</tool_call>"], "\t": ["Noon."]}
        model = scripted_model.write(self.folder / "scripted", script)
        tools = [{"type": "function", "name": "now", "parameters": {"type": "object"}}]
        for place in self.places()[:2]:
            server = self.serve(model, *place)
            conversation = self.create(server, items=[{"role": "user", "content": "a"}])
            path = f"{CONVERSATIONS}/{conversation}/items"
            reply = self.turn(server, "How late?", conversation=conversation, tools=tools)
            self.assertEqual([item["type"] for item in reply["output"]],
                             ["message", "function_call"])
            self.post(server, path, {"items": [
                {"type": "function_call_output", "call_id": reply["output"][1]["call_id"],
                 "output": "12"}]})
            before = self.items(server, conversation)
            ids = [item["id"] for item in before]
            self.assertEqual(len(set(ids)), 5)
            self.assertEqual(ids[2:4], [item["id"] for item in reply["output"]])
            follow = self.turn(server, [], conversation=conversation, tools=tools)
            self.assertEqual(follow["output"][0]["content"][0]["text"], "Noon.")
            for _ in range(2 if place else 1):
                self.assertEqual(self.items(server, conversation), before + follow["output"])
                for item in before:
                    self.assertEqual(self.get(server, f"{path}/{item['id']}"), item)
                if place:
                    self.assertEqual(server.end(), 0)
                    server = self.serve(model, *place)
            status, data = server.ask("DELETE", f"{path}/{ids[0]}")
            self.assertEqual((status, json.loads(data)["id"]), (200, conversation))
            self.assertEqual(server.ask("DELETE", f"{path}/{ids[0]}")[0], 404)
            self.get(server, f"{path}/{ids[0]}", status=404)
            self.assertEqual(self.items(server, conversation), before[1:] + follow["output"])
            # What comes in its place is another item, and so is one that says the same again.
            for _ in range(2):
                self.post(server, path, {"items": [{"role": "user", "content": "a"}]})
            now = [item["id"] for item in self.items(server, conversation)]
            self.assertEqual(len(set(now + ids)), 8)
            # Without the call nothing says what the result is one of.
            self.assertEqual(server.ask("DELETE", f"{path}/{ids[3]}")[0], 200)
            self.assertEqual([item["type"] for item in self.items(server, conversation)][:4],
                             ["message", "message", "function_call_output", "message"])
            server.kill()

    def test_ids_of_input_items_stay(self):
        server = self.serve(LLAMA)
        first = self.turn(server, users()[0], instructions="Be short.")
        second = self.turn(server, users()[1], previous_response_id=first["id"])
        lists = [self.get(server, f"{RESPONSES}/{each['id']}/input_items?order=asc")["data"]
                 for each in (first, second)]
        self.assertEqual(lists[0][0], lists[1][0])

    def test_an_item_is_removed(self):
        """What goes on is what a new conversation of the items that are left would be."""
        for place in self.places():
            server = self.serve(LLAMA, *place)
            for gone in (0, 1, 2, 3, 5):
                conversation = self.create(server)
                for text in users()[:3]:
                    self.turn(server, text, conversation=conversation)
                before = self.items(server, conversation)
                path = f"{CONVERSATIONS}/{conversation}/items/{before[gone]['id']}"
                self.assertEqual(server.ask("DELETE", path)[0], 200)
                left = self.items(server, conversation)
                self.assertEqual(left, before[:gone] + before[gone + 1:])
                if place and gone == 2:
                    self.assertEqual(server.end(), 0)
                    server = self.serve(LLAMA, *place)
                kept = self.turn(server, users()[3], conversation=conversation)
                new = self.create(server, items=left)
                self.assertEqual(self.turn(server, users()[3], conversation=new)["id"], kept["id"])
                alone = self.serve(LLAMA)  # where nothing was said before
                elsewhere = self.create(alone, items=left)
                other = self.turn(alone, users()[3], conversation=elsewhere)
                self.assertEqual(other["output"][0]["content"], kept["output"][0]["content"])
                alone.kill()

    def test_replies_that_come_together_keep_their_items(self):
        server = self.serve(LLAMA)
        said = [{"role": "user", "content": users()[0]}, {"role": "assistant", "content": "k is"},
                {"role": "user", "content": "x"},
                {"type": "reasoning", "id": "r", "summary": [],
                 "content": [{"type": "reasoning_text", "text": "Hm."}]},
                {"role": "assistant", "content": " 5."}]
        conversation = self.create(server, items=said)
        ids = [item["id"] for item in self.items(server, conversation)]
        path = f"{CONVERSATIONS}/{conversation}/items/"
        self.assertEqual(server.ask("DELETE", path + ids[2])[0], 200)
        left = self.items(server, conversation)
        self.assertEqual([item["id"] for item in left], ids[:2] + ids[3:])
        self.assertEqual(left[3]["content"][0]["text"], " 5.")
        self.turn(server, users()[1], conversation=conversation)
        self.assertEqual([item["id"] for item in self.items(server, conversation)][:4],
                         ids[:2] + ids[3:])

    def test_another_model_goes_on(self):
        place = "--store", f"dir:{self.path('store')}"
        server = self.serve(LLAMA, GEMMA, *place)
        conversation = self.create(server)
        for index, model in enumerate((LLAMA, GEMMA, LLAMA)):
            reply = self.turn(server, users()[index], conversation=conversation, model=model.name)
            self.assertEqual(reply["model"], model.name)
            self.assertEqual(len(self.texts(server, conversation)), 2 * index + 2)
        self.get(self.serve(GEMMA, *place), f"{CONVERSATIONS}/{conversation}", status=404)

    def test_deleted_and_changed(self):
        for place in self.places():
            server = self.serve(LLAMA, *place)
            conversation = self.create(server)
            path = f"{CONVERSATIONS}/{conversation}"
            reply = self.turn(server, users()[0], conversation=conversation)
            self.post(server, path, {"metadata": {"a": "b"}})
            self.assertEqual(self.get(server, path)["metadata"], {"a": "b"})
            self.assertEqual(len(self.texts(server, conversation)), 2)
            # The reply's session is another thing: each goes without the other.
            self.assertEqual(server.ask("DELETE", f"{RESPONSES}/{reply['id']}")[0], 200)
            follow = self.turn(server, users()[1], conversation=conversation)
            self.assertEqual(server.ask("DELETE", path)[0], 200)
            self.assertEqual(server.ask("DELETE", path)[0], 404)
            self.get(server, path, status=404)
            self.get(server, path + "/items", status=404)
            self.turn(server, "x", 404, conversation=conversation)
            self.get(server, f"{RESPONSES}/{follow['id']}")

    def test_two_at_once(self):
        """The second is refused while the first runs, by this server and by another one."""
        place = "--store", f"dir:{self.path('store')}"
        for servers in [self.serve(LLAMA)] * 2, [self.serve(LLAMA, *place),
                                                 self.serve(LLAMA, *place)]:
            one, two = servers
            conversation = self.create(one)
            long = {"input": users()[0], "conversation": conversation, "max_output_tokens": 1000,
                    "logit_bias": ENDLESS}
            events = one.events(RESPONSES, long)
            kinds = [next(events)["type"] for _ in range(8)]  # it runs
            self.assertIn("response.output_text.delta", kinds)
            path = f"{CONVERSATIONS}/{conversation}/items"
            item = {"items": [{"role": "user", "content": "x"}]}
            if one is two:
                error = self.turn(two, users()[1], 409, conversation=conversation)["error"]
                self.assertEqual(error["code"], "conversation_locked")
                self.assertIn(conversation, error["message"])
                self.post(two, path, item, 409)
                self.assertEqual(two.ask("DELETE", f"{CONVERSATIONS}/{conversation}")[0], 409)
                self.assertEqual(two.ask("DELETE", f"{path}/msg_x")[0], 409)
                self.assertEqual(self.texts(two, conversation), [])
                self.assertEqual(list(events)[-1]["type"], "response.incomplete")
                self.assertEqual(len(self.texts(two, conversation)), 2)
            else:  # the other one does not know of it; who ends first has said its turn
                status, data = two.ask("POST", RESPONSES, {
                    "input": users()[1], "conversation": conversation, "max_output_tokens": 5})
                last = list(events)[-1]
                error = last["response"]["error"] or json.loads(data)["error"]
                self.assertIn(conversation, error["message"])
                self.assertEqual((last["type"], status) in (
                    ("response.failed", 200), ("response.incomplete", 409)), True, (last, status))
                self.assertEqual(self.texts(two, conversation)[0], users()[status == 200])
                self.assertEqual(len(self.texts(one, conversation)), 2)
            self.turn(one, users()[2], conversation=conversation)  # nothing holds it any more
            self.post(two, path, item)

    def test_no_turn_is_lost_among_many(self):
        place = "--store", f"dir:{self.path('store')}"
        servers = [self.serve(LLAMA, *place), self.serve(LLAMA, *place)]
        conversation = self.create(servers[0])
        done, lock = [], threading.Lock()

        def talk(index):
            rng = random.Random(index)
            for turn in range(4):
                text = f"turn {turn} of {index}"
                status = 409
                while status == 409:
                    status, data = rng.choice(servers).ask("POST", RESPONSES, {
                        "input": text, "conversation": conversation, "max_output_tokens": 4})
                with lock:
                    done.append((status, data, text))

        threads = [threading.Thread(target=talk, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual({status for status, _, _ in done}, {200})
        said = self.texts(servers[1], conversation)
        self.assertEqual(sorted(said[::2]), sorted(text for _, _, text in done))
        replies = {text: json.loads(data)["output"][0]["content"][0]["text"]
                   for _, data, text in done}
        self.assertEqual(said[1::2], [replies[text] for text in said[::2]])

    def test_a_client_that_leaves_leaves_no_turn(self):
        server = self.serve(LLAMA)
        conversation = self.create(server)
        connection = http.client.HTTPConnection(server.address, timeout=60)
        connection.request("POST", RESPONSES, json.dumps(
            {"input": users()[0], "conversation": conversation, "stream": True,
             "max_output_tokens": 3000, "logit_bias": ENDLESS}))
        reply = connection.getresponse()
        reply.readline()
        reply.close()
        connection.close()
        status = 409  # until the server has noticed
        while status == 409:
            status, data = server.ask("POST", RESPONSES, {
                "input": users()[1], "conversation": conversation, "max_output_tokens": 5})
        self.assertEqual(status, 200, data)
        self.assertEqual(self.texts(server, conversation)[0], users()[1])

    def test_keys_and_refusals(self):
        with open(self.path("keys"), "w", encoding="ascii") as file:
            file.write("alpha-key-1\nbeta-key-2\n")
        alpha, beta = ({"authorization": f"Bearer {key}"} for key in ("alpha-key-1", "beta-key-2"))
        for place in self.places()[:2]:
            server = self.serve(LLAMA, "--api-key-file", self.path("keys"), *place)
            conversation = self.post(server, CONVERSATIONS, {}, headers=alpha)["id"]
            path = f"{CONVERSATIONS}/{conversation}"
            self.get(server, path, headers=alpha)
            self.get(server, path, status=404, headers=beta)
            self.get(server, path, status=401)
            self.get(server, path + "/items", status=404, headers=beta)
            self.assertEqual(server.ask("DELETE", path + "/items/msg_x", headers=beta)[0], 404)
            self.post(server, path + "/items", {"items": [{"role": "user", "content": "x"}]}, 404,
                      beta)
            self.turn(server, "x", 404, beta, conversation=conversation)
            self.assertEqual(server.ask("DELETE", path, headers=beta)[0], 404)
            self.get(server, path, headers=alpha)
        server = self.serve(LLAMA)
        conversation = self.create(server)
        response = self.turn(server, users()[0])["id"]
        error = self.turn(server, "x", 400, conversation=conversation,
                          previous_response_id=response)["error"]
        self.assertEqual(error["code"], "mutually_exclusive_parameters")
        self.turn(server, "x", 400, conversation=conversation, store=False)
        self.post(server, RESPONSES, {"conversation": conversation}, 400)  # nothing to answer
        for name in "conv_", "conv_" + "0" * 32, "conv_" + "0" * 64, response, "../all/x":
            self.turn(server, "x", 404, conversation=name)
        self.post(server, CONVERSATIONS, {"metadata": {"a": 1}}, 400)
        self.post(server, CONVERSATIONS, {"metadata": {str(i): "" for i in range(17)}}, 400)
        self.post(server, f"{CONVERSATIONS}/{conversation}", {}, 400)
        self.post(server, CONVERSATIONS, {"items": [{"type": "image"}]}, 400)
        self.post(server, f"{CONVERSATIONS}/{conversation}/items", {"items": []}, 400)
        self.assertEqual(self.texts(server, conversation), [])
