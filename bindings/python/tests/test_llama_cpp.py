# The calls of llama-cpp-python: what programs that were written for it get. The examples are those
# of its README, with a model that is here.
import json
import unittest
import warnings

from fixture import (BOTH_WAYS, Case, EMBEDDING, FIRST, GEMMA, LLAMA, SECOND, WITHOUT_TOKENIZER,
                     model)
import stasis
from stasis.llama_cpp import Llama, LlamaGrammar, plain_message

# What llama-cpp-python 0.3.36 accepts, besides arguments that are refused unless they ask nothing.
PUBLISHED = ("temperature", "top_p", "min_p", "typical_p", "stop", "frequency_penalty",
             "presence_penalty", "repeat_penalty", "top_k", "stream", "seed", "tfs_z",
             "mirostat_mode", "mirostat_tau", "mirostat_eta", "model", "logits_processor",
             "grammar", "logit_bias")
VALUES = {"temperature": 0.8, "top_p": 0.95, "min_p": 0.05, "typical_p": 1.0, "stop": [],
          "frequency_penalty": 0.0, "presence_penalty": 0.0, "repeat_penalty": 1.0, "top_k": 40,
          "stream": False, "seed": None, "tfs_z": 1.0, "mirostat_mode": 0, "mirostat_tau": 5.0,
          "mirostat_eta": 0.1, "model": None, "logits_processor": None, "grammar": None,
          "logit_bias": None}


