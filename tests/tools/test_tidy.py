# The rules of the house, on the source files themselves: who may include whom, how long files and
# functions may be, what must be said where. Needs no built command.
import ast
import os
import re
import subprocess
import tempfile
import unittest

from stasis_process import ROOT, kernel_tables

C_LIKE = (".cpp", ".h", ".hpp", ".c", ".cu", ".cuh")
CODE = C_LIKE + (".go", ".rs", ".py", ".fbs", ".cmake", ".in", ".bash")
FILE_LINES_MAX, FUNCTION_LINES_MAX, COLUMNS_MAX = 500, 70, 100
# Each folder of runtime/ may include those before it.
FOLDERS = ("kernels", "host", "model", "text", "quantize", "kv", "sampling", "constraint",
           "compute", "timeline", "session", "snapshot")
# What abi/ may include of runtime/: what a host's calls are made of, and single headers.
OF_RUNTIME = ("runtime/session/", "runtime/snapshot/", "runtime/quantize/",
              "runtime/timeline/trace.h",  # the events that a host's trace hears
              "runtime/compute/profile.h",  # whether this process can compute what is saved
              "runtime/host/threads.h",  # a pool that models share
              "runtime/kernels/environment.h",  # floating point as C2 has it, for each call
              "runtime/kernels/received.h",  # the unit of accumulated attention
              "runtime/host/utf8.h")  # messages are cut at whole characters
# Folders inside a folder, and what each may include of its neighbours; of a file that is in none of
# them (""), all that the table, the network or the pass is filled with.
INSIDE = {
    "runtime/kernels/": {
        "reference/": (), "generic/": (),
        "avx2/": ("generic/",), "avx512/": ("generic/",),
        "avx512vnni/": ("generic/", "avx512/"), "avx512bf16/": ("generic/", "avx512/"),
        "amx/": ("generic/", "avx512/", "avx512vnni/"),
        "cuda/": ("reference/functions.h",),
        # Lanes and integers of the instruction set that a text of generic/ is compiled for.
        "generic/lanes/lanes.h": ("avx2/lanes.h", "avx512/lanes.h"),
        "generic/blocks/integers.h": ("avx2/integers.h", "avx512/integers.h",
                                      "avx512vnni/integers.h"),
        "table.cpp": ("reference/reference.h", "amx/kernels.h"), "math.cpp": ("reference/",)},
    "runtime/compute/": {"cpu/": (), "device/": (), "pass.cpp": ("cpu/", "device/"),
                         "network.cpp": ("device/",)},
    "tools/": {"cli/": (), "bench/": ("cli/",), "serve/": ("cli/",), "peer/": (), "gpu/": ()},
    "tools/serve/": {"http/": (), "api/": (), "engine/": ("http/", "api/")},
}
# Of each recipe in CONTRIBUTING.md: its example, a pattern for the words that name this, how many
# files the recipe lists, and files that name it besides.
RECIPES = {
    "A kernel": ("embed_wide", "embed_wide", 7, ("tests/kernels/", "runtime/compute/cpu/")),
    "An instruction set": (
        "avx512bf16", "avx512bf16", 5,
        ("tools/bench/ceilings/", "tools/bench/bench.cpp", "tools/CMakeLists.txt",
         "tools/BENCHMARKS.md", "tools/benchmarks/", "tests/abi/older/",
         "runtime/kernels/avx512bf16/", "tests/tiles/", "CHANGELOG.md")),
    "A model family": (
        "kQwen3", "k?[Qq]wen3", 9,
        ("CHANGELOG.md", "tools/BENCHMARKS.md", "tools/benchmarks/", "tools/cli/synth/",
         "tests/runtime/outputs_test",
         "runtime/model/family/qwen3_5", "runtime/model/weights_", "tests/abi/",
         "tests/runtime/chat_test", "tests/runtime/config_refusal_test", "tests/runtime/fuzz_",
         "tests/cpp/", "tests/runtime/experts_test", "tests/runtime/gguf_hybrid",
         "tests/runtime/chat_layout_test",
         "tests/runtime/embed",
         "bindings/",
         "tests/runtime/gguf_refusal_test", "tests/runtime/golden_",
         "tests/runtime/weights_experts_test")),
    "An activation": (
        "gelu_tanh", "gelu(_tanh|_gate|_pytorch_tanh)?", 9,
        ("runtime/model/family/gemma", "tests/kernels/entries_test.cpp",
         "tests/runtime/config_refusal_test.cpp", "tests/runtime/published_configs.h",
         "tools/cli/synth/")),
    "A sampling setting": (
        "top_n_sigma", "top[-_]n[-_]sigma|TopNSigma", 28,
        ("bindings/go/session_test.go", "tests/abi/", "tests/cpp/", "tests/failures/",
         "tests/format/sampling_v2_test", "tests/runtime/sampling_v2_test")),
    "A number in the snapshot": (
        "tracking", "tracking", 6,
        ("LICENSE", "abi/", "runtime/compute/", "runtime/session/", "runtime/timeline/",
         "tests/abi/", "tests/failures/", "tests/runtime/", "tests/format/compare_test",
         "tests/format/element_test", "tests/format/forgery_contents_test")),
}
# Test files that hold cases and are not called NAME_test.cpp, because something else is their
# purpose: one writes golden files, one implements under_test.h.
CASES_ELSEWHERE = ("tests/abi/golden_make.cpp", "tests/device/under_test.cpp")


