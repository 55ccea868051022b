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


def cases():
    """Names of all test cases, as the table writes them."""
    for path in sorted((ROOT / "tests").glob("*/*.cpp")):
        for literals in re.findall(r'TEST_CASE\(\s*((?:"(?:\\.|[^"\\])*"\s*)+)\)',
                                   path.read_text(encoding="utf-8")):
            name = "".join(re.findall(r'"((?:\\.|[^"\\])*)"', literals))
            yield f"test_{path.parent.name}: {name}"
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

    def test_tests_stand_in_the_rows_whose_numbers_they_bear(self):
        table = {(kind == "element", number): tests for number, kind, tests in rows()}
        for case in cases():
            name = case.split(": ", 1)[1]
            for what, numbers in re.findall(r"\b(element|insight)s? (\d+(?:, \d+)*)\b", name):
                for number in numbers.split(", "):
                    self.assertIn(case, table[what == "element", int(number)])
