# The gate that every change of the ABI passes: the library against each release's dump, and the
# list of layouts against the headers. tests/abi/older_host.c is the host of an earlier header.
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import stasis_process

ROOT = pathlib.Path(__file__).resolve().parents[2]
RELEASED = ROOT / "tests/abi/released"


def structs():
    """Public structs and their fields, as the headers declare them."""
    found = {}
    for path in sorted((ROOT / "abi").glob("stasis*.h")):
        text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for name, body in re.findall(r"typedef struct (stasis_\w+) \{(.*?)\} \1;", text, re.DOTALL):
            fields = found.setdefault(name, [])
            for declaration in filter(None, map(str.strip, body.split(";"))):
                function = re.search(r"\(\*(\w+)\)", declaration)
                if function:
                    fields.append(function[1])
                else:
                    fields += [re.search(r"(\w+)(\[\w+\])*$", each.strip())[1]
                               for each in declaration.split(",")]
    return found


def declaration_of(struct):
    return re.compile(rf"<class-decl name='{struct}' size-in-bits='(\d+)'.*?</class-decl>",
                      re.DOTALL)


def as_known_to(released, today):
    """Today's dump as a host of the release sees it: a struct that says its size may have grown at
    its end. (abidiff 2.2 can be told so as well, and then overlooks that a field has moved.)"""
    def cut(bits):
        def change(found):
            text = re.sub(r"size-in-bits='\d+'", f"size-in-bits='{bits}'", found[0], count=1)
            return re.sub(
                r"\s*<data-member access='public' layout-offset-in-bits='(\d+)'>.*?</data-member>",
                lambda field: field[0] if int(field[1]) < bits else "", text, flags=re.DOTALL)
        return change

    for struct, fields in structs().items():
        known = declaration_of(struct).search(released)
        if fields[0] == "struct_size" and known:
            today = declaration_of(struct).sub(cut(int(known[1])), today)
    return today


class Layouts(unittest.TestCase):
    def test_every_field_of_every_struct_is_pinned(self):
        pinned = "".join(path.read_text(encoding="utf-8")
                         for path in sorted((ROOT / "tests/abi").glob("layouts*.c")))
        declared = structs()
        self.assertGreater(len(declared), 25)
        expected = [("STRUCT", name, "") for name in declared]
        expected += [("FIELD", name, field) for name in declared for field in declared[name]]
        listed = [("STRUCT", name, "")
                  for name in re.findall(r"^STRUCT\((\w+), \d+\);", pinned, re.M)]
        listed += [("FIELD", *pair)
                   for pair in re.findall(r"^FIELD\((\w+), (\w+), \d+, \d+\);", pinned, re.M)]
        self.assertEqual(sorted(listed), sorted(expected))

    def test_every_struct_begins_with_its_size(self):
        # Two are final as they are; shares are in a report that cannot have more of them.
        without = {name for name, fields in structs().items() if fields[0] != "struct_size"}
        self.assertEqual(without, {"stasis_digest", "stasis_error", "stasis_quantize_share"})


class Version(unittest.TestCase):
    """A release is one number in many places, with a dump of its interface."""

    PLACES = {
        "abi/stasis.h": r"STASIS_HEADER_VERSION 0x{hex}u",
        "abi/stasis_describe.h": r'"{version} \(gcc',
        "bindings/cpp/stasis/error.hpp": r'"{version} \(gcc',
        "bindings/go/README.md": r"@v{version}.*bindings/go/v{version}`.*PATH@v{version}`",
        "bindings/rust/Cargo.lock": r'"stasis"\nversion = "{version}".*'
                                    r'"stasis-sys"\nversion = "{version}"',
        "bindings/rust/stasis/Cargo.toml": r'version = "{version}".*'
                                           r'stasis-sys = .*version = "{version}"',
        "bindings/rust/stasis-sys/Cargo.toml": r'version = "{version}"',
        "bindings/go/model_test.go": r"0x{hex}\b",
        "bindings/rust/stasis-sys/src/stasis.rs": r"HEADER_VERSION: u32 = 0x{hex_parts};",
        "docs/tutorial-go.md": r"@v{version}",
        "tests/bindings/test_installed.py": r"go/v{version}\".*go@v{version}\".*{hex}",
        "CHANGELOG.md": r"\n## {version}\n",
        "README.md": r"find_package\(Stasis {minor} ",
    }

    def test_every_place_says_the_same(self):
        version = re.search(r"project\(stasis VERSION ([\d.]+)",
                            (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))[1]
        numbers = [int(each) for each in version.split(".")]
        for place, pattern in self.PLACES.items():
            digits = "".join(f"{each:02x}" for each in numbers)
            wanted = pattern.replace("{version}", re.escape(version)).replace(
                "{hex}", digits).replace("{hex_parts}", f"{digits[:2]}_{digits[2:]}").replace(
                    "{minor}", re.escape(f"{numbers[0]}.{numbers[1]}"))
            text = (ROOT / place).read_text(encoding="utf-8")
            self.assertIsNotNone(re.search(wanted, text, re.DOTALL), f"{place}: {wanted}")
        self.assertTrue((RELEASED / f"{numbers[0]}.{numbers[1]}.abi").exists())


