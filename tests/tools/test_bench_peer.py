# tools/bench_peer without llama.cpp: stand-ins for both programs and for /proc/stat.
import collections
import contextlib
import io
import json
import os
import struct
import subprocess
import sys
from unittest import mock

from stasis_process import CommandTest, DATA, GEMMA, LLAMA, ROOT

sys.path.insert(0, str(ROOT / "tools/peer"))
import compare  # the script's own, as it finds it
import gguf
import quiet

# Logs each turn with how it was called, and answers with what the test has listed for turns of this
# name, one after the other.
STAND_IN = """#!/usr/bin/env python3
import json, os, pathlib, sys
folder, words = pathlib.Path(__file__).parent, sys.argv[1:]
if words[0] == "info":
    print(json.dumps({"context": 2048}))
    sys.exit()
name = "stasis" if words[0] == "bench" else words[2]
for line in sys.stdin:
    with open(folder / "log", "a+") as log:
        log.seek(0)
        before = [json.loads(line)[0] for line in log].count(name)
        log.write(json.dumps([name, words, line.strip(), os.getpid()]) + "\\n")
    value = json.loads((folder / "values").read_text())[name][before]
    if value is None:
        sys.exit("it broke")
    if name == "stasis":
        result = {"name": line.strip(), "median": value[0], "min": value[0], "max": value[0],
                  "unit": "tokens/s", "bytes_per_s": 1e9 * value[0], "ceiling": "read",
                  "ceiling_rate": 1e9 * value[0] / value[1], "share": value[1]}
        value = {"machine": "Some CPU, 2 cores", "kernels": "amx", "model": words[1],
                 "results": [result]}
    print(json.dumps(value), flush=True)
"""
# Prints one line of `handovers` after the other.
HANDOVER = """#!/usr/bin/env python3
import pathlib
path = pathlib.Path(__file__).parent / "handovers"
first, rest = path.read_text().split("\\n", 1)
path.write_text(rest)
print(first)
"""
VALUES = {"stasis": [[30, 0.5], [40, 0.8], [36, 0.6]], "0": [20, 20, 21], "1": [25, 16, 24]}


class StandInStat:
    """Takes the place of quiet.now, which is called before and after an interval: each lasts a
    second on two processors, one of which this process uses. `loads` lists (others, stolen) of one
    interval after the other, and of all that follow what `after` says.
    """

    def __init__(self, loads=(), after=(0, 0)):
        self.loads, self.after, self.calls = collections.deque(loads), after, 0
        self.moment = quiet.Moment(1000.0, 500.0, 10.0, 3.0)

    def __call__(self):
        self.calls += 1
        if self.calls % 2 == 0:
            others, stolen = self.loads.popleft() if self.loads else self.after
            was = self.moment
            self.moment = quiet.Moment(was.total + 2, was.working + 1 + 2 * others,
                                       was.stolen + 2 * stolen, was.own + 1)
        return self.moment


