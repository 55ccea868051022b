# Runs the tests of this folder, or of another, against a built command and closes with one line
# that tools/test reads: "N passed, N failed, N skipped".
# Usage: main.py build/release/stasis [FOLDER] [test_chat ...]
import pathlib
import sys
import time
import unittest

import stasis_process


class Result(unittest.TextTestResult):
    """One line a test, with its time; counts those that passed."""
    passed = 0

    def startTest(self, test):
        super().startTest(test)
        self.started = time.monotonic()

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1

    def stopTest(self, test):
        super().stopTest(test)
        bad = {id(getattr(each, "test_case", each)) for each, _ in self.failures + self.errors}
        word = "FAILED" if id(test) in bad else "ok"
        if test in [each for each, _ in self.skipped]:
            word = "skipped"
        print(f"{word:>8}  {test.id()} ({time.monotonic() - self.started:.1f} s)", flush=True)


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: main.py PATH_OF_STASIS [FOLDER] [MODULE ...]")
    stasis_process.use(pathlib.Path(sys.argv[1]))
    modules = sys.argv[2:]
    folder = pathlib.Path(__file__).parent
    if modules and pathlib.Path(modules[0]).is_dir():
        folder = pathlib.Path(modules.pop(0))
        sys.path.insert(0, str(folder))
    modules = modules or sorted(path.stem for path in folder.glob("test_*.py"))
    suite = unittest.defaultTestLoader.loadTestsFromNames(modules)
    runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=0, resultclass=Result)
    result = runner.run(suite)
    for test, reason in result.skipped:
        print(f"SKIPPED: {test.id()}: {reason}")
    bad = {getattr(each, "test_case", each).id() for each, _ in result.failures + result.errors}
    print(f"{result.passed} passed, {len(bad)} failed, {len(result.skipped)} skipped")
    sys.exit(1 if bad else 0)


main()