def sources():
    """Files of the project, new ones included, as (path, text); data and documents left out."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, text=True, check=True).stdout.split("\n")
    for name in sorted(set(listed)):
        path = ROOT / name
        script = name.startswith((".ci/", "tools/")) and "." not in path.name
        if name and path.is_file() and not name.startswith("tests/data/") and (
                name.endswith(CODE) or path.name == "CMakeLists.txt" or script):
            yield name, path.read_text(encoding="utf-8")


def without_comments_and_strings(text):
    """The same lines with what is not code blanked out."""
    pattern = (r'//[^\n]*|/\*.*?\*/|R"(?P<mark>\w*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|'
               r"\b\d[\d']*|'(?:\\.|[^'\\\n])+'|^#[^\n]*")
    return re.sub(pattern, lambda found: re.sub(r"[^\n]", " ", found[0]), text,
                  flags=re.DOTALL | re.MULTILINE)


def functions(text):
    """(first line, lines) of each outermost function body; a scan of braces, not a parser."""
    code = without_comments_and_strings(text)
    depth, body_depth, header_start, begin = 0, None, 0, 0
    for found in re.finditer(r"[{};]", code):
        at, char = found.start(), found[0]
        if body_depth is None and char == "{":
            header = code[header_start:at].strip()
            last_word = re.search(r"([\w>]*)\s*\Z", header)[1]
            initialiser = re.search(r"\)\s*:[^:]", header) and last_word and last_word[0] != ">"
            scope = re.match(r"(inline )?namespace|(template.*)?(class|struct|union|enum)\b|extern",
                             header, re.DOTALL)
            # A test case of several parts is as long as its longest part.
            parts = header.startswith("TEST_CASE") and "SUBCASE(" in code[at:].split("TEST_CASE")[0]
            if "(" in header and not scope and not initialiser and not parts:
                body_depth, begin = depth, header_start + len(code[header_start:at]) - len(
                    code[header_start:at].lstrip())
        depth += {"{": 1, "}": -1}.get(char, 0)
        if body_depth is not None and depth == body_depth and char == "}":
            yield code.count("\n", 0, begin) + 1, code.count("\n", begin, at) + 1
            body_depth = None
        header_start = at + 1


def go_functions(text):
    """The same of a file as gofmt leaves it: only what is outermost stands at the line's start."""
    for found in re.finditer(r"^func .*?^}$", text, re.DOTALL | re.MULTILINE):
        yield text.count("\n", 0, found.start()) + 1, found[0].count("\n") + 1


def rust_functions(text):
    """The same of Rust, functions within others too: from `fn` to the brace that closes its body.
    A declaration has none."""
    code = re.sub(r"'(?:\\.[^'\n]*|[^'\\\n])'|'[a-z_]\w*", lambda found: " " * len(found[0]), text)
    code = without_comments_and_strings(code)
    for found in re.finditer(r"\bfn \w+", code):
        depth = 0
        for bracket in re.finditer(r"[][(){};]", code[found.end():]):
            if bracket[0] in "]});":
                depth -= bracket[0] != ";"
                if depth == 0 and bracket[0] in "};":
                    if bracket[0] == "}":
                        end = found.end() + bracket.start()
                        yield (code.count("\n", 0, found.start()) + 1,
                               code.count("\n", found.start(), end) + 1)
                    break
            else:
                depth += 1


