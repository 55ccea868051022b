# Calls the command as a user does: a process, its exit code, its two streams. Must not know the
# library; every test of this folder uses this file or reads source files.
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DATA = ROOT / "tests/data"
SHARED = ROOT / "../shared/data"
GEMMA = DATA / "recall-gemma3"
LLAMA = DATA / "recall-llama"
WITHOUT_TOKENIZER = DATA / "zoo/llama-gqa-untied"

_command = None


def use(path):
    global _command
    _command = path.resolve()


def command():
    return _command


def share(cases, step=3):
    """One of `step` cases, from a place that the run's seed names (tests/share.h); or them all."""
    if "STASIS_TEST_ALL" in os.environ:
        return cases
    return cases[int(os.environ.get("STASIS_TEST_SEED", 0)) % min(step, len(cases))::step]


def kernel_tables():
    """Names of the kernel tables, the fastest first, as the public header lists them."""
    header = (ROOT / "abi/stasis.h").read_text(encoding="utf-8")
    return re.findall(r'"(\w+)"', re.search(r"char \*kernels;(.*?)\*/", header, re.DOTALL)[1])


def comma(tokens):
    return ",".join(map(str, tokens))


def turns_of(model):
    return json.loads((model / "conversation.json").read_text())["turns"]


def all_tokens(model):
    return [token for turn in turns_of(model) for token in turn["prompt_ids"] + turn["reply_ids"]]


class CommandTest(unittest.TestCase):
    """Runs the command in a folder that is gone after the test."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="stasis-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, name):
        return str(self.folder / name)

    def run_command(self, *arguments, text="", file_bytes_max=None, user=None,
                    stdout=subprocess.PIPE, before=None, under=()):
        """`before` runs in the new process first; `under` is a command that runs the command."""
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, file_bytes_max))

        return subprocess.run([*under, str(command()), *map(str, arguments)], input=text.encode(),
                              stdout=stdout, stderr=subprocess.PIPE, check=False, timeout=300,
                              user=user,
                              preexec_fn=limit if file_bytes_max is not None else before)

    def ok(self, *arguments, text="", code=0, **process):
        """stdout of a call that is to end with `code`."""
        done = self.run_command(*arguments, text=text, **process)
        self.assertEqual(done.returncode, code, f"{arguments}: {done.stderr.decode()}")
        return done.stdout.decode()

    def json(self, *arguments, code=0, **process):
        """The one JSON object that stdout holds."""
        out = self.ok(*arguments, "--json", code=code, **process)
        self.assertEqual(out.count("\n"), 1, out)
        return json.loads(out)

    def refused(self, *arguments, text="", names=(), **process):
        """Exit code 2, nothing on stdout, the reason in one line on stderr."""
        done = self.run_command(*arguments, text=text, **process)
        message = done.stderr.decode()
        self.assertEqual(done.returncode, 2, f"{arguments}: {done.stdout} {message}")
        self.assertFalse(done.stdout, f"{arguments}")
        self.assertRegex(message, r"\Astasis: [^\n]+\n\Z")
        for name in names:
            self.assertIn(name, message)
        return message

    def chat(self, model, users, *options):
        """The replies of one process to these user turns."""
        text = "".join(user + "\n" for user in users)
        out = self.ok("chat", model, "--json", *options, text=text)
        return [json.loads(line) for line in out.splitlines()]
