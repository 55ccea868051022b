# Sessions: what they say, hold and forget, and that no way of asking changes a bit.
import copy
import json
import pickle
import struct
import unittest

from fixture import (Case, EMBEDDING, FIRST, GEMMA, LLAMA, SECOND, WITHOUT_TOKENIZER, model,
                     tokens)
import stasis

ZERO_SEED = stasis.Sampling(temperature=0.9, top_k=40, seed=0)


class Conversation(Case):
    def test_turns(self):
        """The recorded conversation, told by say, in pieces that together are the reply."""
        for path in (GEMMA, LLAMA):
            session = self.session(path=path)
            for turn in json.loads((path / "conversation.json").read_text())["turns"]:
                begin = session.position
                pieces = list(session.say(turn["user"]))
                self.assertEqual("".join(pieces), turn["reply"])
                self.assertNotIn("", pieces)
                self.assertEqual(session.tokens(begin)[-len(turn["reply_ids"]):],
                                 turn["reply_ids"])

    def test_nothing_is_said_before_it_is_asked_for(self):
        session = self.session()
        reply = session.say(FIRST, max_tokens=3)
        self.assertEqual(session.position, 0)
        self.assertEqual(next(reply), "k")
        self.assertEqual(session.text().split("\n")[-1], "k")
        self.assertEqual("".join(reply), " is ")
        self.assertEqual(reply.generation.stop, "length")

    def test_a_generation_is_what_decode_draws(self):
        session, _ = self.talk()
        session.set_sampling(ZERO_SEED)
        other = session.fork()
        drawn = [each.token for each in session.generate(max_tokens=50, ignore_end=True)]
        self.assertEqual(drawn, [other.decode() for _ in range(50)])
        self.assertEqual(session.digest, other.digest)
        self.assertEqual(session.tokens(36), drawn)
        self.assertEqual(session.sources(36), [3] * 50)

    def test_a_generation_may_be_left(self):
        """What it has not given is not in the log; another one goes on."""
        session, _ = self.talk()
        whole = session.fork()
        expected = [each.token for each in whole.generate(max_tokens=20, ignore_end=True)]
        got = []
        for generated in session.generate(ignore_end=True):
            got.append(generated.token)
            self.assertEqual(session.position, generated.position + 1)  # not busy meanwhile
            if len(got) == 8:
                break
        got += [each.token for each in session.generate(max_tokens=12, ignore_end=True)]
        self.assertEqual(got, expected)
        self.assertEqual(session.digest, whole.digest)

    def test_stops(self):
        session = self.session()
        session.append_message("user", FIRST, reply=True)
        for stop, shown, reason in (("5.", "k is ", "string"), ("nowhere", "k is 5.", "end"),
                                    ("k is", "", "string")):
            fork = session.fork()
            generation = fork.generate(stop=[stop])
            self.assertIsNone(generation.stop)
            self.assertEqual("".join(each.text for each in generation), shown, stop)
            self.assertEqual(generation.stop, reason)
            self.assertIsNone(next(generation, None))
        token = model().tokenize("k")[-1]
        generation = session.fork().generate(stop_tokens=[token])
        self.assertEqual([each.token for each in generation], [token])
        self.assertEqual(generation.stop, "end")
        with self.assertRaises(ValueError):
            session.generate(stop=[""])

    def test_held_text_comes_at_the_end(self):
        session = self.session()
        session.append_message("user", FIRST, reply=True)
        events = list(session.generate(max_tokens=3, stop=["is  no"]))
        self.assertEqual([each.text for each in events], ["k", " ", "", "is "])
        self.assertEqual([each.last for each in events], [False, False, False, True])

    def test_a_full_session_ends_a_generation(self):
        session = self.session(tokens(5), capacity=8)
        generation = session.generate(ignore_end=True)
        self.assertEqual(len(list(generation)), 3)
        self.assertEqual(generation.stop, "length")
        with self.assertRaises(stasis.FullError):
            session.append([1])

    def test_log_probabilities(self):
        session, _ = self.talk()
        top = session.top(3)
        first = next(session.fork().generate(log_probabilities=3))
        self.assertEqual(first.best, tuple(map(tuple, top)))
        self.assertEqual(first.log_probability, dict(top)[first.token])
        # In double precision, from the same logits.
        self.assertAlmostEqual(session.score([first.token])[0], first.log_probability, 5)
        self.assertEqual(next(session.generate()).best, ())

    def test_tools_and_thoughts(self):
        session = self.session(path=LLAMA)
        messages = [{"role": "user", "content": FIRST}]
        end = session.append_chat({"messages": messages}, reply=True)
        self.assertEqual(end, session.position)
        self.assertEqual(session.text(), model(LLAMA).detokenize(model(LLAMA).tokenize(
            model(LLAMA).render_chat({"messages": messages}, reply=True), special=True)))
        list(session.generate())
        self.assertEqual(session.reply(), {"role": "assistant", "content": "k is 5."})
        with self.assertRaises(stasis.ConflictError) as caught:
            session.append_chat({"messages": [{"role": "user", "content": "Let's end."}]})
        self.assertTrue(0 < caught.exception.position < end)
        session.rewind(caught.exception.position)
        session.append_chat({"messages": [{"role": "user", "content": "Let's end."}]})
        self.assertIn("Let's end.", session.text())

    def test_what_append_chat_appends(self):
        session = self.session(path=LLAMA)
        first = {"messages": [{"role": "user", "content": "What is k? " * 100}]}
        whole = session.chat_tokens(first, reply=True)
        self.assertEqual(whole.position, 0)
        self.assertGreater(len(whole.tokens), 300)  # more than the first buffer holds
        self.assertLess(len(session.chat_tokens(first).tokens), len(whole.tokens))
        self.assertEqual(session.position, 0)
        session.append_chat(first, reply=True)
        self.assertEqual(session.tokens(), whole.tokens)
        self.assertEqual(session.chat_tokens(first, reply=True), (len(whole.tokens), []))
        other = {"messages": [{"role": "user", "content": "Let's end."}]}
        rest = session.chat_tokens(other, reply=True)
        self.assertGreater(rest.position, 0)
        with self.assertRaises(stasis.ConflictError) as caught:
            session.append_chat(other, reply=True)
        self.assertEqual(caught.exception.position, rest.position)
        session.rewind(rest.position)
        session.append_chat(other, reply=True)
        self.assertEqual(session.tokens(rest.position), rest.tokens)
        with self.assertRaises(stasis.InvalidArgumentError):
            session.chat_tokens({})


