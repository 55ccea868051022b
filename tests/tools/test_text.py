# stasis tokenize, detokenize, template and info: keys and agreement with each other.
import json

from stasis_process import CommandTest, DATA, GEMMA, LLAMA, WITHOUT_TOKENIZER, comma, turns_of

INFO_KEYS = ["architecture", "layers", "hidden", "heads", "kv_heads", "head_dim", "vocabulary",
             "context", "layer_types", "kernels", "device", "contract", "profile", "template",
             "weights", "weight_bytes", "state_bytes", "experts", "experts_chosen",
             "mtp_bytes", "global_kv_heads", "global_head_dim", "layer_keys", "ignored",
             "converted", "digests", "memory"]


class Text(CommandTest):
    def test_round_trip(self):
        for model in GEMMA, LLAMA:
            for text in "What is k?", "x divided by y is 4.", "naïve – 東京 🙂":
                there = self.json("tokenize", model, text)
                self.assertEqual(list(there), ["tokens", "pieces"])
                self.assertEqual(len(there["tokens"]), len(there["pieces"]))
                back = self.ok("detokenize", model, comma(there["tokens"]))
                self.assertEqual(back.strip(), text)

    def test_bos_and_markers_only_when_asked_for(self):
        plain = self.json("tokenize", GEMMA, "<bos>k")["tokens"]
        self.assertNotIn(2, plain)
        self.assertEqual(self.json("tokenize", GEMMA, "<bos>k", "--bos")["tokens"], [2] + plain)
        self.assertEqual(self.json("tokenize", GEMMA, "<bos>k", "--special")["tokens"][0], 2)

    def test_text_that_looks_like_options(self):
        self.assertTrue(self.ok("tokenize", GEMMA, "--", "--json -x"))
        self.assertEqual(self.json("tokenize", GEMMA, "")["tokens"], [])

    def test_template_is_what_chat_appends(self):
        for model in GEMMA, LLAMA:
            first, second = turns_of(model)[:2]
            messages = [{"role": "user", "content": first["user"]},
                        {"role": "assistant", "content": first["reply"]},
                        {"role": "user", "content": second["user"]}]
            for count, ids in ((1, first["prompt_ids"]),
                               (3, first["prompt_ids"] + first["reply_ids"] +
                                second["prompt_ids"])):
                with open(self.path("m.json"), "w", encoding="utf-8") as file:
                    json.dump(messages[:count], file)
                rendered = self.json("template", model, "--messages", self.path("m.json"))
                self.assertEqual(list(rendered), ["text", "tokens"])
                self.assertEqual(rendered["tokens"], ids)
                self.assertEqual(self.ok("template", model, "--messages", self.path("m.json")),
                                 rendered["text"] + "\n")

    def test_markers_in_a_message_are_text(self):
        user = "k<end_of_turn><bos>"
        chat = self.chat(GEMMA, [user], "-n", 0)[0]
        with open(self.path("m.json"), "w", encoding="utf-8") as file:
            json.dump([{"role": "user", "content": user}], file)
        rendered = self.json("template", GEMMA, "--messages", self.path("m.json"))
        run = self.json("run", GEMMA, "--tokens", comma(rendered["tokens"]), "-n", 0)
        self.assertEqual((run["position"], run["digest"]), (chat["position"], chat["digest"]))
        marked = self.json("tokenize", GEMMA, rendered["text"], "--special")["tokens"]
        self.assertNotEqual(rendered["tokens"], marked)

    def test_template_refusals(self):
        for name, content, hint in (("a", "{", "a"), ("b", '[{"role": "user"}]', "content"),
                                    ("c", "3", "list"), ("d", '{"role": "user"}', "list"),
                                    ("e", '[{"role":"user","content":3}]', "message 1")):
            with open(self.path(name), "w", encoding="ascii") as file:
                file.write(content)
            self.refused("template", GEMMA, "--messages", self.path(name), names=[hint])
        self.refused("template", GEMMA, "--messages", self.path("missing"), names=["missing"])


class Info(CommandTest):
    def test_hybrids_and_mixtures(self):
        model = DATA / "zoo/qwen3_5-moe"
        info = self.json("info", model)
        self.assertEqual(info["layer_types"], 3 * ["linear_attention"] + ["full_attention"])
        self.assertEqual((info["experts"], info["experts_chosen"]), (8, 2))
        # Three layers of (3 inputs of 192 channels and 4 heads of 16 x 32), f32.
        self.assertEqual(info["state_bytes"], 3 * (3 * 192 + 4 * 16 * 32) * 4)
        shown = self.ok("info", model)
        self.assertIn("4, 3 of them recurrent, with 31488 bytes of state, the others see", shown)
        self.assertIn("8, of which 2 for each token", shown)
        self.assertIn("1.1.1, recurrent 1, experts 1", shown)
        self.assertEqual(info["mtp_bytes"], 0)
        self.assertNotIn("MTP", shown)

    def test_json(self):
        info = self.json("info", GEMMA)
        config = json.loads((GEMMA / "config.json").read_text())
        self.assertEqual(list(info), INFO_KEYS)
        for key, name in (("layers", "num_hidden_layers"), ("hidden", "hidden_size"),
                          ("heads", "num_attention_heads"), ("kv_heads", "num_key_value_heads"),
                          ("head_dim", "head_dim"), ("vocabulary", "vocab_size"),
                          ("context", "max_position_embeddings"), ("layer_types", "layer_types")):
            self.assertEqual(info[key], config[name], key)
        self.assertEqual((info["template"], info["converted"]), ("gemma", False))
        self.assertRegex(info["contract"], r"\A\d+\.\d+\.\d+\Z")
        self.assertEqual(list(info["digests"]), ["model", "embeddings", "norms", "attention", "mlp",
                                                 "head", "tokenizer"])
        self.assertEqual(len(set(info["digests"]["attention"])), config["num_hidden_layers"])
        self.assertEqual(len(info["digests"]["mlp"]), config["num_hidden_layers"])

    def test_without_tokenizer_and_converted(self):
        info = self.json("info", WITHOUT_TOKENIZER)
        self.assertIsNone(info["template"])
        self.assertIsNone(info["digests"]["tokenizer"])
        wide = self.json("info", DATA / "zoo/llama-odd-sizes-f32")
        self.assertTrue(wide["converted"])
        self.assertEqual(wide["weights"], "F32: 23 matrices, F32: 7 vectors")
        self.assertIn("weights       F32: 23 matrices, F32: 7 vectors; matrices wider than bf16 "
                      "are rounded to it\n", self.ok("info", DATA / "zoo/llama-odd-sizes-f32"))

    def test_without_json(self):
        out = self.ok("info", GEMMA)
        self.assertIn(self.json("info", GEMMA)["digests"]["model"], out)
