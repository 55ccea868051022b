# The stages of tools/gpu_check, the most important first. Each line of the report runs separately:
# a failure becomes the line's reason, and the other lines continue. Knows the command's options and
# output.
import datetime
import glob
import os
import pathlib
import platform
import shutil
import sys
import traceback

import cases
import report
from programs import Problem, ending, last_line

FREE_BYTES = 8_000_000_000  # of memory for files, which two models and sessions fit into
PROMPT, REPLY = 300, 64


class Check:
    def __init__(self, programs, root, models, device, repetitions, save=lambda results: None):
        """`models`: directories by name, in place of those that `stasis synth` writes. `save` is
        called with the results after every change."""
        self.programs, self.root, self.save = programs, root, save
        self.models = {name: root / "tests/data" / name for name in report.MODELS
                       if name != report.LARGE} | models
        self.there, self.repetitions = ["--device", device], repetitions
        self.index = device.partition(":")[2] or "0"
        self.temporary, self.held = None, None
        self.results = report.blank()

    def attempt(self, line, work):
        """Does the work and stores a reason if it fails, for whatever cause."""
        try:
            work()
        except Problem as problem:
            self.results["problems"][line] = str(problem)
            print(f"gpu_check: {line}: {problem}", flush=True)
        except Exception as problem:  # a defect of this script, or unexpected output
            self.results["problems"][line] = f"{type(problem).__name__}: {problem}"
            traceback.print_exc(file=sys.stdout)
        self.save(self.results)

    def stages(self):
        """Each with the seconds that it is expected to need, of 540."""
        small = [model for model in report.MODELS if model != report.LARGE]
        wanted = [figure for figure in report.FIGURES if figure.target]
        others = [figure for figure in report.FIGURES if not figure.target]
        return [
            ("machine", 40, self.machine),
            ("ceilings", 50, self.ceilings),
            ("small models", 60, lambda: self.equality(small)),
            ("figures with a target", 170, lambda: self.figures(wanted)),
            ("test cases", 110, lambda: cases.Cases(self.programs, self.results,
                                                    self.attempt).run(report.TESTS)),
            ("large model", 60, lambda: self.equality([report.LARGE])),
            ("other figures", 50, lambda: self.figures(others)),
        ]

    def run(self):
        left = self.stages()
        while left:
            (name, seconds, work), *after = left
            self.programs.begin_stage(seconds / sum(stage[1] for stage in left))
            self.attempt(name, work)
            left = after
        return self.results

    def equality(self, models):
        for model in models:
            self.whole_model(model)
            self.profile(model)

    def figures(self, figures):
        for figure in figures:
            self.attempt(figure.name, lambda figure=figure: self.figure(figure))

    # --- the machine ---

    def machine(self):
        facts = self.results["run"]
        facts["host"] = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
        facts["date"] = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        self.attempt("held open", self.hold)
        self.attempt("driver", self.driver)
        self.attempt("clocks", self.clocks)
        self.attempt("module", self.module)

    def hold(self):
        """Else the driver starts the GPU anew for each process where nobody else keeps it up. In a
        container it may have another number than here."""
        first = f"/dev/nvidia{self.index}"
        for place in [first, *sorted(glob.glob("/dev/nvidia[0-9]*"))]:
            try:
                self.held = os.open(place, os.O_RDWR | os.O_CLOEXEC)
                self.results["run"]["held open"] = place
                return
            except OSError:
                continue
        self.results["run"]["held open"] = f"nothing: {first} cannot be opened"

    def ask_driver(self, *fields):
        out = self.programs.ok("nvidia-smi", f"--query-gpu={','.join(fields)}",
                               "--format=csv,noheader", f"--id={self.index}")
        parts = [part.strip() for part in out.split(",")]
        if len(parts) != len(fields):
            raise Problem("nvidia-smi: " + last_line(out))
        return parts

    def driver(self):
        parts = self.ask_driver("name", "driver_version", "memory.total")
        self.results["run"].update(zip(["device", "driver", "memory"], parts))

    def clocks(self):
        parts = self.ask_driver("persistence_mode", "clocks.sm", "clocks.max.sm", "clocks.mem",
                                "clocks.max.mem")
        self.results["run"]["persistence"] = parts[0]
        self.results["run"]["clocks"] = "{} of {}, memory {} of {}, before the run".format(
            *parts[1:])

    def module(self):
        """The library opens the device; the name of its kernels shows whether it is a GPU."""
        model = self.root / "tests/data/recall-gemma3"
        info = self.programs.json("stasis", "info", model, *self.there, "--json")
        if info["kernels"] != "cuda":
            self.results["run"]["device"] = f"none: kernels \"{info['kernels']}\""

    # --- ceilings ---

    def ceilings(self):
        try:
            self.measure_ceilings()
        except Exception as problem:
            self.results["problems"].update({name: str(problem) for name in report.CEILINGS})
            raise

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
        """A folder in memory, if it is large enough: files are not what is measured."""
        memory = pathlib.Path("/dev/shm")
        if self.temporary is None:
            room = memory.is_dir() and shutil.disk_usage(memory).free > size_bytes
            base = memory if room else pathlib.Path(os.environ.get("TMPDIR", "/tmp"))
            self.temporary = base / f"stasis-gpu-check-{os.getpid()}"
        self.temporary.mkdir(parents=True, exist_ok=True)
        self.programs.env["TMPDIR"] = str(self.temporary)
        return self.temporary

    def whole_model(self, name):
        """Each session begins on one device and continues on the other."""
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

        def file(end):
            return self.folder_for(FREE_BYTES) / f"{name}-profile{end}"

        def same():
            again = self.begin(self.model(name), file("-again"), there)
            self.judge(lines["profile_same"], again, self.begin(self.model(name), file(""), there),
                       ("once", "once more"))

        def kept():
            _, whole = self.begin(self.model(name), file("-whole"), there, 2 * REPLY)
            self.judge(lines["profile_kept"], whole, self.resume(self.model(name), file(""), there),
                       ("never saved", "saved and continued"))

        self.attempt(lines["profile_same"], same)
        self.attempt(lines["profile_kept"], kept)
        self.attempt(lines["profile_verified"],
                     lambda: self.verify(lines["profile_verified"], self.model(name), file(""),
                                         there))

    def begin(self, model, file, device, reply=REPLY):
        """A prompt and a drawn reply, saved: its tokens and digest."""
        words = self.programs.json("stasis", "info", model, "--json")["vocabulary"]
        tokens = ",".join(str(5 + 7919 * i % (words - 10)) for i in range(PROMPT))
        done = self.programs.json(
            "stasis", "run", model, "--tokens", tokens, "-n", reply, "--ignore-eos",
            "--temperature", 1, "--seed", 5, "--save", file, *device, "--json")
        return done["tokens"], done["digest"]

    def resume(self, model, file, device):
        """The digest after REPLY more tokens; the file is replaced."""
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
                kept = ("median", "min", "max", "unit", "ceiling", "share")
                self.results["figures"][figure.name] = {
                    **{key: result.get(key) for key in kept}, "rate": rate}
                if not report.known(rate):
                    raise Problem(f"stasis bench gives no rate of it: {rate}")
                return
        raise Problem(f"stasis bench has no {name} of this model")
