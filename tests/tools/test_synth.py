# stasis synth: the smallest published shape, whole and byte for byte the same everywhere; what the
# library then says of it; and what can be in the way.
import hashlib
import json
import os
import shutil
import signal
import subprocess
import time

from stasis_process import CommandTest, comma, command

# SHA-256 of each file. They must be the same on every machine, by every compiler.
FILES = {
    "config.json": "26faceb8c1f8f891f70c530871edac042b96b078b83486f3cade9d2b6ad85de6",
    "model.safetensors": "69add20f5eb240b83a6866a825c0640bf5bd8f754bc869b527cbb520a76ecdb5",
    "tokenizer.model": "3dfcca33507614bfe483faa854ac7742a4ecf073e8cb4e46ecc6bb68a96bc693",
    "tokenizer_config.json": "17efd66375ec0c543a38ff872951fefe3dea6e1c8fb93a98358076fe756cd2d7",
}
SHAPES = ["tinyllama-1.1b", "llama3.2-1b", "gemma3-270m", "gemma3-1b", "gemma3-4b",
          "qwen3-30b-a3b", "qwen3.5-0.8b", "qwen3.5-4b", "gpt-oss-20b",
          "gemma4-e2b", "lfm2-1.2b"]
FREE_BYTES_MIN = 2_000_000_000


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 24):
            digest.update(block)
    return digest.hexdigest()


class Written(CommandTest):
    def setUp(self):
        super().setUp()
        if shutil.disk_usage(self.folder).free < FREE_BYTES_MIN:
            self.skipTest("less than 2 GB of room for temporary files")
        self.model = self.folder / "model"
        self.ok("synth", "gemma3-270m", self.model)

    def test_gemma3_270m(self):
        self.assertEqual(os.listdir(self.folder), ["model"])
        self.assertEqual({path.name: sha256(path) for path in self.model.iterdir()}, FILES)
        info = self.json("info", self.model)
        expected = {"architecture": "gemma3", "layers": 18, "hidden": 640, "heads": 4,
                    "kv_heads": 1, "head_dim": 256, "vocabulary": 262144, "context": 32768,
                    "template": "gemma", "converted": False}
        self.assertEqual({key: info[key] for key in expected}, expected)
        self.assertEqual([kind == "full_attention" for kind in info["layer_types"]],
                         [layer in (5, 11, 17) for layer in range(18)])
        self.padded_tokenizer()
        self.logits_are_alive()
        self.refused("synth", "gemma3-270m", self.model, names=["model", "no empty directory"])

    def padded_tokenizer(self):
        text = "Let x be 5. <unused2000>"
        tokens = self.json("tokenize", self.model, text)["tokens"]
        self.assertLess(max(tokens), 1024)  # what was added never comes out of text
        self.assertEqual(self.ok("detokenize", self.model, comma(tokens)).strip(), text)
        self.assertEqual(self.ok("detokenize", self.model, "1024,262143").strip(),
                         "<unused1024><unused262143>")

    def logits_are_alive(self):
        """Greedy replies are not one token over and over."""
        run = self.json("run", self.model, "--tokens", "1,2,3", "-n", 6, "--ignore-eos")
        self.assertGreater(len(set(run["tokens"])), 3, run)


