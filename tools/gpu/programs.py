# How tools/gpu_check runs programs: those of a build, found in its folder, with what the loader
# needs; how one ended, as an exception that says why; doctest's output as numbers. Knows no figure.
import glob
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

MODULE = "libstasis_cuda.so.0"
PROGRAMS = ["stasis", "test_kernels", "test_runtime", "gpu_ceilings"]
# What every Linux machine has, in its own version.
OF_THE_SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|cuda)\.so\..*)")


class Problem(Exception):
    """Why a line of the report has no result."""


def find_module(build):
    """The CUDA module of a build; the stand-in for tests does not count."""
    found = [path for path in sorted(build.rglob(MODULE)) if path.parent.name != "device"]
    if not found:
        raise Problem(f"{build} has no {MODULE}: was it built where there was no nvcc?")
    return found[0]


def cublas_folders():
    """Where cuBLASLt may lie, the loader's own places apart."""
    places = [f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/lib64"]
    for path in sys.path:
        places += sorted(glob.glob(f"{path}/nvidia/*/lib"))
    return [place for place in places if glob.glob(f"{place}/libcublasLt.so.*")]


def nvcc():
    places = [shutil.which("nvcc"), f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin/nvcc"]
    return next((place for place in places if place and os.path.exists(place)), None)


def compile_ceilings(source, target):
    """For every generation that the kernels are compiled for, and by the driver for others."""
    if nvcc() is None:
        raise Problem("there is no nvcc to compile tools/gpu/ceilings.cu with")
    codes = ["arch=compute_80,code=[sm_80,compute_80]", "arch=compute_90,code=sm_90",
             "arch=compute_100,code=sm_100"]
    done = subprocess.run(
        [nvcc(), "-std=c++17", "-O3", "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra",
         *(word for code in codes for word in ("-gencode", code)), source, "-o", target, "-ldl"],
        capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Problem("nvcc: " + last_line(done.stderr + done.stdout))


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


def ending(code):
    if code >= 0:
        return f"exit code {code}"
    return f"ended by {signal.Signals(-code).name}"


class Programs:
    """Runs them, each for so many seconds at most and all for so many minutes; what they printed
    is kept in a folder of logs."""

    def __init__(self, build, module, root, logs, seconds_max, minutes_max):
        self.build, self.logs, self.seconds_max = build, logs, seconds_max
        self.end = time.monotonic() + 60 * minutes_max
        self.libraries = [*([str(module.parent)] if module else []), str(build),
                          str(build / "abi"), *cublas_folders()]
        loader = [*self.libraries, os.environ.get("LD_LIBRARY_PATH", "")]
        self.env = dict(os.environ, LD_LIBRARY_PATH=":".join(filter(None, loader)),
                        STASIS_SOURCE_DIR=str(root),
                        CUDA_DEVICE_ORDER="PCI_BUS_ID")  # nvidia-smi's
        if module:
            self.env["STASIS_CUDA_MODULE"] = str(module)
        self.count = 0

    def ends(self, program, *arguments):
        """(exit code, stdout, stderr). Throws Problem where it does not start or end."""
        command = [str(self.build / program), *map(str, arguments)]
        seconds = min(self.seconds_max, self.end - time.monotonic())
        if seconds < 1:
            raise Problem("not run: no time was left")
        print("gpu_check:", program, *(str(each)[:60] for each in arguments), flush=True)
        self.count += 1
        start = time.monotonic()
        try:
            done = subprocess.run(command, env=self.env, capture_output=True, check=False,
                                  stdin=subprocess.DEVNULL, timeout=seconds)
        except OSError as problem:
            raise Problem(f"{program}: {problem.strerror}") from None
        except subprocess.TimeoutExpired as late:
            self.keep(program, command, late.stdout or b"", late.stderr or b"")
            raise Problem(f"{program}: not done after {seconds:.0f} s") from None
        self.keep(program, command, done.stdout, done.stderr)
        print(f"gpu_check: {ending(done.returncode)}, {time.monotonic() - start:.1f} s", flush=True)
        return (done.returncode, done.stdout.decode(errors="replace"),
                done.stderr.decode(errors="replace"))

    def keep(self, program, command, out, err):
        self.logs.mkdir(parents=True, exist_ok=True)
        log = self.logs / f"{self.count:02}-{program}.log"
        log.write_bytes(" ".join(command).encode() + b"\n" + out + b"\n" + err)

    def ok(self, program, *arguments):
        """stdout of one that is to succeed."""
        code, out, err = self.ends(program, *arguments)
        if code != 0:
            raise Problem(f"{program} {arguments[0] if arguments else ''}: {ending(code)}: "
                          f"{last_line(err or out)}")
        return out

    def json(self, program, *arguments):
        out = self.ok(program, *arguments)
        try:
            return json.loads(out)
        except ValueError:
            raise Problem(f"{program}: no JSON: {last_line(out)}") from None


def parse_doctest(out, code):
    """What a doctest program run with --duration printed: counts, and each case's outcome."""
    bad, cases, now = [], [], ""
    for line in out.splitlines():
        if line.startswith("TEST CASE:"):
            now = line.split(":", 1)[1].strip()
        elif ": ERROR: " in line or "FATAL ERROR: " in line:
            bad.append(now)
        elif found := re.fullmatch(r"(\d+\.\d+) s: (.*)", line):
            cases.append([found[2], "", f"{float(found[1]):.2f}"])
    skipped = [line for line in out.splitlines() if line.startswith("SKIPPED: ")]
    names = [case[0] for case in cases]  # the others did not come to an end
    cases += [[name, "", ""] for name in dict.fromkeys(bad) if name not in names]
    for case in cases:
        case[1] = ("FAILED" if case[0] in bad else
                   "skipped" if any(line.startswith(f"SKIPPED: {case[0]}:") for line in skipped)
                   else "passed")
    counts = {word: sum(case[1] == outcome for case in cases)
              for word, outcome in (("passed", "passed"), ("failed", "FAILED"),
                                    ("skipped", "skipped"))}
    problem = "" if code == 0 else ending(code)
    if code == 0 and not cases:
        problem = "no test case ran"
    return {**counts, "cases": cases}, problem


def pack(build, module, folder):
    """Copies what a run needs, stripped, with the shared libraries that another machine may lack,
    into one folder that --build names there."""
    folder.mkdir(parents=True, exist_ok=True)
    there = [build / program for program in PROGRAMS if (build / program).exists()]
    libraries = {"libstasis.so.0": build / "abi/libstasis.so.0", MODULE: module}
    for path in [*there, *libraries.values()]:
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        for name, place in re.findall(r"(\S+) => (/\S+)", listed):
            if not OF_THE_SYSTEM.fullmatch(name):
                libraries.setdefault(name, pathlib.Path(place))
    for name, path in [*((path.name, path) for path in there), *libraries.items()]:
        shutil.copy(path.resolve(), folder / name)
        subprocess.run(["strip", "--strip-debug", folder / name], check=True)
    return sorted(path.name for path in folder.iterdir())
