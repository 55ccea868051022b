# tools/gpu_check without a GPU: the report it writes, and that what goes wrong in one line of it
# leaves the others, with stand-ins for every program; the real command on the CPU and on the
# place-holder of a GPU (tests/device); the program that measures ceilings compiles, where there is
# nvcc.
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from stasis_process import ROOT, WITHOUT_TOKENIZER, CommandTest, command, share

sys.path.insert(0, str(ROOT / "tools/gpu"))
import cases  # the script's own, as it finds them
import programs
import report

SCRIPT = ROOT / "tools/gpu_check"
RESULTS = ROOT / "runtime/kernels/cuda/RESULTS.md"
STAND_IN = pathlib.Path(__file__).parent / "gpu_stand_in.py"
NAMES = [*programs.PROGRAMS, "nvidia-smi"]
KERNELS = "test_kernels`: kernels and models on the device, against the CPU's"
LIST = "<doctest>" + "".join(
    f'<TestCase name="device: {name}" filename="../device_{file}_test.cpp"/>'
    for name, file in ("aa", "ba", "ca", "zz")) + "</doctest>"
ANOTHER = "echo '0.5 s: device: z'"


def rows_of(text):
    """The cells of each row, by the first one."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in text.splitlines() if line.startswith("|")]
    return {row[0].strip("`"): row[1:] for row in rows}


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="stasis-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def script(self, *arguments, code=0, **variables):
        done = subprocess.run([SCRIPT, *map(str, arguments)], capture_output=True, text=True,
                              env=dict(os.environ, **variables), check=False, timeout=600)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done


class Blank(Folder):
    def test_every_line_says_that_it_has_not_run(self):
        out = self.folder / "blank.md"
        self.script("--blank", "--out", out)
        rows = rows_of(out.read_text())
        for line in [*report.FACTS, *report.CEILINGS, *(each.name for each in report.FIGURES)]:
            where = 0 if line in report.FACTS else 1
            self.assertEqual(rows[line][where], report.NOT_RUN, line)
        for line in [line for line in rows if line.split("`")[0].startswith(("test_", "recall-"))]:
            self.assertEqual(rows[line], [report.NOT_RUN])

    def test_the_report_in_the_tree_has_the_lines_that_the_script_writes(self):
        blank = rows_of(report.render(report.blank()))
        here = rows_of(RESULTS.read_text(encoding="utf-8"))
        self.assertLessEqual(set(blank) - {"all"}, set(here))


class StandIns(Folder):
    """A whole run, with programs whose figures are known."""

    def setUp(self):
        super().setUp()
        self.build = self.folder / "build"
        self.build.mkdir()
        for name in NAMES:
            shutil.copy(STAND_IN, self.build / name)
            (self.build / name).chmod(0o755)
        (self.build / programs.MODULE).touch()
        self.out = self.folder / "results.md"

    def run_all(self, *arguments, code=1, **variables):
        self.script("--build", self.build, "--out", self.out, "--logs", self.folder / "logs",
                    "--commit", "c0ffee", *arguments, code=code, TMPDIR=str(self.folder),
                    PATH=f"{self.build}:{os.environ['PATH']}", **variables)
        return rows_of(self.out.read_text())

    def test_figures_shares_and_targets(self):
        rows = self.run_all()
        self.assertEqual(rows["device"], ["Some GPU"])
        self.assertEqual(rows["driver"], ["999.1"])
        self.assertEqual(rows["compute capability"], ["9.0, 132 multiprocessors"])
        self.assertEqual(rows["commit"], ["c0ffee"])
        self.assertEqual(rows["copy"][1:], ["2.00 TB/s", "so / so"])
        self.assertEqual(rows["gemm_bf16_8192"][1:], ["status 15", ""])
        self.assertEqual(rows["tg128"][1:], ["100.0 tokens/s (99.0-101.5)", "1.50 TB/s",
                                             "`copy`, 2.00 TB/s", "75.0 %", "70 %", "yes", ""])
        self.assertEqual(rows["pp512"][3:], ["`fma_fp32`, 40.00 TFLOP/s", "25.0 %", "50 %", "NO",
                                             ""])
        self.assertEqual(rows["batch8@512"][4:], ["50.0 %", "none", "", ""])
        self.assertEqual(rows["save@16384"][4:], ["90.0 %", "80 %", "yes",
                                                  "`file_new`, 87.5 %"])
        self.assertEqual(rows["load@16384"][4:], ["60.0 %", "80 %", "NO", ""])
        self.assertEqual(rows["profile"][2:], ["300 TFLOP/s", "`gemm_bf16_prefill`, 500 TFLOP/s",
                                               "60.0 %", "50 %", "yes", ""])
        text = self.out.read_text()
        self.assertNotIn(f"| {report.NOT_RUN} |", text)
        self.assertNotIn("DIFFERENT", text)
        self.assertEqual(text.count("| equal, abababab"), 6 + 6)
        self.assertEqual(text.count("| verified |"), 6 + 3)
        self.assertEqual(text.count("| 2 passed, 1 failed, 1 skipped; device_a_test.cpp: "
                                    "exit code 1 |"), 2)
        self.assertNotIn("device grid", text)  # of the host alone
        for program in report.TESTS:
            self.assertIn(f"| `{program}` | device: products equal the reference | FAILED | 1.50 |",
                          text)
            self.assertIn(f"| `{program}` | device: two at once | skipped | 0.00 |", text)
        self.assertEqual(list(self.folder.glob("stasis-gpu-check*")), [])

    def test_another_device_is_the_one_that_is_measured(self):
        rows = self.run_all("--device", "cuda:1")
        self.assertEqual(rows["device"], ["Another GPU"])
        self.assertEqual(rows["compute capability"], ["9.1, 132 multiprocessors"])
        self.assertEqual(self.out.read_text().count("| equal, abababab"), 6)

    def test_one_failure_leaves_the_other_lines(self):
        whole = self.run_all()
        for what, changed in share([
                ("nvidia-smi", {"driver", "memory", "persistence", "clocks"}),
                ("gpu_ceilings", {*report.CEILINGS, "compute capability", "CUDA"}),
                ("stasis tg128@1024", {"tg128@1024"}),
                ("stasis llama3.2-1b", {"save@16384", "load@16384"}),
                ("stasis bench", {each.name for each in report.FIGURES})]):
            with self.subTest(what):
                rows = self.run_all(STAND_IN_BROKEN=what)
                figures = {each.name for each in report.FIGURES}
                differ = {line for line in [*report.FACTS, *report.CEILINGS, *figures]
                          if rows[line][:2] != whole[line][:2]} - {"date"}
                self.assertEqual(differ, changed)
                self.assertIn("it is broken", self.out.read_text())

    def test_a_model_that_cannot_be_had_costs_its_own_lines_alone(self):
        text = "\n".join(map(str, self.run_all(STAND_IN_BROKEN="stasis synth").values()))
        self.assertEqual(text.count("equal, abab"), 4 + 4)
        figures = len(report.FIGURES)
        self.assertEqual(text.count("stasis synth: exit code 1: it is broken"), 3 + 3 + figures)

    def test_other_digests_are_said_and_fail(self):
        for what, count in share([("gpu", 6), ("profile", 6), ("resumed", 3)]):
            with self.subTest(what):
                self.run_all(STAND_IN_DIFFERS=what)
                self.assertEqual(self.out.read_text().count("| DIFFERENT |"), count)

    def test_a_verification_that_fails_is_said(self):
        self.run_all(STAND_IN_BROKEN="stasis verify")
        self.assertEqual(self.out.read_text().count("| verify: exit code 1: it is broken |"), 9)

    def test_without_the_profile_only_its_own_lines_are_missing(self):
        rows = self.run_all(STAND_IN_BROKEN="stasis --profile")
        self.assertIn("it is broken", rows["profile"][1])
        self.assertEqual(rows["pp512"][4], "25.0 %")
        text = self.out.read_text()
        self.assertEqual(text.count("equal, abab"), 6)
        self.assertEqual(text.count("| verified |"), 6)

    def two_files(self, of_a, instead=""):
        """A test program of two files, of which the first does this, in the words of a shell."""
        (self.build / "list.xml").write_text(LIST)
        (self.build / "test_kernels").write_text(
            f"#!/bin/sh\ncase \"$*\" in\n*--list-test-cases*) cat {self.build}/list.xml;;\n"
            f"*device_a_test*) {of_a};;\n*) {instead or ANOTHER};;\nesac\n")

    def test_a_test_program_that_hangs_keeps_what_passed_and_the_next_file_runs(self):
        self.two_files("echo '0.1 s: device: a'; exec sleep 100")
        rows = self.run_all("--seconds", 3)
        self.assertEqual(rows[KERNELS], [
            "2 passed, 0 failed, 1 not ended, 1 not begun; "
            'device_a_test.cpp: not done after 3 s, in "device: b"'])
        self.assertEqual(rows["tg128"][-2], "yes")
        text = self.out.read_text()
        self.assertIn("| `test_kernels` | device: b | DID NOT END |  |", text)
        self.assertIn("| `test_kernels` | device: z | passed | 0.50 |", text)

    def test_a_crash_keeps_the_cases_before_it(self):
        self.two_files("echo '0.1 s: device: a'; echo 'TEST CASE:  device: b';"
                        "echo 'x.cpp(1): FATAL ERROR: test case CRASHED: SIGSEGV'; kill -SEGV $$")
        self.run_all()
        text = self.out.read_text()
        self.assertIn("2 passed, 1 failed, 1 not begun; device_a_test.cpp: ended by SIGSEGV", text)
        self.assertIn("| `test_kernels` | device: b | FAILED |  |", text)

    def test_what_a_failed_case_said_is_in_the_report_and_every_log_in_one(self):
        self.two_files("echo 'a.cpp(3):'; echo 'TEST CASE:  device: b';"
                        "echo 'a.cpp(5): ERROR: CHECK( a == b ) is NOT correct!';"
                        "echo '  values: CHECK( 1 == 2 )'; echo '  logged: row 7';"
                        "echo '0.1 s: device: b'; echo 'no such address' >&2; exit 1")
        raw = self.folder / "raw.json"
        self.run_all("--json", raw)
        said = ["a.cpp(3):", "a.cpp(5): ERROR: CHECK( a == b ) is NOT correct!",
                "  values: CHECK( 1 == 2 )", "  logged: row 7"]
        failures = json.loads(raw.read_text())["failures"]
        self.assertEqual(failures["test_kernels: device: b"], said)
        self.assertEqual(failures["test_kernels device_a_test.cpp: stderr"], ["no such address"])
        self.assertIn("\n".join(said), self.out.read_text())
        logs = (self.folder / "logs/all.log").read_text()
        self.assertIn("  logged: row 7", logs)
        self.assertIn("stasis bench", logs)

    def test_what_has_been_found_is_there_before_the_next_stage(self):
        raw, seen = self.folder / "raw.json", self.folder / "seen"
        self.two_files(f"cp {self.out} {seen}.md; cp {raw} {seen}.json; {ANOTHER}")
        self.run_all("--json", raw)
        rows = rows_of((self.folder / "seen.md").read_text())
        self.assertEqual(rows["load@16384"][4:7], ["60.0 %", "80 %", "NO"])
        self.assertEqual(rows["commit"], ["c0ffee"])
        self.assertEqual(rows["open"][1], report.NOT_RUN)
        self.assertIn("tg128", json.loads((self.folder / "seen.json").read_text())["figures"])

    def test_stages_come_in_the_order_of_what_is_wanted(self):
        self.run_all()
        text = (self.folder / "logs/all.log").read_text()
        order = ["info ", "gpu_ceilings 0", "recall-gemma3-cpu", "--only tg128 ", "--only pp512",
                 "--profile device --only pp512", "--only save@16384", "--only load@16384",
                 "--list-test-cases", "tinyllama-1.1b-cpu", "--only tg128@1024", "--only open"]
        runs = [line for line in text.splitlines() if line.startswith("== ")]
        at = [next(i for i, line in enumerate(runs) if word in line) for word in order]
        self.assertEqual(at, sorted(at))

    def test_output_of_another_shape_costs_its_own_lines_alone(self):
        for what, line in share([("gpu_ceilings", "ceilings"), ("stasis info", "module"),
                                 ("stasis bench", "tg128")]):
            with self.subTest(what):
                raw = self.folder / "raw.json"
                rows = self.run_all("--json", raw, STAND_IN_ODD=what)
                self.assertIn("TypeError", json.loads(raw.read_text())["problems"][line])
                self.assertIn("2 passed, 1 failed", rows[KERNELS][0])
                self.assertEqual(rows["driver"], ["999.1"])

    def test_a_figure_without_a_rate_is_a_row_that_says_so(self):
        for given in share(["none", "null", "NaN", "Infinity", "0"]):
            with self.subTest(given):
                rows = self.run_all(STAND_IN_RATE=given)
                self.assertEqual(rows["tg128"][1], "100.0 tokens/s (99.0-101.5)")
                self.assertIn("no rate", rows["tg128"][2])
                self.assertEqual(rows["tg128"][4:7], ["unknown", "70 %", "unknown"])
                self.assertIn("2 passed, 1 failed", rows[KERNELS][0])

    def test_no_stage_takes_the_time_of_the_next_ones(self):
        rows = self.run_all("--minutes", 1.2, "--seconds", 1000, STAND_IN_HANGS="stasis bench")
        self.assertIn("stasis: not done after", rows["tg128"][1])
        self.assertIn("no time was left", rows["load@16384"][1])
        self.assertIn("2 passed, 1 failed", rows[KERNELS][0])
        self.assertEqual(self.out.read_text().count("| equal, abababab"), 6 + 6)

    def test_a_report_that_cannot_be_written_ends_no_run_and_is_said(self):
        done = self.script("--build", self.build, "--out", self.folder / "no/such.md", "--logs",
                           self.folder / "logs", code=1, TMPDIR=str(self.folder),
                           PATH=f"{self.build}:{os.environ['PATH']}")
        self.assertEqual(rows_of(done.stdout)["tg128"][4:7], ["75.0 %", "70 %", "yes"])
        self.assertIn("gpu_check: the report cannot be written: ", done.stderr)

    def test_no_time_left(self):
        self.run_all("--minutes", 0)
        self.assertIn("not run: no time was left", self.out.read_text())

    def test_without_a_gpu_the_report_in_the_tree_is_left(self):
        before = RESULTS.read_bytes()
        (self.build / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
        (self.build / "gpu_ceilings").write_text("#!/bin/sh\nexit 9\n")
        done = self.script("--build", self.build, "--logs", self.folder / "logs", code=1,
                           TMPDIR=str(self.folder), PATH=f"{self.build}:{os.environ['PATH']}")
        self.assertIn("no GPU has run", done.stderr)
        self.assertEqual(RESULTS.read_bytes(), before)


class Pieces(Folder):
    def test_what_failed_cases_said_is_bounded(self):
        out = "".join(f"=====\na.cpp(3):\nTEST CASE:  device: {name}\n\na.cpp(5): ERROR: CHECK\n" +
                      "  values: ```\n" * 100 for name in range(50))
        names = [f"device: {name}" for name in range(50)]
        _, failures = cases.parse_run(out, 1, names)
        self.assertEqual({len(lines) for lines in failures.values()}, {cases.LINES_MAX})
        text = report.render(report.blank() | {"failures": failures})
        block = text.split("## What failed cases said")[1]
        self.assertLess(block.count("\n"), report.FAILURE_LINES + 10)
        self.assertEqual(block.count("```"), 2)
        self.assertIn("lines more", block)

    def test_a_case_that_failed_and_then_hangs_is_the_one_that_did_not_end(self):
        out = "0.1 s: a\n=====\nx.cpp(1):\nTEST CASE:  b\n\nx.cpp(2): ERROR: CHECK( c )\n"
        found, failures = cases.parse_run(out, None, ["a", "b", "c"])
        self.assertEqual([outcome for _, outcome, _ in found],
                         ["passed", "DID NOT END", "not begun"])
        self.assertIn("b", failures)

    def test_a_process_that_does_not_even_die_is_left(self):
        class Undying:
            pid = 0  # set below: of one that may be killed

            def wait(self, seconds):
                raise subprocess.TimeoutExpired("undying", seconds)

        sleeping = subprocess.Popen(["sleep", "100"], start_new_session=True)
        undying = Undying()
        undying.pid = sleeping.pid
        programs.Programs(self.folder, None, ROOT, self.folder, 1, 1).kill(undying)
        self.assertEqual(sleeping.wait(10), -9)


class Command(CommandTest):
    """The real command, without a GPU: every line has a result or a reason."""

    def dry_run(self, device):
        built, build = command().parent, self.folder / "build"
        build.mkdir()
        (build / "stasis").symlink_to(command())
        (build / "abi").symlink_to(built / "abi")
        (build / "gpu_ceilings").write_text("#!/bin/sh\necho no device >&2\nexit 1\n")
        (build / "gpu_ceilings").chmod(0o755)
        out, raw = self.folder / "out.md", self.folder / "out.json"
        models = [word for shape in (report.LARGE, report.LONG)
                  for word in ("--model", f"{shape}={WITHOUT_TOKENIZER}")]
        arguments = ["--build", build, "--module", built / "tests/device" / programs.MODULE,
                     *models, "--out", out, "--json", raw, "--logs", self.folder / "logs",
                     "--device", device, "--repetitions", 1, "--seconds", 20, "--minutes", 0.8]
        done = subprocess.run([SCRIPT, *map(str, arguments)], capture_output=True, text=True,
                              env=dict(os.environ, TMPDIR=str(self.folder)), check=False,
                              timeout=600)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)  # there is no GPU
        self.assertEqual(done.stderr, "")
        text = out.read_text()
        self.assertNotIn("DIFFERENT", text)
        self.assertNotIn(report.NOT_RUN, text.split("## Equality")[1].split("## Test cases")[0])
        return json.loads(raw.read_text())

    def test_the_cpu_against_itself(self):
        results = self.dry_run("cpu")
        self.assertTrue(results["run"]["device"].startswith("none: kernels "), results["run"])
        self.assertEqual(set(results["models"]), {f"{model} {line}" for model in report.MODELS
                                                  for line in report.MODEL_LINES})
        if found := results["figures"].get("tg128"):  # a slow machine takes longer than it may
            self.assertGreater(found["rate"], 0)
            self.assertEqual(found["unit"], "tokens/s")

    def test_the_place_holder_of_a_gpu(self):
        results = self.dry_run("cuda")
        if "module" not in results["problems"]:
            self.assertEqual(results["run"]["device"], 'none: kernels "host"')


class Cases(CommandTest):
    """The real test programs, on the place-holder of a GPU."""

    def run_cases(self, file, **variables):
        program = command().parent / "test_kernels"
        return subprocess.run([program, f"--source-file=*/{file}", "--test-case=device*",
                               "--duration=true"], capture_output=True, text=True, check=False,
                              env=dict(os.environ, **variables), timeout=300)

    def test_files_are_those_whose_cases_ask_for_a_device(self):
        found = set()
        for program in report.TESTS:
            done = subprocess.run([command().parent / program, "--list-test-cases",
                                   "--reporters=xml", f"--test-case={cases.CASES}"],
                                  capture_output=True, text=True, check=True)
            found |= set(cases.parse_list(done.stdout))
        asking = {path.name for path in ROOT.glob("tests/*/*.cpp")
                  if path.parent.name in ("kernels", "runtime", "device") and
                  any(f"{word}(" in path.read_text() for word in
                      ("for_each_device", "each_module", "cuda_module"))}
        self.assertEqual(found, asking)

    def test_on_a_module_alone(self):
        module = str(command().parent / "tests/device" / programs.MODULE)
        file = "device_received_test.cpp"
        both = self.run_cases(file, STASIS_CUDA_MODULE=module)
        alone = self.run_cases(file, STASIS_CUDA_MODULE=module, STASIS_DEVICE_TESTS="module")
        self.assertEqual((both.returncode, alone.returncode), (0, 0), alone.stdout)
        count, whole = (int(re.search(r"assertions: *(\d+)", done.stdout)[1])
                        for done in (alone, both))
        self.assertGreater(count, 0)
        self.assertLess(3 * count, whole)  # three kinds of host grid as well

    def test_what_would_test_nothing_fails(self):
        for variables in ({"STASIS_DEVICE_TESTS": "module", "STASIS_CUDA_MODULE": ""},
                          {"STASIS_DEVICE_TESTS": "modules"}):
            done = self.run_cases("device_received_test.cpp", **variables)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn("STASIS_DEVICE_TESTS=module", done.stdout)
            self.assertNotIn("passed | 0 failed", done.stdout)


class Ceilings(Folder):
    def test_compiles_for_every_generation_without_a_warning(self):
        if programs.nvcc() is None:
            self.skipTest("there is no nvcc")
        target = self.folder / "gpu_ceilings"
        programs.compile_ceilings(ROOT / "tools/gpu/ceilings.cu", target)
        done = subprocess.run([target], capture_output=True, text=True, check=False, timeout=300)
        if done.returncode == 0:
            found = json.loads(done.stdout)
            self.assertEqual(set(found["ceilings"]) | set(found["problems"]), set(report.CEILINGS))
        else:
            self.assertRegex(done.stderr, r"\Agpu_ceilings: [^\n]+\n\Z")


class Pack(Folder):
    def test_a_packed_build_runs_from_another_place(self):
        built = command().parent
        module = built / "tests/device" / programs.MODULE
        names = programs.pack(built, module, self.folder / "packed")
        packed = programs.unpack(self.folder / "packed")
        self.assertEqual(names, sorted(path.name for path in packed.iterdir()))
        self.assertEqual(programs.unpack(packed), packed)  # no pack: a build
        self.assertLessEqual({"stasis", "libstasis.so.0", programs.MODULE}, set(names))
        self.assertTrue(any(name.startswith("libsentencepiece") for name in names), names)
        self.assertFalse([name for name in names if name.startswith(("libc.", "libm.", "ld-"))])
        self.assertEqual(programs.find_module(packed), packed / programs.MODULE)
        there = programs.Programs(packed, packed / programs.MODULE, ROOT, self.folder / "logs", 60,
                                  1)
        self.assertEqual(there.json("stasis", "info", WITHOUT_TOKENIZER, "--json")["device"], "cpu")
        listed = subprocess.run(["ldd", packed / "stasis"], env=there.env, capture_output=True,
                                text=True, check=True).stdout
        self.assertIn(f"libsentencepiece.so.0 => {packed}/", listed)
