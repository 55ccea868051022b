# The stages of tools/gpu_check, in order. Each line of the report is taken on its own: what goes
# wrong with one becomes its reason, and the others go on. Knows the command's options and output.
import datetime
import os
import pathlib
import platform
import shutil
import subprocess

import report
from programs import Problem, ending, last_line, parse_doctest

FREE_BYTES = 8_000_000_000  # of memory for files, which two models and sessions fit into
PROMPT, REPLY = 300, 64


class Check:
    def __init__(self, programs, root, models, device, repetitions):
        """`models`: directories by name, in place of those that `stasis synth` writes."""
        self.programs, self.root = programs, root
        self.models = {name: root / "tests/data" / name for name in report.MODELS
                       if name != report.LARGE} | models
        self.there, self.repetitions = ["--device", device], repetitions
        self.index = device.partition(":")[2] or "0"
        self.temporary = None
        self.results = report.blank()

    def attempt(self, line, work):
        """Does it; a reason where it does not succeed. False: that is what happened."""
        try:
            work()
            return True
        except Problem as problem:
            self.results["problems"][line] = str(problem)
            print(f"gpu_check: {line}: {problem}", flush=True)
            return False

    def run(self):
        self.machine()
        self.ceilings()
        self.tests()
        for model in report.MODELS:
            self.whole_model(model)
            self.profile(model)
        for figure in report.FIGURES:
            self.attempt(figure.name, lambda figure=figure: self.figure(figure))
        return self.results

    # --- the machine ---

    def machine(self):
        facts = self.results["run"]
        facts["host"] = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
        facts["date"] = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        self.attempt("driver", self.driver)
        self.attempt("module", self.module)

    def driver(self):
        fields = "name,driver_version,memory.total"
        try:
            done = subprocess.run(["nvidia-smi", f"--query-gpu={fields}",
                                   "--format=csv,noheader", f"--id={self.index}"],
                                  capture_output=True, text=True, check=False, timeout=60)
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise Problem(f"nvidia-smi: {getattr(problem, 'strerror', None) or 'it hangs'}") \
                from None
        parts = [part.strip() for part in done.stdout.split(",")]
        if done.returncode != 0 or len(parts) != 3:
            raise Problem("nvidia-smi: " + last_line(done.stderr or done.stdout))
        self.results["run"].update(zip(["device", "driver", "memory"], parts))

    def module(self):
        """The library opens the device; what it calls its kernels shows what is no GPU."""
        model = self.root / "tests/data/recall-gemma3"
        info = self.programs.json("stasis", "info", model, *self.there, "--json")
        if info["kernels"] != "cuda":
            self.results["run"]["device"] = f"none: kernels \"{info['kernels']}\""

    # --- ceilings ---

    def ceilings(self):
        self.attempt("ceilings", self.measure_ceilings)
        problem = self.results["problems"].get("ceilings")
        for name in report.CEILINGS if problem else []:
            self.results["problems"][name] = problem

    def measure_ceilings(self):
        found = self.programs.json("gpu_ceilings", self.index)
        facts = self.results["run"]
        device = found["device"]
        facts.setdefault("device", device["name"])
        facts.setdefault("memory", f"{device['memory_bytes'] >> 20} MiB")
        facts["compute capability"] = \
            f"{device['compute_capability']}, {device['multiprocessors']} multiprocessors"
        facts["CUDA"] = f"{device['cuda_driver']} (driver), {device['cuda_runtime']} (built with)"
        self.results["ceilings"] = found["ceilings"]
        self.results["problems"].update(found["problems"])

    # --- equality ---

    def tests(self):
        for program in report.TESTS:
            self.attempt(program, lambda program=program: self.test(program))

    def test(self, program):
        code, out, err = self.programs.ends(program, "--test-case=device*", "--duration=true")
        found, problem = parse_doctest(out, code)
        if found["cases"]:
            self.results["tests"][program] = found
        if problem:
            raise Problem(problem + ("" if found["cases"] else ": " + last_line(err or out)))

    def model(self, name):
        """The directory of a synthetic model, written when it is first asked for."""
        if name not in self.models:
            folder = self.folder_for(FREE_BYTES) / name
            try:
                self.programs.ok("stasis", "synth", name, folder)
            except Problem as problem:
                self.models[name] = problem
                raise
            self.models[name] = folder
        if isinstance(self.models[name], Problem):
            raise self.models[name]
        return self.models[name]

    def folder_for(self, size_bytes):
        """In memory, if there is so much of it: files are not what is measured."""
        memory = pathlib.Path("/dev/shm")
        if self.temporary is None:
            room = memory.is_dir() and shutil.disk_usage(memory).free > size_bytes
            base = memory if room else pathlib.Path(os.environ.get("TMPDIR", "/tmp"))
            self.temporary = base / f"stasis-gpu-check-{os.getpid()}"
        self.temporary.mkdir(parents=True, exist_ok=True)
        self.programs.env["TMPDIR"] = str(self.temporary)
        return self.temporary

    def whole_model(self, name):
        """Each session begins on one side and goes on on the other."""
        lines = {key: f"{name} {key}" for key in report.MODEL_LINES}
        ends = {}

        def same():
            model, files = self.model(name), self.folder_for(FREE_BYTES)
            here = self.begin(model, files / f"{name}-cpu", [])
            there = self.begin(model, files / f"{name}-gpu", self.there)
            self.judge(lines["same"], here, there)

        def cross(key, side, there, back):
            model, file = self.model(name), self.folder_for(FREE_BYTES) / f"{name}-{side}"
            ends[key] = self.resume(model, file, there)
            self.verify(lines[key], model, file, back)

        def joined():
            if len(ends) < 2:
                raise Problem("one of them has none")
            self.judge(lines["joined"], *ends.values())

        self.attempt(lines["same"], same)
        self.attempt(lines["to_gpu"], lambda: cross("to_gpu", "cpu", self.there, []))
        self.attempt(lines["to_cpu"], lambda: cross("to_cpu", "gpu", [], self.there))
        self.attempt(lines["joined"], joined)

    def profile(self, name):
        """The same under the device profile: promised from one run to another, not to the CPU."""
        lines = {key: f"{name} {key}" for key in report.PROFILE_LINES}
        there = [*self.there, "--profile", "device"]
        file = self.folder_for(FREE_BYTES) / f"{name}-profile"

        def same():
            again = self.begin(self.model(name), file.with_suffix(".again"), there)
            self.judge(lines["profile_same"], again, self.begin(self.model(name), file, there),
                       ("once", "once more"))

        def kept():
            _, whole = self.begin(self.model(name), file.with_suffix(".whole"), there, 2 * REPLY)
            self.judge(lines["profile_kept"], whole, self.resume(self.model(name), file, there),
                       ("never saved", "saved and continued"))

        self.attempt(lines["profile_same"], same)
        self.attempt(lines["profile_kept"], kept)
        self.attempt(lines["profile_verified"],
                     lambda: self.verify(lines["profile_verified"], self.model(name), file, there))

    def begin(self, model, file, device, reply=REPLY):
        """A prompt and a drawn reply, saved: its tokens and digest."""
        words = self.programs.json("stasis", "info", model, "--json")["vocabulary"]
        tokens = ",".join(str(5 + 7919 * i % (words - 10)) for i in range(PROMPT))
        done = self.programs.json(
            "stasis", "run", model, "--tokens", tokens, "-n", reply, "--ignore-eos",
            "--temperature", 1, "--seed", 5, "--save", file, *device, "--json")
        return done["tokens"], done["digest"]

    def resume(self, model, file, device):
        """The digest after as many tokens more; the file is replaced."""
        return self.programs.json("stasis", "run", model, "--resume", file, "-n", REPLY,
                                  "--ignore-eos", "--save", file, *device, "--json")["digest"]

    def verify(self, line, model, file, device):
        code, out, err = self.programs.ends("stasis", "verify", file, model, *device)
        if code != 0:
            raise Problem(f"verify: {ending(code)}: {last_line(err or out)}")
        self.results["models"][line] = "verified"

    def judge(self, line, here, there, sides=("on the CPU", "on the GPU")):
        if here != there:
            self.results["models"][line] = "DIFFERENT"
            raise Problem(f"DIFFERENT: {here} {sides[0]}, {there} {sides[1]}")
        digest = here if isinstance(here, str) else here[1]
        self.results["models"][line] = f"equal, {digest[:16]}"

    # --- figures ---

    def figure(self, figure):
        name, there = figure.name, self.there
        if name == "profile":
            name, there = "pp512", [*there, "--profile", "device"]
        task = "batch@512" if name.startswith("batch") else name
        model = self.model(figure.model)
        self.folder_for(FREE_BYTES)
        found = self.programs.json("stasis", "bench", model, *there, "--only", task,
                                   "--repetitions", self.repetitions, "--json")
        for result in found["results"]:
            if result["name"] == name:
                rate = result.get("bytes_per_s", result.get("flops"))
                self.results["figures"][figure.name] = {
                    **{key: result[key] for key in ("median", "min", "max", "unit")}, "rate": rate}
                return
        raise Problem(f"stasis bench has no {name} of this model")
