# stasis chat with people at a terminal: what it says of itself, its commands, and that nothing
# typed or said is lost by an interrupt, a full context or a file that cannot be written.
import json
import re
import resource
import signal
import threading

import scripted_model
from stasis_process import CommandTest, GEMMA, LLAMA, turns_of
from typed_chat import CTRL_C, CTRL_D, CTRL_U, READS, TypedChat, paste

DRAWN = ["--temperature", "1", "--top-p", "1", "--min-p", "0"]


class PeopleTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.say = [turn["user"] for turn in turns_of(GEMMA)]

    def typed(self, *options, model=GEMMA, **settings):
        return TypedChat(self.folder, model, "--no-history", *options, **settings)

    def digest(self, name):
        return self.json("inspect", self.path(name))["digest"]

    def digests_of(self, *options, users=None, model=GEMMA):
        return [reply["digest"] for reply in
                self.chat(model, self.say if users is None else users, *options)]

    def position(self, name):
        return self.json("inspect", self.path(name))["position"]


class Told(PeopleTest):
    def test_the_first_line(self):
        for options, kept in ([], "not saved (/save FILE)"), \
                (["--session", self.path("s")], f"saved in {self.path('s')}"):
            with self.typed(*options) as chat:
                first = chat.said()
                self.assertRegex(first, r"^\[recall-gemma3 \(gemma3, BF16\): \d+\.\d MB of memory, "
                                        r"context of 4096 tokens, ")
                self.assertTrue(first.endswith(kept + "; /help]"), first)
                chat.ask(self.say[0])
                self.assertEqual(chat.leave(), 0)
        with self.typed("--session", self.path("s")) as chat:
            self.assertRegex(chat.said(), r"\n\[resumed at position \d+, after 1 turn\]$")
            self.assertEqual(chat.ask(self.say[1]), "m is 55.")
            self.assertEqual(chat.leave(), 0)
        self.assertEqual(self.digest("s"), self.digests_of()[1])

    def test_help_names_every_command(self):
        with self.typed() as chat:
            chat.said()
            shown = chat.ask("/help")
            for name in "undo", "retry", "fork", "save", "system", "stats", "exit":
                self.assertRegex(shown, rf"(?m)^/{name}\b")
            self.assertIn('"""', shown)
            chat.type("/exit\r")
            self.assertEqual(chat.rest()[1], 0)

    def test_stats(self):
        with self.typed("--session", self.path("s"), *DRAWN, "--seed", 7) as chat:
            chat.said()
            chat.ask(self.say[0])
            shown = chat.ask("/stats")
            self.assertEqual(chat.leave(), 0)
        position = self.position("s")
        for expected in (r"^model    recall-gemma3 \(gemma3, BF16\), \w+ on cpu, \d+ threads$",
                         r"^memory   [\d.]+ MB of weights, [\d.]+ kB of keys and values, ",
                         rf"^context  {position} of 4096 tokens, 0 %; 1 turn$",
                         r"^speed    prompt \d+ tokens in [\d.]+ s \(\d+ a second\), reply \d+ tok",
                         r"^drawing  temperature 1, top-k 0, top-p 1, min-p 0, seed 7$",
                         f"^saved    {self.path('s')}$", f"^digest   {self.digest('s')}$"):
            self.assertRegex(shown, "(?m)" + expected)

    def test_a_reply_that_is_cut(self):
        with self.typed("-n", 2) as chat:
            chat.said()
            self.assertTrue(chat.ask(self.say[0]).endswith(
                "\n[cut at 2 tokens: -n sets the limit]"))
            self.assertEqual(chat.leave(), 0)

    def test_what_is_no_command(self):
        with self.typed("--session", self.path("s")) as chat:
            chat.said()
            for line, name in ("/hlep", "/hlep"), ("/", "/"), ("/UNDO now", "/UNDO"):
                self.assertIn(f"stasis: {name} is no command (/help lists them): nothing was sent",
                              chat.ask(line))
            for line, hint in (("/undo 2", "/undo takes nothing"), ("/undo", "no turn"),
                               ("/retry", "no reply"), ("/retry x", "'x' is not a seed"),
                               ("/retry -1", "'-1' is not a seed"), ("/fork", "missing"),
                               ("/retry 99999999999999999999", "is not a seed")):
                self.assertIn(hint, chat.ask(line))
            self.assertEqual(chat.leave(), 0)
        self.assertFalse((self.folder / "s").exists())

    def test_nothing_is_obeyed_by_the_terminal(self):
        """Names of files, and what is typed, where it is said again."""
        hostile = "a\x1b]52;c;QQ==\x07\u202e"
        with self.typed("--session", self.path(hostile)) as chat:
            shown = chat.said()
            chat.ask(self.say[0])
            for line in "/save ", "/fork ", "/system ", "/retry ", "/no":
                # Quoted by Ctrl-V, as control characters are typed.
                shown += chat.ask(line + self.path("none/") + re.sub("[\x01-\x1f]", "\x16\\g<0>",
                                                                    hostile))
            shown += chat.ask("/stats")
            self.assertEqual(chat.leave(), 0)
        self.assertNotRegex(shown, "[\x1b\x07\u202e]")
        self.assertIn("a\\u001b]52;c;QQ==\\u0007\\u202e; /help]", shown)


