# The CUDA module without a device: the resources of its kernels, instructions that their code must
# not contain (NUMERICS.md, C2 and C3), its libraries, and its error without a driver. The kernels
# are compiled with the build's own flags, and with wrong ones, which must be noticed.
import ctypes
import importlib.machinery
import importlib.util
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import stasis_process

TOOL = stasis_process.ROOT / "tools/cuda_resources"
LOADER = importlib.machinery.SourceFileLoader("cuda_resources", str(TOOL))
cuda_resources = importlib.util.module_from_spec(
    importlib.util.spec_from_loader("cuda_resources", LOADER))
LOADER.exec_module(cuda_resources)

WITHOUT_FMA = ("embed_kernel", "embed_strips_kernel")  # their text has none
# Kernels that read before they wait for the work before them (runtime/kernels/cuda/queue.cu), and
# whether they may from where this place of their parameter leads: weights, so not the task's first
# pointer, or the norm's alone (DeviceResidual); a pass's rows and pages (DevicePass, from row_count
# up to `evicted`), and what these lead to: a kernel of single rows reads pages, which no other work
# writes then. All others wait first.
def of_pass(place):
    return 8 <= place <= 48


def of_attention(place):
    return of_pass(place) or 72 <= place <= 104  # keys_at to head_dim, which are numbers


READING_EARLY = {"rows_kernel": lambda place: place != 0, "heads_kernel": of_pass,
                 "block_kernel": of_pass, "merge_kernel": of_pass, "row_kernel": of_attention,
                 "residual_kernel": lambda place: place in (0, 8, 48)}  # rows, hidden, norm
# The same of a second parameter: not the products' queries, keys and values, nor what is rounded.
READING_EARLY_TOO = {"row_kernel": lambda place: place not in (120, 128, 136, 176)}  # DeviceHeads
WITH_DOUBLE = ("receive_kernel",)  # whose clause is in double precision (C10)

# Arithmetic as PTX names it. Exact forms: each rounds to nearest and flushes; `.rn` also keeps the
# assembler from contracting.
ARITHMETIC = re.compile(r"^(add|sub|mul|fma|mad|div|sqrt|rcp|rsqrt|ex2|lg2|sin|cos|tanh)\b.*"
                        r"\.(f16|f16x2|bf16|bf16x2|f32|f32x2|f64)$")
ALLOWED = re.compile(r"^(add|sub|mul|fma|div|sqrt|rcp)\.rn\.ftz\.f32$")
ALLOWED_DOUBLE = re.compile(r"^(add|sub|mul|div)\.rn\.f64$")
MATRIX = re.compile(r"^(wmma|mma|wgmma|tcgen05)\b")
COMPARING = re.compile(r"^(setp|set|min|max)\b.*\.f32$")  # that a denormal counts as zero


def ptx_problems(text):
    """What PTX holds that no kernel of the contract may."""
    problems, double = [], False
    for line in text.splitlines():
        if ".entry " in line:
            double = any(kernel in line for kernel in WITH_DOUBLE)
        words = re.sub(r"^\s*(\{\s*)?(@!?%\w+\s+)?", "", line).split()
        name = words[0].rstrip(";") if words else ""
        wrong = (ARITHMETIC.match(name) and not ALLOWED.match(name)
                 and not (double and ALLOWED_DOUBLE.match(name))) or MATRIX.match(name)
        if wrong or ".approx" in name or ".full" in name or (
                COMPARING.match(name) and ".ftz" not in name):
            problems.append(name)
    return problems


def ptx_kernels(text):
    """{kernel: its PTX}"""
    parts = re.split(r"\.entry (\w+)", text)
    return {cuda_resources.short_name(symbol): body
            for symbol, body in zip(parts[1::2], parts[2::2])}


