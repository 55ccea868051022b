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

    def test_refusals(self):
        server = self.serve(self.model("Qwen-Qwen3-0.6B"))
        self.post(server, CHAT, asked(tools=[]), 400)
        self.post(server, CHAT, asked(tool_choice={"type": "function",
                                                   "function": {"name": "other"}}), 400)
        self.post(server, CHAT, asked(guided_regex="a"), 400)
        for schema in {"type": "string"}, {"type": "object", "patternProperties": {}}:
            error = self.post(server, CHAT, asked(tools=chat_tools({"f": schema})), 400)["error"]
            self.assertRegex(error["message"], "f|patternProperties")
