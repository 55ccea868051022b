# One story in five languages: a conversation passes between C, C++, Go, Rust and Python in one
# file, each continuing where another stopped, and adding its letter to a host's data. After every
# leg the session's digest is that of a single language with the same story, and at the end all of
# it is verified.
import os
import pathlib
import shutil
import subprocess
import sys

from stasis_process import CommandTest, GEMMA, LLAMA, ROOT, command, turns_of

sys.path.insert(0, str(ROOT / "tests/format"))
from reader.container import Container  # noqa: E402
from reader.features import features  # noqa: E402
from reader.state import State  # noqa: E402

LANGUAGES = ("C", "C++", "Go", "Rust", "Python")
LETTERS = "C+GRP"


class Relay(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        build = command().parent
        cls.programs = {"C": [build / "relay"], "C++": [build / "relay_cpp"],
                        "Python": [sys.executable, ROOT / "bindings/python/examples/relay.py"]}
        cls.environment = dict(os.environ, PYTHONPATH=str(ROOT / "bindings/python"),
                               STASIS_LIBRARY=str(build / "abi/libstasis.so.0"))
        if shutil.which("go"):
            cls.programs["Go"] = [build / "relay_go"]
            cls.make("bindings/go", "go", "build", "-o", *cls.programs["Go"], "./examples/relay",
                     PKG_CONFIG_PATH=str(build), GOPROXY="off", GOFLAGS="", GOWORK="off",
                     CGO_ENABLED="1", GOCACHE=str(build.parent / "go-cache"))
        if shutil.which("cargo"):
            target = build.parent / "rust"
            cls.programs["Rust"] = [target / "debug/examples/relay"]
            cls.make("bindings/rust", "cargo", "build", "--offline", "--example", "relay",
                     STASIS_LIB_DIR=str(build / "abi"), CARGO_TARGET_DIR=str(target))

    @staticmethod
    def make(folder, *words, **environment):
        done = subprocess.run(list(map(str, words)), cwd=ROOT / folder, capture_output=True,
                              text=True, check=False, env=dict(os.environ, **environment))
        if done.returncode != 0:
            raise AssertionError(f"{words}: {done.stdout}{done.stderr}")

    def setUp(self):
        super().setUp()
        missing = [language for language in LANGUAGES if language not in self.programs]
        if missing:
            self.skipTest(f"nothing to build {' and '.join(missing)} with")

    def run_leg(self, language, model, file, text):
        return subprocess.run([*self.programs[language], model, file, text], text=True,
                              capture_output=True, check=False, timeout=300, env=self.environment)

    def leg(self, language, model, file, text):
        done = self.run_leg(language, model, file, text)
        self.assertEqual(done.returncode, 0, f"{language}: {done.stderr}")
        digest, reply = done.stdout.split("\n", 1)
        self.assertRegex(digest, r"\A[0-9a-f]{64}\Z")
        return digest, reply

    def test_round_and_round(self):
        for model in (GEMMA, LLAMA):
            turns = [turn["user"] for turn in turns_of(model)][:6]
            self.assertEqual(len(turns), 6)
            alone = {language: [self.leg(language, model, self.path(f"{language}.stasis"), text)
                                for text in turns] for language in LANGUAGES}
            for language in LANGUAGES:
                self.assertEqual(alone[language], alone["C"], language)
            self.assertEqual(len({digest for digest, _ in alone["C"]}), 6)
            for first in range(len(LANGUAGES)):  # whoever begins
                file = self.path(f"round{first}.stasis")
                legs = [self.leg(LANGUAGES[(first + i) % len(LANGUAGES)], model, file, text)
                        for i, text in enumerate(turns)]
                self.assertEqual(legs, alone["C"])
                self.assertTrue(self.json("verify", file, model)["verified"])
                inspected = self.json("inspect", file)
                self.assertEqual(inspected["digest"], legs[-1][0])
                self.assertEqual(inspected["data"], [{"name": "legs", "bytes": len(turns)}])
                contents = pathlib.Path(file).read_bytes()
                letters = [LETTERS[(first + i) % len(LETTERS)] for i in range(len(turns))]
                self.assertEqual(State(Container(contents, features)).data,
                                 {"legs": "".join(letters).encode()})
            for file in os.listdir(self.folder):
                os.remove(self.path(file))

    def test_a_file_that_is_not_this_models_is_nobodys(self):
        file = self.path("gemma.stasis")
        text = turns_of(GEMMA)[0]["user"]
        self.leg("C", GEMMA, file, text)
        before = open(file, "rb").read()
        for language in LANGUAGES:
            done = self.run_leg(language, LLAMA, file, text)
            self.assertEqual(done.returncode, 1, language)
            self.assertRegex(done.stderr, "(?i)model.?mismatch|differ", language)
            self.assertEqual(open(file, "rb").read(), before, language)
