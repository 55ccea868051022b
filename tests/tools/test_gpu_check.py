# tools/gpu_check without a GPU: the report it writes, and that what goes wrong in one line of it
# leaves the others, with stand-ins for every program; the real command on the CPU and on the
# place-holder of a GPU (tests/device); the program that measures ceilings compiles, where there is
# nvcc.
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from stasis_process import ROOT, WITHOUT_TOKENIZER, CommandTest, command

sys.path.insert(0, str(ROOT / "tools/gpu"))
import programs  # the script's own, as it finds them
import report

SCRIPT = ROOT / "tools/gpu_check"
RESULTS = ROOT / "runtime/kernels/cuda/RESULTS.md"
STAND_IN = pathlib.Path(__file__).parent / "gpu_stand_in.py"
NAMES = [*programs.PROGRAMS, "nvidia-smi"]


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
                                             "`copy`, 2.00 TB/s", "75.0 %", "70 %", "yes"])
        self.assertEqual(rows["pp512"][3:], ["`fma_fp32`, 40.00 TFLOP/s", "25.0 %", "50 %", "NO"])
        self.assertEqual(rows["batch8@512"][4:], ["50.0 %", "none", ""])
        self.assertEqual(rows["save@16384"][4:], ["90.0 %", "80 %", "yes"])
        self.assertEqual(rows["load@16384"][4:], ["60.0 %", "80 %", "NO"])
        self.assertEqual(rows["profile"][2:], ["300 TFLOP/s", "`gemm_bf16_prefill`, 500 TFLOP/s",
                                               "60.0 %", "50 %", "yes"])
        text = self.out.read_text()
        self.assertNotIn(f"| {report.NOT_RUN} |", text)
        self.assertNotIn("DIFFERENT", text)
        self.assertEqual(text.count("| equal, abababab"), 6 + 6)
        self.assertEqual(text.count("| verified |"), 6 + 3)
        self.assertIn("| 1 passed, 1 failed, 1 skipped: exit code 1 |", text)
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
        for what, changed in (
                ("nvidia-smi", {"driver", "memory"}),
                ("gpu_ceilings", {*report.CEILINGS, "compute capability", "CUDA"}),
                ("stasis tg128@1024", {"tg128@1024"}),
                ("stasis llama3.2-1b", {"save@16384", "load@16384"}),
                ("stasis bench", {each.name for each in report.FIGURES})):
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
        for what, count in (("gpu", 6), ("profile", 6), ("resumed", 3)):
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

    def test_a_program_that_hangs_is_left(self):
        (self.build / "test_runtime").write_text("#!/bin/sh\nexec sleep 100\n")
        rows = self.run_all("--seconds", 2)
        self.assertIn("| test_runtime: not done after 2 s |", self.out.read_text())
        self.assertEqual(rows["tg128"][-1], "yes")

    def test_no_time_left(self):
        self.run_all("--minutes", 0)
        self.assertIn("not run: no time was left", self.out.read_text())

    def test_a_crash_keeps_the_cases_before_it(self):
        (self.build / "test_kernels").write_text(
            "#!/bin/sh\necho '0.1 s: device: a'\necho 'TEST CASE:  device: b'\n"
            "echo 'x.cpp(1): FATAL ERROR: test case CRASHED: SIGSEGV'\nkill -SEGV $$\n")
        self.run_all()
        text = self.out.read_text()
        self.assertIn("1 passed, 1 failed, 0 skipped: ended by SIGSEGV", text)
        self.assertIn("| `test_kernels` | device: b | FAILED |  |", text)

    def test_without_a_gpu_the_report_in_the_tree_is_left(self):
        before = RESULTS.read_bytes()
        (self.build / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
        (self.build / "gpu_ceilings").write_text("#!/bin/sh\nexit 9\n")
        done = self.script("--build", self.build, "--logs", self.folder / "logs", code=1,
                           TMPDIR=str(self.folder), PATH=f"{self.build}:{os.environ['PATH']}")
        self.assertIn("no GPU has run", done.stderr)
        self.assertEqual(RESULTS.read_bytes(), before)


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
                     "--device", device, "--repetitions", 1, "--seconds", 20, "--minutes", 0.7]
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
        packed = self.folder / "packed"
        module = built / "tests/device" / programs.MODULE
        names = programs.pack(built, module, packed)
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
