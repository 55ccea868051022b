# Tests the Rust binding against a built library and closes with one line that tools/test reads:
# "N passed, N failed, N skipped". With a second build, one with the address sanitizer, only runs
# the tests of the safe crate, with that one's library in the place of the first.
# Usage: rust.py build/release [build/asan]
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BINDING = ROOT / "bindings/rust"
MODEL = ROOT / "tests/data/recall-gemma3"
DEBUG = ROOT / "build/rust/debug/examples"

counts = {"passed": 0, "failed": 0, "skipped": 0}


def tell(name, outcome, output=""):
    """One test's outcome; what was printed is shown where it failed."""
    counts[outcome] += 1
    if outcome != "skipped":
        print(f"{'ok' if outcome == 'passed' else 'FAILED':>8}  {name}", flush=True)
    if outcome == "failed":
        print(output, flush=True)


def environment(library):
    return dict(os.environ, STASIS_LIB_DIR=str(library / "abi"), CARGO_NET_OFFLINE="true",
                CARGO_TERM_COLOR="never", CARGO_TARGET_DIR=str(ROOT / "build/rust"),
                RUST_BACKTRACE="0")


def cargo(env, *arguments, **more):
    done = subprocess.run(["cargo", *arguments], cwd=BINDING, env=dict(env, **more), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout


def check(name, env, tool, *arguments, **more):
    """A run of cargo that is one test."""
    if tool and not shutil.which(tool):
        print(f"SKIPPED: rust {name}: there is no {tool}")
        tell(name, "skipped")
        return
    code, output = cargo(env, *arguments, **more)
    tell(name, "failed" if code else "passed", output)


def run_tests(what, env, *arguments, **more):
    """Counts each test by the line that the harness prints of it."""
    code, output = cargo(env, "test", "--offline", "--no-fail-fast", *arguments, **more)
    lines = re.findall(r"^test (.*) \.\.\. (ok|FAILED|ignored)", output, re.MULTILINE)
    for name, outcome in lines:
        if outcome == "ignored":
            print(f"SKIPPED: rust {name}: it says so itself")
        tell(name, {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}[outcome])
    if not lines or (code and not any(outcome == "FAILED" for _, outcome in lines)):
        tell(what, "failed")  # it did not compile, or a test ended the program
    if code:
        print(output, flush=True)


def example(env, name, *arguments, text=""):
    return subprocess.run([DEBUG / name, *map(str, arguments)], env=env, input=text, text=True,
                          capture_output=True, check=False, timeout=300)


def run_examples(env):
    """Each turn in a process of its own, which goes on from the file."""
    turns = json.loads((MODEL / "conversation.json").read_text(encoding="utf-8"))["turns"][:3]
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("chat", True), ("relay", False)):
            file, outputs = pathlib.Path(folder, name), []
            for turn in turns:
                said = [] if text else [turn["user"]]
                outputs.append(example(env, name, MODEL, file, *said,
                                       text=turn["user"] + "\n" if text else ""))
            digest = "" if text else "[0-9a-f]{64}\n"
            good = all(re.fullmatch(digest + re.escape(turn["reply"]) + "\n", done.stdout)
                       for turn, done in zip(turns, outputs))
            tell(f"example {name}", "passed" if good else "failed", outputs)
    refused = [example(env, name, "/nowhere", "file", "text") for name in ("chat", "relay")]
    good = all(done.returncode == 1 and done.stderr for done in refused)
    tell("examples fail politely", "passed" if good else "failed", refused)


def run_all(env):
    check("format", env, "rustfmt", "fmt", "--check")
    check("clippy", env, "cargo-clippy", "clippy", "--offline", "--all-targets", "--",
          "-D", "warnings")
    run_tests("tests", env, "--tests", "--examples")
    # rustdoc checks expected errors only with its unstable features. It gets no link arguments of a
    # build script, so the loader needs the path of the library.
    run_tests("examples in comments", env, "--doc", RUSTC_BOOTSTRAP="1",
              LD_LIBRARY_PATH=env["STASIS_LIB_DIR"])
    check("documentation", env, "rustdoc", "doc", "--offline", "--no-deps",
          RUSTDOCFLAGS="-D warnings")
    check("examples", env, "", "build", "--offline", "--examples")
    run_examples(env)


def run_sanitized(env, library):
    """Rust is not instrumented: the library is, and every allocation of both."""
    runtime = subprocess.run(["clang", "-print-file-name=libclang_rt.asan-x86_64.so"], text=True,
                             stdout=subprocess.PIPE, check=True).stdout.strip()
    runner = f"env LD_PRELOAD={runtime} LD_LIBRARY_PATH={library / 'abi'}"
    run_tests("sanitized tests", env, "-p", "stasis", "--tests",
              CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=runner)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: rust.py RELEASE_BUILD [SANITIZED_BUILD]")
    builds = [pathlib.Path(build).resolve() for build in sys.argv[1:]]
    env = environment(builds[0])
    if not shutil.which("cargo"):
        print("SKIPPED: rust: there is no cargo")
        tell("rust", "skipped")
    elif len(builds) == 2:
        run_sanitized(env, builds[1])
    else:
        run_all(env)
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    sys.exit(1 if counts["failed"] else 0)


main()
