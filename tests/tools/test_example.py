# The C examples as they were built: one converses, freezes, resumes, verifies, and fails politely;
# one replaces tokens in the middle, at the cost that it states; one culls what is least attended.
import subprocess

from stasis_process import CommandTest, GEMMA, LLAMA, command, turns_of


class Example(CommandTest):
    def example(self, name, *arguments, text=None):
        return subprocess.run([str(command().parent / name), *map(str, arguments)], input=text,
                              capture_output=True, text=True, check=False, timeout=300)

    def converse(self, *arguments):
        return self.example("converse", *arguments)

    def test_converse(self):
        first, second = turns_of(GEMMA)[:2]
        done = self.converse(GEMMA, self.path("c.stasis"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, f"> {first['user']}\n{first['reply']}\n"
                                      f"> {second['user']}\n{second['reply']}\n"
                                      "74 positions verified\n")
        self.assertTrue(self.json("verify", self.path("c.stasis"), GEMMA)["verified"])

    def test_failure(self):
        done = self.converse(self.path("nowhere"), self.path("c.stasis"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("nowhere", done.stderr)

    def test_repair(self):
        """What lies before stays, what lies behind is computed; back, only what fills no page."""
        done = self.example("repair", LLAMA)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout,
                         "3 tokens replaced at position 200 of 400: 200 positions computed, "
                         "the same state as from scratch\n"
                         "and back: 16 positions computed, the state before\n")
        done = self.example("repair", GEMMA)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout,  # its windows make the rewind take the prefix anew
                         "3 tokens replaced at position 200 of 400: 208 positions computed, "
                         "the same state as from scratch\n"
                         "and back: 24 positions computed, the state before\n")
        self.assertEqual(self.example("repair", self.path("nowhere")).returncode, 1)

    def cull(self, model, *budget):
        """What it printed, line by line."""
        turns = "".join(turn["user"] + "\n" for turn in turns_of(model))
        done = self.example("cull", model, *budget, text=turns)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def test_cull(self):
        """With room for all nothing is lost; with less, just what the contract says, everywhere."""
        lines = self.cull(LLAMA, 400)
        self.assertEqual(lines[:-1], [line for turn in turns_of(LLAMA)
                                      for line in ("> " + turn["user"], turn["reply"])])
        self.assertEqual(lines[-1], "8 of 8 replies are the same; 316 of 316 positions are left")
        lines = self.cull(LLAMA, 128)
        self.assertEqual([line for line in lines if line.startswith("with ")],
                         ["with 128 of 206 positions: z is 6250.",
                          "with 128 of 245 positions: The result is 5700.",
                          "with 128 of 277 positions: m is 5."])
        self.assertEqual(lines[-1], "5 of 8 replies are the same; 128 of 315 positions are left")
        for model, budget, last in (
                (LLAMA, (128, 128), "6 of 8 replies are the same; 128 of 318 positions are left"),
                (GEMMA, (128,), "6 of 8 replies are the same; 128 of 299 positions are left"),
                (GEMMA, (64,), "3 of 8 replies are the same; 64 of 295 positions are left")):
            self.assertEqual(self.cull(model, *budget)[-1], last)
        for wrong in ((GEMMA,), (GEMMA, 1), (GEMMA, 8, 9), (GEMMA, "many")):
            self.assertEqual(self.example("cull", *wrong, text="").returncode, 2)
        self.assertEqual(self.example("cull", self.path("nowhere"), 8, text="").returncode, 1)