def before_wait(body):
    """The instructions of a kernel that may run before its wait, in the order of the text, and
    whether a thread may end there."""
    lines = [line.strip() for line in body.splitlines()]
    labels = {line[:-1]: at for at, line in enumerate(lines) if re.fullmatch(r"\$\w+:", line)}
    reached, ends, ways = set(), False, [0]
    while ways:
        at = ways.pop()
        while at not in reached and at < len(lines):
            reached.add(at)
            line = lines[at]
            if line.startswith("griddepcontrol.wait"):
                break
            branch = re.match(r"(@!?%\w+\s+)?bra(?:\.uni)?\s+(\$\w+);", line)
            if branch:
                ways.append(labels[branch[2]])
            if re.match(r"(@!?%\w+\s+)?(ret|exit);", line):
                ends = True
            if re.match(r"(bra(\.uni)?\s|ret;|exit;)", line):
                break
            at += 1
    return [lines[at] for at in sorted(reached)], ends


def order_problems(kernel, body):
    """How a kernel's PTX breaks the rule of kernels that overlap: each lets the next one begin and
    waits for the one before, in every thread, before it touches the device's memory."""
    before, ends = before_wait(body)
    problems = ["an end"] if ends else []
    if not any(line.startswith("griddepcontrol.wait") for line in before):
        problems.append("no wait")
    if not any(line.startswith("griddepcontrol.launch_dependents") for line in before):
        problems.append("the next kernel is kept back")
    plain = kernel.split("<")[0]
    may_read = {0: READING_EARLY.get(plain, lambda place: False)}
    if plain in READING_EARLY_TOO:
        may_read[1] = READING_EARLY_TOO[plain]
    bases = {}  # {register: the parameter whose place it has}
    tainted = set()  # registers: what comes of what may not be read
    # Twice: a loop brings what is found further down.
    for line in before * 2:
        found = re.match(r"(@!?%\w+\s+)?([a-z][\w.]*)\s+([^;]*);", line)
        if not found:
            continue
        name, (first, *others) = found[2], re.split(r",\s*(?![^{]*\})", found[3])
        sources = set(re.findall(r"%\w+", " ".join(others)))
        to, place = set(re.findall(r"%\w+", first)), re.search(r"\[(.*)\]", found[3])
        if name == "mov.b64" and re.search(r"_param_[01]$", others[0]):
            bases |= {each: int(others[0][-1]) for each in to}
        elif name.startswith("ld.param") and "64" in name:
            at, _, offset = place[1].partition("+")
            number = re.search(r"_param_(\d+)$", at)
            rule = may_read.get(int(number[1]) if number else bases.get(at))
            tainted |= {each for i, each in enumerate(re.findall(r"%\w+", first))  # of a vector
                        if rule is not None and not rule(int(offset or 0) + 8 * i)}
        elif re.match(r"(red|atom|call|brx)\b(?!\.shared)", name) or re.match(
                r"st\.(?!shared)", name):
            problems.append(name)
        elif re.match(r"ld\.(?!param|shared)|cp\.async\.c", name):
            reads = to if name.startswith("ld") else set()
            address = set(re.findall(r"%\w+", others[-1] if reads else others[0]))
            if kernel.split("<")[0] not in READING_EARLY or address & tainted:
                problems.append(f"{name} of {', '.join(sorted(address))}")
        elif sources & tainted and not name.startswith("st"):
            tainted |= to
    return sorted(set(problems))


