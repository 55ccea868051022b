# The READMEs and tutorials, pasted: every command in them runs in order, in one shell, in a folder
# like a fresh clone that has been built, and prints the output that is shown (seconds are any
# number). A block is skipped if a comment before it, which no reader sees, gives the reason:
# <!-- not run: ... -->. A program after <!-- file: NAME --> is in the file of that name.
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from stasis_process import GEMMA, ROOT, command, turns_of

READMES = ("README.md", "bindings/cpp/README.md", "bindings/go/README.md",
           "bindings/rust/README.md", "bindings/python/README.md",
           *(f"docs/tutorial-{language}.md" for language in ("c", "cpp", "go", "rust")))
STORY = ("talk", "resume", "fork", "prove")
PROGRAM = re.compile(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"(?:<!-- not run: ([^>]*) -->\n)?^( *)```(sh|console)\n(.*?)^ *```$",
                   re.MULTILINE | re.DOTALL)


class Command:
    """What is pasted, and the lines that stand below it."""

    def __init__(self, text):
        self.text, self.output = text, []

    def pattern(self):
        text = re.escape("".join(self.output))
        return re.sub(r"\d+\\\.\d+\\ (m?s)\b", r"\\d+\\.\\d+\\ \1", text)

    def exit_code(self):
        """That of a check that has failed, where this is what is shown."""
        return int("".join(self.output).startswith(("DIVERGED", "different")))


def commands_of(kind, text):
    """In a `console` what begins with "$ "; in an `sh` each line, unless the one before goes on."""
    commands = []
    for line in text.splitlines(keepends=True):
        if commands and commands[-1].text.endswith("\\\n"):
            commands[-1].text += line
        elif kind == "console" and line.startswith("$ "):
            commands.append(Command(line[2:]))
        elif kind == "console":
            commands[-1].output.append(line)
        elif line.strip() and not line.startswith("#"):
            commands.append(Command(line))
    return commands


def blocks_of(readme):
    """(why it is not run, kind, text) of each."""
    text = (ROOT / readme).read_text(encoding="utf-8")
    return [(reason, kind, re.sub(rf"^{indent}", "", block, flags=re.MULTILINE))
            for reason, indent, kind, block in BLOCK.findall(text)]


class Readme(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="stasis-readme-"))
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)
        self.clone, self.logs = self.place / "stasis", self.place / "logs"
        for folder in self.clone / "build", self.logs, self.place / "home":
            folder.mkdir(parents=True)
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT,
                                capture_output=True, text=True, check=True).stdout.split("\n")
        for name in listed:
            if name and not name.startswith("tests/data/") and (ROOT / name).is_file():
                (self.clone / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.clone / name)
        (self.clone / "tests/data").symlink_to(ROOT / "tests/data")
        (self.clone / "build/release").symlink_to(command().parent)
        # The files that tools/demo leaves after it has installed and built.
        subprocess.run(["python3", "tools/demo.py", "build/release/stasis"], cwd=self.clone,
                       check=True, capture_output=True)
        (self.place / "typed").write_text(turns_of(GEMMA)[0]["user"] + "\n")

    def environment(self):
        home = pathlib.Path.home()
        inherited = {name: value for name, value in os.environ.items()
                     if name not in ("LD_LIBRARY_PATH", "PKG_CONFIG_PATH", "MODEL")}
        return {"CARGO_HOME": str(home / ".cargo"), "RUSTUP_HOME": str(home / ".rustup"),
                **inherited, "HOME": str(self.place / "home"), "GOPROXY": "off", "GOWORK": "off",
                "GOCACHE": str(command().parent.parent / "go-cache"), "CARGO_NET_OFFLINE": "true",
                "CARGO_TERM_COLOR": "never", "CARGO_TARGET_DIR": str(self.place / "rust"),
                "LC_ALL": "C.UTF-8"}

    def paste(self, readme):
        for name, text in PROGRAM.findall((ROOT / readme).read_text(encoding="utf-8")):
            (self.clone / name).parent.mkdir(parents=True, exist_ok=True)
            (self.clone / name).write_text(text, encoding="utf-8")
        commands = [each for reason, kind, text in blocks_of(readme) if not reason
                    for each in commands_of(kind, text)]
        self.assertTrue(commands, readme)
        script = "".join(
            f"{{\n{each.text}\n}} <{self.place}/typed >{self.logs}/{number}.out "
            f"2>{self.logs}/{number}.err\necho $? >{self.logs}/{number}.code\n"
            for number, each in enumerate(commands))
        subprocess.run(["bash", "-c", script], cwd=self.clone, env=self.environment(), check=True,
                       timeout=600)
        for number, each in enumerate(commands):
            out, err, code = ((self.logs / f"{number}.{kind}").read_text(encoding="utf-8")
                              for kind in ("out", "err", "code"))
            where = f"{readme}: {each.text}{out}{err}"
            self.assertEqual(int(code), each.exit_code(), where)
            if each.output:
                self.assertRegex(out, rf"\A{each.pattern()}\Z", where)

    def test_readme(self):
        self.paste("README.md")

    def test_readme_of_cpp(self):
        self.paste("bindings/cpp/README.md")

    def test_tutorial_of_c(self):
        self.check_tutorial("c", [f"$ ./{name} " for name in STORY])

    def test_tutorial_of_cpp(self):
        self.check_tutorial("cpp", [f"$ ./{name} " for name in STORY])

    def test_tutorial_of_go(self):
        self.need("go")
        self.check_tutorial("go", [f"$ ./story {name} " for name in STORY])

    def test_tutorial_of_rust(self):
        self.need("cargo")
        self.check_tutorial("rust", [f"$ target/debug/story {name} " for name in STORY])

    def check_tutorial(self, language, commands):
        """Every program of the page is a file, and each part of the story is run."""
        page = f"docs/tutorial-{language}.md"
        text = (ROOT / page).read_text(encoding="utf-8")
        self.assertEqual(len(PROGRAM.findall(text)),
                         len(re.findall(r"^```(?!sh$|console$)\w+$", text, re.MULTILINE)))
        for command_shown in commands:
            self.assertIn(command_shown, text)
        self.paste(page)

    def test_readme_of_go(self):
        self.need("go")
        self.paste("bindings/go/README.md")

    def test_readme_of_rust(self):
        self.need("cargo")
        self.paste("bindings/rust/README.md")

    def test_readme_of_python(self):
        self.paste("bindings/python/README.md")

    def need(self, tool):
        if not shutil.which(tool):
            self.skipTest(f"there is no {tool}")


class Marked(unittest.TestCase):
    """One test for each block that is not run; and nothing to paste stands outside of blocks."""

    def test_every_command_is_in_a_block(self):
        for readme in READMES:
            text = re.sub(r"^ *```.*?^ *```$", "", (ROOT / readme).read_text(encoding="utf-8"),
                          flags=re.MULTILINE | re.DOTALL)
            self.assertEqual(re.findall(r"^ {4,}\S.*", text, re.MULTILINE), [], readme)


def skipped(reason):
    return lambda self: self.skipTest(reason)


for _readme in READMES:
    for _number, (_reason, _, _text) in enumerate(blocks_of(_readme)):
        if _reason:
            _words = re.sub(r"\W+", "_", f"{_readme} {_text.splitlines()[0]}").strip("_")
            setattr(Marked, f"test_{_words}", skipped(_reason))
