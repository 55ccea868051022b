# The table tests/INSIGHTS.md is true: each test that it names exists in the sources, each row that
# promises something names one, and each test that is named after an insight stands in its row.
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def rows():
    """(number, kind, tests) of each row; elements 1 to 12 have the kind "element"."""
    section = ""
    text = (ROOT / "tests/INSIGHTS.md").read_text(encoding="utf-8")
    for line in text.split("\n"):
        section = line if line.startswith("## ") else section
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not re.fullmatch(r"\+?\d+", cells[0]):
            continue
        if section == "## The state":
            number = int(cells[0]) + (8 if cells[0][0] == "+" else 0)
            yield number, "element", re.findall(r"`([^`]*)`", cells[-1])
        else:
            yield int(cells[0]), cells[2], re.findall(r"`([^`]*)`", cells[-1])


# The rows of "What a generation package offers", by their features: none may be lost.
FEATURES = """the cache is preallocated, decoding allocates nothing
a pool of blocks under a memory budget: alloc, free, available, cap
truncate and reset
16-bit storage, half the bytes of f32
full-buffer and view access
the cache on the GPU, with a position counter there
batch generation
batch streaming
sampling: temperature
sampling: top-k
sampling: top-p
sampling: repetition penalty
maximum of new tokens
stop tokens
stop strings
streaming through a callback that can stop
speculative decoding with a draft model and an adaptive draft length
a tracing wrapper that records each KV operation""".split("\n")


def features():
    """(feature, its part of the C interface, the cell of its tests) of each row of the generation
    package's table."""
    text = (ROOT / "tests/INSIGHTS.md").read_text(encoding="utf-8")
    section = text.split("\n## What a generation package offers\n")[1].split("\n## ")[0]
    lines = [line for line in section.split("\n") if line.startswith("|")]
    for line in lines[2:]:
        yield tuple(cell.strip() for cell in line.strip("|").split(" | "))


def cases(files="*/*.cpp"):
    """Names of the test cases in these files, as the table writes them; of all with those in
    Python."""
    for path in sorted((ROOT / "tests").glob(files)):
        for literals in re.findall(r'TEST_CASE\(\s*((?:"(?:\\.|[^"\\])*"\s*)+)\)',
                                   path.read_text(encoding="utf-8")):
            name = "".join(re.findall(r'"((?:\\.|[^"\\])*)"', literals))
            yield f"test_{path.parent.name}: {name}"
    if files != "*/*.cpp":
        return
    for path in sorted((ROOT / "tests/tools").glob("test_*.py")):
        for name in re.findall(r"^    def (test_\w+)", path.read_text(encoding="utf-8"), re.M):
            yield f"test_tools: {path.stem}.{name}"


class Insights(unittest.TestCase):
    def test_rows_are_complete(self):
        found = [(kind == "element", number) for number, kind, _ in rows()]
        self.assertEqual(sorted(found), [(False, number) for number in range(1, 61)] +
                         [(True, number) for number in range(1, 13)])

    def test_every_promise_has_a_test_that_exists(self):
        known = set(cases())
        self.assertGreater(len(known), 200)
        for number, kind, tests in rows():
            self.assertEqual(bool(tests), kind != "N", f"row {number} ({kind})")
            self.assertLessEqual(set(tests), known, f"row {number} ({kind})")

    def test_every_test_that_is_named_exists(self):
        text = (ROOT / "tests/INSIGHTS.md").read_text(encoding="utf-8")
        named = set(re.findall(r"`(test_\w+: [^`]*)`", text))
        self.assertLessEqual(named, set(cases()))

    def test_features_of_the_package_have_tests(self):
        found = list(features())
        self.assertEqual([feature for feature, _, _ in found], FEATURES)
        header = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "abi").glob("*.h"))
        known = set(cases())
        for feature, mechanism, tests in found:
            named = re.findall(r"`(test_\w+: [^`]*)`", tests)
            if tests.startswith("not yet: "):
                self.assertFalse(named, feature)
                continue
            self.assertTrue(named, feature)
            self.assertLessEqual(set(named), known, feature)
            self.assertTrue(re.findall(r"`(stasis_\w+)", mechanism) or "bf16" in mechanism)
            for name in re.findall(r"`(stasis_\w+)", mechanism):
                self.assertIn(name, header, feature)
        in_table = {name for _, _, tests in found for name in re.findall(r"`([^`]*)`", tests)}
        for case in cases("abi/package_*_test.cpp"):
            self.assertIn(case, in_table)

    def test_features_of_the_package_that_are_not_yet(self):
        missing = [feature for feature, _, tests in features() if tests.startswith("not yet: ")]
        if missing:
            self.skipTest(f"{len(missing)} of {len(FEATURES)} features of the package are not "
                          f"there yet: {'; '.join(missing)}")

    def test_tests_stand_in_the_rows_whose_numbers_they_bear(self):
        table = {(kind == "element", number): tests for number, kind, tests in rows()}
        for case in cases():
            name = case.split(": ", 1)[1]
            for what, numbers in re.findall(r"\b(element|insight)s? (\d+(?:, \d+)*)\b", name):
                for number in numbers.split(", "):
                    self.assertIn(case, table[what == "element", int(number)])
