# stasis info: estimates of memory, and metadata.
import json
import shutil

from stasis_process import CommandTest, DATA, GEMMA

RECURRENT = DATA / "zoo/qwen3_5-dense"


class Info(CommandTest):
    def test_memory(self):
        told = self.json("info", GEMMA)
        memory, session = told["memory"], told["memory"]["session"]
        self.assertEqual(self.json("info", GEMMA, "--estimate"), memory)
        self.assertEqual(memory["weight_bytes"], told["weight_bytes"])
        self.assertEqual(session["positions"], told["context"])
        short = self.json("info", GEMMA, "--estimate", "--positions", "64")["session"]
        self.assertEqual(short["kv_bytes"], 64 * short["position_bytes"])
        self.assertLess(session["kv_bytes"], told["context"] * session["position_bytes"])
        estimate = ["info", GEMMA, "--estimate", "--kernels", "reference"]
        mapped, copied = self.json(*estimate), self.json(*estimate, "--copy-weights")
        self.assertEqual(copied["mapped_bytes"], 0)
        self.assertEqual(copied["allocated_bytes"] - mapped["allocated_bytes"],
                         mapped["mapped_bytes"])
        recurrent = self.json("info", RECURRENT, "--estimate")
        self.assertGreater(recurrent["session"]["state_bytes"], 0)
        table = self.ok("info", GEMMA)
        self.assertRegex(table, r"memory +[0-9.]+ MB of weights mapped, [0-9.]+ MB copied")
        self.assertRegex(table, r"session +\d+ bytes for each position, \d+ of them in layers")
        self.assertRegex(table, r" MB at 4096 positions: keys and values ")
        self.assertIn("parameters", self.ok("info", GEMMA, "--estimate"))

    def test_an_estimate_reads_no_weights(self):
        model = self.folder / "model"
        shutil.copytree(DATA / "zoo/llama-gqa-untied", model)
        weights = (model / "model.safetensors").read_bytes()
        (model / "model.safetensors").write_bytes(weights[:-4000] + b"\xff" * 4000)
        self.refused("info", model, names=["not finite"])
        self.ok("info", model, "--estimate")
        (model / "model.safetensors").write_bytes(weights[:-1])
        self.refused("info", model, "--estimate", names=["model.safetensors"])
        self.refused("info", GEMMA, "--estimate", "--positions", "5000", names=["5000"])
        self.refused("info", GEMMA, "--estimate", "--device", "cuda", names=["cuda"])

    def test_metadata(self):
        config = json.loads((GEMMA / "config.json").read_text())
        told = self.json("info", GEMMA, "--metadata")["metadata"]
        self.assertEqual(told["config.num_hidden_layers"], config["num_hidden_layers"])
        self.assertEqual(told["config.layer_types"], config["layer_types"])
        self.assertIn(f"config.model_type: {config['model_type']}\n",
                      self.ok("info", GEMMA, "--metadata"))
        template = json.loads((GEMMA / "tokenizer_config.json").read_text())["chat_template"]
        self.assertEqual(self.ok("info", GEMMA, "--key", "tokenizer_config.chat_template"),
                         template + "\n")
        self.assertEqual(self.json("info", GEMMA, "--key", "config.model_type"),
                         {"key": "config.model_type", "value": config["model_type"]})
        self.refused("info", GEMMA, "--key", "none.such", names=["none.such"])
        self.refused("info", GEMMA, "--metadata", "--estimate")

    def test_metadata_of_a_gguf_file(self):
        model = self.folder / "model.gguf"
        self.ok("quantize", GEMMA, model)
        told = self.json("info", model, "--metadata")["metadata"]
        self.assertEqual(told["general.architecture"], "gemma3")
        self.assertRegex(told["tokenizer.ggml.tokens"]["left_out"], r"^an array of \d+ STRING$")
        self.assertRegex(self.ok("info", model, "--metadata"),
                         r"tokenizer.ggml.tokens: left out, an array of \d+ STRING\n")
        self.refused("info", model, "--key", "tokenizer.ggml.tokens", names=["left out"])
