# The C example as it was built: converses, freezes, resumes, verifies; and fails politely.
import subprocess

from stasis_process import CommandTest, GEMMA, command, turns_of


class Example(CommandTest):
    def converse(self, *arguments):
        return subprocess.run([str(command().parent / "converse"), *map(str, arguments)],
                              capture_output=True, text=True, check=False, timeout=300)

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
