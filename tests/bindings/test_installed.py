# The bindings as they are installed, in a place outside the system's search path: programs are
# built from the installed files and start without the library's path being given; hosts of their
# own are built as the bindings' READMEs say; and Go fetches the module by a tag.
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from stasis_process import LLAMA, ROOT, command, turns_of

BUILD_SCRIPT = re.search(r"```no_run\n(fn main\(\) \{\n    println!.*?)```",
                         (ROOT / "bindings/rust/README.md").read_text(), re.DOTALL)[1]
HOST = """use stasis::{Model, Session, Status};

fn main() -> stasis::Result<()> {
    let model = Model::open(std::env::args().nth(1).unwrap(), Default::default())?;
    assert_eq!(Session::load(&model, "nowhere", Default::default()).unwrap_err().status(),
               Status::NotFound);
    println!("{}", env!("DEPENDED_ON"));
    Ok(())
}
"""
GO_HOST = """package main

import (
	"fmt"

	stasis "stasis.example/stasis.git/bindings/go"
)

func main() { fmt.Printf("%06x\\n", stasis.Version()) }
"""


def needs(program):
    listed = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True)
    return [name for name in re.findall(r"NEEDED.*\[(.*)\]", listed.stdout) if "stasis" in name]


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="stasis-bindings-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.prefix = cls.folder / "prefix"
        build = command().parent
        subprocess.run(["cmake", "--install", build, "--prefix", cls.prefix], check=True,
                       capture_output=True)
        inherited = {name: value for name, value in os.environ.items()
                     if name not in ("LD_LIBRARY_PATH", "STASIS_LIB_DIR")}
        cls.environment = dict(
            inherited, PKG_CONFIG_PATH=str(cls.prefix / "lib/pkgconfig"), GOPROXY="off",
            GOFLAGS="", GOWORK="off", CGO_ENABLED="1", GOCACHE=str(build.parent / "go-cache"),
            CARGO_NET_OFFLINE="true", CARGO_TARGET_DIR=str(cls.folder / "rust"))

    def ok(self, *words, cwd=None, **more):
        """stdout of a command that is to end well."""
        done = self.done(*words, cwd=cwd, **more)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    def done(self, *words, cwd=None, **more):
        return subprocess.run(list(map(str, words)), cwd=cwd or self.folder, text=True,
                              capture_output=True, check=False, timeout=300,
                              env=dict(self.environment, **more))

    def need(self, tool):
        if not shutil.which(tool):
            self.skipTest(f"there is no {tool}")

    def host(self, name, features=""):
        """A package of its own, as the README describes one."""
        binding, place = self.prefix / "share/stasis/rust", self.folder / name
        (place / "src").mkdir(parents=True)
        (place / "Cargo.toml").write_text(
            f'[package]\nname = "{name}"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\n'
            f'stasis = {{ path = "{binding}/stasis"{features} }}\n'
            f'stasis-sys = {{ path = "{binding}/stasis-sys" }}\n')
        told = ('println!("cargo:rustc-env=DEPENDED_ON={} {}", '
                'std::env::var("DEP_STASIS_LIB_DIR").unwrap(), '
                'std::env::var("DEP_STASIS_INCLUDE").unwrap());\n}')
        (place / "build.rs").write_text(
            "fn main() {" + told if features else BUILD_SCRIPT.rstrip().rstrip("}") + told)
        (place / "src/main.rs").write_text(HOST)
        spaces = self.folder / "a name with spaces"  # which Go of 1.19 does not understand
        if not spaces.exists():
            spaces.symlink_to(self.prefix)
        self.ok("cargo", "build", cwd=place, PKG_CONFIG_PATH=str(spaces / "lib/pkgconfig"))
        return self.folder / "rust/debug" / name

    def test_relay_in_three_languages(self):
        self.need("go")
        self.need("cargo")
        flags = self.ok("sh", "-c", "pkg-config --cflags --libs stasis").strip()
        programs = {"C": self.folder / "relay_c", "Go": self.folder / "relay_go",
                    "Rust": self.folder / "rust/debug/examples/relay"}
        self.ok("sh", "-c", f"cc relay.c -o {programs['C']} {flags}",
                cwd=self.prefix / "share/doc/stasis/examples")
        self.ok("go", "build", "-o", programs["Go"], "./examples/relay",
                cwd=self.prefix / "share/stasis/go")
        self.ok("cargo", "build", "--example", "relay", cwd=self.prefix / "share/stasis/rust")
        file = self.folder / "relay.stasis"
        for (language, program), turn in zip(programs.items(), turns_of(LLAMA)):
            out = self.ok(program, LLAMA, file, turn["user"])
            self.assertEqual(out.split("\n", 1)[1], turn["reply"] + "\n", language)
            self.assertEqual(needs(program), ["libstasis.so.0"])

    def test_a_host_in_rust(self):
        self.need("cargo")
        place = f"{self.prefix}/lib {self.prefix}/include\n"
        for name, features, asks in (("shared", "", ["libstasis.so.0"]),
                                     ("whole", ', features = ["static"]', [])):
            program = self.host(name, features)
            self.assertEqual(self.ok(program, LLAMA), place)
            self.assertEqual(needs(program), asks)

    def test_the_archive_is_not_guessed(self):
        self.need("cargo")
        done = self.done("cargo", "build", "--features", "static",
                         cwd=self.prefix / "share/stasis/rust/stasis",
                         STASIS_LIB_DIR=str(self.prefix / "lib"))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("STASIS_LIB_DIR does not say what libstasis.a is linked with", done.stderr)

    def test_go_fetches_the_module_by_its_tag(self):
        """From a repository that git finds in the place of the host that there is not."""
        self.need("go")
        self.need("git")
        repository, host = self.folder / "repository", self.folder / "go_host"
        shutil.copytree(self.prefix / "share/stasis/go", repository / "bindings/go")
        shutil.copy2(ROOT / "LICENSE", repository)
        git = ["git", "-C", repository, "-c", "user.name=a", "-c", "user.email=a@stasis.example"]
        self.ok("git", "init", "-q", repository)
        self.ok(*git, "add", ".")
        self.ok(*git, "commit", "-qm", "a release")
        self.ok(*git, "tag", "bindings/go/v0.2.0")
        host.mkdir()
        (host / "main.go").write_text(GO_HOST)
        cache = self.folder / "modules"
        fetch = dict(GOPROXY="direct", GOPRIVATE="stasis.example", GOMODCACHE=str(cache),
                     GIT_CONFIG_COUNT="1", GIT_CONFIG_VALUE_0="https://stasis.example/stasis",
                     GIT_CONFIG_KEY_0=f"url.file://{repository}.insteadOf",
                     GOFLAGS="-modcacherw")
        self.ok("go", "mod", "init", "newcomer.example/program", cwd=host)
        self.ok("go", "get", "stasis.example/stasis.git/bindings/go@v0.2.0", cwd=host, **fetch)
        self.ok("go", "build", "-o", "program", ".", cwd=host, **fetch)
        self.assertEqual(self.ok("./program", cwd=host), "000200\n")