class Undo(PeopleTest):
    @staticmethod
    def left(number):
        return "; 1 turn is left]" if number == 1 else f"; {number} turns are left]"

    def test_every_turn(self):
        """Taken back and said again, at each turn, live and resumed: the same digests."""
        for model in GEMMA, LLAMA:
            for system in [], ["--system", "Answer shortly."]:
                (self.folder / "s").unlink(missing_ok=True)
                expected = self.digests_of(*system, users=self.say[:3], model=model)
                options = ["--session", self.path("s")]
                with self.typed(*options, *system, model=model) as chat:
                    chat.said()
                    for number in range(3):
                        chat.ask("something else entirely")
                        self.assertIn(self.left(number), chat.ask("/undo"))
                        chat.ask(self.say[number])
                        self.assertEqual(self.digest("s"), expected[number])
                    self.assertEqual(chat.leave(), 0)
                with self.typed(*options, model=model) as chat:
                    chat.said()
                    for number in 2, 1, 0:
                        self.assertIn(self.left(number), chat.ask("/undo"))
                    for number in range(3):
                        chat.ask(self.say[number])
                        self.assertEqual(self.digest("s"), expected[number], (model, system))
                    self.assertEqual(chat.leave(), 0)
                self.ok("verify", self.path("s"), model)

    def test_after_a_cut_reply(self):
        """What closes a reply that was cut belongs to the turn that is taken back."""
        expected = self.digests_of("-n", 2)
        for resumed in False, True:
            (self.folder / "s").unlink(missing_ok=True)
            with self.typed("-n", 2, "--session", self.path("s")) as chat:
                chat.said()
                chat.ask(self.say[0])
                chat.ask("something else")
                if not resumed:
                    chat.ask("/undo")
                self.assertEqual(chat.leave(), 0)
            with self.typed("-n", 2, "--session", self.path("s")) as chat:
                chat.said()
                if resumed:
                    chat.ask("/undo")
                self.assertEqual(self.digest("s"), expected[0])
                chat.ask(self.say[1])
                self.assertEqual(chat.leave(), 0)
            self.assertEqual(self.digest("s"), expected[1])


class Retry(PeopleTest):
    def test_another_seed(self):
        """The next seed, or the one that is named; a resumed session's settings are its file's."""
        by_seed = [self.digests_of(*DRAWN, "--seed", seed, "-n", 12, users=["hello"])[0]
                   for seed in range(4)]
        self.assertEqual(len(set(by_seed)), 4)
        options = ["--session", self.path("s"), "-n", 12]
        with self.typed(*options, *DRAWN) as chat:
            chat.said()
            chat.ask("hello")
            self.assertEqual(self.digest("s"), by_seed[0])
            chat.ask("/retry")
            self.assertEqual(self.digest("s"), by_seed[1])
            chat.ask("/retry 0")
            self.assertEqual(self.digest("s"), by_seed[0])
            chat.ask("/retry 2")
            self.assertEqual(chat.leave(), 0)
        self.assertEqual(self.digest("s"), by_seed[2])
        with self.typed(*options) as chat:
            chat.said()
            chat.ask("/retry")
            self.assertEqual(self.digest("s"), by_seed[3])
            self.assertIn("seed 3", chat.ask("/stats"))
            self.assertEqual(chat.leave(), 0)
        self.ok("verify", self.path("s"), GEMMA)
        self.ok("replay", self.path("s"), GEMMA)

    def test_greedy(self):
        with self.typed("--temperature", 0, "--session", self.path("s"), "-n", 12) as chat:
            chat.said()
            chat.ask(self.say[0])
            before = self.digest("s")
            self.assertIn("the reply would be the same", chat.ask("/retry"))
            self.assertEqual(self.digest("s"), before)
            self.assertEqual(chat.leave(), 0)

    def test_a_constraint_stays(self):
        with self.typed(*DRAWN, "--regex", "[ab]{4}", "--session", self.path("s")) as chat:
            chat.said()
            self.assertRegex(chat.ask("hello"), "^[ab]{4}$")
            self.assertRegex(chat.ask("/retry"), "^[ab]{4}$")
            self.assertEqual(chat.leave(), 0)
        self.ok("replay", self.path("s"), GEMMA)


