# Mistakes of a user or a disk: exit code 2 with one line that names the mistake, nothing on stdout,
# files left as they were, and never a crash.
import os
import shutil
import subprocess

from stasis_process import (CommandTest, GEMMA, LLAMA, WITHOUT_TOKENIZER, all_tokens, comma,
                            command, turns_of)


class Usage(CommandTest):
    def test_command_line(self):
        self.refused()
        self.refused("fly", names=["fly"])
        self.refused("run", names=["MODEL"])
        self.refused("run", GEMMA, names=["--prompt", "--tokens"])
        self.refused("run", GEMMA, "--tokens", "1", "--frobnicate", names=["--frobnicate"])
        self.refused("run", GEMMA, "--tokens", "1", "--prompt", "x")
        self.refused("run", GEMMA, "--tokens", "1", "-n", "-5", names=["-n", "-5"])
        self.refused("run", GEMMA, "--tokens", "1", "-n", "many", names=["-n", "many"])
        self.refused("logits", GEMMA, "--tokens", "1", names=["--out"])
        self.refused("verify", self.path("only-one"))

    def test_help_succeeds(self):
        for name in ("run", "chat", "score", "logits", "embed", "tokenize", "detokenize",
                     "template", "info", "inspect", "diff", "verify", "quantize", "synth", "bench"):
            self.assertIn(name, self.ok("--help"))
            self.assertIn("Usage: stasis " + name, self.ok(name, "--help"))
        self.assertRegex(self.ok("--version"), r"\Astasis \d+\.\d+\.\d+ \(.+\)\n\Z")

    def test_tokens(self):
        self.refused("run", GEMMA, "--tokens", "1,2,x7", names=["--tokens", "'x7'", "item 3"])
        self.refused("run", GEMMA, "--tokens", "1,,2", names=["item 2"])
        self.refused("run", GEMMA, "--tokens", "1,-2", names=["'-2'", "item 2"])
        self.refused("run", GEMMA, "--tokens", "4294967296", names=["4294967296"])
        self.refused("run", GEMMA, "--tokens", "5,1024", names=["1024"])
        self.refused("detokenize", GEMMA, "7;8", names=["'7;8'"])
        self.refused("logits", GEMMA, "--tokens", "", "--out", self.path("o"), names=["tokens"])
        self.refused("run", GEMMA, "--tokens-file", self.path("none"), names=["none"])
        self.refused("run", GEMMA, "--tokens-file", self.path(""))

    def test_more_tokens_than_the_context(self):
        message = self.refused("run", GEMMA, "--tokens", comma([7] * 4097), "-n", 0)
        self.assertIn("4096", message)

    def test_kernels_device_and_sampling(self):
        prompt = ["run", GEMMA, "--tokens", "1", "-n", 1]
        self.refused(*prompt, "--kernels", "abacus", names=["abacus"])
        self.refused(*prompt, "--device", "toaster", names=["toaster"])
        self.refused(*prompt, "--temperature", "nan", names=["--temperature"])
        self.refused(*prompt, "--top-p", "1.5", names=["--top-p", "above 0"])

    def test_numbers(self):
        prompt = ["run", GEMMA, "--tokens", "1", "-n", 1]
        wrong = {"--seed": ["18446744073709551616", "-1", "0x7", "1.0", " 1", "+1", ""],
                 "--threads": ["4294967296", "2x"], "--chunk": ["many"], "--top-k": ["1e3", ""],
                 "--temperature": ["-0.1", "inf", "1e99", "0,5", ""],
                 "--top-p": ["0", "1.01", "-1", "nan"], "--min-p": ["-0.1", "1.1", "nan"],
                 "--repetition-penalty": ["0", "-1", "inf"], "--typical-p": ["0", "1.01", "nan"],
                 "--top-n-sigma": ["-1", "inf"], "--xtc-probability": ["-0.1", "1.1"],
                 "--xtc-threshold": ["0", "0.51"], "--dry-multiplier": ["-1", "nan"],
                 "--dry-base": ["0.99", "inf"], "--dry-allowed-length": ["-1"],
                 "--dry-range": ["all"], "--min-keep": ["1.5"], "--log-probs": ["x"]}
        for name, texts in wrong.items():
            for text in texts:
                self.refused(*prompt, name, text, names=[name + ": '" + text + "' is not a"])
        self.refused(*prompt, "--dry-breakers", "3,x", names=["--dry-breakers", "x"])
        self.refused(*prompt, "--temperature", "1", "--dry-breakers", "99999",
                     names=["dry_breakers", "99999"])
        self.refused(*prompt, "--log-probs", "3", names=["--log-probs", "--json"])
        self.refused("run", GEMMA, "--tokens", "1", "-n", "18446744073709551616", names=["-n"])
        self.refused("run", GEMMA, "--tokens", "1", "-n=2", names=["-n", "'=2'", "whole number"])
        self.refused(*prompt, "--seed=", "3", names=["--seed=", "missing"])
        for right in (["--seed", "18446744073709551615"], ["--seed=7"], ["--top-p", "1"],
                      ["--min-p", "0"], ["--repetition-penalty", "1e0"], ["--top-p", "1e-3"]):
            self.json(*prompt, *right)
        run = self.json("run", GEMMA, "--tokens", "1", "--ignore-eos", "-n", "010")
        self.assertEqual(len(run["tokens"]), 10)

    def test_an_empty_prompt(self):
        for prompt in ["--prompt", ""], ["--tokens", ""]:
            self.refused("run", GEMMA, *prompt, names=["nothing to go on", "no session is resumed"])
            self.json("run", GEMMA, *prompt, "-n", 0, "--save", self.path("s"))
        self.refused("run", GEMMA, "--resume", self.path("s"),
                     names=["nothing to go on", self.path("s")])

    def test_empty_paths(self):
        for call in (["run", GEMMA, "--resume"], ["run", GEMMA, "--tokens", "1", "--save"],
                     ["chat", GEMMA, "--session"], ["run", GEMMA, "--tokens-file"],
                     ["logits", GEMMA, "--tokens", "1", "--out"]):
            self.refused(*call, "", names=[call[-1] + ": the path is empty"])

    def test_closed_streams(self):
        for closed in range(1, 8):
            numbers = [number for number in range(3) if closed & 1 << number]
            done = subprocess.run([str(command()), "chat", str(GEMMA)], input=b"hello\n",
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60,
                                  preexec_fn=lambda: [os.close(number) for number in numbers],
                                  check=False)
            self.assertEqual(done.returncode, 2 if numbers == [1] or numbers == [1, 2] else 0)
            self.assertEqual(bool(done.stdout), numbers == [2])

    def test_text_that_is_not_utf8(self):
        self.refused("run", GEMMA, "--prompt", os.fsdecode(b"ab\xffcd"), names=["2"])


