# An installed tree: what is in it, that it can be moved, and that programs outside the project are
# built with it and run, by pkg-config and by CMake, shared and static, in C and in C++.
import re
import subprocess

from installed import (CONVERSATION, DOCUMENTS, EXAMPLE, VERSION, InstalledTest, binding_files,
                       build_folder, cpp_headers, environment, files_below, first_prefix,
                       folder, prefix, run)
from stasis_process import LLAMA, ROOT, turns_of

PROJECT = """cmake_minimum_required(VERSION 3.25)
project(host LANGUAGES C)
find_package(Stasis 0.1 REQUIRED)
add_executable(with_shared {example})
target_link_libraries(with_shared PRIVATE Stasis::stasis)
add_executable(with_static {example})
target_link_libraries(with_static PRIVATE Stasis::static)
"""
FILES = ["bin/stasis", "include/stasis.h", "include/stasis_chat.h",
         "include/stasis_constraint.h", "include/stasis_data.h", "include/stasis_describe.h",
         "include/stasis_embed.h",
         "include/stasis_generate.h", "include/stasis_module.h", "include/stasis_quantize.h",
         "include/stasis_resources.h", "include/stasis_scheduler.h",
         "include/stasis_snapshot.h", "include/stasis_store.h", "include/stasis_trace.h",
         *(f"include/{name}" for name in cpp_headers()),
         "lib/cmake/Stasis/StasisConfig.cmake", "lib/cmake/Stasis/StasisConfigVersion.cmake",
         "lib/cmake/Stasis/StasisTargets-relwithdebinfo.cmake",
         "lib/cmake/Stasis/StasisTargets.cmake", "lib/libstasis.a", "lib/libstasis.so",
         "lib/libstasis.so.0", f"lib/libstasis.so.{VERSION}", "lib/pkgconfig/stasis-static.pc",
         "lib/pkgconfig/stasis.pc", "share/bash-completion/completions/stasis",
         "share/man/man1/stasis.1",
         *(f"share/doc/stasis/{name}" for name in DOCUMENTS),
         *(f"share/stasis/{name}" for name in binding_files())]
if (build_folder() / "abi/libstasis_s3.so.0").exists():  # where there is libcurl
    FILES.append("lib/libstasis_s3.so.0")
if (build_folder() / "abi/libstasis_cuda.so.0").exists():  # where there is nvcc
    FILES.append("lib/libstasis_cuda.so.0")


def own(header):
    """The public header of this name in the sources."""
    return ROOT / ("modules" if header == "stasis_module.h" else "abi") / header


def needed(program):
    """Names of the shared libraries that it asks for itself."""
    return re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", program).stdout)


def runpath(program):
    return re.findall(r"R(?:UN)?PATH.*\[(.*)\]", run("readelf", "-d", program).stdout)


class Tree(InstalledTest):
    def test_files(self):
        self.assertEqual(files_below(prefix()), sorted(FILES))
        self.assertFalse(first_prefix().exists())
        links = {name: str((prefix() / "lib" / name).readlink())
                 for name in ("libstasis.so", "libstasis.so.0")}
        self.assertEqual(links, {"libstasis.so": "libstasis.so.0",
                                 "libstasis.so.0": f"libstasis.so.{VERSION}"})
        for header in (prefix() / "include").glob("*.h"):
            self.assertEqual(header.read_bytes(), own(header.name).read_bytes())
        for name in cpp_headers():
            self.assertEqual((prefix() / "include" / name).read_bytes(),
                             (ROOT / "bindings/cpp" / name).read_bytes())

    def test_what_headers_and_manual_cite_is_there(self):
        """Under the name that they give it, and not only in the sources."""
        cited, there = set(), files_below(prefix())
        own = "|".join(path.name for path in (prefix() / "include").glob("*.h*"))
        for file in [*(prefix() / "include").rglob("*.h*"), prefix() / "share/man/man1/stasis.1"]:
            text = re.sub(r'^\.\\".*', "", file.read_text(), flags=re.MULTILINE)  # a comment of man
            cited |= set(re.findall(r"[\w./-]*\w\.(?:md|c|h|hpp|cpp|py|go|rs|cmake|pc)\b", text))
            cited |= set(re.findall(r"share/[\w./-]*\w", text))
        self.assertLessEqual({"NUMERICS.md", "FORMAT.md", *own.split("|")}, cited)
        for name in sorted(cited - {"stddef.h", "stdint.h"}):
            self.assertTrue([path for path in there
                             if f"/{path}".endswith(f"/{name}") or f"/{name}/" in f"/{path}"], name)

    def test_nothing_names_the_place_where_it_was_built(self):
        places = [str(place).encode() for place in (ROOT, build_folder(), folder())]
        for name in files_below(prefix()):
            content = (prefix() / name).read_bytes()
            for place in places:
                found = re.search(re.escape(place) + rb"(?![\w.-])", content)
                self.assertIsNone(found, f"{name} names {place.decode()}")

    def test_the_command_finds_the_library_beside_it(self):
        self.assertEqual(runpath(prefix() / "bin/stasis"), ["$ORIGIN/../lib"])
        self.assertEqual(runpath(prefix() / "lib/libstasis.so"), [])
        self.assertTrue(self.ok(prefix() / "bin/stasis", "--version")
                        .startswith(f"stasis {VERSION} ("))
        self.assertIn(f"=> {prefix()}/bin/../lib/libstasis.so.0",
                      self.ok("ldd", prefix() / "bin/stasis"))

    def test_destdir(self):
        stage = self.temporary()
        self.ok("cmake", "--install", build_folder(), "--prefix", "/opt/stasis",
                env=environment(DESTDIR=str(stage)))
        self.assertEqual(files_below(stage), [f"opt/stasis/{name}" for name in sorted(FILES)])
        self.ok(stage / "opt/stasis/bin/stasis", "--version")


