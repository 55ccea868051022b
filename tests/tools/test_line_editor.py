# Typing into stasis chat: editing, several lines, pasted blocks, history, signals, and what is
# typed that is no text. What was sent is read from the saved session.
import os
import pathlib
import stat

from stasis_process import CommandTest, GEMMA, turns_of
from typed_chat import (ALT_ENTER, CTRL_C, CTRL_D, CTRL_U, CTRL_Z, READS, TypedChat, UP, paste)

SHORT = ["-n", "1"]


class Typing(CommandTest):
    """Each test types into chats of one folder, its home."""

    def typed(self, *options, **settings):
        return TypedChat(self.folder, GEMMA, "--session", self.path("s"), *SHORT, *options,
                         **settings)

    def sent(self):
        """The users' texts in the saved session."""
        spans = self.json("inspect", self.path("s"))["spans"]
        return [span["text"] for span in spans
                if span["source"] == "text" and span["role"] == "user"]

    def check_sent(self, keys, *texts):
        (self.folder / "s").unlink(missing_ok=True)
        with self.typed() as chat:
            chat.said()
            for line in keys:
                chat.ask(line)
            self.assertEqual(chat.leave(), 0)
        self.assertEqual(self.sent(), list(texts))


class Lines(Typing):
    def test_editing_a_line(self):
        self.check_sent(["helo\x1b[D\x1b[Dl", "xyz" + CTRL_U + "abc\x7fd"], "hello", "abd")

    def test_characters_of_every_size(self):
        text = "\u00e4\u20ac\U0001f600 z\u0308"
        self.check_sent([text, text + "\x1b[D" * 3 + "!"], text, text[:-3] + "!" + text[-3:])

    def test_lines_that_go_on(self):
        self.check_sent(["one\\", "two\\", "three", "four\\\\"], "one\ntwo\nthree", "four\\\\")

    def test_blocks(self):
        self.check_sent(['"""', "/undo", "", "a \\", '"""', "next"], "/undo\n\na \\", "next")

    def test_alt_enter(self):
        self.check_sent(["one" + ALT_ENTER + "two"], "one\ntwo")

    def test_a_slash_and_commands_in_blocks(self):
        self.check_sent(["//undo is a word", '"""', "/exit", '"""'], "/undo is a word", "/exit")

    def test_empty_lines_send_nothing(self):
        self.check_sent(["", "   ", "a"], "a")


class Pastes(Typing):
    def test_a_block_is_one_message(self):
        self.check_sent([paste("one\rtwo\rthree\n\tfour\n\n") + " end"],
                        "one\ntwo\nthree\n\tfour end")

    def test_control_characters_are_left_out(self):
        self.check_sent([paste("a\x00b\x1b[2J\x07c\x7f")], "ab[2Jc")

    def test_a_block_that_looks_like_commands(self):
        with self.typed() as chat:
            chat.said()
            shown = chat.ask(paste("/usr/bin/x: not found\nand more"))
            self.assertIn("/usr/bin/x: is no command", shown)
            self.assertIn("nothing was sent", shown)
            self.assertEqual(chat.leave(), 0)
        self.assertFalse((self.folder / "s").exists())

    def test_long_texts(self):
        text = "\n".join("word" * 20 for _ in range(40))
        self.check_sent([paste(text)], text)
        line = "a" * 2500
        self.check_sent([line], line)


class NoText(Typing):
    def test_what_is_not_utf_8(self):
        with self.typed() as chat:
            chat.said()
            shown = chat.ask(b"a\xff\xe2\x82b\r")
            self.assertIn("UTF-8", shown)
            # The text is on the next line, to be mended.
            chat.ask(b"\x7f\x7f\x7f\x7fgood\r")
            self.assertEqual(chat.leave(), 0)
        self.assertEqual(self.sent(), ["agood"])

    def test_nul(self):
        """Ctrl-@ is a key; quoted by Ctrl-V it is a character, which a text may have."""
        with self.typed() as chat:
            chat.said()
            chat.ask("a\x00b")
            self.assertEqual(chat.leave(), 0)
        self.assertEqual(self.sent(), ["ab"])


class Interrupts(Typing):
    def test_at_the_prompt(self):
        with self.typed() as chat:
            chat.said()
            self.assertEqual(chat.ask(CTRL_C, ""), "[Ctrl-D or /exit ends the conversation]")
            chat.type("half a line")
            chat.wait("half a line")
            self.assertEqual(chat.ask(CTRL_C, ""), "")
            chat.ask("whole")
            self.assertEqual(chat.leave(), 0)
        self.assertEqual(self.sent(), ["whole"])

    def test_in_a_block(self):
        with self.typed() as chat:
            chat.said()
            chat.ask('"""')
            chat.ask("dropped")
            chat.ask(CTRL_C, "")
            chat.ask("sent")
            chat.ask('"""')
            chat.type("not sent\r")
            chat.wait(READS)
            chat.type(CTRL_D)
            shown, code = chat.rest()
            self.assertIn("[the unfinished message was not sent]", shown)
            self.assertEqual(code, 0)
        self.assertEqual(self.sent(), ["sent"])

    def test_stopped_and_continued(self):
        """By a shell with job control, which continues it at once."""
        script = 'set -m; "$@"; echo "stopped: $?"; fg >/dev/null; exit $?'
        with self.typed(under=script) as chat:
            chat.said()
            chat.type("hel")
            chat.wait("hel")
            chat.type(CTRL_Z)
            chat.wait("stopped: 148")
            chat.wait("hel")
            chat.ask("lo")
            self.assertEqual(chat.leave(), 0)
        self.assertEqual(self.sent(), ["hello"])

    def test_not_stopped_where_nobody_continues(self):
        with self.typed() as chat:
            chat.said()
            chat.type("hel")
            chat.wait("hel")
            chat.type(CTRL_Z)
            chat.wait(READS)
            chat.ask("lo")
            self.assertEqual(chat.leave(), 0)
        self.assertEqual(self.sent(), ["hello"])

    def test_terminated(self):
        with self.typed() as chat:
            chat.said()
            chat.signal(15)
            shown, code = chat.rest()
            self.assertEqual(code, -15)
            self.assertIn("\x1b[?2004l", shown)