class Files(CommandTest):
    def setUp(self):
        super().setUp()
        self.file = self.folder / "s.stasis"
        self.json("run", GEMMA, "--tokens", comma(all_tokens(GEMMA)[:70]), "-n", 0, "--save",
                  self.file)
        self.content = self.file.read_bytes()

    def refused_by_all(self, *names):
        self.refused("run", GEMMA, "--resume", self.file, "-n", 0, names=names)
        self.refused("inspect", self.file, names=names)
        self.refused("verify", self.file, GEMMA, names=names)
        self.refused("diff", self.file, self.file, names=names)

    def test_missing_and_foreign_files(self):
        self.refused("inspect", self.path("missing"), names=["missing"])
        self.refused("run", GEMMA, "--resume", self.path("missing"), names=["missing"])
        self.refused("inspect", self.folder)
        self.refused("inspect", GEMMA / "config.json")
        self.refused("inspect", "/dev/null")
        self.file.write_bytes(b"")
        self.refused_by_all("s.stasis")

    def test_truncated_files(self):
        size = len(self.content)
        for length in [1, 7, 8, 63, 64, 4095, 4096, size // 2, size - 1] + list(
                range(100, size, size // 12)):
            if length < size:
                self.file.write_bytes(self.content[:length])
                self.refused("inspect", self.file, names=["s.stasis"])
        self.refused_by_all("s.stasis")

    def test_flipped_bits(self):
        stored = self.json("inspect", self.file)["sections"]
        inside = [section["offset"] + section["stored"] // 2 for section in stored]
        for at in [0, 5, 8, 12, 20, 40] + inside[::max(1, len(inside) // 20)]:
            damaged = bytearray(self.content)
            damaged[at] ^= 1 << at % 8
            self.file.write_bytes(damaged)
            self.refused("verify", self.file, GEMMA, names=["s.stasis"])
            self.refused("run", GEMMA, "--resume", self.file, "-n", 0, names=["s.stasis"])
        self.assertLess(max(inside), len(self.content))

    def test_other_model(self):
        names = ["MODEL_MISMATCH"]
        self.refused("run", LLAMA, "--resume", self.file, "-n", 0, names=names)
        self.refused("run", WITHOUT_TOKENIZER, "--resume", self.file, "-n", 0, names=names)
        self.refused("chat", LLAMA, "--session", self.file, text="hello\n", names=names)

    def test_one_changed_weight_bit(self):
        model = self.folder / "model"
        shutil.copytree(GEMMA, model)
        weights = model / "model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-1000] ^= 1
        weights.write_bytes(content)
        self.refused("run", model, "--resume", self.file, "-n", 0, names=["MODEL_MISMATCH"])

    def test_failing_disk_leaves_the_old_file(self):
        prompt = comma(all_tokens(GEMMA)[70:200])
        before = sorted(path.name for path in self.folder.iterdir())
        for limit in 0, 100, 5000, len(self.content) // 2:
            self.refused("run", GEMMA, "--resume", self.file, "--tokens", prompt, "-n", 0,
                         "--save", self.file, file_bytes_max=limit, names=["IO"])
            self.assertEqual(self.file.read_bytes(), self.content)
            self.assertEqual(sorted(path.name for path in self.folder.iterdir()), before)

    def test_full_outputs(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full here")
        self.refused("logits", GEMMA, "--tokens", "1,2", "--out", "/dev/full",
                     names=["/dev/full", "space"])
        self.refused("logits", GEMMA, "--tokens", "1,2", "--out", self.path("no/such/place"),
                     names=["no/such/place"])
        for call in ["info", GEMMA, "--json"], ["--version"], ["--help"], ["run", "--help"]:
            with open("/dev/full", "wb") as full:
                done = self.run_command(*call, stdout=full)
            self.assertEqual(done.returncode, 2, call)
            self.assertIn(b"space", done.stderr)

    def test_file_size_limit(self):
        before = sorted(path.name for path in self.folder.iterdir())
        for limit in 0, 1000, 5000:
            self.refused("logits", GEMMA, "--tokens", "1,2", "--out", self.path("o"),
                         file_bytes_max=limit, names=["large"])
            self.assertEqual(sorted(path.name for path in self.folder.iterdir()), before)

    def test_targets_are_checked_before_the_model_is_read(self):
        os.mkfifo(self.path("pipe"))
        (self.folder / "link").symlink_to(self.file)
        missing = self.path("no-model")
        for call in (["run", missing, "--tokens", "1", "--save"], ["chat", missing, "--session"],
                     ["logits", missing, "--tokens", "1", "--out"]):
            option = call[-1] + ": "
            self.refused(*call, self.path("no/s"), names=[option, "no folder"])
            self.refused(*call, self.path("s.stasis/s"), names=[option])
            self.refused(*call, self.folder, names=[option, "directory"])
            self.refused(*call, self.path("link"), names=[option, "symbolic link"])
            if call[0] != "logits": # rows go into pipes and devices directly
                self.refused(*call, self.path("pipe"), names=[option, "no regular file"])
        self.assertEqual(self.file.read_bytes(), self.content)

    def test_what_stands_in_the_place_of_another(self):
        os.mkfifo(self.path("pipe"))  # nobody will ever write to it
        for model, why in ((self.file, "this is a snapshot; a model is expected here"),
                           (self.path("pipe"), "config.json"),
                           (self.path("none"), "cannot open " + self.path("none") + ": No such")):
            for call in ["info"], ["verify", self.file], ["run", "--tokens", "1"]:
                self.refused(*call, model, names=[str(model), why])
        for file, why in ((GEMMA, "this is a directory; a snapshot is expected here"),
                          ("", "FILE: the path is empty")):
            for call in ["inspect"], ["report"], ["diff", self.file]:
                self.refused(*call, file, names=[why])

    def test_a_snapshot_is_not_written_over_by_what_is_none(self):
        file = self.path("s")
        self.ok("run", WITHOUT_TOKENIZER, "--tokens", "1,2,3", "-n", 1, "--save", file)
        before = (self.folder / "s").read_bytes()
        resumed = ["run", WITHOUT_TOKENIZER, "--resume", file, "-n", 0]
        for call in (["report", file, "-o", self.folder / "." / "s"], [*resumed, "--trace", file],
                     ["logits", WITHOUT_TOKENIZER, "--tokens", "1", "--out", file]):
            self.refused(*call, names=["this is a snapshot"])
            self.assertEqual((self.folder / "s").read_bytes(), before)
        self.refused(*resumed, "--save", self.path("n"), "--trace", self.path("n"),
                     names=["--save writes to this file"])

    def test_unreadable_files(self):
        self.file.chmod(0)
        if os.geteuid() != 0:
            self.refused_by_all("s.stasis")
            return
        # Root may read everything: become another user, if that one can reach the command.
        nobody = 65534
        self.folder.chmod(0o755)
        try:
            self.run_command("--version", user=nobody)
        except PermissionError:
            self.skipTest("root may read everything, and others cannot reach the command")
        self.refused("inspect", self.file, names=["s.stasis"], user=nobody)

    def test_file_mode(self):
        self.assertEqual(self.file.stat().st_mode & 0o777, 0o600)


class Models(CommandTest):
    def copy(self, source):
        model = self.folder / "model"
        shutil.rmtree(model, ignore_errors=True)
        shutil.copytree(source, model)
        return model

    def test_missing_models(self):
        self.refused("info", self.path("nowhere"), names=["nowhere"])
        self.refused("info", GEMMA / "config.json")
        self.refused("info", self.folder)
        self.refused("info", "/dev/null")

    def test_damaged_models(self):
        for name, change in (("config.json", lambda b: b[:len(b) // 2]),
                             ("config.json", lambda b: b.replace(b"LlamaForCausalLM", b"Gpt")
                              .replace(b'"llama"', b'"gpt"')),
                             ("model.safetensors", lambda b: b[:len(b) // 2]),
                             ("model.safetensors", lambda b: b[:100]),
                             ("model.safetensors", lambda b: b"\xff" * 8 + b[8:]),
                             ("model.safetensors", lambda b: b"")):
            model = self.copy(WITHOUT_TOKENIZER)
            content = (model / name).read_bytes()
            (model / name).write_bytes(change(content))
            self.assertNotEqual(change(content), content)
            self.refused("info", model)

    def test_damaged_tokenizer(self):
        model = self.copy(GEMMA)
        (model / "tokenizer.model").write_bytes(b"\x00garbage\xff" * 9)
        self.refused("run", model, "--prompt", turns_of(GEMMA)[0]["user"], names=["tokenizer"])
