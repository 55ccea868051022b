# The C examples as they were built: one converses, freezes, resumes, verifies, and fails politely;
# one replaces tokens in the middle, at the cost that it states.
import subprocess

from stasis_process import CommandTest, GEMMA, LLAMA, command, turns_of


class Example(CommandTest):
    def example(self, name, *arguments):
        return subprocess.run([str(command().parent / name), *map(str, arguments)],
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
        self.assertIn("the same state as from scratch", done.stdout)
        self.assertIn("the state before", done.stdout)
        self.assertEqual(self.example("repair", self.path("nowhere")).returncode, 1)
