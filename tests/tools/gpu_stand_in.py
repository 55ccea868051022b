#!/usr/bin/env -S python3 -S
# Stands in for each program that tools/gpu_check runs, by the name it is called by, with figures
# that are easy to reckon with. STAND_IN_BROKEN names what fails, as "NAME WORD": the program and a
# word of its arguments; STAND_IN_HANGS what does not end, and STAND_IN_ODD what prints other JSON
# than is asked for. STAND_IN_RATE: of each figure, as JSON; "none": there is none.
import json
import os
import pathlib
import shutil
import sys
import time

GPU, PROFILE = "cuda" in sys.argv or "cuda:1" in sys.argv, "--profile" in sys.argv
DIGEST = "ab" * 32
BENCH = {  # name: unit, key of the rate, rate
    "tg128": ("tokens/s", "bytes_per_s", 1.5e12), "tg128@1024": ("tokens/s", "bytes_per_s", 1e12),
    "batch8@512": ("tokens/s", "bytes_per_s", 1e12), "pp512": ("tokens/s", "flops", 1e13),
    "save": ("ms", "bytes_per_s", 1e9), "load": ("ms", "bytes_per_s", 1e9),
    "save@16384": ("ms", "bytes_per_s", 4.5e10), "load@16384": ("ms", "bytes_per_s", 3e10),
    "open": ("ms", "bytes_per_s", 1e9)}
CEILINGS = {"copy": 2e12, "read": 1.8e12, "fma_fp32": 4e13, "to_device": 5e10, "to_host": 5e10,
            "gemm_bf16_prefill": 5e14}
LIST = """<?xml version="1.0" encoding="UTF-8"?>
<doctest binary="a" version="2.4.9">
  <TestCase name="device grid: on the host" filename="../tests/device_grid_test.cpp"/>
  <TestCase name="device: norms equal the reference" filename="../tests/device_a_test.cpp"/>
  <TestCase name="device: products equal the reference" filename="../tests/device_a_test.cpp"/>
  <TestCase name="device: two at once" filename="../tests/device_a_test.cpp"/>
  <TestCase name="device: another file's" filename="../tests/device_b_test.cpp"/>
</doctest>
"""
TESTS = """[doctest] doctest version is "2.4.9"
0.250000 s: device: norms equal the reference
===============================================================================
a_test.cpp(12):
TEST CASE:  device: products equal the reference

a_test.cpp(20): ERROR: CHECK( a == b ) is NOT correct!
  values: CHECK( 1 == 2 )

1.500000 s: device: products equal the reference
SKIPPED: device: two at once: there is one
0.000001 s: device: two at once
[doctest] test cases:  3 |  2 passed | 1 failed | 9 skipped
"""


def meant(variable, name):
    program, _, word = os.environ.get(variable, "").partition(" ")
    return program == name and (not word or any(word in text for text in sys.argv[1:]))


def stasis(verb, *words):
    if verb == "synth":
        pathlib.Path(words[1]).mkdir(parents=True)
    elif verb == "info":
        print(json.dumps({"kernels": "cuda" if GPU else "avx2", "vocabulary": 32000}))
    elif verb == "run":
        differs = {"gpu": GPU and not PROFILE, "profile": PROFILE,
                   "resumed": PROFILE and "--resume" in words}
        other = differs.get(os.environ.get("STAND_IN_DIFFERS"))
        pathlib.Path(words[words.index("--save") + 1]).write_text("a session")
        print(json.dumps({"tokens": [1, 2], "digest": os.urandom(32).hex() if other else DIGEST}))
    elif verb == "bench":
        name = words[words.index("--only") + 1].replace("batch@", "batch8@")
        unit, key, rate = BENCH[name]
        given = os.environ.get("STAND_IN_RATE", str(3e14 if PROFILE else rate))
        found = {} if given == "none" else {key: json.loads(given)}
        print(json.dumps({"results": [
            {"name": "another"},
            {"name": name, "median": 100.0, "min": 99.0, "max": 101.5, "unit": unit, **found,
             "ceiling": "file_new" if name == "save@16384" else None,
             "share": 0.875 if name == "save@16384" else None}]}))


def main():
    name = pathlib.Path(sys.argv[0]).name
    if meant("STAND_IN_BROKEN", name):
        print("it is broken", file=sys.stderr)
        sys.exit(1)
    if meant("STAND_IN_HANGS", name):
        time.sleep(100)
    if meant("STAND_IN_ODD", name):
        print("[]")
        sys.exit()
    if name == "nvidia-smi":
        name = "Some GPU" if "--id=0" in sys.argv else "Another GPU"
        asked = next(text for text in sys.argv if text.startswith("--query-gpu"))
        print("Enabled, 345 MHz, 1980 MHz, 2619 MHz, 2619 MHz" if "clocks" in asked
              else f"{name}, 999.1, 81559 MiB")
    elif name == "gpu_ceilings":
        device = {"name": "Some GPU", "compute_capability": "9." + sys.argv[1],
                  "multiprocessors": 132, "memory_bytes": 85 << 30, "l2_bytes": 1,
                  "cuda_driver": "13.0", "cuda_runtime": "13.0"}
        print(json.dumps({"device": device, "problems": {"gemm_bf16_8192": "status 15"},
                          "ceilings": {key: {"value": value, "how": "so | so"}
                                       for key, value in CEILINGS.items()}}))
    elif name == "stasis":
        assert not PROFILE or "--device cuda --profile device" in " ".join(sys.argv)
        stasis(*sys.argv[1:])
    else:
        assert os.environ["STASIS_CUDA_MODULE"].endswith("libstasis_cuda.so.0")
        assert (pathlib.Path(os.environ["STASIS_SOURCE_DIR"]) / "tests/data").is_dir()
        assert os.environ["STASIS_DEVICE_TESTS"] == "module"
        if "--list-test-cases" in sys.argv:
            print(LIST)
            return
        assert os.environ.get("_STDBUF_O") == "L" or not shutil.which("stdbuf")
        if "--source-file=*/device_b_test.cpp" in sys.argv:
            print("0.5 s: device: another file's")
        else:
            print(TESTS)
            sys.exit(1)


main()
