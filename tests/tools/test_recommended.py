# How chat draws its tokens: as the model's files recommend, or a session's file says, or options
# say, the later before the earlier; `run` is greedy unless asked. And that a reply which was cut
# says so.
import itertools
import json
import shutil
import struct

from stasis_process import CommandTest, GEMMA, LLAMA, turns_of

DEFAULT = {"temperature": 0.6, "min_p": 0.1, "repetition_penalty": 1.1, "penalty_window": 64}
GREEDY = {"temperature": 0, "top_k": 0, "top_p": 1, "min_p": 0, "typical_p": 1, "seed": 0,
          "repetition_penalty": 1}
VALUES = {"temperature": 0.7, "top_k": 20, "top_p": 0.8, "min_p": 0.05, "typical_p": 0.9,
          "repetition_penalty": 1.05}
GGUF_KEYS = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p",
             "penalty_repeat": "repetition_penalty", "penalty_last_n": "penalty_window"}


def single(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def with_metadata(source, target, pairs):
    """A GGUF file with more metadata: f32 where it is a float, else i32."""
    data = source.read_bytes()
    tensors, count = struct.unpack_from("<QQ", data, 8)
    extra = b""
    for key, value in pairs.items():
        kind = (6, "<f") if isinstance(value, float) else (5, "<i")
        extra += struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind[0])
        extra += struct.pack(kind[1], value)
    # Padding keeps the tensors' data aligned: an unread text as long as that takes.
    fill = b"test.fill"
    head = struct.pack("<Q", len(fill)) + fill + struct.pack("<IQ", 8, 0)
    gap = -(len(extra) + len(head)) % 32
    extra += head[:-8] + struct.pack("<Q", gap) + b"." * gap
    target.write_bytes(data[:8] + struct.pack("<QQ", tensors, count + len(pairs) + 1) + extra
                       + data[24:])


class Recommended(CommandTest):
    def model(self, generation):
        """LLAMA with a generation_config.json; None: without one."""
        folder = self.folder / "model"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(LLAMA, folder)
        path = folder / "generation_config.json"
        path.unlink()
        if generation is not None:
            path.write_text(json.dumps({"eos_token_id": [2, 4], **generation}))
        return folder

    def drawn_with(self, path):
        """The settings in force in a snapshot."""
        config = self.json("inspect", path)["elements"]["model_config"]
        return config["samplings"][config["sampling"]]

    def check_settings(self, path, expected):
        found = self.drawn_with(path)
        for key, value in expected.items():
            self.assertEqual(found[key], value if isinstance(value, list) else single(value), key)

    def chat_settings(self, model, expected, *options):
        (self.folder / "s").unlink(missing_ok=True)
        self.chat(model, ["hello"], "-n", 2, "--session", self.path("s"), *options)
        self.check_settings(self.path("s"), expected)

    def test_every_subset_of_the_keys(self):
        plain = {**GREEDY, "temperature": 1}
        for generation in None, {}, {"temperature": None, "max_length": 20}:
            self.chat_settings(self.model(generation), {**GREEDY, **DEFAULT})
        for size in 1, 2, len(VALUES):
            for keys in itertools.combinations(VALUES, size):
                chosen = {key: VALUES[key] for key in keys}
                self.chat_settings(self.model(chosen), {**plain, **chosen})
        self.chat_settings(self.model({"do_sample": True, **VALUES}), VALUES)
        self.chat_settings(self.model({"do_sample": False, **VALUES}), {"temperature": 0})

    def test_options_override_single_fields(self):
        model = self.model({"temperature": 0.7, "top_k": 20})
        self.chat_settings(model, {"temperature": 0.7, "top_k": 3, "seed": 9},
                           "--top-k", 3, "--seed", 9)
        self.chat_settings(model, {"temperature": 0, "top_k": 20}, "--temperature", 0)
        self.chat_settings(self.model(None), {**DEFAULT, "min_p": 0.2, "dry_multiplier": 0.5,
                                              "dry_breakers": [3, 4]},
                           "--min-p", 0.2, "--dry-multiplier", 0.5, "--dry-breakers", "4,3")

    def test_a_resumed_session_keeps_its_own(self):
        model, path = self.model(None), self.path("s")
        self.chat(model, ["hello"], "-n", 2, "--session", path, "--temperature", 0.25)
        recommending = self.model({"temperature": 0.9, "top_k": 7})
        self.chat(recommending, ["again"], "-n", 2, "--session", path)
        self.check_settings(path, {**DEFAULT, "temperature": 0.25, "top_k": 0})
        self.chat(recommending, ["again"], "-n", 2, "--session", path, "--seed", 3)
        self.check_settings(path, {"temperature": 0.9, "top_k": 7, "seed": 3})

    def test_run_is_greedy_unless_asked(self):
        model, path = self.model({"temperature": 0.9, "top_k": 7}), self.path("s")
        run = ["run", model, "--prompt", "a", "-n", 2, "--save", path, "--replace"]
        self.json(*run)
        self.check_settings(path, GREEDY)
        self.json(*run, "--seed", 3)
        self.check_settings(path, {**GREEDY, "seed": 3})
        self.json(*run, "--recommended", "--top-k", 5)
        self.check_settings(path, {"temperature": 0.9, "top_k": 5})
        self.json("run", model, "--resume", path, "-n", 2, "--save", path)
        self.check_settings(path, {"temperature": 0.9, "top_k": 5})
        self.json("run", model, "--resume", path, "-n", 2, "--save", path, "--recommended")
        self.check_settings(path, {"temperature": 0.9, "top_k": 7})

    def test_the_same_every_time(self):
        model = self.model({"do_sample": True, "temperature": 1.5})
        replies = [self.chat(model, ["hello", "again"]) for _ in range(2)]
        for first, second in zip(*replies):
            self.assertEqual((first["tokens"], first["digest"]),
                             (second["tokens"], second["digest"]))
        other = self.chat(model, ["hello", "again"], "--seed", 1)
        self.assertNotEqual(replies[0][1]["digest"], other[1]["digest"])

    def test_what_cannot_be_used_is_refused_when_it_is_asked_for(self):
        for key in (*VALUES, "do_sample"):
            for value in "1", [1], -1, 1e300:
                model = self.model({key: value})
                self.refused("chat", model, text="hello\n",
                             names=["generation_config.json", key, "CORRUPT"])
                self.refused("run", model, "--recommended", "--prompt", "a", names=[key])
            self.json("run", model, "--prompt", "a", "-n", 1)

    def test_gguf(self):
        plain, edited = self.folder / "m.gguf", self.folder / "e.gguf"
        self.ok("quantize", LLAMA, plain, "--type", "BF16")
        self.chat_settings(plain, {**GREEDY, **DEFAULT})
        values = {"temp": 0.7, "top_k": 20, "top_p": 0.8, "min_p": 0.05, "penalty_repeat": 1.05,
                  "penalty_last_n": 32}
        for size in 1, len(values):
            for keys in itertools.combinations(values, size):
                with_metadata(plain, edited,
                              {f"general.sampling.{key}": values[key] for key in keys})
                self.chat_settings(edited, {**GREEDY, "temperature": 1,
                                            **{GGUF_KEYS[key]: values[key] for key in keys}})
        for key in values:
            wrong = 1 if isinstance(values[key], float) else 1.0
            with_metadata(plain, edited, {f"general.sampling.{key}": wrong})
            self.refused("chat", edited, text="hello\n", names=[f"general.sampling.{key}"])


