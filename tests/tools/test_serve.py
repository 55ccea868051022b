# The example server: 32 requests that come and go under a KV budget, each with the bits that it has
# alone.
import json
import pathlib
import re
import shutil
import subprocess

from stasis_process import CommandTest, DATA, GEMMA, LLAMA, WITHOUT_TOKENIZER, command

ROW = re.compile(r" *(\d+) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+)  (\w+) *(.*)")


class Serve(CommandTest):
    def serve(self, *arguments):
        return subprocess.run([str(command().parent / "serve"), *map(str, arguments)],
                              capture_output=True, text=True, check=False, timeout=300)

    def served(self, *arguments):
        """The rows of the table, and what follows it."""
        done = self.serve(*arguments, "--check")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        table, totals = done.stdout.split("\n\n")
        rows = [ROW.fullmatch(line).groups() for line in table.splitlines()[1:]]
        self.assertIn(f"{len(rows)} of {len(rows)} requests got what they get alone", totals)
        return [(*map(int, row[:8]), *row[8:]) for row in rows], totals

    def test_requests_come_and_go(self):
        for model, budget in (GEMMA, 0.7), (LLAMA, 1.2), (WITHOUT_TOKENIZER, 0.3):
            rows, totals = self.served(model, "--kv-mib", budget)
            self.assertEqual([row[0] for row in rows], list(range(32)))
            for _, came, began, first, ended, prompt, wait, new, _, _ in rows:
                self.assertTrue(came <= began <= first <= ended)
                self.assertTrue(prompt > 0 and new > 0)
                self.assertEqual(wait, 1 if new > 1 else 0)  # a token of each in every pass
            ends = [row[8] for row in rows]
            self.assertEqual(ends.count("left"), 1)
            self.assertEqual(ends.count("FAILED"), 0)
            self.assertGreater(len({row[2] for row in rows}), 8)  # not all at once
            self.assertTrue(any(row[2] > row[1] for row in rows), "nothing had to wait")
            passes, together, waiting, used, limit = map(float, re.search(
                r"(\d+) passes .*at most (\d+) sessions in a pass, (\d+) requests waiting, "
                r"([\d.]+) MiB of keys and values of ([\d.]+)", totals, re.S).groups())
            self.assertGreater(passes, 8)
            self.assertGreater(together, 2)
            self.assertGreater(waiting, 0)
            self.assertTrue(0 < used <= limit == budget)

    def test_any_cut_gives_the_same_replies(self):
        texts = []
        for options in ((), ("--slice", 5), ("--sessions", 2, "--threads", 1)):
            rows, _ = self.served(GEMMA, "--seed", 7, "--requests", 12, *options)
            texts.append([row[7:] for row in rows])
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(texts[0], texts[2])

    def test_ends_of_every_kind(self):
        rows, _ = self.served(DATA / "recall-gemma3", "--seed", 3, "--requests", 48)
        self.assertLessEqual({"token", "string", "left"}, {row[8] for row in rows})
        rows, _ = self.served(WITHOUT_TOKENIZER)
        self.assertIn("length", {row[8] for row in rows})

    def test_refusals(self):
        done = self.serve(self.path("none"))
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("none", done.stderr)
        named = pathlib.Path(self.path("named"))
        shutil.copytree(WITHOUT_TOKENIZER, named)
        config = json.loads((named / "config.json").read_text())
        config["architectures"] = ["\x1b]52;c;eA==\x07\u202e"]
        (named / "config.json").write_text(json.dumps(config))
        done = self.serve(named)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("\\u001b]52;c;eA==\\u0007", done.stderr)
        self.assertNotRegex(done.stderr, "[\x1b\x07\u202e]")
        done = self.serve(GEMMA, "--kv-mib", 0.01)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("more than the whole budget", done.stderr)
