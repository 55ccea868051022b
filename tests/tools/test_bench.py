# stasis bench: what it prints, not how fast anything is. And the table that tools/bench_peer makes.
import json
import signal
import struct
import subprocess
import sys
import time

from stasis_process import CommandTest, DATA, GEMMA, LLAMA, ROOT, command

sys.path.insert(0, str(ROOT / "tools/peer"))
import compare  # the script's own, as it finds it
import gguf

KEYS = ["model", "kernels", "device", "profile", "threads", "machine", "ceilings", "results"]
RATES = {"bytes_per_s", "flops"}
BATCHES = ["batch1@512", "batch2@512", "batch4@512", "batch8@512", "batch16@512", "forks8@512"]
SMALL_CONTEXT = DATA / "zoo/gemma3-text"


class Bench(CommandTest):
    def test_json(self):
        report = self.json("bench", GEMMA, "--repetitions", 2, "--threads", 2)
        self.assertEqual(list(report), KEYS)
        self.assertEqual((report["model"], report["device"], report["threads"]),
                         (str(GEMMA), "cpu", 2))
        self.assertEqual(report["kernels"], self.json("info", GEMMA)["kernels"])
        self.assertTrue(report["machine"])
        ceilings = report["ceilings"]
        self.assertTrue({"read", "memcpy", "file_write", "file_read"} < set(ceilings))
        self.assertTrue(all(value > 0 for value in ceilings.values()), ceilings)
        results = {result["name"]: result for result in report["results"]}
        # 4096 positions: nothing can be generated after so many.
        self.assertEqual(list(results), [
            "memory@2048", "open", "first_token", "pp512", "tg128", "tg128@1024", "added@1024",
            *BATCHES, *("x" + name for name in BATCHES[1:]),
            "turn", "turn_afresh", "fork@64", "fork@4096", "start@64", "start@4096", "save", "load",
            "save_zstd", "load_zstd",
            "commit@1024", "bytes_raw", "bytes_zstd", "bytes_none"])
        for result in results.values():
            self.check_result(result, ceilings)
        for name, flops in ("pp512", True), ("tg128", False), ("turn", True), ("open", False):
            self.assertIn("flops" if flops else "bytes_per_s", results[name])

    def check_result(self, result, ceilings):
        rate = RATES & set(result)
        self.assertEqual(list(result), ["name", "median", "min", "max", "unit", *rate, "ceiling",
                                        "share"])
        self.assertLessEqual(result["min"], result["median"])
        self.assertLessEqual(result["median"], result["max"])
        if not rate:
            self.assertEqual((result["ceiling"], result["share"]), (None, None))
            return
        value = result[rate.pop()]
        # The share is of the ceiling at that time, which is no more than its best. The median of
        # two does not show what one more repetition would have changed.
        self.assertGreater(result["share"], 0.5 * value / ceilings[result["ceiling"]])
        if "flops" in result:  # what is read of so small a model comes from caches
            self.assertLess(result["share"], 1.2, result)

    def test_rates_follow_from_the_model(self):
        report = self.json("bench", LLAMA, "--repetitions", 1, "--only", "pp512,tg128,tg128@1024")
        config = json.loads((LLAMA / "config.json").read_text())
        hidden, inner, layers = 128, 384, 8
        self.assertEqual((config["hidden_size"], config["intermediate_size"],
                          config["num_hidden_layers"]), (hidden, inner, layers))
        matrices = layers * hidden * (128 + 64 + 64 + 128 + 3 * inner)
        prompt, zero, deep, added = report["results"]
        self.assertAlmostEqual(prompt["flops"] / prompt["median"] / (2 * matrices), 1)
        weights = 2 * (matrices + 1024 * hidden)
        self.assertAlmostEqual(zero["bytes_per_s"] / zero["median"] / weights, 1)
        cache = layers * 1024 * 2 * 64 * 2
        self.assertAlmostEqual(deep["bytes_per_s"] / deep["median"] / (weights + cache), 1)
        self.assertAlmostEqual(added["median"], 1e3 / deep["median"] - 1e3 / zero["median"])

    def test_text_and_forced_kernels(self):
        text = self.ok("bench", LLAMA, "--repetitions", 1, "--only", "fork@64,pp512", "--kernels",
                       "reference", "--threads", 1)
        self.assertIn("reference kernels on cpu, 1 thread, ", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 100)
        rows = [line.split()[0] for line in text.splitlines() if line]
        self.assertIn("read", rows)
        self.assertEqual(rows[-3:], ["result", "pp512", "fork@64"])

    def test_refusals(self):
        self.refused("bench", names=["MODEL"])
        self.refused("bench", self.path("none"), names=["none"])
        self.refused("bench", GEMMA, "--only", "pp512,tg7", names=["--only", "'tg7'", "tg128@4096"])
        self.refused("bench", GEMMA, "--only", "", names=["--only"])
        self.refused("bench", GEMMA, "--kernels", "abacus", names=["abacus"])
        for text in "0", "-1", "1001", "many":
            self.refused("bench", GEMMA, "--repetitions", text, names=["--repetitions", text])
        self.refused("bench", SMALL_CONTEXT, "--only", "fork@4096,tg128@4096",
                     names=["nothing to measure"])

    def test_interrupt(self):
        with subprocess.Popen([command(), "bench", GEMMA], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            time.sleep(1)
            process.send_signal(signal.SIGINT)
            out, message = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (2, b""))
        self.assertRegex(message, rb"\Astasis: [^\n]+\n\Z")


def report_of(name, median):
    result = {"name": name, "median": median, "min": median - 1, "max": median + 1,
              "unit": "tokens/s", "flops": 2e12, "ceiling": "amx_tile_loads", "share": 0.423}
    return {"model": "m", "kernels": "amx", "threads": 2, "machine": "Some CPU, 2 cores",
            "ceilings": {"amx_tile_loads": 5e12}, "results": [result]}


class Peer(CommandTest):
    def test_table(self):
        off = {"build_commit": "abc123", "samples_ts": [100.0, 130.04, 131.0]}
        on = {"build_commit": "abc123", "samples_ts": [260.0]}
        runs = [("gemma3-1b, Q8_0", 2, "pp512", report_of("pp512", 1300.4), {0: off, 1: on}),
                ("gemma3-1b, Q8_0", 1, "tg128@1024", report_of("tg128@1024", 13.0),
                 {0: off, 1: off})]
        lines = compare.table(runs, "llama_cpp_python-1.2.3", "2026-08-01").split("\n")
        for part in "Some CPU, 2 cores", "2026-08-01", "amx", "1.2.3", "abc123":
            self.assertIn(part, lines[0])
        self.assertEqual({line.count("|") for line in lines[2:6]}, {9})
        self.assertIn("| llama.cpp | llama.cpp, flash attention |", lines[2])
        self.assertEqual(lines[4:], [
            "| gemma3-1b, Q8_0 | 2 | pp512 | 1300.4 (1299.4-1301.4) | 130.0 (100.0-131.0) | "
            "260.0 (260.0-260.0) | 5.00 | 42 % of amx_tile_loads |",
            "| gemma3-1b, Q8_0 | 1 | tg128@1024 | 13.0 (12.0-14.0) | 130.0 (100.0-131.0) | "
            "130.0 (100.0-131.0) | 0.10 | 42 % of amx_tile_loads |", ""])

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
