# stasis embed: texts as vectors.
import json
import math
import shutil
import struct

from stasis_process import CommandTest, DATA, LLAMA, WITHOUT_TOKENIZER

EMBEDDING = DATA / "zoo/qwen3-embedding"  # has no tokenizer
BOTH_WAYS = DATA / "zoo/embedding-gemma"  # nor has this


def vectors(out):
    lines = [json.loads(line) for line in out.splitlines()]
    for index, line in enumerate(lines):
        assert list(line) == ["index", "embedding"] and line["index"] == index, line
    return [line["embedding"] for line in lines]


class Embed(CommandTest):
    def model(self):
        """A chat model with files that say how it pools."""
        model = self.folder / "model"
        shutil.copytree(LLAMA, model)
        module = "sentence_transformers.models."
        (model / "modules.json").write_text(json.dumps(
            [{"path": "", "type": module + "Transformer"},
             {"path": "1_Pooling", "type": module + "Pooling"},
             {"path": "2_Normalize", "type": module + "Normalize"}]))
        (model / "1_Pooling").mkdir()
        (model / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode": "mean"}))
        (model / "config_sentence_transformers.json").write_text(json.dumps(
            {"prompts": {"query": "Find: "}, "default_prompt_name": None}))
        return model

    def test_texts_and_lines(self):
        model = self.model()
        texts = ["what is k?", "a", "\u00e9t\u00e9"]
        given = self.ok("embed", model, *texts)
        self.assertEqual(self.ok("embed", model, text="\n".join(texts) + "\n"), given)
        found = vectors(given)
        self.assertEqual([len(vector) for vector in found], [128] * 3)
        for vector in found:
            self.assertAlmostEqual(math.fsum(x * x for x in vector), 1, places=5)
            # Each number is that of an f32.
            for x in vector:
                self.assertAlmostEqual(struct.unpack("f", struct.pack("f", x))[0], x,
                                       delta=abs(x) * 1e-6)
        self.assertEqual(vectors(self.ok("embed", model, "a", "--threads", 1)), [found[1]])
        self.assertEqual(self.ok("embed", model, text=""), "")
        asked = self.ok("embed", model, "a", "--prompt", "query")
        self.assertEqual(asked, self.ok("embed", model, "Find: a"))
        many = "".join(f"line {i % 7}\n" for i in range(300))
        lines = vectors(self.ok("embed", model, text=many))
        self.assertEqual(len(lines), 300)
        self.assertEqual(lines[:7], lines[294:] + lines[6:7])

    def test_tokens(self):
        last = self.ok("embed", EMBEDDING, "--tokens", "1,5,7")
        self.assertEqual(self.ok("embed", EMBEDDING, "--tokens", "1,5,7", "--pooling", "last",
                                 "--kernels", "reference", "--chunk", 1), last)
        self.assertNotEqual(self.ok("embed", EMBEDDING, "--tokens", "1,5,7", "--pooling", "mean"),
                            last)

    def test_both_ways(self):
        """A model whose attention looks both ways, and whose dense layers change the dimension."""
        given = self.ok("embed", BOTH_WAYS, "--tokens", "1,5,7")
        self.assertEqual(len(vectors(given)[0]), 48)
        self.assertEqual(self.ok("embed", BOTH_WAYS, "--tokens", "1,5,7", "--chunk", 1,
                                 "--kernels", "reference"), given)
        self.refused("logits", BOTH_WAYS, "--tokens", "1,5", "--out", self.folder / "logits",
                     names=["both ways", "no sessions"])
        self.refused("quantize", BOTH_WAYS, self.folder / "model.gguf", "--type", "Q8_0",
                     names=["dense layer with biases"])

    def test_refusals(self):
        self.refused("embed", LLAMA, "a", names=["do not say"])
        self.refused("embed", WITHOUT_TOKENIZER, "a", "--pooling", "last", names=["tokenizer"])
        self.refused("embed", EMBEDDING, "--tokens", "1,192", names=["192", "inputs[0]"])
        self.refused("embed", EMBEDDING, "--tokens", "1", "--prompt", "query", names=["query"])
        self.refused("embed", EMBEDDING, "--tokens", "1", "--pooling", "cls", names=["cls"])
        self.refused("embed", EMBEDDING, "a", "--tokens", "1", names=["--tokens"])
        self.refused("embed", self.model(), text="a\n" + "b " * 5000,
                     names=["standard input", "inputs[1]", "4096"])
