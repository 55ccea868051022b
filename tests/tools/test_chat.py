# stasis chat: the published conversation, frozen and resumed in new processes at every turn.
import shutil
import signal
import subprocess
import time

from stasis_process import command, CommandTest, GEMMA, LLAMA, WITHOUT_TOKENIZER, turns_of

KEYS = ["role", "text", "tokens", "position", "digest", "cut", "seconds"]


def users(model):
    return [turn["user"] for turn in turns_of(model)]


class Chat(CommandTest):
    def check_replies(self, model, replies):
        turns = turns_of(model)
        self.assertEqual(len(replies), len(turns))
        position = 0
        for turn, reply in zip(turns, replies):
            position += len(turn["prompt_ids"]) + len(turn["reply_ids"])
            self.assertEqual(list(reply), KEYS)
            self.assertEqual((reply["role"], reply["text"], reply["tokens"], reply["position"]),
                             ("assistant", turn["reply"], turn["reply_ids"], position))

    def test_eight_turns(self):
        for model in GEMMA, LLAMA:
            self.check_replies(model, self.chat(model, users(model)))

    def test_resumed_at_every_turn(self):
        for model in GEMMA, LLAMA:
            straight = self.chat(model, users(model))
            resumed = []
            for number, user in enumerate(users(model), 1):
                resumed += self.chat(model, [user], "--session", self.path(f"{model.name}.stasis"))
                inspected = self.json("inspect", self.path(f"{model.name}.stasis"))
                self.assertEqual(inspected["digest"], straight[number - 1]["digest"])
            self.check_replies(model, resumed)
            self.assertEqual([reply["digest"] for reply in resumed],
                             [reply["digest"] for reply in straight])

    def test_replies_cut_by_the_limit(self):
        straight = self.chat(GEMMA, users(GEMMA), "-n", 2)
        resumed = [self.chat(GEMMA, [user], "-n", 2, "--session", self.path("s"))[0]
                   for user in users(GEMMA)]
        for left, right in zip(straight, resumed):
            self.assertEqual(len(left["tokens"]), 2)
            self.assertEqual((left["tokens"], left["digest"]), (right["tokens"], right["digest"]))

    def test_empty_lines_are_skipped(self):
        replies = self.chat(GEMMA, ["", users(GEMMA)[0], "", users(GEMMA)[1], ""])
        self.assertEqual([reply["text"] for reply in replies], ["k is 5.", "m is 55."])

    def test_last_line_without_line_end(self):
        out = self.ok("chat", GEMMA, text=users(GEMMA)[0])
        self.assertEqual(out, "k is 5.\n")

    def test_replace_starts_anew(self):
        self.chat(GEMMA, users(GEMMA)[:2], "--session", self.path("s"))
        again = self.chat(GEMMA, users(GEMMA)[:2], "--session", self.path("s"), "--replace")
        fresh = self.chat(GEMMA, users(GEMMA)[:2])
        self.assertEqual([reply["digest"] for reply in again],
                         [reply["digest"] for reply in fresh])
        self.assertEqual(self.json("inspect", self.path("s"))["position"], fresh[1]["position"])

    def test_system_text_comes_once(self):
        system = ["--system", "Answer shortly."]
        straight = self.chat(GEMMA, users(GEMMA)[:2], *system)
        resumed = [self.chat(GEMMA, [user], "--session", self.path("s"), *given)[0]
                   for user, given in zip(users(GEMMA), (system, []))]
        self.assertEqual([reply["digest"] for reply in straight],
                         [reply["digest"] for reply in resumed])
        self.assertEqual(self.json("inspect", self.path("s"))["text"].count("Answer shortly."), 1)
        content = (self.folder / "s").read_bytes()
        self.refused("chat", GEMMA, "--session", self.path("s"), *system, text="hello\n",
                     names=["--system: the session in " + self.path("s"), "begun"])
        self.assertEqual((self.folder / "s").read_bytes(), content)
        self.chat(GEMMA, users(GEMMA)[:1], "--session", self.path("s"), "--replace", *system)
        plain = self.chat(GEMMA, users(GEMMA)[:2])
        self.assertNotEqual(plain[0]["digest"], straight[0]["digest"])

    def test_zero_new_tokens_only_append(self):
        first = turns_of(GEMMA)[0]
        replies = self.chat(GEMMA, users(GEMMA)[:1], "-n", 0, "--session", self.path("s"))
        self.assertEqual([(reply["text"], reply["tokens"], reply["position"]) for reply in replies],
                         [("", [], len(first["prompt_ids"]))])
        reply = self.json("run", GEMMA, "--resume", self.path("s"))
        self.assertEqual(reply["tokens"], first["reply_ids"])
        self.assertEqual(len(self.chat(GEMMA, users(GEMMA)[:3], "-n", 0)), 3)

    def test_two_chats_on_one_file(self):
        say = users(GEMMA)
        with subprocess.Popen([str(command()), "chat", str(GEMMA), "--session", self.path("s")],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as first:
            first.stdin.write(f"{say[0]}\n".encode())
            first.stdin.flush()
            self.assertEqual(first.stdout.readline(), b"k is 5.\n")
            while not (self.folder / "s").exists():
                time.sleep(0.01)
            second = self.chat(GEMMA, say[1:2], "--session", self.path("s"))
            content = (self.folder / "s").read_bytes()
            first.stdin.write(f"{say[2]}\n".encode())
            _, message = first.communicate(timeout=60)
        self.assertEqual(first.returncode, 2)
        self.assertIn(f"it holds a state of {second[0]['position']} positions", message.decode())
        self.assertIn("CONFLICT", message.decode())
        self.assertEqual((self.folder / "s").read_bytes(), content)
        third = self.chat(GEMMA, say[2:3], "--session", self.path("s"))
        self.assertEqual(third[0]["digest"], self.chat(GEMMA, say[:3])[2]["digest"])

    def test_an_interrupt_ends_the_reply_and_is_told(self):
        with subprocess.Popen([str(command()), "chat", str(GEMMA), "--ignore-eos", "-n", "100000",
                               "--session", self.path("s")], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdin.write(f"{users(GEMMA)[0]}\nnever read\n".encode())
            process.stdin.flush()
            process.stdout.read(1)  # the reply has begun
            process.send_signal(signal.SIGINT)
            _, message = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 2)
        self.assertRegex(message.decode(), r"\[cut after \d+ tokens: interrupted\]\n"
                         r"stasis: interrupted: the turns that follow were not read\n\Z")
        text = self.json("inspect", self.path("s"))["text"]
        self.assertIn("variable k", text)
        self.assertNotIn("never read", text)

    def test_refusals(self):
        snapshot = self.path("snapshot")
        self.chat(GEMMA, users(GEMMA)[:1], "--session", snapshot)
        self.refused("chat", snapshot, names=[snapshot, "this is a snapshot; a model is expected"])
        self.refused("chat", "", names=["MODEL: the path is empty"])
        self.refused("chat", GEMMA, "--session", self.path(""), text="hello\n")
        for text in "", "hello\n":
            self.refused("chat", WITHOUT_TOKENIZER, text=text, names=["tokenizer"])
        model = self.folder / "model"
        shutil.copytree(GEMMA, model)
        (model / "tokenizer_config.json").unlink(missing_ok=True)
        (model / "chat_template.jinja").unlink(missing_ok=True)
        self.assertIsNone(self.json("info", model)["template"])
        self.refused("chat", model, names=["--chat-template"])
        self.ok("chat", model, "--chat-template", "gemma")
        self.refused("chat", GEMMA, "--chat-template", "nonsense", text="hello\n",
                     names=["nonsense", "chatml"])
