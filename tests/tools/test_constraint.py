# What constraints allow, byte by byte, against another implementation: llguidance (the package of
# PyPI), over lists of schemas, expressions and grammars and over random ones. How the two differ is
# listed in runtime/constraint/CONSTRAINTS.md; what is not listed there is a failure. And what
# schemas allow against the published tests of JSON schemas, which the sources of the package
# jsonschema hold.
import fractions
import itertools
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest

import stasis_process

VERSION, SUITE_VERSION = "1.9.1", "4.23.0"  # of llguidance, of jsonschema
KINDS = {"json_schema": 1, "json": 2, "regex": 3, "grammar": 4}
BLANKS = set(b" \t\n\r")

SCHEMAS = [
    {}, {"type": "string"}, {"type": "string", "minLength": 2, "maxLength": 5},
    {"type": "string", "pattern": "^[a-z]+[0-9]{2}$"}, {"type": "string", "pattern": "ab|^c"},
    {"type": "integer", "minimum": -17, "maximum": 1230}, {"type": "integer", "minimum": 5},
    {"type": "integer", "exclusiveMaximum": -3},
    {"type": "number", "minimum": -1.5, "maximum": 20.25}, {"type": "number", "maximum": 100},
    {"type": "number"}, {"type": "integer"}, {"type": ["null", "boolean", "string"]},
    {"enum": ["a", "b\"c", 1, 2.5, None, [1, 2], {"x": 1}]}, {"const": "x"},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
    {"type": "array", "prefixItems": [{"type": "null"}, {"type": "integer"}],
     "items": {"type": "string"}, "minItems": 1},
    {"type": "array", "prefixItems": [{"type": "null"}, {"type": "integer"}], "items": False},
    {"type": "array", "prefixItems": [{"type": "null"}], "minItems": 4, "maxItems": 5},
    {"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"},
                                      "c": {"type": "null"}},
     "required": ["b"], "additionalProperties": False},
    {"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}},
     "required": ["b", "z"]},
    {"type": "object", "properties": {"a": {"type": "null"}, "ab": {"type": "null"}},
     "additionalProperties": {"type": "integer"}},
    {"type": "object", "additionalProperties": {"type": "boolean"}},
    {"oneOf": [{"type": "integer"}, {"type": "string"}]},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "null"}}},
               {"properties": {"b": {"type": "null"}}, "required": ["b"]}]},
    {"$ref": "#/$defs/n", "$defs": {"n": {
        "type": "object",
        "properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/n"}]}},
        "required": ["next"], "additionalProperties": False}}},
    {"type": "string", "format": "date"}, {"type": "string", "format": "uuid"},
    {"type": "string", "format": "ipv4"}, {"type": "string", "format": "hostname"},
    {"properties": {"a": {"type": "null"}}},
]
REGEXES = ["ab*c", "(a|b){2,3}", "[^a-z]{2}", "a.c", "x{2,}", "(?:ab|cd)*", "[a\\-z]", "[-a]",
           "\\x41\\u00e9", "a?b+?", "^ab$", "(a|ab)(c|bcd)?", "[\\u0080-\\uffff]+", "((a?){3}b)*c",
           "\\t\\n\\.\\\\", "(x|yz?){0,4}|w+", "[^\\n]", "a{0}b"]
GRAMMARS = ['root ::= "a" | "b" root', 'root ::= "(" root ")" | [x-z]+',
            'root ::= item ("," item)*\nitem ::= [0-9]+ | "[" root "]"',
            'root ::= "a"{2,3} b? "c"*\nb ::= "\u00e9" | "b"',
            'root ::= "a" root "a" | "b" root "b" | "c"', 'root ::= ([a-c] | [^a-z])+ "."']