class Remembered(Typing):
    def history(self):
        return self.folder / ".local/state/stasis/chat_history"

    def test_kept_for_the_next_conversation(self):
        with self.typed() as chat:
            chat.said()
            chat.ask("one\\")
            chat.ask("t\\wo")
            chat.ask("/stats")
            self.assertEqual(chat.leave(), 0)
        self.assertEqual(self.history().read_text(), "one\\nt\\\\wo\n/stats\n")
        self.assertEqual(stat.S_IMODE(self.history().stat().st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(self.history().parent.stat().st_mode), 0o700)
        with self.typed() as chat:
            chat.said()
            chat.ask(UP + UP)
            self.assertEqual(chat.leave(), 0)
        self.assertEqual(self.sent(), ["one\nt\\wo"] * 2)

    def test_turned_off(self):
        for options, environment in (["--no-history"], {}), ([], {"STASIS_HISTORY": ""}):
            with self.typed(*options, **environment) as chat:
                chat.said()
                chat.ask("secret")
                chat.ask(UP)  # within a conversation there is one
                self.assertEqual(chat.leave(), 0)
            self.assertEqual(self.sent()[-2:], ["secret", "secret"])
            self.assertFalse(self.history().exists())

    def test_the_place_is_chosen(self):
        for name in "STASIS_HISTORY", "XDG_STATE_HOME":
            place = self.folder / name
            file = place if name == "STASIS_HISTORY" else place / "stasis/chat_history"
            with self.typed(**{name: str(place)}) as chat:
                chat.said()
                chat.ask("here")
                self.assertEqual(chat.leave(), 0)
            self.assertEqual(file.read_text(), "here\n")
            self.assertFalse(self.history().exists())

    def test_bounded(self):
        file = self.folder / "h"
        entries = [f"entry {number}" for number in range(2500)]
        file.write_text("".join(entry + "\n" for entry in entries))
        file.chmod(0o644)
        with self.typed(STASIS_HISTORY=str(file)) as chat:
            chat.said()
            chat.ask("last")
            self.assertEqual(chat.leave(), 0)
        self.assertEqual(file.read_text().splitlines(), entries[-1000:] + ["last"])
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)
        file.write_text("x" * 3_000_000 + "\nlast\n")
        with self.typed(STASIS_HISTORY=str(file)) as chat:
            chat.said()
            chat.ask(UP)
            self.assertEqual(chat.leave(), 0)
        self.assertEqual(file.read_text(), "last\nlast\n")

    def test_a_file_that_cannot_be_kept(self):
        os.mkfifo(self.path("pipe"))
        for place in "/dev/full", self.path(""), self.path("pipe"), "/proc/none/h":
            with self.typed(STASIS_HISTORY=place) as chat:
                before = chat.said()
                after = chat.ask("hello")
                self.assertEqual((before + after).count(f"[history is not kept: {place}: "), 1,
                                 (before, after))
                self.assertEqual(chat.leave(), 0)
        self.assertEqual(self.sent(), ["hello"] * 4)


class Plain(Typing):
    """Where lines cannot be edited they are read as they are."""

    def test_other_terminals(self):
        for term in "dumb", "", "no-such-terminal":
            (self.folder / "s").unlink(missing_ok=True)
            with self.typed(term=term) as chat:
                chat.wait("; /help]\n> ")
                chat.type("hello\n")
                chat.wait("[cut at 1 tokens: -n sets the limit]\n> ")
                chat.type("/undo\n")
                chat.wait("0 turns are left]\n> ")
                chat.type("one\\\n")
                chat.wait("... ")
                chat.type("two\n")
                chat.wait("\n> ")
                chat.type(CTRL_D)
                shown, code = chat.rest()
                self.assertEqual((shown, code), ("\n", 0))
            self.assertNotIn("\x1b", chat.output)
            self.assertEqual(self.sent(), ["one\ntwo"])

    def test_json_at_a_terminal(self):
        """For a program: nothing is a command, and nothing is said."""
        with self.typed("--json") as chat:
            for user in "hello", "/undo":
                chat.type(user + "\n")
                chat.wait('"role":"assistant"')
                chat.wait("}\n")
            self.assertEqual(chat.leave(), 0)
        self.assertNotIn("> ", chat.output)
        self.assertEqual(self.sent(), ["hello", "/undo"])

    def test_lines_that_are_not_typed(self):
        """To a program a slash and a backslash are text."""
        users = ["/help", "a\\", '"""', "//x"]
        self.chat(GEMMA, users, *SHORT, "--session", self.path("s"))
        self.assertEqual(self.sent(), users)
        user = turns_of(GEMMA)[0]["user"]
        done = self.run_command("chat", GEMMA, text=f"{user}\n")
        self.assertEqual((done.stdout, done.stderr), (b"k is 5.\n", b""))
        self.assertFalse((pathlib.Path(self.path("")) / ".local").exists())