class Files(PeopleTest):
    def test_fork(self):
        straight = self.digests_of()
        with self.typed("--session", self.path("s")) as chat:
            chat.said()
            chat.ask(self.say[0])
            self.assertEqual(
                chat.ask("/fork ~/f").replace("\n", ""),
                f"[saved in {self.path('f')}, and from now on there; {self.path('s')} stays as it "
                "is]")
            chat.ask(self.say[1])
            self.assertEqual(chat.leave(), 0)
        self.assertEqual((self.digest("s"), self.digest("f")), tuple(straight[:2]))

    def test_save(self):
        straight = self.digests_of()
        with self.typed("--session", self.path("s")) as chat:
            chat.said()
            chat.ask(self.say[0])
            self.assertIn("a copy is saved in " + self.path("c"),
                          chat.ask("/save " + self.path("c")).replace("\n", ""))
            chat.ask(self.say[1])
            self.assertIn("[saved in ", chat.ask("/save"))
            self.assertEqual(chat.leave(), 0)
        self.assertEqual((self.digest("c"), self.digest("s")), tuple(straight[:2]))

    def test_a_conversation_without_a_file_gets_one(self):
        straight = self.digests_of()
        with self.typed() as chat:
            chat.said()
            chat.ask(self.say[0])
            self.assertIn("has no file yet", chat.ask("/save"))
            self.assertIn("from now on after every turn", chat.ask("/save " + self.path("s")))
            self.assertEqual(self.digest("s"), straight[0])
            chat.ask(self.say[1])
            self.assertEqual(self.digest("s"), straight[1])
            self.assertEqual(chat.leave(), 0)

    def test_places_that_cannot_be_written(self):
        (self.folder / "there").write_text("not a snapshot")
        (self.folder / "folder").mkdir()
        with self.typed("--session", self.path("s")) as chat:
            chat.said()
            chat.ask(self.say[0])
            for command in "/fork", "/save":
                for place, hint in (("none/f", "there is no folder"), ("folder", "a directory"),
                                    ("there", "exists already"), ("s", "exists already")):
                    answer = chat.ask(f"{command} {self.path(place)}")
                    self.assertIn(f"stasis: {command}: {self.path(place)}: ", answer)
                    self.assertIn(hint, answer)
                self.assertIn("stasis: ", chat.ask(f"{command} /dev/full"))
                self.assertIn("stasis: ", chat.ask(f"{command} /proc/x"))
            self.assertEqual(chat.ask(self.say[1]), "m is 55.")  # still in its own file
            self.assertEqual(chat.leave(), 0)
        self.assertEqual(self.digest("s"), self.digests_of()[1])
        self.assertEqual((self.folder / "there").read_text(), "not a snapshot")

    def test_a_full_disk(self):
        """The conversation goes on, and the end of it says that it is not saved."""
        def small():
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))

        with self.typed("--session", self.path("s"), before=small) as chat:
            chat.said()
            for user, reply in zip(self.say, ("k is 5.", "m is 55.")):
                shown = chat.ask(user)
                self.assertTrue(shown.startswith(reply + "\nstasis: " + self.path("s")), shown)
            self.assertIn("but not since the last change", chat.ask("/stats"))
            chat.type(CTRL_D)
            shown, code = chat.rest()
            self.assertEqual(code, 2)
            self.assertIn("stasis: " + self.path("s"), shown)

    def test_a_folder_that_is_away_for_a_turn(self):
        """A copy that is saved meanwhile does not part the conversation from its file."""
        away, here = self.folder / "away", self.folder / "here"
        here.mkdir()
        with self.typed("--session", here / "s") as chat:
            chat.said()
            chat.ask(self.say[0])
            here.rename(away)
            self.assertIn("stasis: ", chat.ask(self.say[1]))
            self.assertIn("a copy is saved", chat.ask("/save " + self.path("c")))
            away.rename(here)
            self.assertNotIn("stasis: ", chat.ask(self.say[2]))
            self.assertEqual(chat.leave(), 0)
        self.assertEqual([self.digest("c"), self.digest("here/s")], self.digests_of()[1:3])

    def test_another_process_has_saved(self):
        with self.typed("--session", self.path("s")) as chat:
            chat.said()
            chat.ask(self.say[0])
            other = self.chat(GEMMA, self.say[1:2], "--session", self.path("s"))[0]
            self.assertIn("CONFLICT", chat.ask(self.say[2]))
            self.assertIn("[a copy is saved", chat.ask("/save " + self.path("mine")))
            chat.ask("/fork " + self.path("fork"))
            self.assertEqual(chat.leave(), 0)
        self.assertEqual(self.digest("s"), other["digest"])
        self.assertEqual(self.digest("mine"), self.digest("fork"))