def random_schema(rng, depth):
    """A schema of what both understand alike."""
    kinds = ["string", "integer", "number", "null", "boolean", "enum", "pattern"]
    kind = rng.choice(kinds + ["object", "object", "array", "anyOf"] * (depth > 0))
    if kind == "object":
        names = rng.sample(["a", "ab", "b", "key", "k\"y", "\u00e9"], rng.randint(0, 4))
        schema = {"type": "object",
                  "properties": {name: random_schema(rng, depth - 1) for name in names},
                  "required": [name for name in names if rng.random() < 0.4]}
        if rng.random() < 0.7:
            schema["additionalProperties"] = rng.choice(
                [False, False, {"type": "null"}, {"type": "integer"}])
        return schema
    if kind == "array":
        least = rng.randint(0, 2)
        return {"type": "array", "items": random_schema(rng, depth - 1), "minItems": least,
                "maxItems": least + rng.randint(0, 2)}
    if kind == "anyOf":
        return {"anyOf": [random_schema(rng, depth - 1) for _ in range(rng.randint(1, 3))]}
    if kind == "enum":
        return {"enum": rng.sample(["a", "ab", "b\n", 1, 12, -1, None, True], rng.randint(1, 4))}
    if kind == "pattern":
        return {"type": "string", "pattern": rng.choice(["^a*b$", "^[x-z]{2,3}$", "^(ab|ac)d?$"])}
    if kind == "integer" and rng.random() < 0.6:
        low = rng.randint(-1000, 1000)
        return {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 2000)}
    if kind == "string" and rng.random() < 0.5:
        return {"type": "string", "maxLength": rng.randint(0, 4)}
    return {"type": kind}


