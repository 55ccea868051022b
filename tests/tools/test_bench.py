# stasis bench: what it prints, not how fast anything is.
import json
import signal
import subprocess
import time

from stasis_process import CommandTest, DATA, GEMMA, LLAMA, command

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
            "memory@2048", "open", "reopen", "first_token", "pp512", "tg128", "tg128@1024",
            "added@1024",
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
                                        "ceiling_rate", "share"])
        self.assertLessEqual(result["min"], result["median"])
        self.assertLessEqual(result["median"], result["max"])
        if not rate:
            self.assertEqual((result["ceiling"], result["ceiling_rate"], result["share"]),
                             (None, None, None))
            return
        # What a ceiling gave beside a repetition is no more than its best, rounding aside; so the
        # share of it is no less.
        best = ceilings[result["ceiling"]] * (1 + 1e-9)
        self.assertLessEqual(result["ceiling_rate"], best)
        self.assertGreaterEqual(result["share"], result[rate.pop()] / best)

    def test_rates_follow_from_the_model(self):
        report = self.json("bench", LLAMA, "--repetitions", 1, "--only",
                           "first_token,pp512,tg128,tg128@1024,turn,turn_afresh")
        config = json.loads((LLAMA / "config.json").read_text())
        hidden, inner, layers = 128, 384, 8
        self.assertEqual((config["hidden_size"], config["intermediate_size"],
                          config["num_hidden_layers"]), (hidden, inner, layers))
        matrices = layers * hidden * (128 + 64 + 64 + 128 + 3 * inner)
        first, prompt, zero, deep, added, turn, afresh = report["results"]
        for result in report["results"]:
            self.check_result(result, report["ceilings"])
            for rate in RATES & set(result):
                self.assertAlmostEqual(result["share"] * result["ceiling_rate"] / result[rate], 1)
        for result, tokens in (first, 64), (turn, 60), (afresh, 1024 + 60):
            self.assertAlmostEqual(
                result["flops"] * result["median"] / 1e3 / (2 * matrices * tokens), 1)
        self.assertAlmostEqual(prompt["flops"] / prompt["median"] / (2 * matrices), 1)
        weights = 2 * (matrices + 1024 * hidden)
        self.assertAlmostEqual(zero["bytes_per_s"] / zero["median"] / weights, 1)
        cache = layers * 1024 * 2 * 64 * 2
        self.assertAlmostEqual(deep["bytes_per_s"] / deep["median"] / (weights + cache), 1)
        self.assertAlmostEqual(added["median"], 1e3 / deep["median"] - 1e3 / zero["median"])

    def test_a_mixture_reads_the_chosen_experts(self):
        folder = DATA / "zoo/qwen3-moe"
        file = self.path("moe.gguf")
        self.ok("quantize", folder, file, "--type", "BF16")
        shared = 64 * (128 + 64 + 64 + 128) + 8 * 64  # attention and the router
        matrices = 4 * (shared + 2 * 3 * 32 * 64)  # two of eight experts
        weights = 2 * (matrices + 192 * 64)
        step = weights + 2 * 4 * 3 * 32 * 64 * (8 * (1 - (1 - 2 / 8) ** 4) - 2)
        cache = 4 * 2 * 64 * 2 * sum(512 + i + 1 for i in range(24)) / 24
        for model in folder, file:
            report = self.json("bench", model, "--repetitions", 1, "--only",
                               "pp512,tg128,batch@512")
            rates = {result["name"]: result for result in report["results"]}
            for name, rate, expected in (("pp512", "flops", 2 * matrices),
                                         ("tg128", "bytes_per_s", weights),
                                         ("batch4@512", "bytes_per_s", step / 4 + cache)):
                found = rates[name][rate] / rates[name]["median"]
                self.assertAlmostEqual(found / expected, 1, 6, (model, name))

    def test_text_and_forced_kernels(self):
        text = self.ok("bench", LLAMA, "--repetitions", 1, "--only", "fork@64,pp512", "--kernels",
                       "reference", "--threads", 1)
        self.assertIn("reference kernels on cpu, 1 thread, ", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 100)
        rows = [line.split()[0] for line in text.splitlines() if line]
        self.assertIn("read", rows)
        self.assertEqual(rows[-3:], ["result", "pp512", "fork@64"])

    def test_turns(self):
        """One answer for each line, as soon as it is asked; what lies before stays."""
        with subprocess.Popen([command(), "bench", LLAMA, "--turns", "--repetitions", "1"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as process:
            for line, names in (("tg128@1024", ["tg128@1024"]),
                                ("tg128,tg128@1024", ["tg128", "tg128@1024", "added@1024"]),
                                ("tg128@1024", ["tg128@1024"])):
                process.stdin.write(line + "\n")
                process.stdin.flush()
                report = json.loads(process.stdout.readline())
                self.assertEqual([result["name"] for result in report["results"]], names)
            out, message = process.communicate("pp512,tg7\npp512\n", timeout=60)
        self.assertEqual((process.returncode, out), (2, ""))
        self.assertRegex(message, r"\Astasis: standard input: 'tg7' is not one of [^\n]+\n\Z")
        for text in "\n", "pp512,,tg128\n":
            self.refused("bench", GEMMA, "--turns", text=text, names=["standard input"])
        self.assertEqual(self.ok("bench", GEMMA, "--turns"), "")
        self.refused("bench", GEMMA, "--turns", "--only", "pp512", names=["--turns", "--only"])

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