class Cut(CommandTest):
    def test_by_the_limit(self):
        user = turns_of(GEMMA)[0]["user"]
        whole = self.chat(GEMMA, [user])[0]
        self.assertIsNone(whole["cut"])
        for limit in range(1, len(whole["tokens"])):
            self.assertEqual(self.chat(GEMMA, [user], "-n", limit)[0]["cut"], "limit")
            done = self.run_command("chat", GEMMA, "-n", limit, text=user + "\n")
            self.assertEqual(done.stderr.decode(),
                             f"[cut after {limit} tokens: -n sets the limit]\n")
        for enough in len(whole["tokens"]), 0:  # nothing was asked for
            self.assertIsNone(self.chat(GEMMA, [user], "-n", enough)[0]["cut"])
            done = self.run_command("chat", GEMMA, "-n", enough, text=user + "\n")
            self.assertEqual(done.stderr.decode(), "")
        self.assertIsNone(self.chat(GEMMA, [user], "--stop", "k")[0]["cut"])

    def test_by_a_full_context(self):
        """A reply that the context ends, and then a turn that finds no room: nothing is lost."""
        context, user = 4096, turns_of(GEMMA)[0]["user"]
        full = self.path("full")
        for name in "json", "text":
            self.json("run", GEMMA, "--tokens", ",".join(["7"] * (context - 60)), "-n", 0,
                      "--save", self.path(name))
        call = ["-n", 100, "--ignore-eos", "--session"]
        reply = self.chat(GEMMA, [user], *call, self.path("json"))[0]
        self.assertEqual((reply["cut"], reply["position"]), ("full", context))
        done = self.run_command("chat", GEMMA, *call, self.path("text"), text=user + "\n")
        self.assertEqual(done.stderr.decode(), "[cut: the session is full]\n")
        shutil.copy(self.path("text"), full)
        for each in user, "x" * 1000000:
            self.refused("chat", GEMMA, "--session", full, text=each + "\n",
                         names=["session full", str(context)])
        self.assertEqual((self.folder / "full").read_bytes(),
                         (self.folder / "text").read_bytes())
