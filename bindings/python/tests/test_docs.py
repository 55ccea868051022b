# The examples of the documentation are run: those of README.md beside the package, and those in the
# package itself. Everything that is public says what it is.
import doctest
import importlib
import importlib.util
import inspect
import os
import pathlib
import pkgutil
import re
import shutil
import tempfile
import unittest

from fixture import GEMMA, PACKAGE, ROOT
import stasis

FLAGS = doctest.REPORT_NDIFF
LANGGRAPH = importlib.util.find_spec("langgraph") is not None  # tests/graphs.py says if it is not


def modules():
    left_out = {"__main__"} if LANGGRAPH else {"__main__", "langgraph"}
    return [stasis, *(importlib.import_module(f"stasis.{each.name}")
                      for each in pkgutil.iter_modules(stasis.__path__)
                      if each.name not in left_out)]


class Documentation(unittest.TestCase):
    def setUp(self):
        """In a folder that looks like the root of a clone to the examples."""
        folder = tempfile.mkdtemp(prefix="stasis-docs-")
        self.addCleanup(shutil.rmtree, folder)
        os.mkdir(os.path.join(folder, "tests"))
        os.symlink(ROOT / "tests/data", os.path.join(folder, "tests/data"))
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder)

    def test_readme(self):
        text = (PACKAGE / "README.md").read_text(encoding="utf-8")
        if not LANGGRAPH:
            text, left_out = re.subn(r"(?ms)^## In LangGraph's graphs$.*?(?=^## )", "", text)
            self.assertEqual(left_out, 1)
        pathlib.Path("README.md").write_text(text, encoding="utf-8")
        failed, tried = doctest.testfile(os.path.abspath("README.md"), module_relative=False,
                                         optionflags=FLAGS)
        self.assertEqual(failed, 0)
        self.assertGreater(tried, 20)

    def test_docstrings(self):
        tried = 0
        for module in modules():
            result = doctest.testmod(module, optionflags=FLAGS,
                                     extraglobs={**vars(stasis), "RECALL": str(GEMMA)})
            self.assertEqual(result.failed, 0, module.__name__)
            tried += result.attempted
        self.assertGreater(tried, 4)

    def test_everything_public_says_what_it_is(self):
        silent = []
        for name in stasis.__all__:
            value = getattr(stasis, name)
            if not inspect.getdoc(value):
                silent.append(name)
            if inspect.isclass(value):
                silent += [f"{name}.{member}" for member, what in vars(value).items()
                           if not member.startswith("_") and (callable(what) or isinstance(
                               what, property)) and not inspect.getdoc(what)]
        self.assertEqual(silent, [])


if __name__ == "__main__":
    unittest.main()
