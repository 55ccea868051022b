# The wrapper for C++ covers the headers: every constant and every field that a host may set has a
# name there, or is left out for a reason that stands here (functions: test_functions.py). Its
# headers compile alone, without warnings, with both compilers.
import re
import subprocess
import tempfile
import unittest

from stasis_process import ROOT

WRAPPER = ROOT / "bindings/cpp"
HEADERS = sorted((ROOT / "abi").glob("stasis*.h"))
CONSTANTS_LEFT_OUT = {
    "STASIS_([A-Z]+_)?H|STASIS_HEADER_VERSION": "of the header itself",
    r"STASIS_(TRACE|TOKEN|MODEL|SNAPSHOT)_\w+|STASIS_KEYS|STASIS_VALUES|STASIS_NOWHERE|"
    "STASIS_QUANTIZE_TYPES_MAX": "tell what fields of C structs mean, which are used as they are",
    "STASIS_DOMAIN_PRIVATE|STASIS_WINDOW_RETAIN_NONE": "values of SessionOptions' numbers",
}
# Structs that a host fills. A new one is found by its name, or by the test of functions.
FILLED = re.compile(r"stasis_(\w+_options|sampling|prompt|step_item|embed_input|message|allocator|"
                    r"sink|source|store_backend)\b")
FIELDS_LEFT_OUT = {
    r"struct_size|reserved\w*": "detail::sized does it",
    r"stasis_generate_options\.callback": "of stasis_session_generate",
    r"stasis_trace_options\.release": "the listener is the session's",
    r"stasis_allocator\.release": "the host owns the memory_resource",
}


def uncommented(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)


def wrapper():
    return uncommented("\n".join(path.read_text(encoding="utf-8")
                                 for path in sorted(WRAPPER.rglob("*.hpp"))))


def named(name, text):
    return re.search(rf"\b{name}\b", text) is not None


def left_out(name, patterns):
    return any(re.fullmatch(pattern, name) for pattern in patterns)


class Coverage(unittest.TestCase):
    def compare(self, names, patterns, text):
        self.assertEqual([name for name in names
                          if not named(name, text) and not left_out(name, patterns)], [])
        # What is left out is there, and is not in the wrapper all the same.
        for pattern in patterns:
            self.assertTrue([name for name in names if re.fullmatch(pattern, name)], pattern)

    def test_constants(self):
        names = [name for header in HEADERS for name in re.findall(
            r"^#define (STASIS_\w+)", header.read_text(encoding="utf-8"), re.MULTILINE)]
        self.assertGreater(len(names), 90)
        self.compare(names, CONSTANTS_LEFT_OUT, wrapper())

    def test_fields(self):
        text, count = wrapper(), 0
        for header in HEADERS:
            for body, struct in re.findall(r"typedef struct \w+ \{([^}]*)\} (\w+);",
                                           uncommented(header.read_text(encoding="utf-8"))):
                if not FILLED.fullmatch(struct):
                    continue
                self.assertTrue(named(struct, text), struct)
                body = re.sub(r"\(\*(\w+)\)\([^)]*\)", r"\1", body)  # pointers to functions
                for name in re.findall(r"(\w+)\s*(?=[,;])", body):
                    count += 1
                    if not left_out(name, FIELDS_LEFT_OUT) and not left_out(f"{struct}.{name}",
                                                                            FIELDS_LEFT_OUT):
                        self.assertTrue(re.search(rf"\.{name} = ", text), f"{struct}.{name}")
        self.assertGreater(count, 100)

    def test_every_header_compiles_alone_without_warnings(self):
        with tempfile.TemporaryDirectory() as folder:
            for path in sorted(WRAPPER.rglob("*.hpp")):
                name = path.relative_to(WRAPPER)
                source = f"{folder}/alone.cpp"
                with open(source, "w", encoding="ascii") as file:
                    file.write(f'#include "{name}"\n#include "{name}"\n'
                               "int main() { return stasis::version() == 0; }\n")
                # The headers of all functions are enough for the second compiler and the next
                # language.
                for compiler in (["g++", "-std=c++20"],) if path.parent != WRAPPER else (
                        ["g++", "-std=c++20"], ["g++", "-std=c++23"], ["clang++", "-std=c++20"]):
                    done = subprocess.run(
                        [*compiler, "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion",
                         "-Wsign-conversion", "-Werror", "-fsyntax-only", "-I", ROOT / "abi", "-I",
                         WRAPPER, source], capture_output=True, text=True, check=False)
                    self.assertEqual(done.returncode, 0, f"{compiler} {name}: {done.stderr}")
