# stasis logits: the file's shape, independence from cuts, and the golden values that published code
# gives for the same weights (tolerance: the data's README, "Golden logits").
import array
import json
import math
import unittest

from stasis_process import CommandTest, DATA, GEMMA, LLAMA, SHARED, comma, turns_of


def read_tensors(path):
    """The F32 and I32 tensors of a safetensors file."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    tensors = {}
    for name, entry in json.loads(content[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            values = array.array({"F32": "f", "I32": "i"}[entry["dtype"]])
            values.frombytes(content[8 + length + begin:8 + length + end])
            tensors[name] = values
    return tensors


class Logits(CommandTest):
    def rows(self, model, tokens, *options):
        out = self.path("logits")
        self.assertEqual(self.ok("logits", model, "--tokens", comma(tokens), "--out", out,
                                 *options), "")
        values = array.array("f")
        values.frombytes((self.folder / "logits").read_bytes())
        return values

    def test_one_row_a_position(self):
        for model in GEMMA, LLAMA:
            turn = turns_of(model)[0]
            vocabulary = self.json("info", model)["vocabulary"]
            tokens = turn["prompt_ids"] + turn["reply_ids"]
            values = self.rows(model, tokens)
            self.assertEqual(len(values), vocabulary * len(tokens))
            best = [max(range(vocabulary), key=values[row * vocabulary:].__getitem__)
                    for row in range(len(turn["prompt_ids"]) - 1, len(tokens) - 1)]
            self.assertEqual(best, turn["reply_ids"])
            self.assertEqual([name.name for name in self.folder.iterdir()], ["logits"])

    def test_cuts_and_threads_do_not_matter(self):
        tokens = turns_of(GEMMA)[0]["prompt_ids"]
        one = self.rows(GEMMA, tokens).tobytes()
        for options in ["--chunk", 1], ["--chunk", 5], ["--threads", 1], ["--threads", 3]:
            self.assertEqual(self.rows(GEMMA, tokens, *options).tobytes(), one, options)

    def check_golden(self, model):
        golden = read_tensors(model / "golden.safetensors")
        stated = json.loads((model / "golden.json").read_text())
        wanted = golden["logits_bf16p"]
        got = self.rows(model, golden["ids"])[-len(wanted):]
        differences = [a - b for a, b in zip(got, wanted)]
        rms = math.sqrt(sum(d * d for d in differences) / len(differences))
        most = max(map(abs, differences))
        print(f"          {model.name}: rms {rms / stated['rms_bf16p_minus_bf16in']:.2f} of 1.5, "
              f"max {most / stated['max_bf16p_minus_bf16in']:.2f} of 2.5")
        self.assertLessEqual(rms, 1.5 * stated["rms_bf16p_minus_bf16in"], model.name)
        self.assertLessEqual(most, 2.5 * stated["max_bf16p_minus_bf16in"], model.name)

    def test_golden_values(self):
        # An embedding has no logits to compare, and the command's capacity is the model's, beyond
        # the short factors of a long rope; test_embed.py and golden_rope_test.cpp have them.
        others = {"qwen3-embedding", "embedding-gemma", "phi3-longrope-below"}
        models = [model for model in sorted((DATA / "zoo").iterdir()) if model.name not in others]
        for model in [GEMMA, LLAMA] + models:
            with self.subTest(model.name):
                self.check_golden(model)

    @unittest.skipUnless((SHARED / "stories260K").exists(), "shared data is not beside the clone")
    def test_golden_values_of_stories260K(self):
        self.check_golden(SHARED / "stories260K")
