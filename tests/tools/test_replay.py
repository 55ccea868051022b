# stasis replay: that nothing differs where nothing was changed, and where it was: which number,
# which draws, which logits, and what the model says instead.
import struct

import forgery
from stasis_process import CommandTest, DATA, GEMMA, LLAMA, all_tokens, comma, turns_of

SEED, OTHER_SEED = 0x1122334455667788, 0x1122334455667789
DRAW = ["--temperature", 2, "--ignore-eos"]


def number(bits):
    return f"{struct.unpack('<f', struct.pack('<I', bits << 16))[0]:g} (bf16 {bits:04x})"


class Replay(CommandTest):
    def test_nothing_differs(self):
        for model in GEMMA, LLAMA:
            users = [turn["user"] for turn in turns_of(model)[:6]]
            for name, options in (("full", []), ("none", ["--keep", "none"]),
                                  ("drawn", ["--temperature", 1.5, "--seed", 3])):
                path = self.path(model.name + name)
                self.chat(model, users, "--session", path, *options)
                inspected = self.json("inspect", path)
                replayed = self.json("replay", path, model)
                self.assertEqual(list(replayed), ["verified", "positions", "pages", "pages_stored",
                                                  "drawn", "drawn_otherwise", "older", "seconds"])
                elements = inspected["elements"]
                pages = elements["kv_cache"]["pages"]
                self.assertEqual(
                    (replayed["verified"], replayed["positions"], replayed["drawn"],
                     replayed["drawn_otherwise"], replayed["pages"], replayed["pages_stored"]),
                    (True, inspected["position"],
                     elements["input_token_buffer"]["sources"]["sampled"], [], len(pages),
                     sum(1 for page in pages if page["runs"])))
                out = self.ok("replay", path, model, "--threads", 1)
                self.assertIn("the same, bit for bit", out)
                self.assertIn(f"  {inspected['position']} positions computed again", out)
                self.assertIn(f"  {replayed['drawn']} tokens drawn again\n", out)
                self.assertEqual(replayed["pages_stored"] < len(pages), "by digest" in out)
        self.refused("replay", path, GEMMA, names=["MODEL_MISMATCH"])

    def test_nothing_was_drawn(self):
        self.json("run", GEMMA, "--tokens", "5", "-n", 0, "--save", self.path("s"))
        self.assertEqual(self.json("replay", self.path("s"), GEMMA)["drawn"], 0)

    def test_tokens_that_the_settings_do_not_draw(self):
        prompt = all_tokens(GEMMA)[:60]
        made = self.json("run", GEMMA, "--tokens", comma(prompt), "-n", 40, *DRAW, "--seed", SEED,
                         "--save", self.path("s"))
        log = prompt + made["tokens"]
        forgery.change(self.path("s"), struct.pack("<Q", SEED), struct.pack("<Q", OTHER_SEED))
        replayed = self.json("replay", self.path("s"), GEMMA, "-n", 12, code=1)
        self.assertEqual((replayed["verified"], replayed["drawn"], replayed["element"]),
                         (False, 40, "input_token_buffer"))
        verified = self.json("verify", self.path("s"), GEMMA, code=1)
        self.assertEqual(verified["message"], replayed["message"])
        otherwise = {each["position"]: each for each in replayed["drawn_otherwise"]}
        self.assertGreater(len(otherwise), 1)
        # Each position, asked alone: what the forged settings draw after the recorded tokens.
        for position in range(60, 100):
            if position % 5 == 0 or position == min(otherwise):
                drawn = self.json("run", GEMMA, "--tokens", comma(log[:position]), "-n", 1, *DRAW,
                                  "--seed", OTHER_SEED)["tokens"][0]
                each = otherwise.get(position, {"recorded": drawn, "drawn": drawn})
                self.assertEqual((each["recorded"], each["drawn"]), (log[position], drawn))
        first = min(otherwise)
        self.assertEqual((replayed["position"], replayed["from"]), (first, first))
        self.assertEqual(replayed["recorded"]["tokens"], log[first:first + 12])
        instead = self.json("run", GEMMA, "--tokens", comma(log[:first]), "-n", 12,
                            "--temperature", 2, "--seed", OTHER_SEED)
        self.assertEqual(replayed["instead"]["tokens"], instead["tokens"])
        self.assertEqual(replayed["logits"]["differ"], 0)
        self.assertEqual(replayed["logits"]["stored"], replayed["logits"]["computed"])
        out = self.ok("replay", self.path("s"), GEMMA, code=1)
        self.assertIn(f"{len(otherwise)} of 40 tokens come out otherwise", out)
        self.assertIn("the 64 best are the same\n", out)
        self.assertIn(f"from position {first}\n", out)

    def test_either_side_of_a_long_rope(self):
        """The walk has the file's factors: its logits are the file's, and so are its draws."""
        model, prompt = DATA / "zoo/phi3-longrope", list(range(3, 43))  # original context 64
        run = ["run", model, "-n", 20, *DRAW, "--tokens"]
        digests = set()
        for capacity in 64, 65:
            run_here = [*run, comma(prompt), "--capacity", capacity, "--seed"]
            made = self.json(*run_here, SEED, "--save", self.path("s"), "--replace")
            digests.add(made["digest"])
            self.assertTrue(self.json("replay", self.path("s"), model)["verified"])
            forgery.change(self.path("s"), struct.pack("<Q", SEED), struct.pack("<Q", OTHER_SEED))
            replayed = self.json("replay", self.path("s"), model, code=1)
            self.assertEqual((replayed["element"], replayed["drawn"]), ("input_token_buffer", 20))
            self.assertEqual((replayed["logits"]["compared"], replayed["logits"]["differ"]),
                             (64, 0))
            self.assertEqual(replayed["logits"]["stored"], replayed["logits"]["computed"])
            otherwise = {each["position"]: each["drawn"] for each in replayed["drawn_otherwise"]}
            for position in range(40, 60):
                log = prompt + made["tokens"][:position - 40]
                drawn = self.json("run", model, "-n", 1, *DRAW, "--tokens", comma(log), "--seed",
                                  OTHER_SEED, "--capacity", capacity)["tokens"][0]
                recorded = made["tokens"][position - 40]
                self.assertEqual(otherwise.get(position, recorded), drawn, position)
        self.assertEqual(len(digests), 2)

    def test_keys_and_values_that_the_model_does_not_compute(self):
        self.json("run", LLAMA, "--tokens", comma(all_tokens(LLAMA)[:128]), "-n", 0, "--save",
                  self.path("prefix"))
        before, after = forgery.flip_value(self.path("prefix"), 0, 7, 69, bit=10)
        self.json("run", LLAMA, "--resume", self.path("prefix"), "-n", 60, *DRAW, "--save",
                  self.path("s"))
        replayed = self.json("replay", self.path("s"), LLAMA, code=1)
        self.assertEqual(
            (replayed["element"], replayed["position"], replayed["layer"], replayed["head"],
             replayed["part"]), ("kv_cache", 69, 7, 1, "values"))
        self.assertEqual(replayed["message"],
                         "values of layer 7, head 1 at position 69 differ: "
                         f"{number(after)} in the file, {number(before)} computed")
        logits = replayed["logits"]
        self.assertEqual(logits["compared"], 64)
        self.assertGreater(logits["differ"], 0)
        self.assertGreater(logits["largest_difference"], 0)
        stored = self.json("inspect", self.path("s"))["elements"]["logits"]["top"][0]
        self.assertEqual((logits["stored"]["token"], logits["stored"]["logit"]),
                         (stored["token"], stored["logit"]))
        out = self.ok("replay", self.path("s"), LLAMA, code=1)
        self.assertIn(replayed["message"], out)
        self.assertIn(f"{logits['differ']} of the 64 best differ", out)
