# The Go binding: its own tests plainly, under the race detector and with strict checks of pointers
# that C is given; formatting, vet; and its examples as a user runs them.
# Closes with one line that tools/test reads. Usage: go.py build/release
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODULE = ROOT / "bindings/go"
LLAMA = ROOT / "tests/data/recall-llama"


class Tally:
    """Counts tests and says a line about each."""

    def __init__(self, build):
        self.build, self.passed, self.failed, self.skipped = build, 0, 0, 0
        self.environment = dict(os.environ, PKG_CONFIG_PATH=str(build), GOPROXY="off",
                                GOFLAGS="", GOWORK="off", CGO_ENABLED="1",
                                GOCACHE=str(build.parent / "go-cache"))

    def end(self, word, name, seconds):
        print(f"{word:>8}  {name} ({seconds:.1f} s)", flush=True)

    def check(self, name, body):
        """A test of this file: a function that raises where something is wrong."""
        start = time.monotonic()
        try:
            body()
            self.passed += 1
            self.end("ok", name, time.monotonic() - start)
        except (AssertionError, OSError, subprocess.SubprocessError) as problem:
            self.failed += 1
            self.end("FAILED", name, time.monotonic() - start)
            print(problem)

    def run(self, *command, code=0, text="", **variables):
        """stdout of a command in the module's folder."""
        done = subprocess.run(list(map(str, command)), cwd=MODULE, input=text, text=True,
                              capture_output=True, check=False, timeout=600,
                              env=dict(self.environment, **variables))
        assert done.returncode == code, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def tests(self, name, *flags, **variables):
        """Go's own tests, each counted; a package that fails without one counts as a test."""
        done = subprocess.run(["go", "test", "-json", "-count=1", *flags, "./..."], cwd=MODULE,
                              text=True, capture_output=True, check=False,
                              env=dict(self.environment, **variables))
        output, ran, passed, blamed = {}, 0, self.passed, self.failed
        for line in done.stdout.splitlines():
            if not line.startswith("{"):
                print(line)
                continue
            event = json.loads(line)
            test, action = event.get("Test", ""), event["Action"]
            where = (event["Package"], test.split("/")[0])
            output.setdefault(where, []).append(event.get("Output", ""))
            if "/" not in test and action in ("pass", "fail", "skip"):
                ran += test != ""
                self.count(f"{name} {event['Package'].split('/')[-1]} {test}", action, test,
                           event.get("Elapsed", 0), "".join(output[where]), blamed)
        if done.returncode != 0 and self.failed == blamed:
            self.failed += 1
        if done.returncode != 0 or self.passed == passed:
            print(f"{name}: {ran} tests ran\n{done.stderr}")
        assert self.failed > blamed or self.passed > passed, "no test ran"

    def count(self, name, action, test, seconds, output, blamed):
        if action == "fail" and (test or self.failed == blamed):
            self.failed += 1
            self.end("FAILED", name, seconds)
            print(output)
        elif action == "pass" and test:
            self.passed += 1
            self.end("ok", name, seconds)
        elif action == "skip" and test:
            self.skipped += 1
            reason = output.split("_test.go:")[-1].split(": ", 1)[-1].split("\n")[0]
            print(f"SKIPPED: {name}: {reason}")


def check_format(tally):
    listed = tally.run("gofmt", "-l", ".")
    assert listed == "", f"not as gofmt has it: {listed}"


def check_dependencies(tally):
    listed = tally.run("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}",
                       "./...").split()
    assert all(path.startswith("stasis.example/stasis.git/bindings/go") for path in listed), listed


def check_readme(tally, folder):
    """Its program, in a module outside of the tree, built as it says."""
    readme = (MODULE / "README.md").read_text()
    (folder / "main.go").write_text(re.search(r"```go\n(.*?)```", readme, re.DOTALL)[1])
    go = ["env", "-C", folder, "go"]
    tally.run(*go, "mod", "init", "newcomer.example/program")
    edit = re.search(r"go (mod edit(?:.*?\\\n)*.*)", readme)[1].replace("\\\n", "")
    tally.run(*go, *edit.replace("/usr/share/stasis/go", str(MODULE)).split())
    tally.run(*go, "build", "-o", "program", ".")
    for turn in json.loads((LLAMA / "conversation.json").read_text())["turns"][:2]:
        out = tally.run("env", "-C", folder, "./program", LLAMA, turn["user"])
        assert out == turn["reply"] + "\n", out


def check_chat(tally, folder):
    turns = json.loads((LLAMA / "conversation.json").read_text())["turns"]
    for part in turns[:3], turns[3:]:  # by two processes
        out = tally.run("go", "run", "./examples/chat", "-session", folder / "chat.stasis", LLAMA,
                        text="".join(turn["user"] + "\n" for turn in part))
        assert out == "".join(f"> {turn['reply']}\n" for turn in part) + "> \n", out
    report = tally.run(tally.build / "stasis", "verify", "--json", folder / "chat.stasis", LLAMA)
    assert json.loads(report)["verified"]
    tally.run("go", "run", "./examples/chat", folder / "nowhere", code=1)


def check_relay(tally, folder):
    turns = json.loads((LLAMA / "conversation.json").read_text())["turns"]
    for turn in turns[:3]:  # from one process to the next
        out = tally.run("go", "run", "./examples/relay", LLAMA, folder / "relay.stasis",
                        turn["user"])
        digest, reply = out.split("\n", 1)
        assert reply == turn["reply"] + "\n", out
        told = json.loads(tally.run(tally.build / "stasis", "inspect", "--json",
                                    folder / "relay.stasis"))
        assert told["digest"] == digest, (told, digest)


def check_host(tally):
    """The example host: 64 goroutines, 500 sessions, a few seconds."""
    out = tally.run("go", "run", "./examples/host", "-for", "3s", LLAMA)
    print("".join(f"          {line}\n" for line in out.splitlines()), end="")
    assert "500 sessions, 64 goroutines" in out, out
    assert "from the store alone: 500 of 500 sessions as they were left, 0 lost" in out, out
    assert "again, one by one: 500 of 500 digests the same" in out, out
    evictions, resumes = re.search(r"(\d+) evictions, (\d+) resumes", out).groups()
    assert int(evictions) > 500 and int(resumes) > 0, out


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: go.py BUILD_FOLDER")
    if shutil.which("go") is None:
        print("SKIPPED: go: go is not installed\n0 passed, 0 failed, 1 skipped")
        return
    tally = Tally(pathlib.Path(sys.argv[1]).resolve())
    tally.check("gofmt", lambda: check_format(tally))
    tally.check("vet", lambda: tally.run("go", "vet", "./..."))
    tally.check("no dependencies", lambda: check_dependencies(tally))
    tally.tests("plain")
    tally.tests("race", "-race")
    tally.tests("cgocheck", GODEBUG="cgocheck=2")
    with tempfile.TemporaryDirectory() as folder:
        tally.check("readme", lambda: check_readme(tally, pathlib.Path(folder)))
        tally.check("chat", lambda: check_chat(tally, pathlib.Path(folder)))
        tally.check("relay", lambda: check_relay(tally, pathlib.Path(folder)))
    tally.check("host", lambda: check_host(tally))
    print(f"{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped")
    sys.exit(1 if tally.failed else 0)


main()