class System(PeopleTest):
    def test_before_the_first_turn(self):
        for model in GEMMA, LLAMA:
            expected = self.digests_of("--system", "Be short.", model=model)
            name = model.name
            with self.typed("--session", self.path(name), model=model) as chat:
                chat.said()
                self.assertEqual(chat.ask("/system"), "[there is no system text]")
                chat.ask("/system Be long and boring.")
                self.assertEqual(chat.ask("/system  Be short. "), "[system text: Be short.]")
                chat.ask(self.say[0])
                self.assertEqual(self.digest(name), expected[0])
                self.assertIn("has begun already", chat.ask("/system Again."))
                chat.ask("/undo")
                chat.ask("/system Be long.")
                chat.ask("/system Be short.")
                chat.ask(self.say[0])
                self.assertEqual(chat.leave(), 0)
            self.assertEqual(self.digest(name), expected[0])
            with self.typed("--session", self.path(name), model=model) as chat:
                chat.said()
                self.assertEqual(chat.ask("/system"), "[system text: Be short.]")
                self.assertEqual(chat.leave(), 0)


class Interrupted(PeopleTest):
    LONG = "Let a be one. " * 600

    def test_a_reply_keeps_what_was_said(self):
        with self.typed("--ignore-eos", "-n", 100000, "--session", self.path("s")) as chat:
            chat.said()
            chat.type(self.say[0] + "\r")
            chat.wait("k is 5.")
            chat.type(CTRL_C)
            self.assertRegex(chat.said(), r"\[cut after \d+ tokens: interrupted\]")
            self.assertIn("; 1 turn\n", chat.ask("/stats"))
            self.assertEqual(chat.leave(), 0)
        self.assertIn("k is 5.", self.json("inspect", self.path("s"))["text"])

    def test_many_interrupts(self):
        """None of them ends the process before the turn is saved."""
        with self.typed("--ignore-eos", "-n", 100000, "--session", self.path("s")) as chat:
            chat.said()
            chat.type(self.say[0] + "\r")
            chat.wait("k is 5.")
            stop = threading.Event()

            def interrupt():
                while not stop.is_set():
                    chat.signal(signal.SIGINT)

            thread = threading.Thread(target=interrupt)
            thread.start()
            try:
                chat.wait(READS)
            finally:
                stop.set()
                thread.join()
            # The last interrupt has the editor leave the terminal and take it again; a key that
            # comes in between is the terminal's, and lost.
            chat.become_quiet()
            self.assertEqual(chat.leave(), 0)
        self.assertIn("k is 5.", self.json("inspect", self.path("s"))["text"])

    def test_a_prefill_keeps_the_text(self):
        """The bar is there from the first position on; Ctrl-C puts the text on the next line."""
        options = ["--kernels", "reference", "--threads", 1, "--session", self.path("s")]
        with self.typed(*options) as chat:
            chat.said()
            chat.type(paste(self.LONG) + "\r")
            chat.wait("\rprefill [..............................]   0 %, 0 of ")
            chat.type(CTRL_C)
            chat.wait("[interrupted: this turn was not taken; its text is on the next line, and "
                      "/retry sends it]")
            chat.wait(READS)
            self.assertIn("0 of 4096 tokens", chat.ask(CTRL_U + "/stats"))
            chat.type("/retry\r")
            chat.wait("\rprefill [")
            chat.type(CTRL_C)
            chat.wait("[interrupted: this turn was not taken")
            chat.wait(READS)
            # Edited and sent: what is left of the line is the message.
            chat.ask("\x7f" * (len(self.LONG) - 13))
            self.assertEqual(chat.leave(), 0)
        spans = self.json("inspect", self.path("s"))["spans"]
        self.assertEqual([span["text"] for span in spans if span["source"] == "text"],
                         [self.LONG[:13]])

    def test_a_short_prompt_draws_no_bar(self):
        with self.typed() as chat:
            chat.said()
            chat.ask("hello")
            self.assertNotIn("prefill", chat.output)
            self.assertEqual(chat.leave(), 0)


