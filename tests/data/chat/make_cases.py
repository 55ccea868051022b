#!/usr/bin/env python3
"""Writes cases.json: what transformers renders for the conversations below through each template of
templates/. Needs `pip install transformers jinja2`; the date is that of `DATE`, not today's.

    python3 make_cases.py [FOLDER [FILE]]    other templates, another file
"""
import copy
import datetime
import json
import pathlib
import sys

import transformers
from transformers.utils import chat_template_utils

DATE = "2026-01-02"
HERE = pathlib.Path(__file__).parent


class Day(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromisoformat(DATE)


chat_template_utils.datetime = Day

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Returns the weather of a \"place\" <now>.",
    "parameters": {"type": "object", "properties": {
        "place": {"type": "string", "description": "City, e.g. Zürich"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        "days": {"type": "integer", "description": "How many"},
        "near": {"type": "array", "items": {"type": "number"}, "description": "Coordinates"},
        "exact": {"type": "boolean", "nullable": True}},
        "required": ["place", "days"]}}}
NESTED = {"type": "function", "function": {
    "name": "book", "description": "Books.\nTwo lines.",
    "parameters": {"type": "object", "properties": {
        "who": {"type": "object", "description": "The guest", "properties": {
            "name": {"type": "string"}, "age": {"type": "number"}}, "required": ["name"]},
        "rooms": {"type": "array", "items": {"type": "object", "properties": {
            "beds": {"type": "integer", "description": "n"}}, "required": ["beds"]}},
        "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["who"]}}}
CLOCK = {"type": "function", "function": {
    "name": "clock", "description": "Tells the time.",
    "parameters": {"type": "object", "properties": {}}}}


def call(name, arguments, at="abcdef123"):
    return {"id": at, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content, at="abcdef123", name="get_weather"):
    return {"role": "tool", "name": name, "tool_call_id": at, "content": content}


SYSTEM = {"role": "system", "content": " Be brief.\n"}
USER = {"role": "user", "content": "What's the weather in Zürich?"}
MORE = {"role": "user", "content": "  And <tool_response> tomorrow?\n\n"}
REPLY = {"role": "assistant", "content": "Sunny."}
ASK = {"role": "assistant", "content": "",
       "tool_calls": [call("get_weather", {"place": "Zürich", "days": 2, "unit": "celsius"})]}
ASK_NULL = {**ASK, "content": None}
ASK_TEXT = {**ASK, "content": "Let me see."}
ASK_DEEP = {"role": "assistant", "content": "", "tool_calls": [call("book", {
    "who": {"name": "Ann \"A\" O'Hara\n", "age": 40.5}, "rooms": [{"beds": 2}, {"beds": 1}],
    "tags": [], "note": None, "paid": True, "big": 1e22, "small": 1e-7, "one": 1.0})]}
ASK_BOTH = {"role": "assistant", "content": "", "tool_calls": [
    call("get_weather", {"place": "Bern", "days": 1}, "call00001"),
    call("clock", {}, "call00002")]}
THOUGHT = {**REPLY, "reasoning_content": "\nThe user asks.\nShort.\n"}
ASK_THOUGHT = {**ASK, "reasoning_content": "I need the tool."}
INLINE = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nRain."}
SUN, JSON_SUN = result("18°C"), result('{"t": 18, "sky": "clear"}')
BOTH = [result("rain", "call00001"), result("12:00", "call00002", "clock")]
TOOLS, ALL = [WEATHER], [WEATHER, NESTED, CLOCK]
ON, OFF = {"enable_thinking": True}, {"enable_thinking": False}

CONVERSATIONS = [
    ("user", [USER], {}),
    ("system", [SYSTEM, USER], {}),
    ("dialogue", [SYSTEM, USER, REPLY, MORE], {}),
    ("last reply", [USER, REPLY], {}),
    ("thinking on", [SYSTEM, USER], ON),
    ("thinking off", [USER, REPLY, MORE], OFF),
    ("effort", [USER], {"reasoning_effort": "high", "model_identity": "You are X."}),
    ("thought", [USER, THOUGHT], {}),
    ("thought, more", [USER, THOUGHT, MORE], ON),
    ("inline thought", [SYSTEM, USER, INLINE, MORE, REPLY], {}),
    ("tools", [USER], {"tools": TOOLS}),
    ("all tools", [SYSTEM, USER], {"tools": ALL}),
    ("all tools, thinking off", [SYSTEM, USER], {"tools": ALL, **OFF}),
    ("call", [USER, ASK], {"tools": TOOLS}),
    ("call without content", [USER, ASK_NULL, SUN], {"tools": TOOLS}),
    ("result", [SYSTEM, USER, ASK, SUN], {"tools": TOOLS}),
    ("result as JSON", [USER, ASK_TEXT, JSON_SUN], {"tools": TOOLS}),
    ("reply after result", [USER, ASK, SUN, REPLY, MORE], {"tools": TOOLS}),
    ("nested arguments", [USER, ASK_DEEP, result("ok", name="book")], {"tools": ALL}),
    ("two calls", [USER, ASK_BOTH, *BOTH], {"tools": ALL}),
    ("two calls, then more", [USER, ASK_BOTH, *BOTH, REPLY, MORE], {"tools": ALL}),
    ("thought and call", [USER, ASK_THOUGHT, SUN], {"tools": TOOLS, **ON}),
    ("thought and call, more", [USER, ASK_THOUGHT, SUN, THOUGHT, MORE], {"tools": TOOLS, **ON}),
    ("calls in a row", [USER, ASK, SUN, ASK_TEXT, SUN, REPLY], {"tools": TOOLS}),
    ("parts", [{"role": "user", "content": [{"type": "text", "text": "One "},
                                            {"type": "text", "text": "two."}]}], {}),
    ("developer", [{"role": "developer", "content": "Rules."}, USER], {"tools": TOOLS}),
    ("result first", [SUN], {}),
    ("nothing", [], {}),
]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


def render(source, messages, extra, prompt):
    given = copy.deepcopy(extra)
    tools = given.pop("tools", None)
    messages = chat_template_utils._normalize_chat_messages(messages)
    out, _ = chat_template_utils.render_jinja_template(
        [messages], tools=tools, chat_template=source, add_generation_prompt=prompt,
        **SPECIAL, **given)
    return out[0]


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "templates"
    to = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else HERE / "cases.json"
    cases = []
    for path in sorted(folder.glob("*.jinja")):
        source = path.read_text()
        rendered = []
        for name, messages, extra in CONVERSATIONS:
            entry = {"conversation": name}
            for field, prompt in (("prompt", True), ("text", False)):
                try:
                    entry[field] = render(source, messages, extra, prompt)
                except Exception as error:  # what a template refuses or cannot do
                    entry[field + "_error"] = type(error).__name__
            if entry.get("prompt", "").startswith(entry.get("text", "\0")):
                entry["prompt_adds"] = entry.pop("prompt")[len(entry["text"]):]
            rendered.append(entry)
        cases.append({"template": path.stem, "renderings": rendered})
    conversations = {name: {"messages": messages, "date": DATE, **extra}
                     for name, messages, extra in CONVERSATIONS}
    to.write_text(json.dumps(
        {"renderer": "transformers " + transformers.__version__, **SPECIAL,
         "conversations": conversations, "cases": cases}, ensure_ascii=False, indent=0) + "\n")


if __name__ == "__main__":
    main()
