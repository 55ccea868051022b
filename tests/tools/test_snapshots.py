# stasis inspect, diff and verify: keys, exit codes, and what they say about files that chat and
# run left.
import json
import shutil

from stasis_process import CommandTest, GEMMA, LLAMA, all_tokens, comma, turns_of

INSPECT_KEYS = ["format", "contract", "profile", "positions_foreign", "position", "digest", "root",
                "elements", "spans", "sections", "data", "text", "file"]
FILE_KEYS = ["bytes", "commits", "keep", "codec", "kv_bytes", "kv_stored_bytes", "kv_ratio",
             "dead_bytes", "root_damaged", "older"]
ELEMENTS = ["kv_cache", "token_embeddings", "positional_state", "input_token_buffer",
            "attention_mask", "model_config", "layer_norm", "attention_weights", "logits",
            "tokenizer", "kv_format_version", "prompt_injection_meta"]


SLOT_A, SLOT_B = 4096, 8192


class Snapshots(CommandTest):
    def save(self, name, model, tokens, *options):
        return self.json("run", model, "--tokens", comma(tokens), "-n", 0, "--save",
                         self.path(name), *options)

    def test_inspect(self):
        turn = turns_of(GEMMA)[0]
        reply = self.chat(GEMMA, [turn["user"]], "--session", self.path("s"))[0]
        inspected = self.json("inspect", self.path("s"))
        self.assertEqual(list(inspected), INSPECT_KEYS)
        self.assertEqual(list(inspected["elements"]), ELEMENTS)
        for element in inspected["elements"].values():
            self.assertTrue(element)
        self.assertEqual((inspected["position"], inspected["digest"]),
                         (reply["position"], reply["digest"]))
        self.assertRegex(inspected["root"], r"\A[0-9a-f]{64}\Z")
        self.assertIn(turn["user"], inspected["text"])
        self.assertIn(turn["reply"], inspected["text"])
        self.assertTrue(inspected["sections"])
        self.assertEqual(inspected["data"], [])
        self.check_file(inspected)
        at = 0
        for span in inspected["spans"]:
            self.assertEqual(span["begin"], at)
            at = span["end"]
        self.assertEqual(at, inspected["position"])
        self.assertEqual(inspected["spans"][-1]["source"], "sampled")

    def check_file(self, inspected, codec="raw"):
        """What is said of the file as a whole follows from what is said of its parts."""
        file, cache = inspected["file"], inspected["elements"]["kv_cache"]
        self.assertEqual(list(file), FILE_KEYS)
        self.assertEqual((file["keep"], file["codec"], file["root_damaged"]),
                         (cache["keep"], codec, False))
        self.assertEqual(file["commits"], inspected["elements"]["kv_format_version"]["commit"])
        for name, key in (("kv_bytes", "bytes"), ("kv_stored_bytes", "stored_bytes")):
            self.assertEqual(file[name], sum(group[key] for group in cache["groups"]))
        ends = [section["offset"] + section["stored"] for section in inspected["sections"]]
        self.assertGreaterEqual(file["bytes"], max(ends))
        if file["kv_bytes"] == 0:
            self.assertIsNone(file["kv_ratio"])
        else:
            self.assertEqual(file["kv_ratio"], file["kv_stored_bytes"] / file["kv_bytes"])

    def test_inspect_tells_sizes_and_ratios(self):
        tokens = all_tokens(GEMMA)[:200]
        for name, codec, options in (("raw", "raw", []), ("zstd", "zstd", ["--codec", "zstd"]),
                                     ("none", "raw", ["--keep", "none"])):
            self.save(name, GEMMA, tokens, *options)
            inspected = self.json("inspect", self.path(name))
            self.check_file(inspected, codec)
            self.assertEqual(inspected["file"]["bytes"], (self.folder / name).stat().st_size)
        self.assertIn("keys and values are not kept", self.ok("inspect", self.path("none")))
        self.assertIn("(100.0 %, codec raw)", self.ok("inspect", self.path("raw")))
        ratio = self.json("inspect", self.path("zstd"))["file"]["kv_ratio"]
        self.assertLess(ratio, 0.75)
        self.assertIn(f"({100 * ratio:.1f} %, codec zstd)", self.ok("inspect", self.path("zstd")))

    def test_inspect_shows_spans_by_role_and_source(self):
        text = "".join(turn["user"] + "\n" for turn in turns_of(LLAMA)[:2])
        self.ok("chat", LLAMA, "--session", self.path("s"), "--system", "Be brief.", text=text)
        inspected = self.json("inspect", self.path("s"))
        seen = {(span["source"], span["role"]) for span in inspected["spans"]}
        self.assertLessEqual({("template", "user"), ("text", "user"), ("text", "system"),
                              ("template", "assistant"), ("sampled", "assistant")}, seen)
        out = self.ok("inspect", self.path("s"))
        for span in inspected["spans"]:
            self.assertRegex(out, rf"(?m)^  {span['begin']} +{span['end']} +{span['source']} +"
                                  rf"{span['role']} .* {span['tokens']}\b")

    def test_inspect_without_json(self):
        self.save("s", GEMMA, all_tokens(GEMMA))
        out = self.ok("inspect", self.path("s"))
        digest = self.json("inspect", self.path("s"))["digest"]
        for name in ELEMENTS + [digest, "spans", "sections"]:
            self.assertIn(name, out)

    def test_diff(self):
        tokens = all_tokens(GEMMA)[:100]
        self.save("a", GEMMA, tokens)
        self.save("b", GEMMA, tokens, "--chunk", "9")
        self.save("c", GEMMA, tokens[:70] + [300] + tokens[71:])
        self.save("d", GEMMA, tokens[:60])
        self.save("e", LLAMA, tokens)
        self.assertEqual(self.json("diff", self.path("a"), self.path("b")),
                         {"equal": True, "element": None, "position": None, "layer": None,
                          "head": None})
        changed = self.json("diff", self.path("a"), self.path("c"), code=1)
        self.assertEqual((changed["equal"], changed["element"], changed["position"]),
                         (False, "input_token_buffer", 70))
        shorter = self.json("diff", self.path("a"), self.path("d"), code=1)
        self.assertFalse(shorter["equal"])
        foreign = self.json("diff", self.path("a"), self.path("e"), code=1)
        self.assertIn(foreign["element"], ELEMENTS)
        self.assertEqual(self.ok("diff", self.path("a"), self.path("b")), "equal\n")
        self.assertIn("[position 70]", self.ok("diff", self.path("a"), self.path("c"), code=1))

    def test_diff_names_the_layer(self):
        model = self.folder / "model"
        shutil.copytree(GEMMA, model)
        weights = model / "model.safetensors"
        content = bytearray(weights.read_bytes())
        length = int.from_bytes(content[:8], "little")
        tensor = next(tensor for name, tensor in json.loads(content[8:8 + length]).items()
                      if name.endswith("layers.1.self_attn.q_proj.weight"))
        content[8 + length + tensor["data_offsets"][0]] ^= 1
        weights.write_bytes(content)
        self.save("a", GEMMA, [1, 2, 3])
        self.save("b", model, [1, 2, 3])
        changed = self.json("diff", self.path("a"), self.path("b"), code=1)
        self.assertEqual((changed["element"], changed["position"], changed["layer"],
                          changed["head"]), ("attention_weights", None, 1, None))
        self.assertIn(" [layer 1]\n", self.ok("diff", self.path("a"), self.path("b"), code=1))

    def test_verify(self):
        for model in GEMMA, LLAMA:
            tokens = all_tokens(model)
            self.save(model.name, model, tokens)
            for options in [], ["--threads", 1], ["--kernels", "reference"]:
                verified = self.json("verify", self.path(model.name), model, *options)
                self.assertEqual(list(verified),
                             ["verified", "positions", "older", "sections", "seconds"])
                self.assertEqual((verified["verified"], verified["positions"]),
                                 (True, len(tokens)))
        self.assertIn("verified", self.ok("verify", self.path(GEMMA.name), GEMMA))
        self.refused("verify", self.path(GEMMA.name), LLAMA)

    def damaged(self):
        """Three turns of chat; then the last one's root is damaged."""
        turns = [turn["user"] for turn in turns_of(GEMMA)[:3]]
        self.chat(GEMMA, turns, "--session", self.path("s"))
        before = self.json("inspect", self.path("s"))["file"]
        self.assertEqual((before["commits"], before["older"]), (3, False))
        with open(self.path("s"), "r+b") as file:
            file.seek(SLOT_A + 108)
            file.write(b"\1")
        with open(self.path("s"), "rb") as file:
            return file.read()

    def kept(self, data):
        with open(self.path("s"), "rb") as file:
            self.assertEqual(file.read(), data)

    def test_damaged_last_commit(self):
        data = self.damaged()
        said = "the root of its last commit"
        for command in ("verify", "replay", "compact"):
            model = [] if command == "compact" else [GEMMA]
            done = self.run_command(command, self.path("s"), *model)
            self.assertEqual(done.returncode, 1, command)
            self.assertIn(said, done.stderr.decode(), command)
        for arguments in (["diff", self.path("s"), self.path("s")],
                          ["report", self.path("s"), "-o", self.path("page.html")]):
            done = self.run_command(*arguments)
            self.assertEqual(done.returncode, 0, arguments)
            self.assertIn(said, done.stderr.decode(), arguments)
        inspected = self.json("inspect", self.path("s"))
        self.assertEqual((inspected["file"]["older"], inspected["file"]["commits"]), (True, 2))
        self.assertIn("DAMAGED", self.ok("inspect", self.path("s")))
        for arguments in (["run", GEMMA, "--resume", self.path("s"), "-n", 1],
                          ["chat", GEMMA, "--session", self.path("s")]):
            done = self.run_command(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(said, done.stderr.decode())
        self.kept(data)
        done = self.run_command("run", GEMMA, "--prompt", "x", "-n", 1, "--save", self.path("s"))
        self.assertEqual(done.returncode, 2)
        self.kept(data)
        for resume in (("run", GEMMA, "--resume"), ("chat", GEMMA, "--session")):
            self.refused(*resume, self.path("s"), names=["older state is accepted: --accept-older"])
        accepted = self.json("run", GEMMA, "--resume", self.path("s"), "-n", 0, "--accept-older")
        self.assertEqual(accepted["digest"], inspected["digest"])
        self.chat(GEMMA, ["And now?"], "--session", self.path("s"), "--accept-older")
        file = self.json("inspect", self.path("s"))["file"]
        self.assertEqual((file["commits"], file["older"], file["root_damaged"]), (3, False, False))
        self.ok("verify", self.path("s"), GEMMA, "--strict")

    def test_strict(self):
        self.damaged()
        self.chat(GEMMA, ["And now?"], "--session", self.path("s"), "--accept-older")
        file = self.json("inspect", self.path("s"))["file"]
        self.assertGreater(file["dead_bytes"], 0)
        verified = self.json("verify", self.path("s"), GEMMA, "--strict")
        self.assertGreater(verified["sections"], 0)
        self.assertFalse(verified["older"])
        with open(self.path("s"), "r+b") as file:  # the frame of the first manifest: dead by now
            data = file.read()
            at = data.index(b"STSM") + 8
            file.seek(at)
            file.write(bytes([data[at] ^ 1]))
        self.ok("verify", self.path("s"), GEMMA)
        done = self.run_command("verify", self.path("s"), GEMMA, "--strict")
        self.assertEqual(done.returncode, 2)
        self.assertIn("do not give its checksum", done.stderr.decode())
        self.ok("compact", self.path("s"))
        self.assertEqual(self.json("inspect", self.path("s"))["file"]["dead_bytes"], 0)