class Completions(Case):
    def setUp(self):
        super().setUp()
        self.llm = Llama(model_path=str(GEMMA), n_ctx=2048, verbose=False)
        self.addCleanup(self.llm.close)

    def test_the_first_example(self):
        output = self.llm(
            "Q: Name the planets in the solar system? A: ",
            max_tokens=32,
            stop=["Q:", "\n"],
            echo=True,
        )
        choice = output["choices"][0]
        self.assertEqual(set(output), {"id", "object", "created", "model", "choices", "usage"})
        self.assertEqual(output["object"], "text_completion")
        self.assertEqual(set(choice), {"text", "index", "logprobs", "finish_reason"})
        self.assertTrue(choice["text"].startswith("Q: Name the planets in the solar system? A: "))
        self.assertIn(choice["finish_reason"], ("stop", "length"))
        usage = output["usage"]
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
        json.dumps(output)

    def test_a_completion_is_what_a_session_draws(self):
        prompt = "k is 5. m is "
        text = self.llm.create_completion(prompt, max_tokens=12, temperature=0.9, seed=3)
        session = model().session(sampling=stasis.Sampling(
            temperature=0.9, top_k=40, top_p=0.95, min_p=0.05, typical_p=1.0,
            repetition_penalty=1.0, seed=3))
        session.append(model().tokenize(prompt, bos=True, special=True))
        expected = "".join(each.text for each in session.generate(max_tokens=12))
        self.assertEqual(text["choices"][0]["text"], expected)
        end = dict.fromkeys(model().info.end_tokens, -1000.0)
        wild = [self.llm(prompt, max_tokens=12, temperature=5.0, top_k=0, min_p=0.0, top_p=1.0,
                         logit_bias=end, seed=seed)["choices"][0]["text"] for seed in (3, 4, 3)]
        self.assertEqual([wild[0] == wild[1], wild[0] == wild[2]], [False, True])
        again = self.llm.create_completion(prompt, max_tokens=12, temperature=0.9, seed=3)
        self.assertEqual(again["choices"], text["choices"])
        self.assertEqual(self.llm.session.digest, session.digest)

    def test_streams_say_the_same(self):
        end = dict.fromkeys(model().info.end_tokens, -1000.0)
        asked = dict(prompt="k is 5. m is ", max_tokens=8, logit_bias=end)
        whole = self.llm(**asked)
        chunks = list(self.llm(stream=True, **asked))
        self.assertGreater(len(chunks), 3)
        self.assertEqual("".join(each["choices"][0]["text"] for each in chunks),
                         whole["choices"][0]["text"])
        self.assertEqual([each["choices"][0]["finish_reason"] for each in chunks][-1],
                         whole["choices"][0]["finish_reason"])
        self.assertEqual({each["choices"][0]["finish_reason"] for each in chunks[:-1]}, {None})

    def test_logprobs(self):
        found = self.llm("k is", max_tokens=3, temperature=0, logprobs=2)["choices"][0]
        self.assertEqual([len(each) for each in found["logprobs"]["top_logprobs"]], [2, 2, 2])
        self.assertEqual("".join(found["logprobs"]["tokens"]), found["text"])
        self.assertLessEqual(max(found["logprobs"]["token_logprobs"]), 0)
        with self.assertRaisesRegex(stasis.UnsupportedError, "echo together with logprobs"):
            self.llm("k is", echo=True, logprobs=2)

    def test_logprobs_of_streams(self):
        """In pieces, some of which are held back: together those of the whole."""
        asked = dict(prompt="k is 5. m is ", max_tokens=8, temperature=0, logprobs=2, stop=["5 5"])
        whole = self.llm(**asked)["choices"][0]["logprobs"]
        chunks = [each["choices"][0]["logprobs"] for each in self.llm(stream=True, **asked)]
        self.assertGreater(len(whole["tokens"]), 1)
        self.assertEqual({name: [each for chunk in chunks for each in chunk[name]]
                          for name in whole}, whole)

    def test_reasons(self):
        self.assertEqual(self.llm("k", max_tokens=2, temperature=0)["choices"][0]["finish_reason"],
                         "length")
        stopped = self.llm("k is 5.", max_tokens=400, temperature=0, stop="is")["choices"][0]
        self.assertEqual(stopped["finish_reason"], "stop")
        with self.assertRaisesRegex(ValueError, "exceed context window of 2048"):
            self.llm(list(range(6, 1000)) * 3)
        self.assertEqual(len(list(self.llm.create_completion("", max_tokens=1)["choices"])), 1)

    def test_arguments(self):
        """All that are published are taken; those that ask for what is not here are refused."""
        self.llm.create_completion("k", suffix=None, max_tokens=1, logprobs=None, echo=False,
                                   stopping_criteria=None, **VALUES)
        self.llm.create_chat_completion([{"role": "user", "content": "k"}], max_tokens=1,
                                        functions=None, function_call=None, tools=None,
                                        tool_choice=None, response_format=None, top_logprobs=None,
                                        **VALUES)
        self.assertEqual(set(VALUES), set(PUBLISHED))
        for name, value in (("grammar", object()), ("mirostat_mode", 2), ("suffix", "a"),
                            ("logits_processor", [print])):
            with self.assertRaisesRegex(stasis.UnsupportedError, name):
                self.llm.create_completion("k", **{name: value})
        with self.assertRaisesRegex(stasis.UnsupportedError, "response_format"):
            self.llm.create_chat_completion([{"role": "user", "content": "k"}],
                                            response_format={"type": "sql"})
        with self.assertRaisesRegex(stasis.UnsupportedError, "grammar"):
            self.llm.sample(grammar=LlamaGrammar.from_string("root ::= [a-z]"))
        with self.assertRaisesRegex(TypeError, "nonsense"):
            self.llm.create_completion("k", nonsense=1)
        for name, value in (("lora_path", "a"), ("rope_freq_base", 5000.0), ("pooling_type", 1)):
            with self.assertRaisesRegex(stasis.UnsupportedError, name):
                Llama(str(GEMMA), **{name: value})
        with self.assertRaisesRegex(TypeError, "nonsense"):
            Llama(str(GEMMA), nonsense=None)

    def test_json_mode_and_grammars(self):
        schema = {"type": "object", "properties": {"age": {"type": "integer", "maximum": 120}},
                  "required": ["age"], "additionalProperties": False}
        messages = [{"role": "user", "content": "How old is Ada?"}]
        texts = []
        for wanted in ({"type": "json_object", "schema": schema},
                       {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}):
            answer = self.llm.create_chat_completion(messages, temperature=0.5, max_tokens=60,
                                                     response_format=wanted)
            choice = answer["choices"][0]
            self.assertEqual(choice["finish_reason"], "stop")
            texts.append(choice["message"]["content"])
            self.assertLessEqual(json.loads(texts[-1])["age"], 120)
        self.assertEqual(texts[0], texts[1])
        stream = self.llm.create_chat_completion(messages, temperature=0.5, max_tokens=60,
                                                 stream=True, response_format=wanted)
        self.assertEqual("".join(each["choices"][0]["delta"].get("content", "")
                                 for each in stream), texts[0])
        answer = self.llm.create_chat_completion(messages, max_tokens=4,
                                                 response_format={"type": "json_object"})
        self.assertEqual(answer["choices"][0]["message"]["content"][0], "{")
        answer = self.llm("hello", grammar=LlamaGrammar.from_string('root ::= "yes" | "no"'))
        self.assertIn(answer["choices"][0]["text"], ("yes", "no"))
        plain = self.llm("hello", temperature=0)  # nothing is left of it
        self.assertNotIn(plain["choices"][0]["text"], ("yes", "no"))

    def test_what_wrappers_pass(self):
        """Values that ask for nothing, among them those that LangChain's class always passes."""
        llm = Llama(str(GEMMA), n_ctx=None, n_gpu_layers=None, n_threads=None, seed=None,
                    lora_path=None, lora_base=None, lora_scale=1.0, chat_handler=None,
                    draft_model=None, tokenizer=None, kv_overrides=None, rope_freq_base=0.0,
                    rope_freq_scale=0.0, rope_scaling_type=-1, pooling_type=-1, f16_kv=True)
        self.addCleanup(llm.close)
        wrapped = Llama(str(GEMMA), rope_freq_scale=1.0, rope_freq_base=10000.0, lora_path=None,
                        lora_base=None, n_ctx=512, n_parts=-1, seed=-1, f16_kv=True,
                        logits_all=False, vocab_only=False, use_mlock=False, n_batch=8,
                        use_mmap=True, last_n_tokens_size=64, verbose=True)
        self.addCleanup(wrapped.close)
        self.assertEqual(wrapped.n_ctx(), 512)
        nothing = dict.fromkeys(("temperature", "top_k", "top_p", "min_p", "typical_p", "seed",
                                 "repeat_penalty", "frequency_penalty", "presence_penalty",
                                 "logprobs", "stop", "mirostat_mode", "tfs_z"))
        self.assertEqual(llm("k is", **nothing)["choices"], llm("k is")["choices"])
        self.assertEqual(llm("k is", logprobs=False, stop="")["choices"], llm("k is")["choices"])
        asked = [{"role": "user", "content": FIRST}]
        self.assertEqual(llm.create_chat_completion(asked, **nothing)["choices"],
                         llm.create_chat_completion(asked)["choices"])
        self.assertEqual(llm.create_chat_completion(asked, logprobs=False, stop="")["choices"],
                         llm.create_chat_completion(asked)["choices"])
        with self.assertRaisesRegex(stasis.UnsupportedError, "logprobs"):
            llm.create_chat_completion(asked, logprobs=True)

    def test_conversations_that_are_too_long(self):
        """The same error as that of a prompt, with a template of the model's own or another."""
        for chosen in (None, "llama-2"):
            llm = Llama(str(LLAMA), n_ctx=8, chat_format=chosen)
            self.addCleanup(llm.close)
            count = llm._count({"messages": [{"role": "user", "content": FIRST}]})
            with self.assertRaisesRegex(ValueError, rf"\({count}\) exceed context window of 8"):
                llm.create_chat_completion([{"role": "user", "content": FIRST}])
            exact = Llama(str(LLAMA), n_ctx=count, chat_format=chosen)
            self.addCleanup(exact.close)
            with self.assertRaisesRegex(ValueError, rf"\({count}\) exceed context window"):
                exact.create_chat_completion([{"role": "user", "content": FIRST}])


