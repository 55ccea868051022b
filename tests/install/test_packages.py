# The Debian packages that cpack makes: their descriptions, lintian's verdict, and their use on a
# clean system: install, compute the same bits as this machine, build a host, remove.
import json
import re
import shutil

from chroot import Chroot, NotHere
from installed import (CONVERSATION, DOCUMENTS, EXAMPLE, VERSION, InstalledTest, binding_files,
                       build_folder, cpp_headers, environment, folder, run)
from stasis_process import LLAMA, ROOT

CONTENTS = {
    "libstasis0": ["lib/libstasis.so.0", f"lib/libstasis.so.{VERSION}"],
    "libstasis-dev": [
        "include/stasis.h", "include/stasis_chat.h", "include/stasis_constraint.h",
        "include/stasis_data.h", "include/stasis_describe.h", "include/stasis_embed.h",
        "include/stasis_generate.h", "include/stasis_module.h", "include/stasis_quantize.h",
        "include/stasis_resources.h",
        "include/stasis_scheduler.h", "include/stasis_snapshot.h", "include/stasis_store.h",
        "include/stasis_trace.h",
        *(f"include/{name}" for name in cpp_headers()),
        "lib/cmake/Stasis/StasisConfig.cmake", "lib/cmake/Stasis/StasisConfigVersion.cmake",
        "lib/cmake/Stasis/StasisTargets-relwithdebinfo.cmake",
        "lib/cmake/Stasis/StasisTargets.cmake", "lib/libstasis.a", "lib/libstasis.so",
        "lib/pkgconfig/stasis-static.pc", "lib/pkgconfig/stasis.pc",
        *(f"share/stasis/{name}" for name in binding_files())],
    "stasis": ["bin/stasis", "share/bash-completion/completions/stasis",
               "share/man/man1/stasis.1.gz"],
    "libstasis-doc": [f"share/doc/stasis/{name}" for name in DOCUMENTS],
}
if (build_folder() / "abi/libstasis_s3.so.0").exists():  # where there is libcurl
    CONTENTS["libstasis-s3-0"] = ["lib/libstasis_s3.so.0"]
if (build_folder() / "abi/libstasis_cuda.so.0").exists():  # where there is nvcc
    CONTENTS["libstasis-cuda0"] = ["lib/libstasis_cuda.so.0"]
_packages = None


def packages():
    """All of them, by their names."""
    global _packages
    if _packages is None:
        done = run("cpack", "-G", "DEB", "--config", build_folder() / "CPackConfig.cmake", "-B",
                   folder() / "packages", cwd=build_folder(), umask=0o077)
        if done.returncode != 0:
            raise RuntimeError(f"cpack: {done.stdout}{done.stderr}")
        found = (folder() / "packages").glob("*.deb")
        _packages = {path.name.split("_")[0]: path for path in found}
    return _packages


