# The tutorial, typed from its first line to its last: what is shown is what is printed.
import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
import unittest

from fixture import Case, ROOT

TUTORIAL = ROOT / "docs/tutorial-python.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Tutorial(Case):
    def setUp(self):
        """In a folder that looks like the root of a clone, in which python3 is this one."""
        super().setUp()
        self.path("tests").mkdir()
        self.path("tests/data").symlink_to(ROOT / "tests/data")
        self.path("bindings").symlink_to(ROOT / "bindings")
        self.path("bin").mkdir()
        self.path("bin/python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        self.path("bin/python3").chmod(0o755)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        self.globals, self.exports, self.done = {}, "", {"pycon": 0, "python": 0, "console": 0}

    def test_every_block(self):
        text = TUTORIAL.read_text(encoding="utf-8")
        blocks = BLOCK.findall(text)
        self.assertEqual(len(blocks) * 2, text.count("```"))
        for kind, block in blocks:
            self.assertIn(kind, self.done)
            getattr(self, kind)(block)
            self.done[kind] += 1
        self.assertGreater(self.done["pycon"], 10)
        self.assertEqual((self.done["python"], self.done["console"]), (1, 2))

    def pycon(self, block):
        """A part of one interactive session."""
        example = doctest.DocTestParser().get_doctest(block, self.globals, "tutorial", None, 0)
        example.globs = self.globals  # get_doctest copies them
        report = io.StringIO()
        with contextlib.redirect_stdout(report):
            result = doctest.DocTestRunner(verbose=False).run(example, clear_globs=False)
        self.assertEqual(result.failed, 0, report.getvalue())

    def python(self, block):
        """A file, which its first line names."""
        self.path(re.match(r"# (\S+)\n", block)[1]).write_text(block, encoding="utf-8")

    def console(self, block):
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            done = subprocess.run(
                ["bash", "-c", self.exports + command], capture_output=True, text=True,
                check=False, timeout=120,
                env=dict(os.environ, PATH=f"{self.path('bin')}:{os.environ['PATH']}"))
            self.assertEqual((done.returncode, done.stdout), (0, shown), command + done.stderr)
            if command.startswith("export "):
                self.exports += command + "\n"


if __name__ == "__main__":
    unittest.main()
