# stasis run: keys, stop reasons, independence from cuts and threads, save and resume.
import signal
import subprocess

from stasis_process import (CommandTest, DATA, GEMMA, LLAMA, WITHOUT_TOKENIZER, all_tokens, comma,
                            command, turns_of)

KEYS = ["prompt_tokens", "tokens", "text", "position", "digest", "stop_reason", "prefill_seconds",
        "decode_seconds"]


class Run(CommandTest):
    def test_reply_and_json_keys(self):
        for model in GEMMA, LLAMA:
            turn = turns_of(model)[0]
            run = self.json("run", model, "--tokens", comma(turn["prompt_ids"]))
            self.assertEqual(list(run), KEYS)
            self.assertEqual(run["prompt_tokens"], turn["prompt_ids"])
            self.assertEqual(run["tokens"], turn["reply_ids"])
            self.assertEqual(run["text"].strip(), turn["reply"])
            self.assertEqual(run["stop_reason"], "end_token")
            self.assertEqual(run["position"], len(turn["prompt_ids"]) + len(turn["reply_ids"]))
            self.assertRegex(run["digest"], r"\A[0-9a-f]{64}\Z")
            self.assertGreater(run["prefill_seconds"], 0)
            self.assertGreater(run["decode_seconds"], 0)

    def test_text_without_json(self):
        turn = turns_of(GEMMA)[0]
        out = self.ok("run", GEMMA, "--tokens", comma(turn["prompt_ids"]))
        self.assertEqual(out.strip(), turn["reply"])

    def test_stop_reasons(self):
        turn = turns_of(GEMMA)[0]
        prompt = ["run", GEMMA, "--tokens", comma(turn["prompt_ids"])]
        cut = self.json(*prompt, "-n", 2)
        self.assertEqual((cut["stop_reason"], cut["tokens"]), ("length", turn["reply_ids"][:2]))
        stopped = self.json(*prompt, "--stop", "never", "--stop", " is")
        self.assertEqual((stopped["stop_reason"], stopped["text"].strip()), ("stop_string", "k"))
        ignoring = self.json(*prompt, "--ignore-eos", "-n", 20)
        self.assertEqual((ignoring["stop_reason"], len(ignoring["tokens"])), ("length", 20))
        self.assertEqual(ignoring["tokens"][:len(turn["reply_ids"])], turn["reply_ids"])

    def test_log_probabilities(self):
        prompt = ["run", LLAMA, "--tokens", comma(turns_of(LLAMA)[0]["prompt_ids"]), "-n", 4]
        run = self.json(*prompt, "--log-probs", 3)
        self.assertEqual(list(run), KEYS + ["log_probabilities"])
        self.assertEqual([each["token"] for each in run["log_probabilities"]], run["tokens"])
        for each in run["log_probabilities"]:
            self.assertEqual(len(each["best"]), 3)
            self.assertEqual(each["best"][0], {"token": each["token"],
                                               "log_probability": each["log_probability"]})
        self.assertEqual(run["tokens"], self.json(*prompt)["tokens"])

    def test_every_way_to_sample_is_replayed(self):
        prompt = ["run", LLAMA, "--tokens", comma(all_tokens(LLAMA)[:60]), "--ignore-eos",
                  "--temperature", 2]
        drawn = {comma(self.json(*prompt, "-n", 40)["tokens"])}
        ways = (["--typical-p", 0.3], ["--top-n-sigma", 0.5], ["--top-p", 0.01, "--min-keep", 9],
                ["--xtc-probability", 1, "--xtc-threshold", 0.01],
                ["--dry-multiplier", 30, "--dry-allowed-length", 1, "--dry-base", 2],
                ["--dry-multiplier", 30, "--dry-allowed-length", 1, "--dry-base", 2,
                 "--dry-range", 50, "--dry-breakers", "967,4"])
        for way in ways:
            run = self.json(*prompt, "-n", 40, *way, "--save", self.path("s"), "--replace")
            self.assertNotIn(comma(run["tokens"]), drawn, way)
            drawn.add(comma(run["tokens"]))
            replayed = self.json("replay", self.path("s"), LLAMA)
            self.assertEqual((replayed["verified"], replayed["drawn"]), (True, 40), way)
            more = ["-n", 5, "--ignore-eos"]
            self.assertEqual(self.json("run", LLAMA, "--resume", self.path("s"), *more)["tokens"],
                             self.json(*prompt, *way, "-n", 45)["tokens"][40:], way)

    def test_zero_new_tokens_only_append(self):
        prompt = turns_of(GEMMA)[0]["prompt_ids"]
        run = self.json("run", GEMMA, "--tokens", comma(prompt), "-n", 0)
        self.assertEqual((run["position"], run["tokens"], run["stop_reason"]),
                         (len(prompt), [], "length"))

    def test_cuts_threads_and_kernels_do_not_matter(self):
        for model in GEMMA, LLAMA:
            prompt = ["run", model, "--tokens", comma(all_tokens(model)), "-n", 5, "--ignore-eos"]
            one = self.json(*prompt)
            for options in (["--chunk", 1], ["--chunk", 7], ["--chunk", 64], ["--threads", 1],
                            ["--threads", 3, "--chunk", 33], ["--kernels", "reference"],
                            ["--copy-weights"]):
                other = self.json(*prompt, *options)
                self.assertEqual((other["digest"], other["tokens"]), (one["digest"], one["tokens"]),
                                 options)

    def test_tokens_file_and_bos(self):
        with open(self.path("ids"), "w", encoding="ascii") as file:
            file.write("363, 279,6\n335\t1013 ,961\n")
        run = self.json("run", GEMMA, "--tokens-file", self.path("ids"), "-n", 0)
        self.assertEqual(run["prompt_tokens"], [363, 279, 6, 335, 1013, 961])
        run = self.json("run", GEMMA, "--tokens-file", self.path("ids"), "-n", 0, "--bos")
        self.assertEqual(run["prompt_tokens"], [2, 363, 279, 6, 335, 1013, 961])

    def test_prompt_adds_nothing_unasked(self):
        ids = self.json("tokenize", GEMMA, "What is k?")["tokens"]
        run = self.json("run", GEMMA, "--prompt", "What is k?", "-n", 0)
        self.assertEqual(run["prompt_tokens"], ids)
        run = self.json("run", GEMMA, "--prompt", "What is k?", "-n", 0, "--bos")
        self.assertEqual(run["prompt_tokens"], [2] + ids)
        marker = self.json("run", GEMMA, "--prompt", "<end_of_turn>", "-n", 0)
        self.assertGreater(len(marker["prompt_tokens"]), 1)
        marker = self.json("run", GEMMA, "--prompt", "<end_of_turn>", "-n", 0, "--special")
        self.assertEqual(marker["prompt_tokens"], [5])

    def test_model_without_tokenizer(self):
        run = self.json("run", WITHOUT_TOKENIZER, "--tokens", "1,2,3", "-n", 4, "--ignore-eos")
        self.assertEqual((len(run["tokens"]), run["text"]), (4, ""))
        self.refused("run", WITHOUT_TOKENIZER, "--prompt", "hello", names=["tokenizer"])

    def test_every_supported_model_runs(self):
        for model in sorted((DATA / "zoo").iterdir()):
            if model.name == "embedding-gemma":
                self.refused("run", model, "--tokens", "1,2,3", names=["no sessions"])
                continue
            run = self.json("run", model, "--tokens", "1,2,3", "-n", 3, "--ignore-eos")
            self.assertEqual(run["position"], 6, model.name)


