# The Python binding: its own tests, under every CPython from 3.9 on that is there, and its types.
# Closes with one line that tools/test reads. Usage: python.py build/release
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "bindings/python"
OLDEST = (3, 9)
TOOLS = ("numpy", "mypy==2.4.1", "langgraph==1.2.24", "langgraph-checkpoint-conformance==0.0.2")


def equipped(build):
    """python3 with these tools, in an environment of the build's; None: they cannot be had."""
    place = build.parent / "python-tools"
    python, installed = place / "bin/python3", place / "installed"
    wanted = [python, "-c", "import langgraph.graph, mypy, numpy"]
    if not installed.exists() or installed.read_text().split() != list(TOOLS) or subprocess.run(
            wanted, capture_output=True, check=False).returncode != 0:
        for step in ([sys.executable, "-m", "venv", "--clear", place],
                     [python, "-m", "pip", "install", "-q", "--retries", "1", *TOOLS]):
            done = subprocess.run(step, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                print(f"SKIPPED: python: {' '.join(TOOLS)} cannot be had, so that neither types, a "
                      f"buffer's reader nor graphs are tested: "
                      f"{(done.stderr or done.stdout).strip()[-300:]}")
                return None
        installed.write_text("\n".join(TOOLS) + "\n")
    return str(python)


def interpreters(first):
    """One of each version: the first, and those with a version in their names."""
    found = {}
    names = [f"python3.{minor}{kind}" for minor in range(OLDEST[1], 20) for kind in ("", "t")]
    for program in filter(None, [first, shutil.which("python3"), *map(shutil.which, names)]):
        said = subprocess.run(
            [program, "-c", "import sys; print(*sys.version_info[:2], sys.abiflags)"],
            capture_output=True, text=True, check=False)
        if said.returncode == 0 and tuple(map(int, said.stdout.split()[:2])) >= OLDEST:
            found.setdefault(said.stdout, program)
    return list(found.values())


def run_tests(program, build, environment):
    """(passed, failed, skipped) of the tests under one interpreter."""
    print(f"---- {program}", flush=True)
    done = subprocess.run(
        [program, ROOT / "tests/tools/main.py", build / "stasis", PACKAGE / "tests"], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, env=environment)
    *lines, last = done.stdout.splitlines() or [""]
    counted = re.fullmatch(r"(\d+) passed, (\d+) failed, (\d+) skipped", last)
    print("\n".join(lines if counted else [*lines, last]), flush=True)
    if counted is None:
        print(f"FAILED  {program} ended with {done.returncode} before its tests had")
        return 0, 1, 0
    return tuple(map(int, counted.groups()))


def check_types(program):
    """The same of the types."""
    done = subprocess.run([program, "-m", "mypy", "--strict", "--cache-dir", os.devnull,
                           PACKAGE / "stasis"], check=False)
    print("ok  types" if done.returncode == 0 else "FAILED  types", flush=True)
    return (1, 0, 0) if done.returncode == 0 else (0, 1, 0)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: python.py RELEASE_BUILD")
    build = pathlib.Path(sys.argv[1]).resolve()
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1",
                       STASIS_LIBRARY=str(build / "abi/libstasis.so.0"))
    first = equipped(build)
    counts = [run_tests(each, build, environment) for each in interpreters(first)]
    counts.append(check_types(first) if first else (0, 0, 1))
    passed, failed, skipped = map(sum, zip(*counts))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 0)


main()
