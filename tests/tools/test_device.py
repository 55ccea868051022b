# --device: a model on a GPU's place-holder (tests/device), opened as the CUDA module is, gives
# what the CPU gives; sessions cross between the two; what is missing is said.
import json
import os
import pathlib
import shutil
import subprocess
import sys

from stasis_process import (CommandTest, DATA, GEMMA, ROOT, WITHOUT_TOKENIZER, comma, command,
                            turns_of)

MODULE = "libstasis_cuda.so.0"


class Device(CommandTest):
    def setUp(self):
        super().setUp()
        self.modules = command().parent / "tests/device"
        self.assertTrue((self.modules / MODULE).exists(), "the build has no module for tests")

    def run_with(self, modules, *arguments):
        """Runs the command with a folder of modules before others on the loader's path."""
        env = dict(os.environ, LD_LIBRARY_PATH=str(modules))
        return subprocess.run([command(), *map(str, arguments)], env=env, capture_output=True,
                              text=True, check=False, timeout=600)

    def there(self, *arguments):
        done = self.run_with(self.modules, *arguments, "--device", "cuda", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_same_tokens_and_digest(self):
        prompt = ["run", GEMMA, "--tokens", comma(turns_of(GEMMA)[0]["prompt_ids"])]
        here, there = self.json(*prompt), self.there(*prompt)
        for key in "tokens", "text", "digest":
            self.assertEqual(here[key], there[key])
        sampled = [*prompt, "--temperature", 1, "--seed", 5, "-n", 12, "--ignore-eos"]
        self.assertEqual(self.json(*sampled)["digest"], self.there(*sampled)["digest"])

    def test_sessions_cross_and_are_verified_on_the_other_side(self):
        file, tokens = self.path("s"), comma(range(3, 100))
        here = self.json("run", WITHOUT_TOKENIZER, "--tokens", tokens, "-n", 5, "--ignore-eos",
                         "--save", file)
        more = ["run", WITHOUT_TOKENIZER, "--resume", file, "-n", 30, "--ignore-eos", "--save",
                file]
        there = self.there(*more)
        self.assertEqual(there["position"], here["position"] + 30)
        self.ok("verify", file, WITHOUT_TOKENIZER)
        self.json(*more)
        checked = self.run_with(self.modules, "verify", file, WITHOUT_TOKENIZER, "--device",
                                "cuda")
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        plain = self.json("run", WITHOUT_TOKENIZER, "--tokens", tokens, "-n", 65, "--ignore-eos")
        self.assertEqual(self.json("inspect", file)["digest"], plain["digest"])

    def test_the_device_profile_is_kept_apart(self):
        file, other = self.path("s"), self.path("t")
        prompt = ["run", WITHOUT_TOKENIZER, "--tokens", comma(range(3, 103)), "-n", 5,
                  "--ignore-eos"]
        fast = self.there(*prompt, "--profile", "device", "--save", file)
        self.assertEqual(self.there(*prompt, "--profile", "device")["digest"], fast["digest"])
        self.assertNotEqual(self.there(*prompt)["digest"], fast["digest"])
        said = self.json("inspect", file)
        self.assertEqual((said["profile"], said["positions_foreign"]), ("stand-in 1", 0))
        record = {"id": "stand-in 1", "foreign": 0,
                  "chunks": [{"begin": 0, "rows": 100, "padded": 128}]}
        self.assertEqual(said["elements"]["kv_format_version"]["profile"], record)
        self.assertIn("profile stand-in 1\n", self.ok("inspect", file))
        info = self.run_with(self.modules, "info", GEMMA, "--device", "cuda", "--profile",
                             "device")
        self.assertRegex(info.stdout, "profile +stand-in 1")

        verify = ["verify", file, WITHOUT_TOKENIZER]
        checked = self.run_with(self.modules, *verify, "--device", "cuda", "--profile", "device")
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        self.refused(*verify, names=["stand-in 1", "the contract"])
        more = ["run", WITHOUT_TOKENIZER, "--resume", file, "-n", 3, "--ignore-eos", "--save",
                other]
        self.refused(*more, names=["stand-in 1", "the contract"])
        self.json(*more, "--any-profile")
        self.assertIn("profile contract; some positions below 100 were computed under another",
                      self.ok("inspect", other))
        self.refused("verify", other, WITHOUT_TOKENIZER, names=["positions below 100"])
        on = ["run", WITHOUT_TOKENIZER, "--resume", file, "-n", 2, "--ignore-eos", "--any-profile"]
        self.refused(*on, "--save", other, names=["has not resumed"])
        self.json(*on, "--save", file)  # what it has resumed, though the session's digest differs
        self.assertEqual(self.json("inspect", file)["position"], 107)
        for path in file, other:
            done = subprocess.run([sys.executable, ROOT / "tests/format/second_reader.py", path],
                                  capture_output=True, text=True, check=False, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            read = json.loads(done.stdout)
            ours = self.json("inspect", path)
            self.assertEqual(read["digest"], ours["digest"])
            self.assertEqual(read["elements"]["kv_format_version"]["profile"],
                             ours["elements"]["kv_format_version"]["profile"])

    def test_info_names_the_device(self):
        done = self.run_with(self.modules, "info", GEMMA, "--device", "cuda")
        self.assertIn("host on cuda:0", done.stdout)

    def test_what_is_missing_is_said(self):
        prompt = ["run", GEMMA, "--tokens", "2,3", "--device", "cuda:7"]
        done = self.run_with(self.modules, *prompt)
        self.assertEqual(done.returncode, 2)
        self.assertIn("cuda:7", done.stderr)
        kernels = self.run_with(self.modules, *prompt[:-1], "cuda", "--kernels", "reference")
        self.assertEqual(kernels.returncode, 2)
        self.assertIn('kernels "reference"', kernels.stderr)

    def test_a_file_that_is_no_module_is_refused(self):
        folder = pathlib.Path(self.path("modules"))
        folder.mkdir()
        shutil.copy(DATA / "digests.json", folder / MODULE)
        done = self.run_with(folder, "run", GEMMA, "--tokens", "2,3", "--device", "cuda")
        self.assertEqual(done.returncode, 2)
        self.assertIn("cuda", done.stderr)
