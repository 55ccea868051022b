# Fixtures of this folder: an installed tree, made by `cmake --install` from the build of the
# command under test, and then moved to another place, so that every test shows that the tree can be
# moved.
import atexit
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

from stasis_process import ROOT, command

VERSION = re.search(r"project\(stasis VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
EXAMPLE = ROOT / "bindings/c/converse.c"
CONVERSATION = ("> Let's start by defining a variable k equal to 5. What is k?\nk is 5.\n"
                "> Now set a new variable m equal to k multiplied by 11. What is m?\nm is 55.\n"
                "78 positions verified\n")  # of converse.c, on recall-llama

DOCUMENTS = ["BENCHMARKS.md", "CONSTRAINTS.md", "FORMAT.md", "NUMERICS.md", "README.md",
             "STORE.md", "FLEET.md", "SERVER.md",
             *(f"benchmarks/{path.name}" for path in (ROOT / "tools/benchmarks").iterdir()),
             *(f"examples/{name}.c" for name in ("converse", "cull", "relay", "repair")),
             "examples/relay.cpp"]

_folder = None


def build_folder():
    return command().parent


def run(*arguments, **process):
    return subprocess.run(list(map(str, arguments)), check=False, timeout=600,
                          **{"capture_output": True, "text": True, **process})


def folder():
    """A folder of this process, gone when it ends."""
    global _folder
    if _folder is None:
        _folder = pathlib.Path(tempfile.mkdtemp(prefix="stasis-install-"))
        atexit.register(shutil.rmtree, _folder, ignore_errors=True)
    return _folder


def first_prefix():
    """Where it was installed before it was moved: nothing is there now."""
    return folder() / "first"


def prefix():
    moved = folder() / "moved to another place"
    if not moved.exists():
        done = run("cmake", "--install", build_folder(), "--prefix", first_prefix())
        if done.returncode != 0:
            raise RuntimeError(f"cmake --install: {done.stdout}{done.stderr}")
        first_prefix().rename(moved)
    return moved


def environment(**more):
    """Finds what is installed there, and nothing of the library's by other ways."""
    inherited = {name: value for name, value in os.environ.items()
                 if name not in ("LD_LIBRARY_PATH", "LD_PRELOAD", "CMAKE_PREFIX_PATH")}
    return {**inherited, "PKG_CONFIG_PATH": str(prefix() / "lib/pkgconfig"),
            "CMAKE_PREFIX_PATH": str(prefix()), **more}


def files_below(place):
    return sorted(str(path.relative_to(place)) for path in place.rglob("*")
                  if path.is_symlink() or not path.is_dir())


def cpp_headers():
    """Of the wrapper for C++, as paths below the folder of headers."""
    place = ROOT / "bindings/cpp"
    return sorted(str(path.relative_to(place)) for path in place.rglob("*.hpp"))


def binding_files():
    """What of the bindings is installed: all but what tests them, and what only a clone needs."""
    listed = run("git", "ls-files", "-co", "--exclude-standard", "go", "rust",
                 cwd=ROOT / "bindings").stdout.split()
    return [name for name in listed
            if not re.search(r"_test\.go$|testdata/|/tests/|\.cargo/|rustfmt\.toml$", name)]


def help_of(*subcommand):
    done = run(prefix() / "bin/stasis", *subcommand, "--help")
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return done.stdout


def subcommands():
    return re.findall(r"^  ([a-z]+) ", help_of().split("Subcommands:\n")[1], re.MULTILINE)


def options_of(subcommand):
    """Names of options, --help left out, and what each takes ("" if nothing)."""
    lines = re.findall(r"^  (--?[^ ,]+)(?: ([^ ]+))?", help_of(subcommand), re.MULTILINE)
    return {name: "" if value.endswith(":") else value for name, value in lines}


class InstalledTest(unittest.TestCase):
    def ok(self, *arguments, **process):
        """stdout of a process that is to end well."""
        done = run(*arguments, **{"env": environment(), **process})
        self.assertEqual(done.returncode, 0, f"{arguments}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def pkg_config(self, *arguments):
        return shlex.split(self.ok("pkg-config", *arguments))

    def temporary(self):
        place = pathlib.Path(tempfile.mkdtemp(dir=folder()))
        self.addCleanup(shutil.rmtree, place, ignore_errors=True)
        return place