class Full(PeopleTest):
    def session_of(self, positions):
        self.json("run", GEMMA, "--tokens", ",".join(["7"] * positions), "-n", 0, "--replace",
                  "--save", self.path("s"))

    def test_how_full(self):
        for positions, hint in (1000, None), (2100, r"\[context: \d+ of 4096 tokens, 5\d %\]$"), \
                (3900, r"\[context: \d+ of 4096 tokens, 9\d %; it is nearly full, and /undo"):
            self.session_of(positions)
            with self.typed("--session", self.path("s"), "-n", 8) as chat:
                chat.said()
                shown = chat.ask(self.say[0])
                if hint is None:
                    self.assertNotIn("[context", shown)
                else:
                    self.assertRegex(shown, hint)
                self.assertEqual(chat.leave(), 0)

    def test_no_room(self):
        """A reply that fills it, then a turn that finds no room: its text is kept."""
        self.session_of(4040)
        with self.typed("--session", self.path("s"), "-n", 100, "--ignore-eos") as chat:
            chat.said()
            shown = chat.ask(self.say[0])
            self.assertIn("[cut: the session is full]\n[the context is full: 4096 of 4096 tokens, "
                          "100 %. /undo takes back the last turn", shown)
            digest = self.digest("s")
            shown = chat.ask(self.say[1])
            self.assertIn("FULL", shown)
            self.assertIn("/undo takes back the last turn", shown)
            self.assertIn("4096 of 4096", chat.ask(CTRL_U + "/stats"))
            self.assertEqual(self.digest("s"), digest)
            self.assertIn("0 turns are left", chat.ask("/undo"))
            self.assertNotIn("stasis: ", chat.ask("/retry"))  # the text that had no room
            self.assertEqual(chat.leave(), 0)
        self.assertIn("m equal to", self.json("inspect", self.path("s"))["text"])


class Tools(PeopleTest):
    TOOLS = [{"type": "function", "function": {"name": "rain", "description": "x",
                                               "parameters": {"type": "object"}}}]
    CALL = '\n<tool_call>\n{"name": "rain", "arguments": {}}\n</tool_call>'
    SCRIPT = {"\n": ["Let me look.", CALL], "\t": ["Dry."], " ": ["Hello."]}

    def test_turns_with_calls(self):
        """Undo and retry of conversations that are held as messages."""
        model = scripted_model.write(self.folder / "scripted", self.SCRIPT)
        (self.folder / "tools.json").write_text(json.dumps(self.TOOLS))
        options = ["--tools", self.path("tools.json"), "--temperature", 1]
        straight = self.chat(model, ["hello", "Rain?", "no", "hello"], *options)
        with self.typed(*options, "--session", self.path("s"), model=model) as chat:
            chat.said()
            self.assertEqual(chat.ask("hello"), "Hello.")
            self.assertIn("Let me look.", chat.ask("Rain?"))
            self.assertTrue(chat.output.endswith("result of rain> " + READS))
            self.assertEqual(chat.ask("yes"), "Dry.")
            chat.ask("/retry")
            self.assertIn("1 turn is left", chat.ask("/undo"))
            chat.ask("Rain?")
            self.assertEqual(chat.ask("no"), "Dry.")
            chat.ask("hello")
            self.assertEqual(chat.leave(), 0)
        self.assertEqual(self.digest("s"), straight[-1]["digest"])