class Packages(InstalledTest):
    @classmethod
    def setUpClass(cls):
        if shutil.which("dpkg-deb") is None or shutil.which("dpkg-shlibdeps") is None:
            cls.skipTest(cls, "dpkg-deb or dpkg-shlibdeps is not here")

    def field(self, package, name):
        return self.ok("dpkg-deb", "-f", packages()[package], name).strip()

    def contents(self, package):
        """(mode, owner, bytes, path) of each file and folder."""
        listed = self.ok("dpkg-deb", "-c", packages()[package])
        return re.findall(r"^(\S+) (\S+) +(\d+) \S+ \S+ \./(\S*)(?: -> \S+)?$", listed,
                          re.MULTILINE)

    def test_what_lies_in_which(self):
        self.assertEqual(set(packages()), set(CONTENTS))
        for package, names in CONTENTS.items():
            self.assertRegex(packages()[package].name, rf"^{package}_{VERSION}_\w+\.deb$")
            names = [*names, *(f"share/doc/{package}/{name}" for name in
                               ("copyright", "changelog.gz"))]
            found = self.contents(package)
            self.assertEqual(sorted(path for mode, _, _, path in found if mode[0] != "d"),
                             sorted(f"usr/{name}" for name in names))
            self.assertEqual({owner for _, owner, _, _ in found}, {"root/root"})
            for mode, _, _, path in found:
                self.assertIn((mode, path == "usr/bin/stasis"), (
                    ("drwxr-xr-x", False), ("lrwxrwxrwx", False), ("-rw-r--r--", False),
                    ("-rwxr-xr-x", True)), path)

    def test_what_they_say_of_themselves(self):
        depends = {package: self.field(package, "Depends") for package in CONTENTS}
        for library in ("libsentencepiece0", "libpcre2-8-0", "libutf8proc2", "libxxhash0",
                        "libzstd1", "libsqlite3-0", "libssl3", "libstdc++6", "libc6"):
            self.assertRegex(depends["libstasis0"], rf"(^| ){re.escape(library)} \(>= ")
        self.assertEqual(depends["libstasis-dev"], f"libstasis0 (= {VERSION})")
        self.assertTrue(depends["stasis"].startswith(f"libstasis0 (= {VERSION}), "))
        self.assertRegex(depends["stasis"], r" libedit2 \(>= ")
        self.assertRegex(depends["stasis"], r" libevent-core-2\.1-7 \(>= ")
        for library in "libedit", "libevent":
            self.assertNotIn(library, depends["libstasis0"])
        if "libstasis-s3-0" in CONTENTS:
            self.assertIn(f"libstasis0 (= {VERSION}), ", depends["libstasis-s3-0"])
            self.assertRegex(depends["libstasis-s3-0"], "libcurl4")
        if "libstasis-cuda0" in CONTENTS:  # the driver is looked for when it is used
            self.assertIn(f"libstasis0 (= {VERSION}), ", depends["libstasis-cuda0"])
            self.assertNotRegex(depends["libstasis-cuda0"], "cuda|nvidia")
        for package in CONTENTS:
            self.assertEqual(self.field(package, "Version"), VERSION)
            self.assertRegex(self.field(package, "Maintainer"), r"^[\w ]+ <[\w.]+@[\w.]+>$")
            size = sum((int(count) + 1023) // 1024 if mode[0] == "-" else 1
                       for mode, _, count, path in self.contents(package) if path)
            self.assertEqual(self.field(package, "Installed-Size"), str(size), package)

    def test_nothing_names_the_place_where_they_were_built(self):
        """Nor do they hold or give a search path, or hold debug information."""
        for package, path in packages().items():
            place = self.temporary()
            self.ok("dpkg-deb", "-R", path, place)
            for file in place.rglob("*"):
                if file.is_file() and not file.is_symlink():
                    for name in str(ROOT), str(build_folder()), str(folder()):
                        self.assertIsNone(re.search(re.escape(name.encode()) + rb"(?![\w.-])",
                                                    file.read_bytes()), f"{package}: {file}")
                    if file.suffix == ".pc":
                        self.assertNotIn("rpath", file.read_text())
                    if file.suffix == ".a" or file.read_bytes()[:4] == b"\x7fELF":
                        self.assertNotRegex(run("readelf", "-dSW", file).stdout,
                                            r"R(UN)?PATH|\.debug_info")

    def test_lintian(self):
        if shutil.which("lintian") is None:
            self.skipTest("lintian is not installed")
        done = run("lintian", "--allow-root", "--fail-on", "error", *packages().values())
        self.assertEqual(done.returncode, 0, done.stdout)
        # The libraries are in /usr/lib itself, as this project installs everywhere.
        tags = set(re.findall(r"^W: [\w-]+: ([\w-]+)", done.stdout, re.MULTILINE))
        self.assertLessEqual(tags, {"pkg-config-unavailable-for-cross-compilation"}, done.stdout)

    def test_on_a_clean_system(self):
        try:
            clean = Chroot(self.temporary())
        except NotHere as reason:
            self.skipTest(f"a clean system in a chroot: {reason}")
        before = clean.files()
        for path in packages().values():
            shutil.copy2(path, clean.folder / "tmp")
        shutil.copytree(LLAMA, clean.folder / "srv/model")
        shutil.copy2(EXAMPLE, clean.folder / "srv/converse.c")
        self.inside(clean, "apt-get", "install", "-y", "--no-install-recommends",
                    *(f"/tmp/{path.name}" for path in packages().values()))
        clean.keep_packages()
        self.works(clean)
        self.inside(clean, "apt-get", "purge", "-y", "--autoremove", *CONTENTS)
        self.assertEqual(sorted(clean.files() ^ before), [])
        self.assertNotIn("stasis", self.inside(clean, "dpkg", "-l"))
        self.assertNotIn("stasis", self.inside(clean, "ldconfig", "-p"))

    def inside(self, clean, *arguments):
        done = clean.run(*arguments)
        self.assertEqual(done.returncode, 0, f"{arguments}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def works(self, clean):
        self.assertTrue(self.inside(clean, "stasis", "--version")
                        .startswith(f"stasis {VERSION} ("))
        order = ["run", "/srv/model", "--tokens", "1,5,6,7", "-n", "9", "--json"]
        there = json.loads(self.inside(clean, "stasis", *order))
        order[1] = LLAMA
        here = json.loads(self.ok(build_folder() / "stasis", *order, env=environment()))
        self.assertEqual(there["digest"], here["digest"])
        self.inside(clean, "sh", "-c", "cc -std=c99 /srv/converse.c -o /srv/converse "
                                       "$(pkg-config --cflags --libs stasis)")
        self.assertEqual(self.inside(clean, "/srv/converse", "/srv/model", "/srv/talk.stasis"),
                         CONVERSATION)
        self.assertTrue(json.loads(self.inside(clean, "stasis", "verify", "/srv/talk.stasis",
                                               "/srv/model", "--json"))["verified"])
