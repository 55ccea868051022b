# Speculative decoding from the command line: the same tokens and digests, what is said of it, and
# the benchmark's figures.
import json
import shutil
import struct

from stasis_process import CommandTest, DATA, GEMMA, LLAMA, all_tokens, comma, turns_of

KEYS = ["drafted", "accepted", "passes", "draft_failures"]
HYBRID = DATA / "zoo/qwen3_5-dense"


def add_mtp_head(model):
    """Adds an MTP head to a copy of the hybrid: its last layer again, some of its embeddings."""
    path = model / "model.safetensors"
    whole = path.read_bytes()
    size, = struct.unpack("<Q", whole[:8])
    header, data = json.loads(whole[8:8 + size]), whole[8 + size:]
    stem = "model.language_model."

    def add(name, shape, source):
        nonlocal data
        begin, count = header[source]["data_offsets"][0], 2
        for dimension in shape:
            count *= dimension
        header[name] = {"dtype": "BF16", "shape": shape,
                        "data_offsets": [len(data), len(data) + count]}
        data += data[begin:begin + count]

    for name in [name for name in header if name.startswith(stem + "layers.7.")]:
        add("mtp.layers.0." + name[len(stem + "layers.7."):], header[name]["shape"], name)
    add("mtp.fc.weight", [64, 128], stem + "embed_tokens.weight")
    for name in "norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden":
        add(f"mtp.{name}.weight", [64], stem + "norm.weight")
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Draft(CommandTest):
    def quantised(self, model):
        path = self.path("small.gguf")
        self.ok("quantize", model, path, "--type", "Q8_0", "--replace")
        return path

    def test_run_gives_the_same_with_every_drafter(self):
        for model in GEMMA, LLAMA:
            prompt = ["run", model, "--tokens", comma(all_tokens(model)), "-n", 80, "--ignore-eos"]
            for sampling in [], ["--temperature", 0.8, "--seed", 5, "--repetition-penalty", 1.1]:
                plain = self.json(*prompt, *sampling)
                self.assertFalse(set(KEYS) & set(plain))
                for draft in ["--draft-lookup"], ["--draft", self.quantised(model)]:
                    run = self.json(*prompt, *sampling, *draft)
                    self.assertEqual(list(run)[-4:], KEYS)
                    for key in "tokens", "text", "digest", "stop_reason":
                        self.assertEqual(run[key], plain[key], (draft, key))
                    self.assertEqual(run["passes"] + run["accepted"], 80)
                    self.assertLessEqual(run["accepted"], run["drafted"])
                    self.assertEqual(run["draft_failures"], 0)

    def test_a_head_drafts_for_its_own_model(self):
        model = self.folder / "with_head"
        shutil.copytree(HYBRID, model)
        add_mtp_head(model)
        self.assertGreater(self.json("info", model)["mtp_bytes"], 0)
        prompt = ["-n", 60, "--ignore-eos", "--tokens", comma(range(3, 90))]
        plain = self.json("run", HYBRID, *prompt)
        for path in model, self.quantised(model):
            run = self.json("run", path, *prompt, "--draft-mtp")
            self.assertGreater(run["drafted"], 0)
            self.assertEqual(run["passes"] + run["accepted"], 60)
            self.assertEqual(run["draft_failures"], 0)
            self.assertEqual(run["digest"], self.json("run", path, *prompt)["digest"])
        self.assertEqual(self.json("run", model, *prompt)["digest"], plain["digest"])
        self.refused("run", HYBRID, *prompt, "--draft-mtp", names=["--draft-mtp", "MTP head"])
        self.refused("run", model, *prompt, "--draft-mtp", "--draft-lookup",
                     names=["--draft-mtp", "--draft-lookup"])

    def test_what_is_said_of_it(self):
        prompt = ["run", LLAMA, "--tokens", comma(all_tokens(LLAMA)), "-n", 40, "--ignore-eos"]
        done = self.run_command(*prompt, "--draft-lookup")
        self.assertRegex(done.stderr.decode(),
                         r"\[\d+ of \d+ drafted tokens accepted, \d+ passes\]\n")
        self.assertNotIn("drafted", self.run_command(*prompt).stderr.decode())

    def test_chat(self):
        users = [turn["user"] for turn in turns_of(LLAMA)][:4]
        plain = self.chat(LLAMA, users)
        drafted = self.chat(LLAMA, users, "--draft-lookup")
        self.assertEqual([list(reply)[-4:] for reply in drafted], [KEYS] * len(users))
        for one, other in zip(plain, drafted):
            self.assertEqual((one["text"], one["digest"]), (other["text"], other["digest"]))

    def test_refusals(self):
        prompt = ["run", LLAMA, "--tokens", "1,2,3", "-n", 5]
        self.refused(*prompt, "--draft", GEMMA, names=["--draft", "tokenizer"])
        self.refused(*prompt, "--draft", DATA / "zoo/gemma3-text", names=["--draft", "vocabulary"])
        self.refused(*prompt, "--draft", self.path("none"), names=["none"])
        self.refused(*prompt, "--draft", "", names=["--draft"])
        self.refused(*prompt, "--draft", LLAMA, "--draft-lookup", names=["--draft"])
        self.refused("bench", LLAMA, "--only", "draft_repeat", names=["draft_repeat", "--draft"])

    def test_bench(self):
        report = self.json("bench", LLAMA, "--repetitions", 2, "--draft", LLAMA, "--only",
                           "lookup_repeat,lookup_drawn,lookup_chance,draft_repeat,draft_drawn")
        results = {result["name"]: result for result in report["results"]}
        self.assertEqual(len(results), 25)
        for name in "lookup_repeat", "lookup_drawn", "lookup_chance", "draft_repeat", "draft_drawn":
            plain, ahead = results[name + ":plain"], results[name]
            self.assertEqual((plain["unit"], ahead["unit"]), ("tokens/s", "tokens/s"))
            self.assertGreater(results[name + ":gain"]["median"], 0)
        of = {name: results[name]["median"] for name in results}
        self.assertGreater(of["lookup_repeat:accepted"], 150)
        self.assertEqual(of["lookup_repeat:accepted"], of["lookup_repeat:drafted"])
        self.assertLessEqual(of["lookup_drawn:accepted"], of["lookup_drawn:drafted"])
        # If nothing can be foreseen, few proposals are made; the same with a draft as large as the
        # model.
        self.assertLess(of["lookup_chance:drafted"], 60)
        self.assertLess(of["draft_repeat:drafted"], 40)