class Peer(CommandTest):
    def setUp(self):
        super().setUp()
        programs = {"stasis": STAND_IN, "speed": STAND_IN, "handover": HANDOVER}
        for name, text in programs.items():
            program = self.folder / name
            program.write_text(text, encoding="utf-8")
            program.chmod(0o755)
        (self.folder / "model.gguf").touch()
        (self.folder / "log").touch()
        self.values(VALUES)

    def values(self, values):
        (self.folder / "values").write_text(json.dumps(values), encoding="utf-8")

    def compare(self, *options, stat=None, repetitions=3):
        """Returns (exit status or message, stdout, pauses) of a comparison of one figure."""
        words = ["compare.py", self.path("model.gguf"), "--threads", "2", "--only", "tg128",
                 "--repetitions", str(repetitions), "--stasis", self.path("stasis"), "--peer",
                 self.path("speed"), "--version", "llama_cpp_python-1.2.3", "--commit", "c0ffee",
                 "--cache", str(self.folder), *options]
        out, code = io.StringIO(), 0
        with mock.patch.object(quiet, "now", stat or StandInStat()), \
                mock.patch.object(quiet.time, "sleep") as sleep, \
                mock.patch.object(sys, "argv", words), contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(io.StringIO()):
            try:
                compare.main()
            except SystemExit as end:
                code = end.code
        return code, out.getvalue(), sleep.call_args_list.count(mock.call(quiet.PAUSE_SECONDS))

    def calls(self):
        return [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]

    def order(self):
        return [name for name, *_ in self.calls()]

    def test_programs_take_turns_within_each_repetition(self):
        self.assertEqual(self.compare()[0], 0)
        self.assertEqual(self.order(), ["stasis", "0", "1", "1", "0", "stasis", "stasis", "0", "1"])
        model = self.path("model.gguf")
        for name, words, line, _ in self.calls():
            if name == "stasis":
                self.assertEqual(words, ["bench", model, "--turns", "--repetitions", "1",
                                         "--threads", "2"])
            else:
                self.assertEqual(words, [model, "2", name])
            self.assertEqual(line, "tg128" if name == "stasis" else "0 128 0")

    def test_a_model_stays_open_for_all_figures(self):
        self.values({name: 3 * values for name, values in VALUES.items()})
        self.assertEqual(self.compare("--only", "tg128,pp512,tg128@1024", repetitions=1)[0], 0)
        self.assertEqual([line for name, _, line, _ in self.calls() if name != "1"],
                         ["tg128", "0 128 0", "pp512", "512 0 0", "tg128@1024", "0 128 1024"])
        self.assertEqual(len({process for *_, process in self.calls()}), 3)
        code, text, _ = self.compare("--only", "tg128@4096", repetitions=1)
        self.assertEqual((code, text), ("bench_peer: nothing to measure", ""))

    def test_a_program_that_ends(self):
        for name in VALUES:
            (self.folder / "log").write_text("")
            self.values({**VALUES, name: [None]})
            code, text, _ = self.compare()
            self.assertEqual(text, "")
            program = self.path("stasis" if name == "stasis" else "speed")
            self.assertEqual(code, f"bench_peer: {program} ended with 1:\nit broke\n")

    def test_copied_weights(self):
        self.assertEqual(self.compare("--copy-weights", repetitions=1)[0], 0)
        self.assertEqual([name for name, words, *_ in self.calls() if "--copy-weights" in words],
                         ["stasis"])

    def test_table(self):
        """Ratios are paired by repetition, to the mode of the greater median; shares are too."""
        stat = StandInStat([(0, 0), (0.01, 0.002), (0.02, 0), (0, 0.001),
                            (0, 0), (0, 0), (0, 0.02), (0, 0)])
        code, text, _ = self.compare(stat=stat)
        self.assertEqual(code, 0)
        lines = text.split("\n")
        for part in "Some CPU, 2 cores", "stasis c0ffee", "amx", "llama_cpp_python-1.2.3":
            self.assertIn(part, lines[0])
        self.assertRegex(lines[0], r" 20\d\d-\d\d-\d\d;")
        self.assertIn("Repetitions: 3,", lines[1])
        self.assertIn(" 0.0-2.0 % was stolen and other work took 0.0-2.0 %.", lines[2])
        self.assertEqual(lines[3], "")
        self.assertIn("| llama.cpp | llama.cpp, flash attention |", lines[4])
        self.assertEqual({line.count("|") for line in lines[4:7]}, {10})
        # 30 / 25, 40 / 16 and 36 / 24, where medians alone would give 36 / 24 as well, the better
        # of each repetition 40 / 20, and mode 0 36 / 21.
        self.assertEqual(lines[6:], [
            "| model | 2 | tg128 | 36.0 (30.0-40.0) | 20.0 (20.0-21.0) | 24.0 (16.0-25.0) | "
            "1.50 (1.20-2.50) | 60 % of read |  |", "",
            "Ceilings beside the repetitions: read with 2 threads 50.0-60.0 GB/s.", ""])

    def test_median_of_paired_ratios_is_not_the_ratio_of_medians(self):
        self.values({"stasis": [[10, 0.5], [20, 0.5], [30, 0.5]], "0": [10, 40, 20],
                     "1": [1, 1, 1]})
        row = self.compare()[1].split("\n")[6]
        self.assertIn("| 20.0 (10.0-30.0) | 20.0 (10.0-40.0) | 1.0 (1.0-1.0) | 1.00 (0.50-1.50) |",
                      row)
        self.values({"stasis": [[10, 0.5], [20, 0.5], [30, 0.5]], "0": [5, 20, 20],
                     "1": [1, 1, 1]})
        (self.folder / "log").write_text("")
        self.assertIn("| 1.50 (1.00-2.00) |", self.compare()[1])

    def test_a_disturbed_repetition_is_repeated(self):
        self.values({"stasis": [[99, 0.9], [30, 0.5]], "0": [20], "1": [25, 26]})
        # Busy before the first attempt; beside the first program of the second; never again.
        code, text, pauses = self.compare(stat=StandInStat([(0.06, 0), (0, 0), (0.01, 0.05)]),
                                          repetitions=1)
        self.assertEqual((code, pauses), (0, 2))
        self.assertEqual(self.order(), ["stasis", "stasis", "0", "1"])
        self.assertIn("| 30.0 (30.0-30.0) |", text)
        self.assertIn(" 0.0-0.0 % was stolen and other work took 0.0-0.0 %.", text)
        self.assertNotIn("Warning", text)

    def test_a_busy_machine_is_refused(self):
        code, text, pauses = self.compare(stat=StandInStat(after=(0.4, 0.02)))
        self.assertEqual((text, self.order(), pauses), ("", [], quiet.ATTEMPTS - 1))
        self.assertRegex(code, r"\Abench_peer: .* tg128 of model: other work 40.0 %, stolen 2.0 %")
        self.assertIn("up to 5 % is accepted", code)
        # As is one that is busy only beside the last program.
        self.values({name: 4 * values for name, values in VALUES.items()})
        stat = StandInStat([(0, 0), (0, 0), (0, 0), (0, 0.06)] + 3 * [(0, 0), (0, 0.06)])
        code, text, _ = self.compare(stat=stat)
        self.assertEqual((text, self.order()), ("", ["stasis", "0"] + quiet.ATTEMPTS * ["1"]))
        self.assertIn("other work 0.0 %, stolen 6.0 %", code)

    def test_a_refusal_ends_with_1(self):
        """In a process, where all that is left of the stand-ins is a limit that nothing meets."""
        script = ("import sys; sys.path.insert(0, sys.argv.pop(1)); import compare, quiet; "
                  "quiet.LIMIT, quiet.PAUSE_SECONDS = -1, 0; compare.main()")
        done = subprocess.run(
            [sys.executable, "-c", script, str(ROOT / "tools/peer"), self.path("model.gguf"),
             "--stasis", self.path("stasis"), "--peer", self.path("speed"), "--version", "1",
             "--commit", "c0ffee", "--cache", str(self.folder)],
            capture_output=True, check=False, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertIn(b"bench_peer: the machine is too busy to measure", done.stderr)

    def test_rows_in_a_file_are_not_measured_again(self):
        rows = ("--rows", self.path("rows"))
        code, first, _ = self.compare(*rows)
        self.assertEqual((code, len(self.calls())), (0, 9))
        self.assertEqual(self.compare(*rows)[:2], (0, first))
        self.assertEqual(len(self.calls()), 9)
        # Others are put behind them: of one thread, and of copied weights.
        self.values({name: 3 * values for name, values in VALUES.items()})
        code, text, _ = self.compare(*rows, "--threads", "1,2")
        self.assertEqual((code, len(self.calls())), (0, 18))
        self.assertEqual([line[:12] for line in text.split("\n")[6:8]],
                         ["| model | 2 ", "| model | 1 "])
        code, text, _ = self.compare(*rows, "--copy-weights", repetitions=1)
        self.assertEqual((code, len(self.calls())), (0, 21))
        self.assertIn("\n| model, copied | 2 | tg128 |", text)
        self.assertIn("Repetitions: 1-3,", text)

    def test_a_busy_machine_leaves_rows_for_the_next_call(self):
        rows = ("--rows", self.path("rows"))
        # The first row finds the machine busy in all attempts, the second does not.
        stat = StandInStat(quiet.ATTEMPTS * [(0.4, 0)])
        code, text, _ = self.compare(*rows, "--threads", "1,2", stat=stat)
        self.assertEqual(code, "bench_peer: 1 rows are left: the same command measures them")
        self.assertEqual([line[:12] for line in text.split("\n")[6:8]], ["| model | 2 ", ""])
        self.values({name: 2 * values for name, values in VALUES.items()})
        code, text, _ = self.compare(*rows, "--threads", "1,2")
        self.assertEqual(code, 0)
        self.assertEqual([line[:12] for line in text.split("\n")[6:8]],
                         ["| model | 2 ", "| model | 1 "])

    def test_rows_that_do_not_belong_together(self):
        rows = ("--rows", self.path("rows"))
        path = self.folder / "rows"
        self.assertEqual(self.compare(*rows)[0], 0)
        line = path.read_text()
        self.values({name: 4 * values for name, values in VALUES.items()})
        code, text, _ = self.compare(*rows, "--threads", "1", "--flash", "0")
        self.assertEqual(text, "")
        self.assertIn("rows of another choice of --flash: [0, 1] in place of [0]", code)
        calls = len(self.calls())
        for was, other, part in (
                ("c0ffee", "facade", "commit: facade in place of c0ffee"),
                ("Some CPU", "Another CPU", "machine: Another CPU, 2 cores in place of Some CPU"),
                ("1.2.3", "1.2.4", "llama.cpp: llama_cpp_python-1.2.4 in place of "
                                   "llama_cpp_python-1.2.3")):
            path.write_text(line.replace(was, other))
            self.values({name: 20 * values for name, values in VALUES.items()})
            code, text, _ = self.compare(*rows, "--threads", "1")
            self.assertEqual((text, path.read_text()), ("", line.replace(was, other)))
            self.assertIn(f"rows of another {part}", code)
            # The programs are known before anything is measured.
            self.assertEqual(len(self.calls()) - calls, 9 if was == "Some CPU" else 0)
            calls = len(self.calls())
        for wrong in ("{", "3", "{}", line[:90], line.replace('"peers"', '"others"'),
                      '{"model": "m", "threads": 1, "figure": "f", "date": "d", '
                      '"commit": "c", "peer": "p", "repetitions": []}'):
            path.write_text(line + wrong.strip() + "\n")
            code, text, _ = self.compare(*rows, "--threads", "1")
            self.assertEqual((text, code), ("", f"bench_peer: {path}, line 2: this is not a row"))

    def test_allow_busy(self):
        code, text, pauses = self.compare("--allow-busy", stat=StandInStat(7 * [(0.4, 0.02)]))
        self.assertEqual((code, pauses), (0, quiet.ATTEMPTS - 1))
        lines = text.split("\n")
        self.assertEqual(lines[3], "**Warning: the machine was busy in 1 of 3 repetitions.**")
        self.assertEqual(lines[4], "")
        self.assertTrue(lines[7].startswith("| model | 2 | tg128 | 36.0 "), lines[7])

    def handovers(self, *values, threads=2, repetitions=1):
        """Returns (exit status or message, table) while they are measured, one after the other."""
        self.values({"stasis": [[value, 0.5] for value in range(100, 120)],
                     "0": list(range(10, 30)), "1": list(range(10, 30))})
        (self.folder / "handovers").write_text("".join(f"{value}\n" for value in values))
        code, text, _ = self.compare("--handover", self.path("handover"), "--threads",
                                     str(threads), repetitions=repetitions)
        return code, text

    def test_a_run_in_which_the_processors_moved_does_not_count(self):
        # They moved beside the first llama.cpp: all three run where they are now.
        code, text = self.handovers(65, 70, 310, 315, 300, 310)
        self.assertEqual((code, self.order()), (0, ["stasis", "0", "stasis", "0", "1"]))
        self.assertIn("| 101.0 (101.0-101.0) | 11.0 (11.0-11.0) | 10.0 (10.0-10.0) |", text)
        self.assertIn("| 310 (310-310) |", text)

    def test_runs_of_one_place_belong_together(self):
        # They moved, and back beside the second run of stasis: the first one's counts.
        code, text = self.handovers(65, 66, 310, 64, 63, 65)
        self.assertEqual((code, self.order()), (0, ["stasis", "0", "stasis", "0", "1"]))
        self.assertIn("| 100.0 (100.0-100.0) | 11.0 (11.0-11.0) | 10.0 (10.0-10.0) |", text)
        self.assertIn("| 65 (65-65) |", text)

    def test_what_is_left_over_serves_the_next_repetition(self):
        # Stasis at 65, all three at 310, and the two others when the processors are back.
        code, text = self.handovers(65, 65, 310, 310, 310, 310, 65, 65, 65, repetitions=2)
        self.assertEqual((code, self.order()),
                         (0, ["stasis", "0", "stasis", "0", "1", "1", "0"]))
        self.assertIn("| 100.5 (100.0-101.0) | 11.5 (11.0-12.0) | 10.5 (10.0-11.0) |", text)
        self.assertIn("| 188 (65-310) |", text)

    def test_processors_that_move_always_are_refused(self):
        code, text = self.handovers(*(20 * [65, 310]))
        self.assertEqual((text, len(self.order())), ("", 3 * quiet.RUNS))
        self.assertIn("the hypervisor moved the processors too often", code)
        self.assertIn("in 65, 310 ns", code)

    def test_one_thread_does_not_ask_where_processors_are(self):
        code, text = self.handovers(threads=1)
        self.assertEqual((code, self.order()), (0, ["stasis", "0", "1"]))
        self.assertIn("% of read |  |", text)

    def test_handover(self):
        """The program itself, on all processors and on one."""
        program = self.path("measured")
        subprocess.run(["cc", "-O2", "-pthread", ROOT / "tools/peer/handover.c", "-o", program],
                       check=True, timeout=60)
        allowed = os.sched_getaffinity(0)
        for cpus in allowed, {min(allowed)}:
            done = subprocess.run([program], capture_output=True, check=True, timeout=60,
                                  preexec_fn=lambda cpus=cpus: os.sched_setaffinity(0, cpus))
            self.assertEqual(int(done.stdout) > 0, len(cpus) > 1)

    def test_processor_time(self):
        text = "cpu  100 20 30 1000 50 6 4 90 70 60\ncpu0 1 1 1 1 1 1 1 1 1 1\nintr 5\n"
        with mock.patch.object(os, "sysconf", return_value=100):
            total, working, stolen = quiet.times_of(text)
        self.assertAlmostEqual(total, 13.0)
        self.assertAlmostEqual(working, 1.6)
        self.assertAlmostEqual(stolen, 0.9)
        load = quiet.load_between(quiet.Moment(10, 5, 1, 2), quiet.Moment(20, 11, 2, 6))
        self.assertEqual(load, (0.2, 0.1))
        self.assertEqual(quiet.load_between(quiet.Moment(9, 1, 1, 1), quiet.Moment(10, 2, 1, 3)),
                         (0.0, 0.0))  # ticks are coarser than what a process uses
        self.assertEqual(quiet.load_between(*2 * [quiet.Moment(9, 1, 1, 1)]), (0.0, 0.0))

    def test_processor_time_of_children_is_the_benchmarks_own(self):
        """Of one that is running, whatever its name, and of one that has ended."""
        script = ("import pathlib, sys, time\n"
                  "pathlib.Path('/proc/self/comm').write_text('a) S 1 (')\n"
                  "while time.process_time() < 0.2: pass\nprint(flush=True)\nsys.stdin.read()")
        before = quiet.now()
        with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as running:
            running.stdout.readline()
            after = quiet.now()
        self.assertGreaterEqual(after.own - before.own, 0.19)
        self.assertLess(after.own - before.own, 2)
        before = quiet.now()
        subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.2: pass"],
                       check=True, timeout=60)
        after = quiet.now()
        self.assertGreaterEqual(after.own - before.own, 0.19)
        self.assertGreater(after.total, before.total)

    def test_figures_that_fit(self):
        self.assertEqual(compare.figures_of(2048), ["pp512", "tg128", "tg128@1024"])
        self.assertEqual(compare.figures_of(131072)[-1], "tg128@16384")

    def test_the_peers_file(self):
        """Every tensor is there: in the order of names, a header, then matrices as they were."""
        for model in GEMMA, LLAMA, DATA / "zoo/gemma3-multimodal-prefix":
            path = self.folder / "peer.gguf"
            gguf.write(model, path)
            self.assertEqual(path.stat().st_size % gguf.ALIGNMENT, 0)
            content = path.read_bytes()
            self.assertEqual(content[:4], b"GGUF")
            version, tensors = struct.unpack_from("<IQ", content, 4)
            there = list(gguf.tensors_of(model))
            self.assertEqual((version, tensors), (3, len(there)))
            end = len(content)
            for name, shape, source, offset, size in reversed(there):
                stored = 2 * size if len(shape) == 1 else size
                end -= gguf.padded(stored)
                self.assertIn(gguf.peer_name(name, "gemma" in model.name).encode(), content[:end])
                weights = source.read_bytes()[offset:offset + size]
                if len(shape) == 2:
                    self.assertEqual(content[end:end + size], weights)
                else:
                    first = struct.unpack("<f", b"\0\0" + weights[:2])[0]
                    self.assertEqual(struct.unpack_from("<f", content, end)[0],
                                     struct.unpack("<f", struct.pack(
                                         "<f", first + ("gemma" in model.name)))[0])
