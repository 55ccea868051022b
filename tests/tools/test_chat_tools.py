# stasis chat with tools and thoughts: calls are shown as JSON, their results are asked for, and the
# log is what the model's template makes of all messages. The model says what the test wants.
import json
import os
import pty
import select
import subprocess

import scripted_model
from stasis_process import CommandTest, GEMMA, LLAMA, command
from typed_chat import TypedChat

TOOLS = [{"type": "function", "function": {
    "name": name, "description": "What the sky does.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "limit": {"type": "number"}}}}}
         for name in ("rain", "wind")]
ARGUMENTS = {"city": "Bern", "limit": 1.0}
CALL = "\n<tool_call>\n" + json.dumps({"name": "%s", "arguments": ARGUMENTS}) + "\n</tool_call>"
SCRIPT = {"\n": ["Let me look.", CALL % "rain", CALL % "wind"], "\t": ["Dry and calm."],
          " ": ["Hello."], ">": ["Hm, hm.", "</think>", "I thought."], "-": ["I did not."]}
KEYS = ["role", "text", "tokens", "position", "digest", "cut", "seconds", "message"]


class Scripted(CommandTest):
    def setUp(self):
        super().setUp()
        self.model = scripted_model.write(self.folder / "scripted", SCRIPT)
        self.tools = self.file("tools.json", json.dumps(TOOLS))

    def file(self, name, text):
        (self.folder / name).write_text(text)
        return self.path(name)


class Tools(Scripted):
    def check_conversation(self, users, lines, *options):
        """The log is the rendering of all messages but the last, and the last as it was drawn."""
        replies = self.chat(self.model, lines, "--tools", self.tools, "--session", self.path("s"),
                            "--replace", *options)
        messages = [{"role": "system", "content": options[1]}] if options else []
        given = iter(lines)
        for reply in replies:
            self.assertEqual(list(reply), KEYS)
            calls = messages[-1].get("tool_calls") if messages else None
            if calls:
                messages += [{"role": "tool", "tool_call_id": call["id"],
                              "name": call["function"]["name"], "content": next(given)}
                             for call in calls]
            else:
                messages.append({"role": "user", "content": next(given)})
            messages.append(reply["message"])
        self.assertEqual([m["content"] for m in messages if m["role"] == "user"], users)
        chat = self.file("c.json", json.dumps({"messages": messages[:-1], "tools": TOOLS}))
        rendered = self.json("template", self.model, "--messages", chat)["text"]
        self.assertEqual(self.json("inspect", self.path("s"))["text"],
                         rendered + replies[-1]["text"] + scripted_model.END)
        return replies

    def test_calls_and_their_results(self):
        lines = ["hello", "Is it raining?", "no", "2 Bft \u2192 calm", "hello"]
        replies = self.check_conversation(["hello", "Is it raining?", "hello"], lines)
        self.assertEqual([reply["message"]["content"] for reply in replies],
                         ["Hello.", "Let me look.", "Dry and calm.", "Hello."])
        self.assertEqual(replies[1]["text"], "".join(SCRIPT["\n"]))
        self.assertEqual(replies[1]["message"]["tool_calls"], [
            {"type": "function", "function": {"name": name, "arguments": ARGUMENTS}, "id": id_}
            for name, id_ in (("rain", "call00001"), ("wind", "call00002"))])
        for reply in replies[0], replies[2], replies[3]:
            self.assertEqual(list(reply["message"]), ["role", "content"])
        self.ok("verify", self.path("s"), self.model)

    def test_ids_go_on_and_empty_results_are_results(self):
        replies = self.check_conversation(["a", "b"], ["a", "", "", "b", "1", "2"],
                                          "--system", "Look outside.")
        self.assertEqual([call["id"] for reply in replies
                          for call in reply["message"].get("tool_calls", [])],
                         [f"call0000{number}" for number in range(1, 5)])

    def test_without_json(self):
        shown = [json.dumps({"name": name, "arguments": ARGUMENTS}, separators=(",", ":"))
                 for name in ("rain", "wind")]
        self.assertEqual(self.ok("chat", self.model, "--tools", self.tools,
                                 text="hello\n\nRain?\r\nno\n2\nhello").splitlines(),
                         ["Hello.", "Let me look.", *shown, "Dry and calm.", "Hello."])

    def test_the_input_ends_before_a_result(self):
        for text in "Rain?\n", "Rain?\nno\n":
            done = self.run_command("chat", self.model, "--tools", self.tools, "--session",
                                    self.path("s"), "--replace", text=text)
            self.assertEqual((done.returncode, done.stderr.decode()),
                             (2, "stasis: standard input ended before the result of "
                              f"{'wind' if 'no' in text else 'rain'}\n"))
            self.assertTrue(self.json("inspect", self.path("s"))["text"].endswith(
                CALL % "wind" + scripted_model.END))

    def test_a_cut_reply_calls_what_it_has_called(self):
        replies = self.chat(self.model, ["Rain?", "no", "hello"], "--tools", self.tools, "-n", 2)
        self.assertEqual([reply["cut"] for reply in replies], ["limit", None, None])
        self.assertEqual([len(reply["message"].get("tool_calls", [])) for reply in replies],
                         [1, 0, 0])

    def talk(self, lines, model):
        """What a terminal that cannot edit shows of a conversation that is typed there, answer
        after prompt, without the line with which it begins."""
        leader, follower = pty.openpty()
        with subprocess.Popen([str(command()), "chat", str(model), "--tools", self.tools],
                              stdin=follower, stdout=follower, stderr=follower,
                              env={**os.environ, "TERM": "dumb"}) as process:
            os.close(follower)
            output = b""
            for line in [*lines, None]:
                while not output.endswith(b"> "):
                    self.assertTrue(select.select([leader], [], [], 60)[0], output)
                    output += os.read(leader, 1 << 16)
                os.write(leader, b"\x04" if line is None else f"{line}\n".encode())
                while line is not None and f"> {line}".encode() not in output[-len(line) - 20:]:
                    output += os.read(leader, 1)
            self.assertEqual(process.wait(60), 0)
        os.close(leader)
        first, shown = output.decode().replace("\r\n", "\n").split("\n", 1)
        self.assertRegex(first, rf"^\[{model.name} \(.*; /help\]$")
        return shown

    def test_a_terminal_is_asked(self):
        shown = self.talk(["Rain?", "no", "2", "hello"], self.model)
        call = '{"name":"%s","arguments":{"city":"Bern","limit":1.0}}\n'
        self.assertEqual(shown, "> Rain?\nLet me look.\n" + call % "rain" + call % "wind" +
                         "result of rain> no\nresult of wind> 2\nDry and calm.\n> hello\n"
                         "Hello.\n> ")
        self.assertTrue(self.talk(["Rain?", "no"], self.model).endswith("result of wind> "))

    def test_a_name_that_a_terminal_would_obey(self):
        call = CALL % "\\u001b]52;c;QQ==\\u0007\\nverified"
        model = scripted_model.write(self.folder / "hostile", {"\n": [call], "\t": ["Done."]})
        shown = self.talk(["Rain?"], model)
        self.assertIn("result of \\u001b]52;c;QQ==\\u0007\\nverified> ", shown)
        self.assertNotIn("\x1b", shown)
        self.assertNotIn("\nverified", shown)

    def test_bad_files(self):
        function = '{"type": "function", "function": {"name": "rain"}}'
        for text, hint in (("", "not JSON"), ("[", "not JSON"), (f"[{function},]", "not JSON"),
                           ("{}", "expected a list"), (function, "expected a list"),
                           ("3", "expected a list"), ("[]", "expected a list"),
                           ("[1]", "definition 1"), (f"[{function}, {{}}]", "definition 2"),
                           ('[{"type": "function", "function": {"name": 3}}]', "definition 1"),
                           ('[{"type": "function", "function": {"name": ""}}]', "definition 1"),
                           ('[{"type": "function", "function": "rain"}]', "definition 1"),
                           ('[{"function": {"name": "rain"}}]', "definition 1"),
                           ('[{"name": "rain"}]', "definition 1")):
            path = self.file("bad.json", text)
            self.refused("chat", self.model, "--tools", path, text="hello\n",
                         names=["--tools: " + path, hint])
        deep = function[:-1] + ', "x": ' + "[" * 100000 + "]" * 100000 + "}"
        self.refused("chat", self.model, "--tools", self.file("bad.json", f"[{deep}]"))
        (self.folder / "bad.json").write_bytes(b'["\xff"]')
        self.refused("chat", self.model, "--tools", self.path("bad.json"), names=["not JSON"])
        self.refused("chat", self.model, "--tools", self.path("none"), names=["none"])
        self.refused("chat", self.model, "--tools", self.path(""))
        self.refused("chat", self.model, "--tools", "", names=["--tools", "empty"])

    def test_models_that_know_no_tools(self):
        self.refused("chat", LLAMA, "--tools", self.tools, text="hello\n",
                     names=["--tools: the model's chat template has no place for tools"])
        self.refused("chat", LLAMA, "--tools", self.tools, "--chat-template", "gemma",
                     names=["--tools", "UNSUPPORTED"])
        model = scripted_model.write(self.folder / "refuses", SCRIPT,
                                     "{{ raise_exception('no tools') if tools else 'x' }}")
        self.refused("chat", model, "--tools", self.tools, names=["--tools", "no tools"])

    def test_what_is_no_text(self):
        with subprocess.Popen([str(command()), "chat", str(self.model), "--tools", self.tools],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            out, message = process.communicate(b"hello\na\xff\n", timeout=60)
        self.assertEqual((process.returncode, out, message),
                         (2, b"Hello.\n", b"stasis: user turn: the text is not UTF-8\n"))

    def test_sessions_are_resumed(self):
        """Cut after any line, also before the results of calls, it is the conversation at once."""
        lines = ["hello", "Is it raining?", "no", "2 Bft", "hello", "Is it raining?", "a", "b"]
        options = ["--tools", self.tools, "--session"]
        whole = self.chat(self.model, lines, *options, self.path("whole"))
        digest = self.json("inspect", self.path("whole"))["digest"]
        for cut in (1, 5):
            path = self.path(f"s{cut}")
            replies = self.chat(self.model, lines[:cut], *options, path)
            replies += self.chat(self.model, lines[cut:], *options, path)
            self.assertEqual([(reply["digest"], reply["message"]) for reply in replies],
                             [(reply["digest"], reply["message"]) for reply in whole])
            self.assertEqual(self.json("inspect", path)["digest"], digest)
        # Standard input ends before the results: the file has the reply with its calls.
        path = self.path("waiting")
        done = self.run_command("chat", self.model, *options, path,
                                text="hello\nIs it raining?\n")
        self.assertEqual(done.returncode, 2)
        self.assertIn("ended before the result of rain", done.stderr.decode())
        replies = self.chat(self.model, lines[2:], *options, path)
        self.assertEqual([reply["digest"] for reply in replies],
                         [reply["digest"] for reply in whole[2:]])

    def test_a_terminal_takes_turns_of_a_resumed_session_back(self):
        options = ["--tools", self.tools, "--session", self.path("s")]
        self.chat(self.model, ["hello", "Is it raining?", "a", "b"], *options)
        with TypedChat(self.folder, self.model, "--no-history", *options) as chat:
            chat.said()
            chat.ask("/undo")
            self.assertEqual(chat.leave(), 0)
        replies = self.chat(self.model, ["Is it raining?", "a", "b"], *options)
        whole = self.chat(self.model, ["hello", "Is it raining?", "a", "b"], *options, "--replace")
        self.assertEqual([reply["digest"] for reply in replies],
                         [reply["digest"] for reply in whole[1:]])

    def test_sessions_that_cannot_be_resumed(self):
        path = self.path("s")
        tools = ["--tools", self.tools, "--session", path]
        self.chat(self.model, ["hello"], "--session", path)
        for option in tools[:2], ["--thinking", "off"]:
            self.refused("chat", self.model, *option, "--session", path, text="hello\n",
                         names=[path, "not the messages", "--replace"])
        # With them, and then without, which is said.
        self.chat(self.model, ["hello"], *tools, "--replace")
        plain = self.run_command("chat", self.model, "--session", path)
        self.assertIn("[held with --tools or --thinking before", plain.stderr.decode())
        self.chat(self.model, ["hello"], *tools)
        self.assertNotIn("message", self.chat(self.model, ["hello"], "--session", path)[0])
        self.refused("chat", self.model, *tools, text="hello\n",
                     names=[path, "went on without them"])
        # Another program went on.
        self.chat(self.model, ["hello"], *tools, "--replace")
        self.ok("run", self.model, "--resume", path, "--save", path, "--prompt", "x", "-n", 1)
        self.refused("chat", self.model, *tools, text="hello\n",
                     names=[path, "went on without them"])


class Thinking(Scripted):
    def test_on_and_off(self):
        on = self.chat(self.model, ["hello"], "--thinking", "on")[0]
        self.assertEqual(on["message"], {"role": "assistant", "reasoning_content": "Hm, hm.",
                                         "content": "I thought."})
        off = self.chat(self.model, ["hello"], "--thinking", "off")[0]
        self.assertEqual(off["message"], {"role": "assistant", "content": "I did not."})
        self.assertNotIn("message", self.chat(self.model, ["hello"])[0])
        self.assertEqual(self.ok("chat", self.model, "--thinking", "off", text="a\nb\n"),
                         "I did not.\nI did not.\n")
        both = self.chat(self.model, ["hello"], "--thinking", "on", "--tools", self.tools)[0]
        self.assertEqual(both["message"], on["message"])
        self.assertGreater(both["position"], on["position"])

    def test_refusals(self):
        self.refused("chat", LLAMA, "--thinking", "on", text="hello\n",
                     names=["--thinking: the model's chat template has no switch for thoughts"])
        self.refused("chat", GEMMA, "--thinking", "maybe", names=["'maybe'", "on|off"])