class Programs(InstalledTest):
    def converses(self, program, static):
        """The program runs the conversation, with the installed library or with none."""
        asks = [name for name in needed(program) if "stasis" in name]
        self.assertEqual(asks, [] if static else ["libstasis.so.0"])
        if not static:
            self.assertIn(f"=> {prefix()}/lib", self.ok("ldd", program))
        out = self.ok(program, LLAMA, self.temporary() / "talk.stasis")
        self.assertEqual(out, CONVERSATION)

    def test_pkg_config(self):
        self.assertEqual(self.pkg_config("--modversion", "stasis"), [VERSION])
        for package, static in ("stasis", False), ("stasis-static", True):
            program = self.temporary() / "converse"
            self.ok("cc", "-std=c99", "-Wall", "-Werror", EXAMPLE, "-o", program,
                    *self.pkg_config("--cflags", "--libs", package))
            self.converses(program, static)

    def test_pkg_config_with_the_archive_alone(self):
        """--static names all that the archive needs, for who has no shared library of it."""
        program = self.temporary() / "converse"
        libraries = ["-l:libstasis.a" if word == "-lstasis" else word
                     for word in self.pkg_config("--cflags", "--libs", "--static", "stasis")]
        self.ok("cc", EXAMPLE, "-o", program, *libraries)
        self.converses(program, True)

    def test_cmake(self):
        """A host that asks for the first release."""
        project = self.temporary()
        (project / "CMakeLists.txt").write_text(PROJECT.format(example=EXAMPLE))
        self.ok("cmake", "-S", project, "-B", project / "build", "-G", "Ninja")
        self.ok("cmake", "--build", project / "build")
        self.converses(project / "build/with_shared", False)
        self.converses(project / "build/with_static", True)

    def test_cmake_refuses_another_version(self):
        project = self.temporary()
        for version in "0.3", "1.0", "1.2":
            (project / "CMakeLists.txt").write_text(
                PROJECT.format(example=EXAMPLE).replace("Stasis 0.1", f"Stasis {version}"))
            done = run("cmake", "-S", project, "-B", project / version, env=environment())
            self.assertNotEqual(done.returncode, 0, version)
            self.assertIn(f"version: {VERSION}", done.stderr)

    def test_cpp_wrapper(self):
        """The example of stasis.hpp, as a host builds it, with every warning an error."""
        for compiler in "g++", "clang++":
            for package in "stasis", "stasis-static":
                program = self.temporary() / "relay"
                self.ok(compiler, "-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow",
                        "-Wconversion", "-Werror",
                        prefix() / "share/doc/stasis/examples/relay.cpp", "-o", program,
                        *self.pkg_config("--cflags", "--libs", package))
                out = self.ok(program, LLAMA, self.temporary() / "talk.stasis",
                              turns_of(LLAMA)[0]["user"])
                self.assertRegex(out, r"\A[0-9a-f]{64}\nk is 5\.\n\Z")

    def test_cpp(self):
        folder_here = self.temporary()
        (folder_here / "version.cpp").write_text(
            "#include <stasis.h>\n"
            "int main() { return stasis_version() == STASIS_HEADER_VERSION ? 0 : 1; }\n")
        for package in "stasis", "stasis-static":
            program = folder_here / package
            self.ok("c++", "-std=c++17", folder_here / "version.cpp", "-o", program,
                    *self.pkg_config("--cflags", "--libs", package))
            self.ok(program)
