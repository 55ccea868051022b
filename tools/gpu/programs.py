# How tools/gpu_check runs programs: finds them in a build's folder with the libraries that the
# loader needs, and reports how each ended, as an exception with the reason. Must not know figures.
import atexit
import glob
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

MODULE = "libstasis_cuda.so.0"
PACK = "programs.tar.xz"
PROGRAMS = ["stasis", "test_kernels", "test_runtime", "gpu_ceilings"]
DEATH_SECONDS = 5  # of a process that was killed
# Libraries that every Linux machine has, in its own version.
OF_THE_SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|cuda)\.so\..*)")


class Problem(Exception):
    """The reason why a line of the report has no result."""


def find_module(build):
    """The CUDA module of a build; the stand-in for tests does not count."""
    found = [path for path in sorted(build.rglob(MODULE)) if path.parent.name != "device"]
    if not found:
        raise Problem(f"{build} has no {MODULE}: was it built where there was no nvcc?")
    return found[0]


def cublas_folders():
    """Places where cuBLASLt may be, apart from the loader's own."""
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
    """Runs them, from several threads too: each for so many seconds at most, all of a stage for its
    share of what is left of so many minutes. What they print goes straight to a folder of logs, so
    that it is there whatever happens, and is gathered in one file of it."""

    def __init__(self, build, module, root, logs, seconds_max, minutes_max):
        self.build, self.logs, self.seconds_max = build, logs, seconds_max
        self.end = self.stage_end = time.monotonic() + 60 * minutes_max
        self.libraries = [*([str(module.parent)] if module else []), str(build),
                          str(build / "abi"), *cublas_folders()]
        loader = [*self.libraries, os.environ.get("LD_LIBRARY_PATH", "")]
        self.env = dict(os.environ, LD_LIBRARY_PATH=":".join(filter(None, loader)),
                        STASIS_SOURCE_DIR=str(root),
                        CUDA_DEVICE_ORDER="PCI_BUS_ID")  # nvidia-smi's
        if module:
            self.env |= {"STASIS_CUDA_MODULE": str(module), "STASIS_DEVICE_TESTS": "module"}
        self.count, self.lock = 0, threading.Lock()

    def begin_stage(self, share):
        """The stages after it may use what it leaves of its share."""
        now = time.monotonic()
        self.stage_end = now + share * max(self.end - now, 0)

    def ends(self, program, *arguments):
        """(exit code, stdout, stderr). Throws Problem if it does not start or end."""
        code, out, err, seconds = self.partly(program, *arguments)
        if code is None:
            raise Problem(f"{program}: not done after {seconds:.0f} s")
        return code, out, err

    def partly(self, program, *arguments, seconds_max=math.inf, by_line=False):
        """The same, and the seconds that it had; if it did not end, no exit code and the output so
        far. By line: it keeps no line to itself until it has more of them."""
        seconds = min(seconds_max, self.seconds_max, self.stage_end - time.monotonic())
        if seconds < 1:
            raise Problem("not run: no time was left")
        own = str(self.build / program) if program in PROGRAMS else program
        lines = ["stdbuf", "-oL"] if by_line and shutil.which("stdbuf") else []
        command = [*lines, own, *map(str, arguments)]
        with self.lock:
            self.count += 1
            log = self.logs / f"{self.count:02}-{pathlib.Path(program).name}"
        print("gpu_check:", program, *(str(each)[:60] for each in arguments), flush=True)
        start = time.monotonic()
        code = self.wait(program, command, log, seconds)
        out, err = (pathlib.Path(f"{log}.{end}").read_bytes().decode(errors="replace")
                    for end in ("out", "err"))
        how = f"{'not done' if code is None else ending(code)}, {time.monotonic() - start:.1f} s"
        print(f"gpu_check: {program}: {how}", flush=True)
        with self.lock, open(self.logs / "all.log", "a", encoding="utf-8") as every:
            every.write(f"== {' '.join(command)}: {how}\n{out}\n{err}\n")
        return code, out, err, seconds

    def wait(self, program, command, log, seconds):
        """The exit code; None if it had to be killed. A process that hangs in a driver may not even
        die: it is left then."""
        self.logs.mkdir(parents=True, exist_ok=True)
        with open(f"{log}.out", "wb") as out, open(f"{log}.err", "wb") as err:
            try:
                process = subprocess.Popen(command, env=self.env, stdout=out, stderr=err,
                                           stdin=subprocess.DEVNULL, start_new_session=True)
            except OSError as problem:
                raise Problem(f"{program}: {problem.strerror}") from None
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                self.kill(process)

    def kill(self, process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(DEATH_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass

    def ok(self, program, *arguments):
        """stdout of a program that must succeed."""
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


def pack(build, module, folder):
    """Writes the files that a run needs, stripped, with the shared libraries that the target may
    lack, into a compressed file of a folder for --build on the target. Returns their names."""
    there = [build / program for program in PROGRAMS if (build / program).exists()]
    libraries = {"libstasis.so.0": build / "abi/libstasis.so.0", MODULE: module}
    for path in [*there, *libraries.values()]:
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        for name, place in re.findall(r"(\S+) => (/\S+)", listed):
            if not OF_THE_SYSTEM.fullmatch(name):
                libraries.setdefault(name, pathlib.Path(place))
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as stripped, tarfile.open(folder / PACK, "w:xz",
                                                                 preset=1) as packed:
        for name, path in [*((path.name, path) for path in there), *libraries.items()]:
            shutil.copy(path.resolve(), f"{stripped}/{name}")
            subprocess.run(["strip", "--strip-debug", f"{stripped}/{name}"], check=True)
            packed.add(f"{stripped}/{name}", name)
        return sorted(packed.getnames())


def unpack(build):
    """The folder of a build; of a packed one a temporary folder, which stays until the end."""
    if not (build / PACK).exists():
        return build
    folder = tempfile.mkdtemp(prefix="stasis-gpu-check-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with tarfile.open(build / PACK) as packed:
        packed.extractall(folder)
    return pathlib.Path(folder)
