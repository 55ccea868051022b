# What ctypes was told is what the headers declare: a C compiler says values, offsets and sizes, and
# signatures are read from the headers. Faults that are planted in a copy are found.
import ctypes
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from fixture import ROOT
from stasis import _abi, _store_structs, _structs

# The file of the stores and the file of the rest, as one.
STRUCTS = type("Structs", (), {**vars(_structs), **vars(_store_structs)})
HEADERS = sorted((ROOT / "abi").glob("stasis*.h"))
# Versions and guards of the headers, which ctypes has no use for.
NOT_HERE = re.compile(r"STASIS_(HEADER_VERSION|\w*H)$")
POINTER_SIZE = ctypes.sizeof(ctypes.c_void_p)
PLAIN = {"int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "uint8_t": ctypes.c_uint8,
         "uint16_t": ctypes.c_uint16, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64,
         "size_t": ctypes.c_size_t, "float": ctypes.c_float, "double": ctypes.c_double,
         "stasis_status": ctypes.c_int32, "stasis_token": ctypes.c_uint32}
OBJECTS = ("stasis_model", "stasis_session", "stasis_snapshot", "stasis_cancel",
           "stasis_generation", "stasis_text_stream", "stasis_scheduler", "stasis_threads",
           "stasis_store")


def code():
    """The headers without comments, as one text."""
    text = "".join(path.read_text(encoding="utf-8") for path in HEADERS)
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).replace("\\\n", " ")


def declared_structs():
    """(field, its type if that is a plain one) of each struct."""
    found = {}
    for name, body in re.findall(r"typedef struct (stasis_\w+) \{(.*?)\} \1;", code(), re.DOTALL):
        fields = found.setdefault(name, [])
        for declaration in filter(None, map(str.strip, body.split(";"))):
            function = re.search(r"\(\*(\w+)\)", declaration)
            if function:
                fields.append((function[1], None))
                continue
            first, *others = declaration.split(",")
            base, stars, field, array = re.match(
                r"(?:const )?(?:struct )?(\w+)\s+((?:const|\*|\s)*)(\w+)(\[\w+\])?$",
                first).groups()
            kind = None if stars or array else PLAIN.get(base)
            fields += [(each, kind) for each in [
                field, *(re.search(r"\w+", each)[0] for each in others)]]
    return found


def declared_constants():
    names = re.findall(r"^#define (STASIS_\w+)[ \t]+\S", code(), re.MULTILINE)
    return [name for name in names if not NOT_HERE.match(name)]


def declared_functions():
    """name: (result, arguments), as the headers write them."""
    text = re.sub(r"^#.*", "", code(), flags=re.MULTILINE)
    found = {}
    for result, name, arguments in re.findall(
            r"^(stasis_status|void|uint32_t|const char \*)\s*(stasis_\w+)\((.*?)\);", text,
            re.DOTALL | re.MULTILINE):
        listed = [" ".join(each.split()) for each in arguments.split(",")]
        found[name] = result, [] if listed == ["void"] else listed
    return found


def kind_of(argument):
    """The type that ctypes is to be told, or several that do."""
    kind = re.sub(r"\bconst\b", "", argument)
    base, stars = re.match(r"\s*(?:struct )?(\w+)\s*(\**)", kind).groups()
    if base in OBJECTS:
        return [ctypes.c_void_p] if stars == "*" else [ctypes.POINTER(ctypes.c_void_p)]
    if base in ("char", "void"):  # text and bytes that are given, and buffers
        return [ctypes.c_char_p] if "const" in argument else [ctypes.c_void_p]
    plain = PLAIN.get(base) or getattr(STRUCTS, base)
    for _ in stars:
        plain = ctypes.POINTER(plain)
    return [plain]


def facts_of_c(folder):
    """What the compiler says of every constant, struct and field."""
    lines = ["#include <stddef.h>", "#include <stdio.h>", '#include "stasis.h"', "int main(void) {"]
    for name in declared_constants():
        lines.append(f'printf("{name} %llu\\n", (unsigned long long)({name}));')
    for name, fields in declared_structs().items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        lines += [f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                  f'sizeof((({name} *)0)->{field}));' for field, _ in fields]
    source, program = folder / "facts.c", folder / "facts"
    source.write_text("\n".join([*lines, "return 0;", "}"]))
    subprocess.run(["cc", "-I", ROOT / "abi", source, "-o", program], check=True)
    said = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return said.splitlines()