class Chat(Case):
    MESSAGES = [{"role": "user", "content": FIRST}]

    def test_a_conversation(self):
        llm = Llama(str(GEMMA))
        self.addCleanup(llm.close)
        messages = list(self.MESSAGES)
        answer = llm.create_chat_completion(messages=messages, temperature=0)
        self.assertEqual(answer["object"], "chat.completion")
        self.assertEqual(answer["choices"][0]["message"],
                         {"role": "assistant", "content": "k is 5."})
        self.assertEqual(answer["choices"][0]["finish_reason"], "stop")
        messages += [answer["choices"][0]["message"], {"role": "user", "content": SECOND}]
        first = llm.session.tokens()
        second = llm.create_chat_completion(messages=messages, temperature=0)
        self.assertEqual(second["choices"][0]["message"]["content"], "m is 55.")
        self.assertEqual(llm.session.tokens()[:len(first)], first)  # it goes on from there
        self.assertGreater(second["usage"]["prompt_tokens"], len(first))
        other = llm.create_chat_completion(self.MESSAGES, temperature=0)  # the log is taken back
        self.assertEqual(other["choices"], answer["choices"])

    def test_streams(self):
        llm = Llama(str(GEMMA))
        self.addCleanup(llm.close)
        chunks = [each["choices"][0] for each in
                  llm.create_chat_completion(self.MESSAGES, temperature=0, stream=True)]
        self.assertEqual(chunks[0]["delta"], {"role": "assistant"})
        self.assertEqual("".join(each["delta"].get("content", "") for each in chunks), "k is 5.")
        self.assertEqual((chunks[-1]["delta"], chunks[-1]["finish_reason"]), ({}, "stop"))

    def test_a_format_by_its_name(self):
        """The example with a system text and chat_format, and what it renders."""
        llm = Llama(model_path=str(LLAMA), chat_format="llama-2")
        self.addCleanup(llm.close)
        llm.create_chat_completion(
            messages=[
                {"role": "system",
                 "content": "You are an assistant who perfectly describes images."},
                {"role": "user", "content": "Describe this image in detail please."},
            ], max_tokens=2)
        self.assertIn("<<SYS>>", llm.session.text())

    def test_parts_and_calls(self):
        parts = {"role": "user", "content": [{"type": "text", "text": "a"},
                                             {"type": "text", "text": "b"}]}
        self.assertEqual(plain_message(parts)["content"], "ab")
        with self.assertRaisesRegex(stasis.UnsupportedError, "image_url"):
            plain_message({"role": "user", "content": [{"type": "image_url", "image_url": "a"}]})
        call = {"role": "assistant", "content": None, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]}
        self.assertEqual(plain_message(call)["tool_calls"][0]["function"]["arguments"], {"a": 1})

    def test_a_call_of_a_tool(self):
        """As the library takes a reply apart, in the form that programs expect."""
        llm = Llama(str(LLAMA))
        self.addCleanup(llm.close)
        llm.session.append_chat({"messages": self.MESSAGES}, reply=True)
        call = '<tool_call>\n{"name": "f", "arguments": {"a": [1]}}\n</tool_call>'
        llm.session.append(llm.tokenize(call.encode(), add_bos=False))
        said = llm.session.reply({"messages": [], "tools": []}, complete=True)
        message, reason = llm._message({"messages": [], "tools": []}, call, "stop")
        if "tool_calls" not in said:  # its template is not known to have calls
            self.assertEqual((message["content"], reason), (call, "stop"))
            return
        self.assertEqual(reason, "tool_calls")
        function = message["tool_calls"][0]["function"]
        self.assertEqual((function["name"], json.loads(function["arguments"])), ("f", {"a": [1]}))