class Ours:
    """Asks the program that answers with what this library allows."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def ask(self, kind, constraint, text):
        self.process.stdin.write(f"{KINDS[kind]} x{constraint.encode().hex()} x{text.hex()}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split(None, 2)

    def __call__(self, kind, constraint, text):
        """The bytes that may follow, and whether the text is complete."""
        answer = self.ask(kind, constraint, text)
        if answer[0] == "refused":
            raise AssertionError(f"{constraint}: {' '.join(answer)}")
        if int(answer[0]) != len(text):
            raise AssertionError(f"{constraint}: {text} fits up to {answer[0]}")
        allowed = {group * 4 + bit for group in range(64) for bit in range(4)
                   if int(answer[2][group], 16) >> bit & 1}
        return allowed, answer[1] == "1"


class Theirs:
    """The same of llguidance, with a vocabulary of single bytes."""

    def __init__(self, kind, constraint):
        import llguidance  # what the test has installed
        from llguidance import gbnf_to_lark
        self.tokens = llguidance.LLTokenizer("byte")
        matcher = llguidance.LLMatcher
        grammar = {"json_schema": lambda: matcher.grammar_from_json_schema(constraint),
                   "regex": lambda: matcher.grammar_from_regex(constraint),
                   "grammar": lambda: matcher.grammar_from_lark(
                       gbnf_to_lark.gbnf_to_lark(constraint))}[kind]()
        self.matcher = matcher(self.tokens, grammar)
        if self.matcher.is_error():
            raise AssertionError(f"{constraint}: llguidance: {self.matcher.get_error()}")

    def allowed(self):
        if self.matcher.is_stopped():
            return set(), True
        bias = self.matcher.compute_logit_bias()
        return {byte for byte in range(256) if bias[byte]}, self.matcher.is_accepting()

    def take(self, byte):
        self.matcher.consume_token(byte)


# An escape by number that lacks digits; its backslash is not itself escaped.
UNFINISHED = re.compile(rb"(?<!\\)(?:\\\\)*\\u([0-9A-Fa-f]{0,3})$")
HEX_DIGITS = set(b"0123456789ABCDEFabcdef")


def same_escape(digits, ours, theirs):
    """The same inside of an escape. Where any escape may stand, none is half of a surrogate pair;
    where there is one spelling, only control characters have such, in lower case. The other side
    may have all four digits, or control characters alone."""
    free = HEX_DIGITS - set(b"89ABCDEFabcdef") if digits in (b"d", b"D") else HEX_DIGITS
    one = {b"": set(b"0"), b"0": set(b"0"), b"00": set(b"01")}.get(
        digits, set(b"0123456789abcdef"))
    control = {b"": set(b"0"), b"0": set(b"0"), b"00": set(b"017")}.get(digits, HEX_DIGITS)
    return (ours == free or ours == ours & one & theirs != set()) and (
        theirs == HEX_DIGITS or theirs == theirs & control != set())


def fraction(schema, text):
    """The digits that may follow a number with a point under bounds, and whether it is complete: of
    the values that begin so, one lies between them. Minus zero is none."""
    low = fractions.Fraction(schema["minimum"]) if "minimum" in schema else float("-inf")
    high = fractions.Fraction(schema["maximum"]) if "maximum" in schema else float("inf")

    def value(number):
        return fractions.Fraction(number.decode() + ("0" if number.endswith(b".") else ""))

    def fits(number):
        size = abs(value(number))
        beyond = size + fractions.Fraction(1, 10 ** len(number.split(b".")[1]))
        if number.startswith(b"-"):
            return (-size >= low if size else low < 0) and -beyond < high
        return size <= high and beyond > low
    minus_zero = text.startswith(b"-") and value(text) == 0
    complete = not text.endswith(b".") and not minus_zero and low <= value(text) <= high
    return {digit for digit in b"0123456789" if fits(text + bytes([digit]))}, complete


def same(kind, text, ours, theirs):
    """Whether the bytes that may follow are the same, but for what CONSTRAINTS.md lists."""
    if kind != "json_schema":
        return ours == theirs
    if text[-1:] in (b" ", b"\n", b"\t"):  # blanks before commas, or more of them
        theirs = theirs - (set(b",:") - ours)
    if text[-1:] == b"\\":  # a second spelling of an escape; a slash
        theirs, ours = theirs - (set(b"u") - ours), ours - (set(b"/") - theirs)
    if text[-1:] == b"-":  # minus zero between bounds
        theirs = theirs - (set(b"0") - ours)
    if escape := UNFINISHED.search(text):
        return same_escape(escape[1], ours, theirs)
    return ours - BLANKS - {0x7F} == theirs - BLANKS and ours & BLANKS <= theirs | set(b" ")


def pip(test, what, *arguments):
    """Runs pip in a folder that the test class keeps, or skips its tests."""
    test.folder = tempfile.TemporaryDirectory()
    done = subprocess.run([sys.executable, "-m", "pip", *arguments], cwd=test.folder.name,
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        test.folder.cleanup()
        raise unittest.SkipTest(f"{what} cannot be had, so nothing was compared with it: " +
                                done.stderr.strip().split("\n")[-1])


class Constraint(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        pip(cls, "llguidance", "install", "--quiet", "--no-deps", "--only-binary", ":all:",
            "--target", ".", f"llguidance=={VERSION}")
        sys.path.insert(0, cls.folder.name)
        cls.ours = Ours(stasis_process.command().parent / "constraint_answers")

    @classmethod
    def tearDownClass(cls):
        cls.ours.close()
        sys.path.remove(cls.folder.name)
        cls.folder.cleanup()

    def walk(self, kind, constraint, rng):
        """Follows both along one random text. Returns how many places were compared."""
        theirs, text = Theirs(kind, constraint), b""
        for step in range(60):
            ours, complete = self.ours(kind, constraint, text)
            other, accepting = theirs.allowed()
            agree = same(kind, text, ours, other) and complete == accepting
            bounded = kind == "json_schema" and {"minimum", "maximum"} & set(json.loads(constraint))
            if not agree and bounded and b"." in text:
                agree = ((ours, complete) == fraction(json.loads(constraint), text) and
                         other <= ours and accepting <= complete)
            self.assertTrue(agree, f"{constraint} after {text}: here alone {bytes(ours - other)}, "
                            f"there alone {bytes(other - ours)}, complete {complete} {accepting}")
            both = sorted(ours & other)
            if not both:
                return step + 1
            ends = [byte for byte in b'"}],:' if byte in both]
            byte = rng.choice(ends if ends and rng.random() < 0.3 else both)
            theirs.take(byte)
            text += bytes([byte])
        return 60

    def test_the_bytes_that_may_follow_are_those_of_llguidance(self):
        rng = random.Random(int(os.environ.get("STASIS_TEST_SEED", "1")))
        cases = [("json_schema", json.dumps(schema)) for schema in SCHEMAS]
        cases += [("regex", regex) for regex in REGEXES]
        cases += [("grammar", grammar) for grammar in GRAMMARS]
        cases += [("json_schema", json.dumps(random_schema(rng, 3))) for _ in range(60)]
        places = 0
        for kind, constraint in cases:
            for _ in range(3):
                places += self.walk(kind, constraint, rng)
        self.assertGreater(places, 3000)

    def test_another_constraint_is_noticed(self):
        """The comparison can fail: it does for a constraint that differs in one byte."""
        rng = random.Random(1)
        for kind, here, there in (("regex", "ab*c", "ab*d"), ("grammar", GRAMMARS[0], GRAMMARS[4]),
                                  ("json_schema", '{"maxLength":3,"type":"string"}',
                                   '{"maxLength":2,"type":"string"}')):
            with self.assertRaises(AssertionError):
                for _ in range(20):
                    theirs, text = Theirs(kind, there), b""
                    while True:
                        ours, complete = self.ours(kind, here, text)
                        other, accepting = theirs.allowed()
                        self.assertTrue(same(kind, text, ours, other) and complete == accepting)
                        both = sorted(ours & other)
                        if not both:
                            break
                        byte = rng.choice(both)
                        theirs.take(byte)
                        text += bytes([byte])


# Beginnings of the titles of tests whose valid instances are refused all the same: formats hold, a
# constant is spelled as in the schema, and metaschemas are not looked at.
REFUSED_ALL_THE_SAME = ("format: ", "const: const with -2.0 matches integer and float types: ",
                        "vocabulary: schema that uses custom metaschema with with no validation")


def spellings(data):
    """The instance as text, whole numbers without a point, its members in every order."""
    def plain(value):
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, list):
            return [plain(each) for each in value]
        if isinstance(value, dict):
            return {key: plain(each) for key, each in value.items()}
        return value
    data = plain(data)
    orders = [data]
    if isinstance(data, dict) and len(data) < 6:
        orders = [dict(order) for order in itertools.permutations(data.items())]
    for each in orders:
        yield json.dumps(each, ensure_ascii=False, separators=(",", ":")).encode()


class Suite(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        pip(cls, "the published tests of JSON schemas", "download", "--quiet", "--no-deps",
            "--no-binary", ":all:", f"jsonschema=={SUITE_VERSION}")
        cls.ours = Ours(stasis_process.command().parent / "constraint_answers")

    @classmethod
    def tearDownClass(cls):
        cls.ours.close()
        cls.folder.cleanup()

    def groups(self):
        archive = pathlib.Path(self.folder.name) / f"jsonschema-{SUITE_VERSION}.tar.gz"
        with tarfile.open(archive) as files:
            for member in files.getmembers():
                path = pathlib.PurePath(member.name)
                if path.match("json/tests/draft2020-12/*.json"):
                    for group in json.load(files.extractfile(member)):
                        yield path.stem, group

    def fits(self, schema, data):
        for text in spellings(data):
            answer = self.ours.ask("json_schema", schema, text)
            if answer[0] != "refused" and int(answer[0]) == len(text) and answer[1] == "1":
                return True
        return False

    def test_schemas_allow_what_the_published_tests_say(self):
        wrong, refused, tried = [], 0, 0
        for name, group in self.groups():
            schema = json.dumps(group["schema"])
            answer = self.ours.ask("json_schema", schema, b"")
            if answer[0] == "refused" and answer[1] == "5":  # unsupported
                refused += 1
                continue
            for test in group["tests"]:
                tried += 1
                title = f"{name}: {group['description']}: {test['description']}"
                if self.fits(schema, test["data"]) != test["valid"] and (
                        not test["valid"] or not title.startswith(REFUSED_ALL_THE_SAME)):
                    wrong.append(f"{title}: {schema} {test['data']} is {test['valid']}")
        self.assertEqual("\n".join(wrong), "", f"of {tried}")
        self.assertGreater(tried, 350)
        self.assertGreater(refused, 50)
