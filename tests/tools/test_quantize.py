# stasis quantize: a table of what was written, files that the command opens and talks with, and
# what can be in the way.
import os
import signal
import subprocess
import time

from stasis_process import CommandTest, GEMMA, LLAMA, command, comma, turns_of

TYPES = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "Q4_K_M",
         "Q5_K_M", "Q2_K", "Q3_K", "Q3_K_M", "Q3_K_L", "IQ4_NL", "IQ4_XS", "MXFP4_MOE"]


class Written(CommandTest):
    def test_all_types(self):
        sizes = {}
        for kind in TYPES:
            file = self.path(kind + ".gguf")
            report = self.json("quantize", LLAMA, file, "--type", kind)
            sizes[kind] = os.path.getsize(file)
            self.assertEqual(report["file_bytes"], sizes[kind])
            self.assertEqual(report["type"], kind)
            self.assertEqual(sum(entry["count"] for entry in report["tensors"]), 75)
            self.assertEqual(self.json("info", file)["architecture"], "llama")
        self.assertLess(sizes["Q4_0"], sizes["Q5_0"])
        self.assertLess(sizes["Q5_0"], sizes["Q8_0"])
        self.assertLess(sizes["Q8_0"], sizes["BF16"])

    def test_the_table(self):
        out = self.ok("quantize", GEMMA, self.path("m.gguf"), "--threads", 1)
        self.assertRegex(out, r"(?m)^type +tensors +values +bytes +bits each\n"
                              r"Q8_0 +85 +2392064 +2541568 +8.50\nF32 +73 +7040 +28160 +32.00\n")
        self.assertRegex(out, r"m\.gguf: \d+ bytes, 54\.\d % of 4798208, in \d+\.\d s\n\Z")

    def test_a_bf16_file_is_the_model(self):
        for model in GEMMA, LLAMA:
            file = self.path(model.name)
            self.ok("quantize", model, file, "--type", "BF16")
            turns = turns_of(model)
            replies = self.chat(file, [turn["user"] for turn in turns])
            self.assertEqual([reply["text"] for reply in replies],
                             [reply["text"] for reply in
                              self.chat(model, [turn["user"] for turn in turns])])
            tokens = comma(turns[0]["prompt_ids"])
            for place, name in (model, "a"), (file, "b"):
                self.ok("logits", place, "--tokens", tokens, "--out", self.path(name))
            self.assertEqual((self.folder / "a").read_bytes(), (self.folder / "b").read_bytes())

    def test_a_q8_0_file_remembers_the_conversation(self):
        for model in GEMMA, LLAMA:
            file = self.path(model.name)
            self.ok("quantize", model, file)
            users = [turn["user"] for turn in turns_of(model)]
            replies = self.chat(file, users)
            self.assertEqual([reply["text"] for reply in replies],
                             [reply["text"] for reply in self.chat(model, users)])


class Refused(CommandTest):
    def left(self):
        return sorted(path.name for path in self.folder.iterdir())

    def test_arguments(self):
        self.refused("quantize", names=["MODEL"])
        self.refused("quantize", LLAMA, names=["OUT"])
        self.refused("quantize", LLAMA, "", names=["OUT", "empty"])
        self.refused("quantize", LLAMA, self.path("m"), "--type", "IQ3_S",
                     names=['"IQ3_S"'] + TYPES)
        self.refused("quantize", self.path("none"), self.path("m"), names=["none"])
        self.refused("quantize", LLAMA, self.path("no/such"), names=["no/such"])
        for kind in TYPES:
            self.assertIn(kind, self.ok("quantize", "--help"))
        self.assertEqual(self.left(), [])

    def test_what_is_there_is_not_replaced_unasked(self):
        file = self.path("m.gguf")
        self.ok("quantize", LLAMA, file)
        before = (self.folder / "m.gguf").read_bytes()
        self.refused("quantize", LLAMA, file, "--type", "Q4_0", names=["m.gguf", "there already"])
        self.refused("quantize", file, self.path("n.gguf"), names=["m.gguf", "again"])
        self.assertEqual((self.folder / "m.gguf").read_bytes(), before)
        self.ok("quantize", LLAMA, file, "--type", "Q4_0", "--replace")
        self.assertNotEqual((self.folder / "m.gguf").read_bytes(), before)
        (self.folder / "letter").write_text("Dear Sir")
        self.refused("quantize", LLAMA, self.path("letter"), "--replace", names=["letter"])
        self.assertEqual((self.folder / "letter").read_text(), "Dear Sir")

    def test_a_full_disk_leaves_nothing(self):
        for limit in 10, 10_000, 100_000, 1_500_000:
            self.refused("quantize", GEMMA, self.path("m"), names=["m.writing", "large"],
                         file_bytes_max=limit)
            self.assertEqual(self.left(), [])

    def test_an_interrupt_leaves_nothing(self):
        big = self.folder / "big"
        self.ok("synth", "gemma3-270m", big)
        with subprocess.Popen([command(), "quantize", big, self.path("m"), "--type", "Q5_K_M"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            while not (self.folder / "m.writing").exists() and process.poll() is None:
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            out, message = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (2, b""))
        self.assertIn(b"CANCELLED", message)
        self.assertEqual(self.left(), ["big"])
        with subprocess.Popen([command(), "quantize", big, self.path("m")],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            while not (self.folder / "m.writing").exists() and process.poll() is None:
                time.sleep(0.01)
            process.kill()
        self.assertEqual(self.left(), ["big", "m.writing"])
        self.ok("quantize", big, self.path("m")) # the leftover is in nobody's way
        self.assertEqual(self.left(), ["big", "m"])
