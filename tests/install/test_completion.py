# Completion in an interactive bash on a terminal, found by bash-completion in the installed tree:
# every command and every option that `stasis --help` names is offered, and no other.
import os
import pty
import re
import select
import shlex
import signal
import termios
import time

from installed import InstalledTest, environment, help_of, options_of, prefix, run, subcommands
from stasis_process import kernel_tables

LOADER = "/usr/share/bash-completion/bash_completion"
TAB, ALL = "\t", "\x1b*"  # as one presses it; readline's insert-completions: all of them
SECONDS_MAX = 60


class Bash:
    """A bash that somebody types into."""

    def __init__(self, folder):
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environment(
                PATH=f"{prefix()}/bin:{os.environ['PATH']}", TERM="dumb", INPUTRC="/dev/null",
                XDG_DATA_DIRS=f"{prefix()}/share:/usr/share", PS1="$ ", HISTFILE=""))
        termios.tcsetwinsize(self.terminal, (50, 4000))  # no line is wrapped
        self.marks = 0
        self.type(f". {LOADER}")

    def type(self, line):
        """What it prints until the line is done."""
        self.marks += 1
        os.write(self.terminal, f"{line}\necho do'ne' {self.marks}\n".encode())
        seen, end = "", time.monotonic() + SECONDS_MAX
        while f"done {self.marks}\r\n" not in seen:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.terminal], [], [], left)[0]:
                raise RuntimeError(f"bash does not come back: {seen}")
            seen += os.read(self.terminal, 65536).decode()
        return seen

    def completed(self, line, keys=TAB):
        """The words of the line after these keys."""
        seen = self.type(f"{line}{keys}\x01printf '<<%s>>\\n' \x05")  # at its begin and its end
        return re.findall(r"^<<(.*)>>\r$", seen, re.MULTILINE)

    def offered(self, line):
        """All that is offered for the last word of the line."""
        return self.completed(line, ALL)[len(shlex.split(line)) - (line[-1] != " "):]

    def close(self):
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self.terminal)


class Completion(InstalledTest):
    def setUp(self):
        if not os.path.exists(LOADER) or run("bash", "--version").returncode != 0:
            self.skipTest("bash-completion is not installed")
        folder = self.temporary()
        (folder / "model of mine").mkdir()
        (folder / "talk.stasis").touch()
        self.bash = Bash(folder)
        self.addCleanup(self.bash.close)

    def test_commands(self):
        self.assertEqual(sorted(self.bash.offered("stasis ")), sorted(subcommands()))
        self.assertEqual(self.bash.completed("stasis qu"), ["stasis", "quantize"])
        self.assertEqual(self.bash.completed("stasis --v"), ["stasis", "--version"])
        self.assertEqual(sorted(self.bash.offered("stasis -")), ["--help", "--version", "-h"])

    def test_options(self):
        for subcommand in subcommands():
            offered = self.bash.offered(f"stasis {subcommand} -")
            self.assertEqual(sorted(offered), sorted([*options_of(subcommand), "--help"]),
                             subcommand)
        self.assertEqual(self.bash.completed("stasis run --sy\b\bsav"), ["stasis", "run", "--save"])

    def test_values(self):
        """An option that takes something is offered that, one that takes nothing the next word."""
        for subcommand in subcommands():
            for name, value in options_of(subcommand).items():
                offered = self.bash.offered(f"stasis {subcommand} {name} ")
                if "|" in value:
                    self.assertEqual(sorted(offered), sorted(value.split("|")), name)
                elif value in ("N", "N=128", "N=256", "N=32") or name in ("--stop", "--prompt"):
                    self.assertEqual(offered, [], name)
                elif value in ("FILE", "MODEL"):
                    self.assertEqual(sorted(offered), ["model of mine", "talk.stasis"], name)
                elif not value and subcommand not in ("synth",):
                    self.assertIn("talk.stasis", offered, name)
        self.assertEqual(self.bash.completed("stasis run --codec=z"),
                         ["stasis", "run", "--codec=zstd"])
        self.assertEqual(self.bash.completed("stasis chat mod"),
                         ["stasis", "chat", "model of mine/"])

    def test_words_of_options(self):
        for line, text in (("stasis chat --chat-template ", help_of("chat")),
                           ("stasis quantize --type ", help_of("quantize")),
                           ("stasis synth ", help_of("synth"))):
            offered = self.bash.offered(line)
            self.assertGreaterEqual(len(offered), 5, line)
            for word in offered:
                self.assertRegex(text, rf"(?<!\w){re.escape(word)}(?!\w)", line)
        self.assertEqual(len(self.bash.offered("stasis quantize --type ")), 19)
        self.assertEqual(sorted(self.bash.offered("stasis run --kernels ")),
                         sorted(kernel_tables()))
        self.assertEqual(self.bash.offered("stasis run --device "), ["cpu", "cuda"])
        self.assertEqual(self.bash.offered("stasis run --profile "), ["contract", "device"])

    def test_a_command_that_is_not_there(self):
        self.assertEqual(self.bash.offered("stasis nothing --only "), ["model of mine",
                                                                       "talk.stasis"])
        self.assertEqual(self.bash.offered("nowhere/stasis "), [])