class Log(Case):
    def test_append_in_any_cuts(self):
        """Chunks, cuts and threads change nothing."""
        given = tokens(150)
        whole = self.session(given)
        cut = self.session(domain=stasis_private())
        for at in range(0, 150, 7):
            cut.append(iter(given[at:at + 7]), chunk=3)
        self.assertEqual(cut.digest, whole.digest)
        self.assertEqual((cut.tokens(), cut.position, len(cut)), (given, 150, 150))
        self.assertEqual(bytes(cut.logits()), bytes(whole.logits()))

    def test_append_text(self):
        session = self.session()
        session.append("k is 5.")
        session.append(" m")
        self.assertEqual(session.tokens(), model().tokenize("k is 5.", bos=True)
                         + model().tokenize(" m"))

    def test_append_is_all_or_nothing(self):
        session = self.session(tokens(70))
        before = session.digest
        for wrong in ([1, 2, 100000], [1, -1], [1, 2**32]):
            with self.assertRaises(stasis.InvalidArgumentError):
                session.append(wrong)
        self.assertEqual((session.digest, session.position), (before, 70))

    def test_fork_and_copies(self):
        session = self.session(tokens(100))
        before = session.digest
        for child in (session.fork(), copy.copy(session), copy.deepcopy(session)):
            self.assertEqual(child.digest, before)
            self.assertIs(child.model, session.model)
            child.append([7])
            self.assertNotEqual(child.digest, before)
        self.assertEqual(session.digest, before)

    def test_rewind(self):
        session = self.session(tokens(100))
        before = session.digest
        session.append(tokens(30, 2))
        session.rewind(100)
        self.assertEqual(session.digest, before)
        session.append(tokens(300, 3))
        with self.assertRaisesRegex(stasis.UnsupportedError, str(session.info.rewind_floor)):
            session.rewind(100)
        session.rewind(100, recompute=True)
        self.assertEqual(session.digest, before)
        with self.assertRaises(stasis.InvalidArgumentError):
            session.rewind(101)

    def test_evict(self):
        session, plain = self.session(tokens(100)), self.session(tokens(100))
        session.evict(10, 20)
        self.assertEqual(session.info.positions_evicted, 10)
        self.assertNotEqual(session.digest, plain.digest)

    def test_info(self):
        info = self.session(tokens(100), capacity=200).info
        self.assertEqual((info.position, info.capacity, info.window, info.older),
                         (100, 200, 64, False))
        self.assertIn("at 0", repr(self.session()))
        self.assertTrue(self.session())

    def test_each_position_has_logits(self):
        session, seen = self.session(), []
        session.append(tokens(5), logits=lambda at, row: seen.append((at, bytes(row))))
        self.assertEqual([at for at, _ in seen], [0, 1, 2, 3, 4])
        self.assertEqual(seen[-1][1], bytes(session.logits()))

    def test_progress(self):
        seen = []
        self.session().append(tokens(200), chunk=50,
                              progress=lambda done, total: seen.append((done, total)))
        self.assertEqual(seen[-1], (200, 200))
        self.assertEqual(seen, sorted(seen))


