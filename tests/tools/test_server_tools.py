# Forced calls: with tool_choice a reply is a call of one of the tools, whatever the model would
# say, in the form of each family whose form can be constrained; the others are refused by name.
import json

import scripted_model
from served import ServerTest
from stasis_process import DATA

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
TEMPLATES = DATA / "chat" / "templates"
CITIES = ["Bern", "Gh\"ent", "<Zürich>"]
WEATHER = {"type": "object", "properties": {
    "city": {"enum": CITIES}, "days": {"type": "integer", "minimum": 0, "maximum": 12},
    "flags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    "kind": {"type": "string", "enum": ["rain", "wind"]}, "in": {"$ref": "#/$defs/unit"}},
    "required": ["city", "days"], "additionalProperties": False,
    "$defs": {"unit": {"enum": [1, 2.5, None]}}}
TOOLS = {"weather": WEATHER, "now": {
    "type": "object", "properties": {}, "additionalProperties": False}}
# Templates by how they write calls, and the marker of those that cannot be constrained.
OBJECTS = ["Qwen-Qwen2.5-7B-Instruct", "Qwen-Qwen3-0.6B",
           "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
           "meta-llama-Llama-3.1-8B-Instruct", "meta-llama-Llama-3.2-3B-Instruct"]
TAGGED = ["Qwen3-Coder", "Qwen3.5-4B"]
REFUSED = {"mistralai-Mistral-Nemo-Instruct-2407": "[TOOL_CALLS]",
           "Mistral-Small-3.2-24B-Instruct-2506": "[TOOL_CALLS]",
           "mistralai-Ministral-3-14B-Reasoning-2512": "[TOOL_CALLS]",
           "google-gemma-4-31B-it": "<|tool_call>", "openai-gpt-oss-120b": "<|channel|>",
           "LFM2.5-Instruct": "not known"}


def chat_tools(tools):
    return [{"type": "function", "function": {"name": name, "description": "It is " + name,
                                              "parameters": schema}}
            for name, schema in tools.items()]


def asked(**members):
    return {"messages": [{"role": "user", "content": "How is it?"}], "tools": chat_tools(TOOLS),
            "tool_choice": "required", "temperature": 2, "max_tokens": 600,
            "reasoning_effort": "none", **members}


class Tools(ServerTest):
    def model(self, name, script=None, template=None):
        folder = self.folder / name
        scripted_model.write(folder, script or {}, template or (
            TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8"))
        return folder

    def called(self, call):
        """The name and the arguments of a call, which are right for it."""
        function = call["function"]
        arguments = json.loads(function["arguments"])
        if function["name"] == "now":
            self.assertEqual(arguments, {})
            return "now", arguments
        self.assertEqual(function["name"], "weather")
        self.assertLessEqual({"city", "days"}, set(arguments))
        self.assertLessEqual(set(arguments), set(WEATHER["properties"]))
        self.assertIn(arguments["city"], CITIES)
        self.assertIn(arguments["days"], range(13))
        self.assertTrue(all(flag in (True, False) for flag in arguments.get("flags", [])))
        self.assertIn(arguments.get("kind", "rain"), ("rain", "wind"))
        self.assertIn(arguments.get("in", 1), (1, 2.5, None))
        return "weather", arguments

    def choice(self, server, body):
        reply = self.post(server, CHAT, body)
        choice = reply["choices"][0]
        self.assertEqual(choice["finish_reason"], "tool_calls", reply)
        self.assertEqual(choice["message"]["content"] or "", "")
        return choice["message"]

    def test_every_family(self):
        for name in OBJECTS + TAGGED:
            with self.subTest(name):
                server = self.serve(self.model(name))
                seen = set()
                for seed in range(24):
                    message = self.choice(server, asked(seed=seed))
                    for call in message["tool_calls"]:
                        seen.add(self.called(call)[0])
                self.assertEqual(seen, {"weather", "now"})
                named = {"type": "function", "function": {"name": "weather"}}
                for seed in range(8):
                    calls = self.choice(server, asked(seed=seed, tool_choice=named))["tool_calls"]
                    self.assertEqual([self.called(call)[0] for call in calls], ["weather"])
                # What was drawn is a session that its file proves.
                response = self.post(server, RESPONSES, {
                    "input": "How is it?", "tool_choice": "required", "temperature": 2,
                    "reasoning": {"effort": "none"}, "tools": [
                        {"type": "function", **tool["function"]} for tool in chat_tools(TOOLS)]})
                item = response["output"][0]
                self.called({"function": item})
                digest = response["id"].removeprefix("resp_")
                self.assertTrue(self.post(server, f"/v1/sessions/{digest}/verify", {})["verified"])
                server.kill()

    def test_families_that_cannot(self):
        for name, marker in REFUSED.items():
            with self.subTest(name):
                server = self.serve(self.model(name))
                error = self.post(server, CHAT, asked(), 400)["error"]
                self.assertEqual(error["param"], "tool_choice", error)
                self.assertIn(marker, error["message"])
                self.post(server, CHAT, asked(tool_choice="auto", max_tokens=3))
                server.kill()

    def test_thoughts_come_first(self):
        script = {">": ["Hm, <</thin hm.", "</think>", "Yes."]}
        server = self.serve(self.model("scripted", script, scripted_model.TEMPLATE))
        for switches in {}, {"enable_thinking": True}:
            body = asked(temperature=0, chat_template_kwargs=switches, reasoning_effort=None,
                         tools=chat_tools({"weather": WEATHER}), parallel_tool_calls=False)
            message = self.choice(server, body)
            self.assertEqual(message["reasoning_content"], "Hm, <</thin hm.")
            self.called(message["tool_calls"][0])

    def test_texts_without_quotes(self):
        text = "calm </parameter and <dry>\n\"really\""
        script = {"\n": [text, "\n</parameter>"]}
        server = self.serve(self.model("Qwen3-Coder", script))
        note = {"type": "object", "properties": {"note": {"type": "string"}}, "required": ["note"]}
        body = asked(temperature=0, tools=chat_tools({"write": note}))
        call = self.choice(server, body)["tool_calls"][0]["function"]
        self.assertEqual((call["name"], json.loads(call["arguments"])), ("write", {"note": text}))
        note["properties"]["note"]["maxLength"] = 3
        error = self.post(server, CHAT, body, 400)["error"]
        self.assertIn("maxLength", error["message"])
        note["properties"] = {"note": {"$ref": "#/properties/note"}}
        self.assertIn("#/properties/note", self.post(server, CHAT, body, 400)["error"]["message"])

    def test_one_call_or_several(self):
        call = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
        script = {"\n": [call, "\n" + call]}
        server = self.serve(self.model("scripted", script, scripted_model.TEMPLATE))
        body = asked(temperature=0, reasoning_effort=None, tools=chat_tools({"now": TOOLS["now"]}))
        for members, count in (({}, 2), ({"parallel_tool_calls": False}, 1),
                               ({"tool_choice": {"type": "function",
                                                 "function": {"name": "now"}}}, 1)):
            message = self.choice(server, {**body, **members})
            self.assertEqual([self.called(call) for call in message["tool_calls"]],
                             [("now", {})] * count)
        # In a stream, and as Anthropic has it.
        deltas = [choice["delta"] for event in server.events(CHAT, body)
                  for choice in event["choices"]]
        indices = {call["index"] for delta in deltas for call in delta.get("tool_calls") or []}
        self.assertEqual(indices, {0, 1})
        tools = [{"name": "now", "input_schema": TOOLS["now"]}]
        for choice, count in ({"type": "any"}, 2), ({"type": "tool", "name": "now"}, 1), (
                {"type": "any", "disable_parallel_tool_use": True}, 1):
            reply = self.post(server, MESSAGES, {
                "messages": body["messages"], "tools": tools, "tool_choice": choice,
                "max_tokens": 300, "temperature": 0})
            self.assertEqual(reply["stop_reason"], "tool_use")
            self.assertEqual([(block["type"], block["input"]) for block in reply["content"]],
                             [("tool_use", {})] * count)

    def test_a_template_without_tools(self):
        """SmolLM3's, as published by Unsloth, has no place for tools: they are never ignored."""
        server = self.serve(self.model("HuggingFaceTB-SmolLM3-3B"))
        for choice in "required", {"type": "function", "function": {"name": "now"}}, "auto":
            error = self.post(server, CHAT, asked(tool_choice=choice), 400)["error"]
            self.assertEqual((error["param"], error["message"]), (
                "tools", "the model's chat template has no place for tools"))
        self.post(server, CHAT, asked(tool_choice="none", max_tokens=3))

    def session(self, server, response):
        return self.get(server, "/v1/sessions/" + response["id"].removeprefix("resp_"))

    def test_a_reply_ends_with_its_only_call(self):
        """parallel_tool_calls: false, where the model decides whether it calls."""
        call = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
        script = {"\n": ["So:", "\n" + call, "\n\n" + call, " Done."], "\t": ["Noon."]}
        place = "--store", f"dir:{self.path('store')}"
        server = self.serve(self.model("scripted", script, scripted_model.TEMPLATE), *place)
        tools = chat_tools({"now": TOOLS["now"]})
        body = asked(temperature=0, reasoning_effort=None, tools=tools, tool_choice="auto")
        for single, count, drawn in (False, 2, 5), (True, 1, 2):
            reply = self.post(server, CHAT, {**body, "parallel_tool_calls": not single})
            self.assertEqual(len(reply["choices"][0]["message"]["tool_calls"]), count)
            self.assertEqual(reply["choices"][0]["finish_reason"], "tool_calls")
            self.assertEqual(reply["usage"]["completion_tokens"], drawn)
            deltas, ends = [], []
            for event in server.events(CHAT, {**body, "parallel_tool_calls": not single}):
                deltas += [choice["delta"] for choice in event["choices"]]
                ends += [choice["finish_reason"] for choice in event["choices"]]
            self.assertEqual(sum(len(delta.get("tool_calls") or []) for delta in deltas), count)
            text = "".join(delta.get("content") or "" for delta in deltas)
            self.assertEqual(text.split(), ["So:"] if single else ["So:", "Done."])
            self.assertEqual(ends[-1], "tool_calls")
            message = self.post(server, MESSAGES, {
                "messages": body["messages"], "max_tokens": 300, "temperature": 0,
                "tools": [{"name": "now", "input_schema": TOOLS["now"]}],
                "tool_choice": {"type": "auto", "disable_parallel_tool_use": single}})
            self.assertEqual(message["stop_reason"], "tool_use")
            self.assertEqual(sum(block["type"] == "tool_use" for block in message["content"]),
                             count)
        flat = [{"type": "function", **tool["function"]} for tool in tools]
        first = self.post(server, RESPONSES, {"input": "How late?", "tools": flat,
                                              "parallel_tool_calls": False})
        self.assertEqual([item["type"] for item in first["output"]], ["message", "function_call"])
        said = self.session(server, first)
        self.assertEqual(len(said["conversation"]["messages"][-1]["tool_calls"]), 1)
        self.assertEqual(said["position"], first["usage"]["total_tokens"])
        digest = first["id"].removeprefix("resp_")
        self.assertTrue(self.post(server, f"/v1/sessions/{digest}/verify", {})["verified"])
        # All that is stored was said: the next turn goes on behind it.
        second = self.post(server, RESPONSES, {
            "previous_response_id": first["id"], "tools": flat, "input": [
                {"type": "function_call_output", "call_id": first["output"][1]["call_id"],
                 "output": "12"}]})
        self.assertEqual(second["output"][0]["content"][0]["text"], "Noon.")
        self.assertEqual(second["usage"]["input_tokens_details"]["cached_tokens"],
                         said["position"])

    def test_the_only_call_of_a_list(self):
        """Mistral's models may write all calls as one list: the log has the first one alone."""
        calls = ('[TOOL_CALLS] [{"name": "now", "arguments": {}, "id": "abcdefghi"}, '
                 '{"name": "now", "arguments": {}, "id": "abcdefghj"}]')
        name = "mistralai-Mistral-Nemo-Instruct-2407"
        server = self.serve(self.model(name, {"]": [calls]}))
        flat = [{"type": "function", **tool["function"]} for tool in chat_tools(TOOLS)]
        body = {"input": "How late?", "tools": flat}
        both = self.post(server, RESPONSES, body)
        self.assertEqual([item["name"] for item in both["output"]], ["now", "now"])
        first = self.post(server, RESPONSES, {**body, "parallel_tool_calls": False})
        self.assertEqual([item["name"] for item in first["output"]], ["now"])
        said = self.session(server, first)
        digest = first["id"].removeprefix("resp_")
        self.assertTrue(self.post(server, f"/v1/sessions/{digest}/verify", {})["verified"])
        second = self.post(server, RESPONSES, {
            "previous_response_id": first["id"], "tools": flat, "max_output_tokens": 5, "input": [
                {"type": "function_call_output", "call_id": first["output"][0]["call_id"],
                 "output": "12"}]})
        self.assertEqual(second["usage"]["input_tokens_details"]["cached_tokens"],
                         said["position"])

    def test_refusals(self):
        server = self.serve(self.model("Qwen-Qwen3-0.6B"))
        self.post(server, CHAT, asked(tools=[]), 400)
        self.post(server, CHAT, asked(tool_choice={"type": "function",
                                                   "function": {"name": "other"}}), 400)
        self.post(server, CHAT, asked(guided_regex="a"), 400)
        for schema in {"type": "string"}, {"type": "object", "patternProperties": {}}:
            error = self.post(server, CHAT, asked(tools=chat_tools({"f": schema})), 400)["error"]
            self.assertRegex(error["message"], "f|patternProperties")