def facts_of_ctypes(structs):
    facts = [f"{name} {getattr(structs, name)}" for name in declared_constants()
             if hasattr(structs, name)]
    for name in declared_structs():
        struct = getattr(structs, name, None)
        if struct is not None:
            facts.append(f"{name} {ctypes.sizeof(struct)}")
            facts += [f"{name}.{field} {getattr(struct, field).offset} "
                      f"{getattr(struct, field).size}" for field, _ in struct._fields_]
    return facts


class Headers(unittest.TestCase):
    def setUp(self):
        if shutil.which("cc") is None:
            self.skipTest("there is no C compiler")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_constants_and_layouts(self):
        facts = facts_of_c(self.folder)
        self.assertGreater(len(facts), 300)
        self.assertEqual(facts_of_ctypes(STRUCTS), facts)

    def test_faults_are_found(self):
        """Each fault is in a copy of the file, and makes a difference."""
        facts = facts_of_c(self.folder)
        text = pathlib.Path(_structs.__file__).read_text(encoding="utf-8")
        for old, new in (('("top_k", c_uint32)', '("top_k", c_uint64)'),
                         ('("threads", c_uint32), ("device"', '("device"'),
                         ("STASIS_CONFLICT = 19", "STASIS_CONFLICT = 20"),
                         ('("older", c_uint32), ("reserved", c_uint32)',
                          '("reserved", c_uint32), ("older", c_uint32)'),
                         ("STASIS_KEEP_NONE = 1\n", ""),
                         ("c_char * 508", "c_char * 512")):
            self.assertIn(old, text)
            planted = {"__name__": "planted"}
            exec(compile(text.replace(old, new, 1), "planted", "exec"), planted)
            faulty = type("Planted", (), {**vars(_store_structs), **planted})
            self.assertNotEqual(facts_of_ctypes(faulty), facts, old)

    def test_types_of_plain_fields(self):
        for name, fields in declared_structs().items():
            told = dict(getattr(STRUCTS, name)._fields_)
            for field, kind in fields:
                if kind is not None:
                    self.assertEqual(told[field], kind, f"{name}.{field}")

    def test_every_function_has_its_prototype(self):
        exported = re.findall(r"^\s+(stasis_\w+);", (ROOT / "abi/exports.map").read_text(),
                              re.MULTILINE)
        declared = declared_functions()
        self.assertEqual(sorted(_abi.PROTOTYPES), sorted(exported))
        self.assertEqual(sorted(declared), sorted(exported))
        for name, (result, arguments) in declared.items():
            told, kinds = _abi.PROTOTYPES[name]
            expected = {"void": None, "const char *": ctypes.c_char_p}.get(
                result, PLAIN.get(result))
            self.assertEqual(told, expected, name)
            self.assertEqual(len(kinds), len(arguments), name)
            for kind, argument in zip(kinds, arguments):
                self.assertIn(kind, kind_of(argument), f"{name}: {argument}")

    def test_callbacks(self):
        """Their signatures, of the typedefs and of those inside structs."""
        named = dict((name, (result, arguments)) for result, name, arguments in re.findall(
            r"typedef (\w+) \(\*(stasis_\w+)\)\((.*?)\);", code(), re.DOTALL))
        named.pop("stasis_trace_fn")  # no trace is offered
        inside = {f"stasis_{name}_fn": (result, arguments) for result, name, arguments in
                  re.findall(r"^\s+(int\d\d_t) \(\*(write|read)\)\((.*?)\);", code(),
                             re.MULTILINE)}
        self.assertEqual(len(inside), 2)
        for name, (result, arguments) in {**named, **inside}.items():
            function = getattr(STRUCTS, name)
            self.assertEqual(function._restype_, PLAIN[result], name)
            kinds = [ctypes.c_void_p if re.match(r"(const )?void \*", each.strip())
                     else kind_of(each)[0] for each in arguments.split(",")]
            self.assertEqual(list(function._argtypes_), kinds, name)


if __name__ == "__main__":
    unittest.main()