class Buffers(Case):
    def test_logits_are_floats_without_a_copy(self):
        session = self.session(tokens(20))
        logits = session.logits()
        self.assertEqual((logits.format, logits.itemsize, logits.ndim, len(logits)),
                         ("f", 4, 1, 1024))
        self.assertTrue(logits.contiguous)
        self.assertEqual(logits.tolist(), list(struct.unpack("1024f", bytes(logits))))
        best = max(range(1024), key=lambda token: logits[token])
        self.assertEqual((best, best), (session.sample(), session.top(1)[0].token))
        kept = bytes(logits)
        session.append([7])
        self.assertEqual(bytes(logits), kept)  # it is the caller's own

    def test_numpy(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("there is no numpy")
        logits = self.session(tokens(20)).logits()
        array = numpy.asarray(logits)
        self.assertEqual((array.dtype, array.shape), (numpy.float32, (1024,)))
        logits[3] = 77.0
        self.assertEqual(array[3], 77.0)  # the same memory
        self.assertTrue(numpy.shares_memory(array, numpy.frombuffer(logits, numpy.float32)))
        self.assertEqual(array.tolist(), logits.tolist())

    def test_keys_and_values(self):
        session = self.session(tokens(20))
        keys, values = session.kv(0, 5, 10)
        self.assertEqual((keys.format, len(keys), len(values)), ("H", 5 * 32, 5 * 32))
        self.assertEqual(bytes(keys), bytes(session.kv(0, 0, 20)[0])[5 * 64:10 * 64])
        with self.assertRaises(stasis.InvalidArgumentError):
            session.kv(99, 0, 1)

    def test_attention(self):
        session = self.session(tokens(20), track_attention="total")
        weights = session.attention()
        self.assertEqual((weights.format, len(weights)), ("d", 20))
        self.assertAlmostEqual(sum(weights), 20 * 4 * 12, places=3)
        with self.assertRaises(stasis.UnsupportedError):
            session.attention(by_head=True)
        with self.assertRaisesRegex(stasis.InvalidArgumentError, "'by head'"):
            model().session(track_attention="some")


class Pickling(Case):
    def test_a_session(self):
        session, _ = self.talk()
        session.set_sampling(ZERO_SEED)
        copied = pickle.loads(pickle.dumps(session))
        self.assertEqual(copied.digest, session.digest)
        self.assertIs(copied.model, session.model)  # one of this process
        self.assertEqual([each.token for each in copied.generate(max_tokens=20)],
                         [each.token for each in session.generate(max_tokens=20)])

    def test_in_another_process(self):
        session, _ = self.talk()
        self.path("pickled").write_bytes(pickle.dumps(session))
        child = self.script("import pickle\nfrom fixture import SECOND\n"
                            "session = pickle.load(open(sys.argv[1], 'rb'))\n"
                            "print(''.join(session.say(SECOND)))\nprint(session.digest)\n",
                            self.path("pickled"))
        out, err = child.communicate()
        self.assertEqual(err, "")
        reply = "".join(session.say(SECOND))
        self.assertEqual(out, f"{reply}\n{session.digest}\n")

    def test_a_model(self):
        self.assertIs(pickle.loads(pickle.dumps(model())), model())

    def test_another_model_in_its_place(self):
        from stasis.model import model_of
        with self.assertRaisesRegex(stasis.ModelMismatchError, "another one"):
            model_of(str(LLAMA), "00" * 32, {})


class Models(Case):
    def test_text(self):
        found = model().tokenize("k is 5.")
        self.assertEqual(model().detokenize(found), "k is 5.")
        self.assertEqual(model().tokenize("k", bos=True)[0], model().info.bos)
        text = model().render([{"role": "user", "content": "a"}], reply=True)
        self.assertEqual(model().tokenize(text, special=True)[0], 2)
        self.assertEqual(model().detokenize([2, 4], special=True), "<bos><start_of_turn>")
        with self.assertRaises(stasis.UnsupportedError):
            model(WITHOUT_TOKENIZER).tokenize("a")
        with self.assertRaisesRegex(ValueError, "surrogate"):
            model().tokenize("\ud800")

    def test_options(self):
        with stasis.Model(GEMMA, kernels="reference", threads=1, copy_weights=True) as slow:
            self.assertEqual((slow.info.kernels, slow.info.threads), ("reference", 1))
            self.assertEqual(slow.digest, model().digest)
            session = slow.session()
            session.append(tokens(10))
            self.assertEqual(session.digest, self.session(tokens(10)).digest)
        for wrong in ({"threads": -1}, {"threads": 2**32}, {"device": "a\0b"}):
            with self.assertRaises(stasis.InvalidArgumentError):
                stasis.Model(GEMMA, **wrong)

    def test_stats(self):
        session = self.session(tokens(100))
        self.assertGreaterEqual(model().stats.kv_used_bytes, session.info.kv_bytes)
        self.assertGreater(model().stats.kv_used_bytes, 0)

    def test_recommended_sampling(self):
        sampling = model().recommended_sampling()
        session = self.session(tokens(10))
        session.set_sampling(sampling)
        self.assertEqual(round(sampling.temperature, 3), 0.6)
        settings = stasis.Sampling(temperature=1, bias={5: -float("inf"), 3: 1}, dry_breakers=[4])
        session.set_sampling(settings)
        session.save(self.path("a"))
        with stasis.Snapshot(self.path("a")) as snapshot:
            self.assertIn("-Infinity", json.dumps(snapshot.element(9)) + "-Infinity")
        with self.assertRaisesRegex(stasis.InvalidArgumentError, "top_p"):
            session.set_sampling(stasis.Sampling(top_p=2))

    def test_embed(self):
        embedder = model(EMBEDDING)
        self.assertEqual(embedder.embed_info.dimension, 64)
        texts = [[each % 192 for each in tokens(70)], [5, 6, 7]]
        both = embedder.embed(texts)
        self.assertEqual([(each.format, len(each)) for each in both], [("f", 64)] * 2)
        self.assertAlmostEqual(sum(x * x for x in both[0]), 1, places=5)
        self.assertEqual(bytes(embedder.embed(texts[1:])[0]), bytes(both[1]))
        self.assertEqual(embedder.embed([]), [])
        text = model(LLAMA).embed("what is it?", pooling="mean")
        given = model(LLAMA).tokenize("what is it?", bos=True)
        self.assertEqual(bytes(text), bytes(model(LLAMA).embed([given], pooling="mean")[0]))
        with self.assertRaisesRegex(stasis.InvalidArgumentError, r"inputs\[1\]"):
            embedder.embed([[1], []])
        with self.assertRaises(stasis.UnsupportedError):
            model(LLAMA).embed("a")

    def test_quantize(self):
        report = stasis.quantize(GEMMA, self.path("a.gguf"), type="Q8_0")
        self.assertEqual(report.file_bytes, self.path("a.gguf").stat().st_size)
        self.assertIn("Q8_0", report.shares)
        with stasis.Model(self.path("a.gguf")) as smaller:
            self.assertEqual("".join(smaller.session().say(FIRST)), "k is 5.")


def stasis_private():
    """A domain that shares no pages with the other sessions of the test."""
    return 2**64 - 1


if __name__ == "__main__":
    unittest.main()