class Gate(unittest.TestCase):
    def setUp(self):
        library = stasis_process.command().parent / "tests/libstasis_debug.so"
        if shutil.which("abidiff") is None:
            self.skipTest("abidiff is not installed")
        if not library.exists():
            self.skipTest(f"{library.name} is built without sanitizers only")
        self.released = (RELEASED / "0.1.abi").read_text(encoding="utf-8")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.today = subprocess.run([ROOT / "tools/abi_dump", library], capture_output=True,
                                    text=True, check=True).stdout

    def differences(self, released):
        """What abidiff says of today's library where that dump is a release's."""
        for name, text in (("released", released), ("today", as_known_to(released, self.today))):
            (self.folder / name).write_text(text, encoding="utf-8")
        done = subprocess.run(["abidiff", "--no-added-syms", "--harmless",
                               self.folder / "released", self.folder / "today"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode & 3, 0, done.stderr)  # it ran, with arguments it knows
        return done.stdout if done.returncode != 0 else ""

    def replaced(self, old, new, count=0):
        changed, number = re.subn(old, new, self.released, count=count, flags=re.DOTALL)
        self.assertGreater(number, 0, old)
        return changed

    def in_struct(self, struct, change):
        """The dump with a struct's declaration changed, wherever it stands."""
        changed, number = declaration_of(struct).subn(lambda found: change(found[0]), self.released)
        self.assertGreater(number, 0, struct)
        self.assertNotEqual(changed, self.released, struct)
        return changed

    def without_last_field(self, struct):
        def cut(declaration):
            last = declaration.rindex("<data-member")
            offset = re.search(r"layout-offset-in-bits='(\d+)'", declaration[last:])[1]
            return re.sub(r"size-in-bits='\d+'", f"size-in-bits='{offset}'", declaration[:last],
                          count=1) + "</class-decl>"
        return self.in_struct(struct, cut)

    def test_nothing_that_a_host_is_bound_to_has_changed(self):
        dumps = sorted(RELEASED.glob("*.abi"))
        self.assertGreater(len(dumps), 1)
        for dump in dumps:
            self.assertEqual(self.differences(dump.read_text(encoding="utf-8")), "", dump.name)

    def test_the_present_version_is_dumped_whole(self):
        """Else what it has beyond its dump could change again, or go, and no test would see it."""
        header = (ROOT / "abi/stasis.h").read_text(encoding="utf-8")
        digits = re.search(r"STASIS_HEADER_VERSION 0x(\d\d)(\d\d)\d\du", header)
        name = f"{int(digits[1])}.{int(digits[2])}.abi"
        (self.folder / "today").write_text(self.today, encoding="utf-8")
        done = subprocess.run(["abidiff", "--harmless", RELEASED / name, self.folder / "today"],
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""), f"tools/abi_dump makes {name}")

    def test_what_may_grow_may_grow(self):
        for struct in ("stasis_run_options", "stasis_session_info", "stasis_trace_options"):
            self.assertEqual(self.differences(self.without_last_field(struct)), "", struct)
        fewer = self.replaced(r"\s*<elf-symbol name='stasis_session_fork'[^>]*>", "")
        fewer, number = re.subn(r"<function-decl name='stasis_session_fork'.*?</function-decl>", "",
                                fewer, flags=re.DOTALL)
        self.assertEqual(number, 1)
        self.assertEqual(self.differences(fewer), "")

    def test_what_breaks_a_host_is_found(self):
        planted = {
            "a function is gone": self.replaced("stasis_session_fork", "stasis_session_divide"),
            "a struct without a size grew": self.without_last_field("stasis_error"),
            "a field moved": self.in_struct(
                "stasis_run_options", lambda text: text.replace("bits='128'", "bits='192'", 1)),
            "a field is of another type": self.in_struct(
                "stasis_run_options",
                lambda text: re.sub(r"(name='chunk' type-id=')[^']*", r"\1b96825af", text)),
            "a parameter is another": self.replaced(
                r"(<function-decl name='stasis_session_evict'.*?<parameter type-id='[^']*'[^>]*/>"
                r"\s*)<parameter type-id='[^']*'([^>]*/>)\s*<parameter[^>]*/>", r"\1"),
            "a function's version": self.replaced(r"(name='stasis_version' version=')STASIS_0",
                                                  r"\1STASIS_9"),
        }
        for what, released in planted.items():
            with self.subTest(what):
                self.assertNotEqual(self.differences(released), "", what)


if __name__ == "__main__":
    unittest.main()