class SaveAndResume(CommandTest):
    def test_resumed_is_uninterrupted(self):
        for model in GEMMA, LLAMA:
            tokens = all_tokens(model)
            whole = self.json("run", model, "--tokens", comma(tokens), "-n", 10, "--ignore-eos")
            for cut in 1, 31, 63, 64, 65, 128, len(tokens) - 1, len(tokens):
                file = self.path(f"{model.name}-{cut}.stasis")
                self.json("run", model, "--tokens", comma(tokens[:cut]), "-n", 0, "--save", file)
                rest = ["--tokens", comma(tokens[cut:])] if cut < len(tokens) else []
                run = self.json("run", model, "--resume", file, *rest, "-n", 10, "--ignore-eos")
                self.assertEqual((run["digest"], run["tokens"]), (whole["digest"], whole["tokens"]),
                                 cut)

    def test_a_new_process_for_every_position(self):
        # In the window of 16, at its edge, one past it, over page edges: saved, resumed elsewhere.
        model = DATA / "zoo" / "gemma3-text"
        tokens = [7 * i * i % 191 for i in range(150)]
        whole = self.json("run", model, "--tokens", comma(tokens), "-n", 0)
        digest = None
        for i, token in enumerate(tokens):
            resume = ["--resume", self.path("s")] if i > 0 else []
            run = self.json("run", model, *resume, "--tokens", token, "-n", 0,
                            "--save", self.path("s"))
            self.assertEqual(run["position"], i + 1)
            digest = run["digest"]
        self.assertEqual(digest, whole["digest"])

    def test_sampling_goes_on_after_a_resume(self):
        prompt = ["run", GEMMA, "--tokens", comma(turns_of(GEMMA)[0]["prompt_ids"]),
                  "--ignore-eos", "--temperature", 1.5, "--seed", 7]
        whole = self.json(*prompt, "-n", 30)
        other_seed = self.json(*prompt[:-1], 8, "-n", 30)
        self.assertNotEqual(whole["tokens"], other_seed["tokens"])
        first = self.json(*prompt, "-n", 12, "--save", self.path("s"))
        again = ["run", GEMMA, "--resume", self.path("s"), "-n", 18, "--ignore-eos"]
        for options in [], ["--temperature", 1.5, "--seed", 7]:
            rest = self.json(*again, *options)
            self.assertEqual(first["tokens"] + rest["tokens"], whole["tokens"])
            self.assertEqual(rest["digest"], whole["digest"])
        greedy = self.json(*again, "--temperature", 0)
        self.assertNotEqual(first["tokens"] + greedy["tokens"], whole["tokens"])

    def test_a_foreign_file_is_replaced_only_on_request(self):
        with open(self.path("s"), "w", encoding="ascii") as file:
            file.write("something else")
        save = ["run", GEMMA, "--tokens", "1,2", "-n", 0, "--save", self.path("s")]
        self.refused(*save)
        self.assertEqual((self.folder / "s").read_text(), "something else")
        self.json(*save, "--replace")
        self.assertEqual(self.json("inspect", self.path("s"))["position"], 2)

    def test_what_was_not_resumed_is_replaced_only_on_request(self):
        prompt = ["run", GEMMA, "--tokens", "1,2,3", "-n"]
        self.json(*prompt, 0, "--save", self.path("s"))
        content = (self.folder / "s").read_bytes()
        for others in ([*prompt, 100000], ["run", GEMMA, "--tokens", "1,7", "-n", 100000],
                       ["run", LLAMA, "--tokens", "1,2,3", "-n", 100000]):
            # Before anything is generated: no minutes are lost.
            self.refused(*others, "--ignore-eos", "--save", self.path("s"),
                         names=["--save: " + self.path("s"), "--replace", "has not resumed"])
        self.assertEqual((self.folder / "s").read_bytes(), content)
        resume = ["run", GEMMA, "--resume", self.path("s")]
        self.json(*resume, "-n", 2, "--save", self.path("s"))
        self.json(*resume, "--rewind", 2, "-n", 4, "--save", self.path("s"))
        self.json(*resume, "-n", 0, "--save", self.path("fork"))
        self.json(*resume, "-n", 1, "--save", self.path("s"))
        self.refused(*resume, "-n", 0, "--save", self.path("fork"), names=["has not resumed"])
        self.json(*resume, "-n", 0, "--save", self.path("fork"), "--replace")

    def test_capacity_of_a_new_session(self):
        run = ["run", GEMMA, "--tokens", "1,2,3", "--ignore-eos", "-n", 9]
        free = self.json(*run, "--save", self.path("s"))
        short = self.json(*run, "--capacity", 8)
        self.assertEqual((short["tokens"], short["position"]), (free["tokens"][:5], 8))
        self.assertEqual(self.json(*run, "--capacity", 0)["digest"], free["digest"])
        self.refused(*run, "--capacity", 2, names=["3", "2"])
        self.refused(*run, "--capacity", 4097, names=["capacity", "4096"])
        self.refused("run", GEMMA, "--resume", self.path("s"), "--capacity", 64, "-n", 0,
                     names=["--capacity", "--resume"])

    def test_interrupted_run_saves_what_it_has(self):
        prompt = comma(turns_of(GEMMA)[0]["prompt_ids"])
        with subprocess.Popen([str(command()), "run", str(GEMMA), "--tokens", prompt, "-n", "4000",
                               "--ignore-eos", "--save", self.path("s")], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            process.stdout.read(1)  # generation has begun
            process.send_signal(signal.SIGINT)
            _, messages = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, messages)
        self.assertIn(b"cancelled", messages)
        self.assertEqual(self.json("verify", self.path("s"), GEMMA)["verified"], True)