def sass_problems(text):
    """The same of the machine code, as nvdisasm lists it. Division and square root are sequences of
    the compiler's: an approximation (MUFU.RCP, MUFU.RSQ); FFMA that refine it and must not flush,
    five for a quotient, two for a root; a test of the operands (FCHK, for division); and, where it
    fails, a call of `$__internal_<n>_$__cuda_<sm>_<div|sqrt|rcp>_rn_ftz_f32_slowpath`, a function
    at the end of the same section. There alone may an FADD, FMUL or FFMA not flush. A quotient in
    double precision is MUFU.RCP64H, seven DFMA, and an FFMA that takes one of its halves for a
    float to test it; its function is `..._div_rn_f64_full`."""
    problems, slow, plain, allowed, double, fused = [], False, 0, 0, False, 0
    for line in text.splitlines():
        label = re.match(r"\s*(\$\S+|\.text\.\S+):\s*$", line)
        if label:
            slow = re.search(r"_((div|sqrt|rcp)_rn_ftz_f32_slowpath|div_rn_f64_full)$",
                             label[1]) is not None
            if label[1].startswith(".text."):
                double = any(kernel in label[1] for kernel in WITH_DOUBLE)
                fused = 0
                problems += [f"{plain} FFMA without .FTZ"] if plain > allowed else []
                plain = allowed = 0
            continue
        found = re.match(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s*([^;]*)", line)
        if not found:
            continue
        name, operands = found[1], found[2]
        base = name.split(".")[0]
        if double and (name in ("DADD", "DMUL", "MUFU.RCP64H") or (slow and base[0] in "DM")):
            if name == "MUFU.RCP64H" and not slow:
                fused, allowed = fused - 7, allowed + 1
        elif double and name == "DFMA":
            fused += 1
            problems += ["DFMA"] if fused > 0 else []
        elif base == "MUFU" and name not in ("MUFU.RCP", "MUFU.RSQ"):
            problems.append(name)
        elif base in ("DADD", "DMUL", "DFMA", "HADD2", "HMUL2", "HMMA", "DMMA", "QGMMA", "HGMMA",
                      "UTCHMMA", "FADD2", "FMUL2", "FFMA2") and (
                          not base.endswith("2") or ".FTZ" not in name or base[0] == "H"):
            problems.append(name)
        elif base == "HFMA2" and "-RZ, RZ" not in operands:  # so it only writes a constant
            problems.append(f"{name} {operands}")
        elif base in ("FADD", "FMUL") and ".FTZ" not in name and not slow:
            problems.append(name)
        elif base == "FFMA" and ".FTZ" not in name and not slow:
            plain += 1
        if not slow:
            allowed += {"FCHK": 3, "MUFU.RCP": 2, "MUFU.RSQ": 2}.get(
                base if base == "FCHK" else name, 0)
    return problems + ([f"{plain} FFMA without .FTZ"] if plain > allowed else [])


def nvdisasm(command):
    """Where it is on this machine; null: nowhere."""
    fetched = stasis_process.ROOT / "build/cuda-tools/nvdisasm"
    beside = pathlib.Path(command[0]).parent / "nvdisasm"
    return next((str(path) for path in (fetched, beside) if path.exists()),
                shutil.which("nvdisasm"))


class CudaTest(unittest.TestCase):
    def setUp(self):
        self.build = stasis_process.command().parent
        self.commands = cuda_resources.commands(self.build)
        if not self.commands:
            self.skipTest("no nvcc: the CUDA kernels are not compiled")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def architectures(self):
        """Those that the module is built for: {"sm_80", ...}."""
        return set(re.findall(r"code=\[?(?:compute_\w+,)?(sm_\d+)",
                              " ".join(next(iter(self.commands.values())))))

    def planted(self, name, text=None, replace=(), extra=()):
        """Compiles a file, or other text, for one architecture with other flags. Returns what the
        assembler said and the folder."""
        command = [replace[1] if replace and word == replace[0] else word
                   for word in self.commands[name] if "generate-code" not in word]
        if text is not None:
            path = self.folder / "planted.cu"
            path.write_text(text, encoding="ascii")
            command = [str(path) if word.endswith(name) else word for word in command]
        folder = self.folder / f"planted{len(list(self.folder.iterdir()))}"
        return cuda_resources.compile_kept([*command, "-arch=sm_90", *extra], folder), folder

    def disassemble(self, folder):
        tool = nvdisasm(next(iter(self.commands.values())))
        if tool is None:
            self.skipTest("no nvdisasm (tools/install fetches it): machine code is not looked at")
        return {path.name: subprocess.run([tool, "-c", path], capture_output=True, text=True,
                                          check=True).stdout
                for path in sorted(folder.glob("*.cubin"))}


class Kernels(CudaTest):
    said = None  # {file: what the assembler said}; compiled once

    def setUp(self):
        super().setUp()
        if Kernels.said is None:
            kept = tempfile.TemporaryDirectory()
            self.addClassCleanup(kept.cleanup)
            Kernels.kept = pathlib.Path(kept.name)
            Kernels.said = cuda_resources.compile_all(self.build, Kernels.kept)

    def test_they_need_no_local_memory(self):
        for file, text in self.said.items():
            used = list(cuda_resources.resources(text))
            self.assertEqual({each[1] for each in used}, self.architectures(), file)
            for kernel, architecture, numbers in used:
                with self.subTest(f"{file}: {kernel} for {architecture}"):
                    self.assertGreater(numbers["registers"], 0)
                    self.assertEqual([numbers[each] for each in ("stack", "stored", "loaded")],
                                     [0, 0, 0], "stack, spills")

    def test_their_ptx_rounds_and_flushes_and_contracts_nothing(self):
        seen = set()
        for file in self.said:
            ptx = sorted((self.kept / file).glob("*.ptx"))
            self.assertEqual(len(ptx), len(self.architectures()), file)
            for path in ptx:
                whole = path.read_text(encoding="utf-8")
                self.assertEqual(ptx_problems(whole), [], path.name)
                for kernel, body in ptx_kernels(whole).items():
                    seen.add(kernel)
                    if kernel in WITHOUT_FMA:
                        self.assertNotRegex(body, r"\bfma\.", f"{path.name}: {kernel}")
        self.assertLessEqual(set(WITHOUT_FMA), seen)

    def test_they_wait_for_the_kernel_before(self):
        streaming = 0
        for file in self.said:
            for path in (self.kept / file).glob("*.ptx"):
                whole = path.read_text(encoding="utf-8")
                if ".target sm_80" in whole:
                    self.assertNotIn("griddepcontrol", whole, path.name)
                    continue
                for kernel, body in ptx_kernels(whole).items():
                    with self.subTest(f"{path.name}: {kernel}"):
                        self.assertEqual(order_problems(kernel, body), [])
                        if kernel.startswith("rows_kernel"):  # weights are on their way by then
                            before = " ".join(before_wait(body)[0])
                            self.assertGreaterEqual(before.count("cp.async.cg.shared.global"), 4)
                            first, _, then = before.partition("griddepcontrol")
                            self.assertNotRegex(first, r"ld\.global\.[bu]32\s")  # a measure
                            self.assertRegex(then, r"ld\.global\.[bu]32\s")
                            streaming += 1
        overlapping = self.architectures() - {"sm_80"}
        self.assertEqual(streaming, len(overlapping) * 8)  # eight kernels each
        self.assertTrue(overlapping)

    def test_their_machine_code_does_so_too(self):
        for file in self.said:
            listings = self.disassemble(self.kept / file)
            self.assertEqual(len(listings), len(self.architectures()), file)
            for name, listing in listings.items():
                self.assertRegex(listing, r"\bEXIT\b", name)
                self.assertEqual(sass_problems(listing), [], name)


class Planted(CudaTest):
    CONTRACTS = "__global__ void k(float *x) { x[0] = x[0] * x[1] + x[2]; }\n"
    FAST = "__global__ void k(float *x) { x[0] = __expf(x[1]) / x[2] + sqrtf(x[3]); }\n"

    def ptx_of(self, planted):
        return next(planted[1].glob("*.ptx")).read_text(encoding="utf-8")

    def test_the_builds_flags_contract_nothing(self):
        ptx = self.ptx_of(self.planted("rows.cu", self.CONTRACTS))
        self.assertEqual(ptx_problems(ptx), [])
        self.assertNotIn("fma.", ptx)

    def test_contraction_is_noticed(self):
        ptx = self.ptx_of(self.planted("rows.cu", self.CONTRACTS, ("-fmad=false", "-fmad=true")))
        self.assertIn("fma.", ptx)
        ptx = self.ptx_of(self.planted("rows.cu", None, ("-fmad=false", "-fmad=true")))
        self.assertNotEqual(ptx_problems(ptx), [])
        planted = self.planted("attention_received.cu", None, ("-fmad=false", "-fmad=true"))
        self.assertIn("fma.rn.f64", ptx_problems(self.ptx_of(planted)))
        for listing in self.disassemble(planted[1]).values():
            self.assertIn("DFMA", sass_problems(listing))

    def test_double_precision_is_noticed_where_it_is_not_meant(self):
        planted = self.planted("rows.cu", "__global__ void k(double *x) { x[0] = x[1] * x[2]; }\n")
        self.assertEqual(ptx_problems(self.ptx_of(planted)), ["mul.rn.f64"])
        for listing in self.disassemble(planted[1]).values():
            self.assertIn("DMUL", sass_problems(listing))

    def test_fast_functions_are_noticed(self):
        planted = self.planted("rows.cu", self.FAST)
        self.assertIn("ex2.approx.ftz.f32", ptx_problems(self.ptx_of(planted)))
        for listing in self.disassemble(planted[1]).values():
            self.assertIn("MUFU.EX2", sass_problems(listing))

    def test_rounding_otherwise_is_noticed(self):
        for right, wrong in (("-prec-div=true", "-prec-div=false"),
                             ("-prec-sqrt=true", "-prec-sqrt=false"), ("-ftz=true", "-ftz=false")):
            with self.subTest(wrong):
                ptx = self.ptx_of(self.planted("rows.cu", self.FAST.replace("__expf", ""),
                                               (right, wrong)))
                self.assertNotEqual(ptx_problems(ptx), [])

    def test_denormals_are_noticed_in_machine_code(self):
        planted = self.planted("rows.cu", None, ("-ftz=true", "-ftz=false"))
        for listing in self.disassemble(planted[1]).values():
            self.assertTrue({"FMUL", "FADD"} <= set(sass_problems(listing)))

    def test_what_comes_before_the_wait_is_noticed(self):
        wait = ('asm volatile("griddepcontrol.launch_dependents;" ::: "memory");'
                'asm volatile("griddepcontrol.wait;" ::: "memory");')
        for name, text, problem in stasis_process.share([
                ("k", "WAIT x[0] = 1;", None),
                ("k", "x[0] = 1;", "no wait"),
                ("k", "x[0] = 1; WAIT", "st.global"),
                ("k", "int a = x[1]; WAIT x[0] = a;", "ld.global"),
                ("k", "atomicAdd(x, 1); WAIT", "(red|atom).global"),
                ("k", "if (threadIdx.x > n) { return; } WAIT x[0] = 1;", "an end|a branch"),
                ("k", "if (threadIdx.x > n) { WAIT } x[0] = 1;", "an end"),
                ("rows_kernel", "int a = w[threadIdx.x]; WAIT x[0] = a;", None),
                ("rows_kernel", "int a = x[threadIdx.x]; WAIT w[0] = a;", "ld.global"),
                ("rows_kernel", "int a = w[0]; w[1] = a; WAIT", "st.global"),
                ("heads_kernel", "int a = w[threadIdx.x]; WAIT x[0] = a;", None),
                ("heads_kernel", "int a = x[threadIdx.x]; WAIT w[0] = a;", "ld.global"),
                ("row_kernel", "int a = w[threadIdx.x]; WAIT x[0] = a;", None),
                ("row_kernel", "int a = x[threadIdx.x]; WAIT w[0] = a;", "ld.global"),
                ("row_kernel", "__shared__ int a; atomicMin(&a, n); WAIT x[0] = a;", None),
                ("row_kernel", "atomicMin(x, n); WAIT", "(red|atom).global")]):
            with self.subTest(text):
                body = text.replace("WAIT", wait)
                ptx = self.ptx_of(self.planted(
                    "rows.cu", f"__global__ void {name}(int *x, int *w, int n) {{ {body} }}\n"))
                (kernel, code), = ptx_kernels(ptx).items()
                found = " ".join(order_problems(kernel, code))
                if problem is None:
                    self.assertEqual(found, "")
                else:
                    self.assertRegex(found, problem)

    def test_each_part_of_a_vector_has_its_own_place(self):
        code = ("ld.param.v2.u64 {%rd1, %rd2}, [k_param_0+48];\nld.global.u32 %r1, [@];\n"
                "griddepcontrol.launch_dependents;\ngriddepcontrol.wait;\nret;")
        self.assertEqual(order_problems("heads_kernel", code.replace("@", "%rd1")), [])
        self.assertEqual(order_problems("heads_kernel", code.replace("@", "%rd2")),
                         ["ld.global.u32 of %rd2"])

    def test_spills_are_noticed(self):
        text = ("__global__ void k(float *x) {\n  float a[64];\n"
                "  for (int i = 0; i < 64; ++i) a[i] = x[i * 32];\n  __syncthreads();\n"
                "  for (int i = 0; i < 64; ++i) x[i * 7] = a[i] * a[(i + 1) % 64];\n}\n")
        said, _ = self.planted("rows.cu", text, extra=("-maxrregcount=24",))
        (_, _, used), = cuda_resources.resources(said)
        self.assertGreater(used["stored"] + used["stack"], 0)


class Module(CudaTest):
    def setUp(self):
        super().setUp()
        self.path = self.build / "abi/libstasis_cuda.so.0"

    def test_it_exports_one_name_and_needs_no_library_of_cuda(self):
        names = subprocess.run(["nm", "-D", "--defined-only", self.path], capture_output=True,
                               text=True, check=True).stdout.split("\n")
        self.assertEqual([line.split()[-1] for line in names if line], ["stasis_device_table"])
        dynamic = subprocess.run(["readelf", "-d", self.path], capture_output=True, text=True,
                                 check=True).stdout
        self.assertNotRegex(dynamic, "RPATH|RUNPATH")
        needed = re.findall(r"NEEDED.*\[(.*)\]", dynamic)
        self.assertTrue(needed)
        self.assertEqual([each for each in needed if re.search("cuda|cublas|nv", each)], [])
        self.assertRegex(self.path.read_bytes(),  # opened where a model asks for it
                         rb"libcublasLt\.so\.\d+\0|cublasLt\.h was not there")

    def test_it_says_what_is_missing(self):
        """device.h: uint32 version, size; char *name; then `open` and the other entries."""
        module = ctypes.CDLL(str(self.path))
        module.stasis_device_table.restype = ctypes.c_void_p
        table = module.stasis_device_table()
        self.assertEqual(ctypes.string_at(ctypes.c_char_p.from_address(table + 8).value), b"cuda")
        size_bytes = ctypes.c_uint32.from_address(table + 4).value
        self.assertGreater(size_bytes, 16 + 8 * 15)
        for at in range(16, size_bytes, 8):
            entry = ctypes.c_void_p.from_address(table + at).value
            self.assertTrue(entry, f"entry {(at - 16) // 8} is missing")
        open_ = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p,
                                 ctypes.c_void_p)(ctypes.c_void_p.from_address(table + 16).value)
        info, error = ctypes.create_string_buffer(1024), ctypes.create_string_buffer(256)
        self.assertFalse(open_(4096, info, error))  # more than any machine has
        self.assertEqual(error.raw[0], 1)           # unavailable
        self.assertRegex(error.raw[4:].split(b"\0")[0].decode(),
                         "^there is no CUDA (driver|device)|^the CUDA driver is too old: "
                         r"|^cuda:4096: there (is|are) \d+ devices?$|^CUDA cannot be used: ")