def defines(code, function):
    return re.search(rf"^(?:\w[\w:<>, ]* [*&]?)?{function}\(", code, re.MULTILINE) is not None


def rows_of(document):
    """(file, functions) of each row that says where functions are."""
    names = r"`[\w:~]+`(?:, `[\w:~]+`)*"
    rows = re.findall(rf"^\| [^|`]+ \| `([\w./-]+\.\w+)` \| ({names}) \|", document, re.MULTILINE)
    return [(path, re.findall(r"`([\w:~]+)`", called)) for path, called in rows]


def path_of_a_token(heading):
    """The hops below a heading of README.md, as (file, function)."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    part = re.search(rf"^(?:## )?{heading}.*?(?=^## |^On a device|\Z)", readme,
                     re.DOTALL | re.MULTILINE)[0]
    return [(path, function) for path, called in rows_of(part) for function in called]


def missing_calls(hops):
    """Of hops whose function does not call the next one's. The function of a class or a table is
    called through an object, any other one without."""
    problems = []
    for (path, function), (next_path, called) in zip(hops, hops[1:]):
        if path.endswith(".h"):  # it promises what the next one does
            if function != called:
                problems.append(f"{path}: {function} is not {called}")
            continue
        code, next_code = ((ROOT / each).read_text(encoding="utf-8") for each in (path, next_path))
        lines, bodies = without_comments_and_strings(code).split("\n"), []
        for first, count in functions(code):
            body = "\n".join(lines[first - 1:first - 1 + count])
            if defines(body.split("{")[0], function):
                bodies.append(body)
        name = called.split("::")[-1]
        entry = re.search(rf"\.(\w+) = {name}\b", next_code)
        call = rf"(?<=[.>]){entry[1]}\(" if entry else rf"(?<![.>\w]){name}\("
        if "::" in called:
            call = rf"\b{name}\("
        if not any(re.search(call, body.split("{", 1)[1]) for body in bodies):
            problems.append(f"{path}: {function} does not call {called}")
    return problems


def includes(text):
    return re.findall(r'^\s*#\s*include\s*([<"][^>"]+)[>"]', text, re.MULTILINE)


class Tidy(unittest.TestCase):
    def check(self, problems):
        if problems:
            self.fail("\n" + "\n".join(problems))

    def test_the_scan_of_functions_sees_functions(self):
        text = ("namespace a {\nstruct B {\n  B() : x(1), y{2} {\n    f();\n  }\n};\n"
                "static int f(int a) {\n  if (a) {\n    g(\"}\"); // }\n  }\n}\n}\n")
        self.assertEqual([line for line, _ in functions(text)][-1], 7)
        self.assertEqual([lines for _, lines in functions(text)][-1], 5)

    def test_the_scan_of_functions_sees_those_of_rust(self):
        text = ("impl<'a> A<'a> {\n    fn f(a: [u8; 4], b: char) -> &'a str {\n        match b {\n"
                "            '}' => g(\"}\"), // }\n            _ => 1,\n        }\n    }\n}\n"
                "extern \"C\" {\n    pub fn h(a: u32);\n}\nfn last() {}\n")
        self.assertEqual(list(rust_functions(text)), [(2, 6), (12, 1)])

    def test_lengths(self):
        problems = []
        for name, text in sources():
            lines = text.split("\n")
            if len(lines) - 1 > FILE_LINES_MAX:
                problems.append(f"{name}: {len(lines) - 1} lines, at most {FILE_LINES_MAX}")
            problems += [f"{name}:{number}: {len(line)} columns" for number, line in
                         enumerate(lines, 1) if len(line) > COLUMNS_MAX]
            found = []
            if name.endswith(C_LIKE):
                found = functions(text)
            elif name.endswith(".go"):
                found = go_functions(text)
            elif name.endswith(".rs"):
                found = rust_functions(text)
            elif name.endswith(".py"):
                found = [(node.lineno, node.end_lineno - node.lineno + 1)
                         for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
            problems += [f"{name}:{line}: a function of {length} lines" for line, length in found
                         if length > FUNCTION_LINES_MAX]
        self.check(problems)

    def test_every_file_says_what_it_owns(self):
        problems = []
        for name, text in sources():
            first = re.sub(r"\A#![^\n]*\n", "", text).lstrip("\n")
            if not first.startswith(("//", "/*", "#") if not name.endswith(C_LIKE + (".go",))
                                    else ("//", "/*")):
                problems.append(f"{name}: opens without a comment")
        self.check(problems)

    def test_names_of_folders(self):
        self.check([name for name, _ in sources()
                    if set(name.split("/")[:-1]) & {"util", "utils", "common", "helpers", "misc"}])

    def test_nothing_left_undone_and_no_place_of_a_machine(self):
        # Written apart, so that this file does not find itself.
        words = ["TO" + "DO", "FIX" + "ME", "/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/"]
        self.check([f"{name}: {word}" for name, text in sources() for word in words
                    if word in text])

    def test_directions_of_includes(self):
        problems = []
        for name, text in sources():
            if name.endswith(".go"):  # what cgo compiles
                text = re.sub(r"^// #", "#", text, flags=re.MULTILINE)
            if not name.endswith(C_LIKE + (".go",)) or name.startswith("tests/"):
                continue
            for include in includes(text):
                quoted, path = include[0] == '"', include[1:]
                if name.startswith("runtime/kernels/"):
                    good = path.startswith("runtime/kernels/") if quoted else (
                        "/" not in path or path.startswith("sys/"))
                elif name.startswith("runtime/"):
                    good = not quoted or path.startswith(("runtime/", "format/state/"))
                elif name.startswith("format/state/"):
                    good = not quoted or path.startswith("format/state/")
                elif name.startswith("format/"):
                    good = not quoted or path.startswith("format/") or "/" not in path
                elif name.startswith("tools/"):
                    good = not quoted or path.startswith("tools/") or path == "abi/stasis.h"
                elif name.startswith("bindings/go/"):
                    good = path in ("bridge.h", "_cgo_export.h") if quoted else path in (
                        "stasis.h", "stdlib.h")
                elif name.startswith("bindings/cpp/"):
                    good = path.startswith("stasis/") or path in (
                        "stasis.h", "stasis.hpp") if quoted else "/" not in path
                elif name.startswith("bindings/"):
                    good = not quoted or path in ("abi/stasis.h", "stasis.h")
                elif name.startswith("modules/"):
                    good = not quoted or path.startswith("/".join(name.split("/")[:2]) + "/") or (
                        path in ("abi/stasis.h", "modules/stasis_module.h"))
                else:  # abi/
                    good = not quoted or "/" not in path or path.startswith(
                        ("abi/", "format/", "modules/stasis_module.h", *OF_RUNTIME))
                if "flatbuffers" in path and not name.startswith("format/"):
                    good = False
                # Its values allocate in their destructors: only its parser is for the library.
                if "nlohmann" in path and not name.startswith(("tools/", "bindings/")):
                    good = name in ("runtime/model/json_file.cpp", "runtime/text/jinja/json.cpp")
                if not good:
                    problems.append(f"{name} includes {path}")
        self.check(problems)

    def test_folders_of_runtime(self):
        problems = []
        for name, text in sources():
            if not name.startswith("runtime/") or not name.endswith(C_LIKE):
                continue
            folder = name.split("/")[1]
            if folder not in FOLDERS:
                problems.append(f"{name} is in none of the folders of runtime/")
                continue
            for include in includes(text):
                parts = include[1:].split("/")
                if parts[0] == "runtime" and FOLDERS.index(parts[1]) > FOLDERS.index(folder):
                    problems.append(f"{name} includes {include[1:]}, of a folder that is below its "
                                    "own in the table of docs/ARCHITECTURE.md")
        self.check(problems)

    def test_folders_inside_folders(self):
        problems = []
        for name, text in sources():
            for outer, rules in INSIDE.items():
                if not name.startswith(outer) or not name.endswith(C_LIKE):
                    continue
                inner = name[len(outer):]
                own = inner.split("/")[0] + "/" if "/" in inner else ""
                if own and own not in rules:
                    problems.append(f"{name}: no rule says what {outer}{own} may include")
                allowed = (own, *rules.get(own, ()), *rules.get(inner, ()))
                for include in includes(text):
                    path = include[1:]
                    if path.startswith(outer) and "/" in path[len(outer):] and not any(
                            path[len(outer):].startswith(good) for good in allowed if good):
                        problems.append(f"{name} includes {path}, of a neighbour")
        self.check(problems)

    def test_files_of_test_cases_are_named_so(self):
        problems = []
        for name, text in sources():
            if name.startswith("tests/") and name.endswith((".cpp", ".c")):
                cases = re.search(r"^TEST_CASE", text, re.MULTILINE) is not None
                if cases != name.endswith("_test.cpp") and name not in CASES_ELSEWHERE:
                    problems.append(f"{name} {'has' if cases else 'has no'} test cases")
        self.check(problems)

    def test_one_file_knows_runtime_and_format(self):
        both = []
        for name, text in sources():
            if name.startswith("abi/"):
                paths = {include[1:] for include in includes(text)}
                runtime = any(path.startswith("runtime/") for path in paths)
                format_ = any(path.startswith("format/") and not path.startswith("format/state/")
                              for path in paths)
                if runtime and format_:
                    both.append(name)
        self.assertLessEqual(len(both), 1, both)

    def test_public_header_compiles_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            for compiler, language, standard in (
                    ("cc", "c", "c99"), ("cc", "c", "c11"), ("clang", "c", "c99"),
                    ("c++", "c++", "c++17"), ("c++", "c++", "c++20"), ("clang++", "c++", "c++17")):
                source = os.path.join(folder, "alone")
                with open(source, "w", encoding="ascii") as file:
                    file.write('#include "abi/stasis.h"\n#include "abi/stasis.h"\n'
                               "int used(void);\nint used(void) { return STASIS_OK; }\n")
                done = subprocess.run([compiler, "-x", language, f"-std={standard}", "-Wall",
                                       "-Wextra", "-Wshadow", "-pedantic-errors", "-Werror",
                                       "-fsyntax-only", "-I", str(ROOT), source],
                                      capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, f"{compiler} {standard}: {done.stderr}")

    def test_readme_shows_the_examples_as_they_are(self):
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        for language, path in (("c", "c/relay.c"), ("go", "go/examples/relay/main.go"),
                               ("cpp", "cpp/relay.cpp"),
                               ("rust", "rust/stasis/examples/relay.rs"),
                               ("python", "python/examples/relay.py")):
            example = (ROOT / "bindings" / path).read_text(encoding="utf-8")
            shown = re.findall(rf"```{language}\n(.*?)```", readme, re.DOTALL)
            self.assertTrue(shown, language)
            for block in shown:
                self.assertIn(block, example)

    def test_documents_follow_the_code(self):
        """Each row `| 3 | `file` | `function`, `function` | ...` names functions of that file."""
        problems, counts = [], []
        for document in "README.md", "docs/ARCHITECTURE.md":
            found = rows_of((ROOT / document).read_text(encoding="utf-8"))
            counts.append(len(found))
            problems += [f"{document}: {path} does not define {function}"
                         for path, called in found for function in called
                         if not defines((ROOT / path).read_text(encoding="utf-8"), function)]
        self.assertEqual(counts, [15, 101])
        self.check(problems)

    def test_each_hop_of_the_path_of_a_token_calls_the_next(self):
        for heading in "The path of a token", "On a device":
            hops = path_of_a_token(heading)
            self.assertGreater(len(hops), 4)
            self.check(missing_calls(hops))
            # A hop that is left out, is another function, or comes too early is noticed.
            for at in range(1, len(hops) - 1):
                self.assertTrue(missing_calls(hops[:at] + hops[at + 1:]), hops[at])
                other = (hops[at][0], "no_such_function")
                self.assertTrue(missing_calls([*hops[:at], other, *hops[at + 1:]]), hops[at])
                swapped = [*hops[:at], hops[at + 1], hops[at], *hops[at + 2:]]
                self.assertTrue(missing_calls(swapped), hops[at])

    def test_recipes_list_the_files_that_name_their_example(self):
        """The others may name it too: they follow by themselves, or are about something else."""
        document = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
        self.assertEqual(re.findall(r"^### (An? .*)$", document, re.MULTILINE), list(RECIPES))
        for title, (example, pattern, count, others) in RECIPES.items():
            recipe = re.search(rf"^### {title}\n(.*?)(?=^##|\Z)", document,
                               re.DOTALL | re.MULTILINE)[1]
            self.assertIn(f"such as `{example}`", recipe)
            listed = re.findall(r"^\| `([^`]+)` \|", recipe, re.MULTILINE)
            self.assertEqual(len(listed), count, title)
            naming = subprocess.run(
                ["git", "grep", "--untracked", "-lwE", pattern, "--", ":!tests/data"], cwd=ROOT,
                capture_output=True, text=True, check=True).stdout.split()
            self.assertEqual([name for name in naming if name not in listed and not
                              name.startswith(("CONTRIBUTING.md", "tests/tools/", "tests/fuzz/",
                                               "docs/", *others))], [], title)
            self.assertEqual(sorted(set(listed) - set(naming)), [], title)

    def test_instruction_sets_are_listed_alike(self):
        names = kernel_tables()
        rows = (ROOT / "runtime/kernels/table.cpp").read_text(encoding="utf-8")
        rows = re.search(r"kInstructionSets\[\] = {(.*?)^};", rows, re.DOTALL | re.MULTILINE)[1]
        self.assertEqual(re.findall(r'{"(\w+)"', rows), names)
        completion = (ROOT / "tools/cli/completion.bash").read_text(encoding="utf-8")
        words = re.search(r'--kernels\) _stasis_words "(.*?)"', completion)[1].split()
        self.assertEqual(sorted(words), sorted(names))

    def test_model_families_are_listed_alike(self):
        folder = ROOT / "runtime/model/family"
        text = (folder / "list.cpp").read_text(encoding="utf-8")
        listed = re.findall(r"&(k\w+)", text)
        families = {}
        for path in folder.glob("*.cpp"):
            for name, row in re.findall(r"^const Family (k\w+) = {(.*?)};\n",
                                        path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
                families[name] = dict(re.findall(r'\.(shown|gguf) = "([^"]+)"', row))
        self.assertEqual(sorted(families), sorted(listed))
        shown = [families[name]["shown"] for name in listed]
        header = (ROOT / "abi/stasis.h").read_text(encoding="utf-8")
        header = " ".join(header.split()).replace(" * ", " ")
        header = re.search(r"architectures ([\w, -]+?), types", header)[1]
        self.assertEqual(sorted(re.findall(r"[\w-]+", header.replace(" and ", " "))),
                         sorted({families[name]["gguf"] for name in listed}))
        manual = (ROOT / "tools/cli/stasis.1").read_text(encoding="utf-8")
        manual = re.search(r"of one of the\nfamilies (.*?)\.\n", manual, re.DOTALL)[1]
        self.assertEqual(re.split(r", | and ", " ".join(manual.split())), shown)
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        printed = subprocess.run([ROOT / "tools/supported"], check=True, text=True,
                                 stdout=subprocess.PIPE).stdout
        table = re.search(r"<!-- printed by .*? -->\n(.*?)<!-- end of", readme, re.DOTALL)[1]
        self.assertEqual(table, printed, "tools/supported --write mends it")
        self.assertEqual(re.findall(r"^\| ([^`|]+) \| `", printed, re.MULTILINE)[1:], shown)

    def test_the_map_names_every_folder(self):
        text = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")
        self.assertEqual(re.findall(r"^\| `runtime/(\w+)/`", text, re.MULTILINE), list(FOLDERS))

    def test_readme_names_files_that_exist(self):
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        folders = "abi|format|runtime|tools|tests|bindings|packages"
        names = set(re.findall(rf"`((?:{folders})/[\w./-]*)`", readme))
        self.assertTrue(names)
        self.check([name for name in sorted(names) if not (ROOT / name).exists()])