class Steps(Case):
    def setUp(self):
        super().setUp()
        self.llm = Llama(str(GEMMA), seed=5)
        self.addCleanup(self.llm.close)

    def test_text(self):
        tokens = self.llm.tokenize(b"k is 5.")
        self.assertEqual(tokens[0], self.llm.token_bos())
        self.assertEqual(self.llm.detokenize(tokens), b"k is 5.")
        self.assertEqual(self.llm.tokenize(b"k", add_bos=False), model().tokenize("k"))
        self.assertEqual((self.llm.n_vocab(), self.llm.n_embd(), self.llm.n_ctx()),
                         (1024, 128, 4096))
        self.assertIn(self.llm.token_eos(), model().info.end_tokens)

    def test_the_example_of_generate(self):
        tokens = self.llm.tokenize(b"Hello, world!")
        got = []
        for token in self.llm.generate(tokens, top_k=40, top_p=0.95, temp=1.0, repeat_penalty=1.0):
            got.append(self.llm.detokenize([token]))
            if len(got) == 10:
                break
        self.assertEqual(self.llm.n_tokens, len(tokens) + 10)

    def test_eval_and_sample(self):
        tokens = self.llm.tokenize(b"k is 5. m is ")
        self.llm.eval(tokens)
        drawn = []
        for _ in range(6):
            drawn.append(self.llm.sample(temp=0.9))
            self.llm.eval([drawn[-1]])
        self.llm.reset()
        self.assertEqual(self.llm.n_tokens, 0)
        again = self.llm.generate(tokens, temp=0.9)
        self.assertEqual([next(again) for _ in range(6)], drawn)

    def test_states(self):
        self.llm.eval(self.llm.tokenize(b"k is 5."))
        state, digest = self.llm.save_state(), self.llm.session.digest
        self.llm.eval([7, 8, 9])
        self.llm.load_state(state)
        self.assertEqual((self.llm.session.digest, self.llm.n_tokens), (digest, state.n_tokens))
        other = Llama(str(GEMMA))
        self.addCleanup(other.close)
        other.load_state(state)
        self.assertEqual(other.session.digest, digest)

    def test_embed(self):
        one = self.llm.embed("k is 5.")
        self.assertEqual(len(one), self.llm.n_embd())
        two, count = self.llm.embed(["k is 5.", "m"], normalize=True, return_count=True)
        self.assertAlmostEqual(sum(x * x for x in two[0]), 1, places=5)
        self.assertEqual(count, sum(len(self.llm.tokenize(each)) for each in (b"k is 5.", b"m")))
        found = self.llm.create_embedding(["k is 5.", "m"])
        self.assertEqual(found["data"][0]["embedding"], one)
        self.assertEqual(found["usage"], {"prompt_tokens": count, "total_tokens": count})

    def test_a_model_that_makes_embeddings_alone(self):
        """It has no session, and its vectors are not as wide as its layers."""
        llm = Llama(str(BOTH_WAYS), embedding=True, verbose=False)
        self.addCleanup(llm.close)
        self.assertEqual((llm.model.info.hidden, llm.n_embd(), llm.n_ctx()), (64, 48, 2048))
        vector, = llm.model.embed([[2, 5, 7]])
        self.assertEqual(len(vector), llm.n_embd())
        with self.assertRaises(stasis.UnsupportedError):
            llm.eval([2, 5, 7])

    def test_n_ctx_is_that_of_the_session(self):
        for asked, most in ((0, 4096), (512, 512), (100000, 4096)):
            llm = Llama(str(GEMMA), n_ctx=asked)
            self.addCleanup(llm.close)
            self.assertEqual(llm.n_ctx(), most)
            self.assertEqual(llm.session.info.capacity, most)
            llm.load_state(llm.save_state())
            self.assertEqual((llm.n_ctx(), llm.session.info.capacity), (most, most))

    def test_a_gpu_that_is_not_there(self):
        """The results are the same on the CPU, and the program is told."""
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            llm = Llama(str(WITHOUT_TOKENIZER), n_gpu_layers=-1)
        self.addCleanup(llm.close)
        self.assertEqual(llm.model.info.device == "cpu", bool(seen))
        self.assertEqual(stasis.Model(EMBEDDING).embed_info.dimension, 64)


if __name__ == "__main__":
    unittest.main()
