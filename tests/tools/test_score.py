# Going back and looking ahead: run --rewind, and score.
from stasis_process import CommandTest, GEMMA, LLAMA, WITHOUT_TOKENIZER, all_tokens, comma, turns_of


class Rewind(CommandTest):
    def test_it_is_the_session_that_never_went_further(self):
        for model in GEMMA, LLAMA:  # one with windows, which are computed again
            tokens, file = all_tokens(model), self.path(f"{model.name}.stasis")
            end = self.json("run", model, "--tokens", comma(tokens), "-n", 0, "--save", file)
            for position in (1, 63, 64, 130, len(tokens)):
                fork = self.path("fork.stasis")
                back = self.json("run", model, "--resume", file, "--rewind", position, "-n", 0,
                                 "--save", fork, "--replace")
                afresh = self.json("run", model, "--tokens", comma(tokens[:position]), "-n", 0)
                self.assertEqual(back["digest"], afresh["digest"], position)
                on = self.json("run", model, "--resume", fork, "-n", 0,
                               *(["--tokens", comma(tokens[position:])] * (position < len(tokens))))
                self.assertEqual(on["digest"], end["digest"], position)
            self.assertEqual(self.json("inspect", file)["digest"], end["digest"])

    def test_refusals(self):
        file = self.path("a.stasis")
        self.ok("run", LLAMA, "--tokens", "1,5,6", "-n", 0, "--save", file)
        self.refused("run", LLAMA, "--tokens", "1,5,6", "--rewind", 1, names=["--resume"])
        self.refused("run", LLAMA, "--resume", file, "--rewind", 4, names=["--rewind", "4"])
        self.refused("run", LLAMA, "--resume", file, "--rewind", 0, names=["nothing to go on"])


class Score(CommandTest):
    def test_the_tokens_of_a_reply(self):
        """As likely as `run` said when it drew them, whatever goes before."""
        turn, file = turns_of(LLAMA)[0], self.path("a.stasis")
        drawn = self.json("run", LLAMA, "--tokens", comma(turn["prompt_ids"]), "-n", 5,
                          "--log-probs", 1)
        before = self.json("run", LLAMA, "--tokens", comma(turn["prompt_ids"]), "-n", 0, "--save",
                           file)
        scored = self.json("score", LLAMA, "--resume", file, "--tokens", comma(drawn["tokens"]))
        self.assertEqual(list(scored), ["position", "tokens", "log_probabilities", "total"])
        self.assertEqual((scored["position"], scored["tokens"]),
                         (len(turn["prompt_ids"]), drawn["tokens"]))
        told = [each["log_probability"] for each in drawn["log_probabilities"]]
        for mine, theirs in zip(scored["log_probabilities"], told, strict=True):
            self.assertAlmostEqual(mine, theirs, places=5)  # an f64, and an f32
        self.assertAlmostEqual(scored["total"], sum(scored["log_probabilities"]))
        self.assertEqual(self.json("inspect", file)["digest"], before["digest"])

    def test_texts(self):
        out = self.ok("score", LLAMA, "--bos", "--prompt", "k is", "--text", " 5.\n")
        one = self.json("score", LLAMA, "--bos", "--prompt", "k is", "--text", " 5.\n")
        lines = out.splitlines()
        self.assertEqual(len(lines), len(one["tokens"]) + 1)
        for line, token, likelihood in zip(lines, one["tokens"], one["log_probabilities"]):
            self.assertRegex(line, rf'\A +{likelihood:.6f}  {token} "[^\x00-\x1f]*"\Z')
        self.assertRegex(lines[-1], rf"\A +{one['total']:.6f}  in all, from position \d+\Z")
        likelier = self.json("score", LLAMA, "--bos", "--prompt", "k is", "--tokens",
                             comma(one["tokens"]))
        self.assertEqual(likelier, one)

    def test_without_a_tokenizer(self):
        file = self.path("a.stasis")
        self.ok("run", WITHOUT_TOKENIZER, "--tokens", "1,5", "-n", 0, "--save", file)
        self.assertRegex(self.ok("score", WITHOUT_TOKENIZER, "--resume", file, "--tokens", "7,8"),
                         r"\A +-\d+\.\d{6}  7\n +-\d+\.\d{6}  8\n +-\d+\.\d{6}  in all, from "
                         r"position 2\n\Z")

    def test_refusals(self):
        self.refused("score", LLAMA, "--bos", names=["nothing to score"])
        self.refused("score", LLAMA, "--text", "a", names=["nothing to go on"])
        self.refused("score", LLAMA, "--bos", "--tokens", "1,9999999", names=["9999999"])
        self.refused("score", LLAMA, "--bos", "--text", "a", "--tokens", "1", names=["--t"])
        self.refused("score", LLAMA, "--resume", self.path("none"), "--text", "a", names=["none"])