class Cut(CommandTest):
    def setUp(self):
        super().setUp()
        if shutil.disk_usage(self.folder).free < 4_000_000_000:
            self.skipTest("less than 4 GB of room for temporary files")

    def test_first_layers(self):
        """Of a hybrid, which has one layer of attention in four."""
        model = self.folder / "model"
        self.ok("synth", "qwen3.5-0.8b", model, "--layers", 4)
        info = self.json("info", model)
        expected = {"architecture": "qwen3_5", "layers": 4, "hidden": 1024, "heads": 8,
                    "kv_heads": 2, "head_dim": 256, "vocabulary": 248320}
        self.assertEqual({key: info[key] for key in expected}, expected)
        text = json.loads((model / "config.json").read_text())["text_config"]
        self.assertEqual(text["layer_types"], 3 * ["linear_attention"] + ["full_attention"])
        # The MTP head is there too: 2 * 1024 columns of join, a layer, and norms.
        matrices = 2 * 1024 + 2 * 2048 + 512 + 512 + 2048 + 3 * 3584
        self.assertEqual(info["mtp_bytes"], 2 * (1024 * matrices + 5 * 1024 + 2 * 256))
        self.assertEqual(info["ignored"], "")
        self.assertIn("MTP head      1 layer, %.1f MB\n" % (info["mtp_bytes"] / 1e6),
                      self.ok("info", model))
        self.refused("synth", "qwen3.5-0.8b", self.path("m"), "--layers", 25, names=["24"])

    def test_short_convolutions(self):
        """The first attention is in the third layer; the MLP is two thirds as wide as is said."""
        model = self.folder / "model"
        self.refused("synth", "lfm2-1.2b", model, "--layers", 2, names=["--layers", "layer 3"])
        self.ok("synth", "lfm2-1.2b", model, "--layers", 3)
        info = self.json("info", model)
        expected = {"architecture": "lfm2", "layers": 3, "hidden": 2048, "heads": 32,
                    "kv_heads": 8, "head_dim": 64, "vocabulary": 65536,
                    "state_bytes": 2 * 2 * 2048 * 4}
        self.assertEqual({key: info[key] for key in expected}, expected)
        self.assertEqual(json.loads((model / "config.json").read_text())["full_attn_idxs"], [2])
        convolution, attention, mlp = 4 * 2048, 2 * 2048 + 2 * 512, 3 * 8192
        matrices = 2048 * (65536 + 2 * convolution + attention + 3 * mlp)
        vectors = 7 * 2048 + 2 * 64 + 2 * 3 * 2048  # norms and taps
        header = int.from_bytes((model / "model.safetensors").read_bytes()[:8], "little")
        self.assertEqual((model / "model.safetensors").stat().st_size,
                         8 + header + 2 * (matrices + vectors))
        run = self.json("run", model, "--tokens", "1,2,3", "-n", 6, "--ignore-eos")
        self.assertGreater(len(set(run["tokens"])), 3, run)

    def test_experts(self):
        model = self.folder / "model"
        self.ok("synth", "qwen3-30b-a3b", model, "--layers", 1)
        run = self.json("run", model, "--tokens", "1,2,3", "-n", 6, "--ignore-eos")
        self.assertGreater(len(set(run["tokens"])), 3, run)

    def test_experts_in_mxfp4(self):
        model = self.folder / "experts"
        self.ok("synth", "gpt-oss-20b", model, "--layers", 1)
        self.assertIn("MXFP4: 96 matrices", self.ok("info", model))
        run = self.json("run", model, "--tokens", "1,2,3", "-n", 6, "--ignore-eos")
        self.assertGreater(len(set(run["tokens"])), 3, run)


    def test_layers_of_two_sizes(self):
        """Of Gemma 4, whose fifth layer sees all positions and has larger heads."""
        if shutil.disk_usage(self.folder).free < 6_000_000_000:
            self.skipTest("less than 6 GB of room for temporary files")
        model = self.folder / "sizes"
        self.ok("synth", "gemma4-e2b", model, "--layers", 6)
        info = self.json("info", model)
        self.assertEqual((info["head_dim"], info["global_head_dim"]), (256, 512))
        self.assertEqual(info["layer_keys"], list(range(6)))
        run = self.json("run", model, "--tokens", "1,2,3", "-n", 6, "--ignore-eos")
        self.assertGreater(len(set(run["tokens"])), 3, run)


class Refused(CommandTest):
    def left(self):
        return sorted(path.name for path in self.folder.iterdir())

    def test_arguments(self):
        self.refused("synth", names=["SHAPE"])
        self.refused("synth", "gemma3-270m", names=["DIR"])
        self.refused("synth", "gemma3-270m", "", names=["DIR", "empty"])
        self.refused("synth", "gpt2", self.path("m"), names=["'gpt2'"] + SHAPES)
        for shape in SHAPES:
            self.assertIn(shape, self.ok("synth", "--help"))
        self.assertEqual(self.left(), [])

    def test_places(self):
        (self.folder / "full").mkdir()
        (self.folder / "full/file").write_text("kept")
        (self.folder / "link").symlink_to("full")
        before = self.left()
        for place in "full", "full/", "link", "full/file":
            place = f"{self.folder}/{place}"
            self.refused("synth", "gemma3-270m", place, names=[place, "there already"])
        self.refused("synth", "gemma3-270m", self.path("no/such"), names=["no/such"])
        self.assertEqual(self.left(), before)
        self.assertEqual(os.listdir(self.folder / "full"), ["file"])

    def test_a_full_disk_leaves_nothing(self):
        (self.folder / "empty").mkdir()
        for limit in 100, 10_000, 6_000_000, 20_000_000:
            self.refused("synth", "gemma3-270m", self.path("empty"), names=["large"],
                         file_bytes_max=limit)
            self.assertEqual(self.left(), ["empty"])
            self.assertEqual(os.listdir(self.folder / "empty"), [])

    def test_an_interrupt_leaves_nothing(self):
        with subprocess.Popen([command(), "synth", "gemma3-4b", self.path("m")],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            while not list(self.folder.glob("m.tmp*/*.safetensors")):
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            out, message = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (2, b""))
        self.assertEqual(message, b"stasis: interrupted\n")
        self.assertEqual(self.left(), [])
