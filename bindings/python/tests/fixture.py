# What the tests share: models, sessions, and folders that are gone after a test.
import functools
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "bindings/python"
if str(PACKAGE) not in sys.path:
    sys.path.insert(0, str(PACKAGE))

import stasis  # noqa: E402

DATA = ROOT / "tests/data"
GEMMA = DATA / "recall-gemma3"
LLAMA = DATA / "recall-llama"
EMBEDDING = DATA / "zoo/qwen3-embedding"
BOTH_WAYS = DATA / "zoo/embedding-gemma"  # makes embeddings alone
WITHOUT_TOKENIZER = DATA / "zoo/llama-gqa-untied"
FIRST = "Let's start by defining a variable k equal to 5. What is k?"
SECOND = "Now set a new variable m equal to k multiplied by 11. What is m?"


@functools.lru_cache(maxsize=None)
def opened(path):
    return stasis.Model(path)


def model(path=GEMMA):
    """A model that all tests of a process share."""
    return opened(path)


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="stasis-python-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, name):
        return self.folder / name

    def session(self, tokens=(), path=GEMMA, **options):
        session = model(path).session(**options)
        self.addCleanup(session.close)
        if tokens:
            session.append(tokens)
        return session

    def talk(self):
        """A session after the first turn, and its reply."""
        session = self.session()
        return session, "".join(session.say(FIRST))

    def script(self, text, *arguments, **process):
        """A Python process that runs the text, with the package and this folder in its path."""
        prologue = f"import sys; sys.path[:0] = [{str(PACKAGE / 'tests')!r}]\n"
        return subprocess.Popen([sys.executable, "-u", "-c", prologue + text,
                                 *map(str, arguments)], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, **process)


def tokens(count, seed=1):
    """Some ordinary tokens, the same for the same seed."""
    return [6 + (seed * 7919 + i * 104729) % 900 for i in range(count)]
