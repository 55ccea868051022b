# Drafters: they change what a pass computes and no token, and leave a session as free as any other.
import gc
import unittest
import weakref

from fixture import Case, FIRST, GEMMA, LLAMA, WITHOUT_TOKENIZER, model
import stasis


class Drafting(Case):
    def asked(self):
        session = self.session(path=LLAMA)
        session.append_message("user", FIRST, reply=True)
        return session

    def drafters(self):
        """A session for each drafter, which proposes three tokens for every pass."""
        for draft in ("lookup", model(LLAMA)):
            session = self.asked()
            session.set_draft(draft, tokens_min=3, tokens_max=3)
            yield session

    def test_no_token_differs(self):
        plain = self.asked()
        expected = list(plain.generate(max_tokens=60, ignore_end=True, log_probabilities=2))
        for session in self.drafters():
            generation = session.generate(max_tokens=60, ignore_end=True, log_probabilities=2)
            self.assertEqual(list(generation), expected)
            self.assertEqual(session.digest, plain.digest)
            self.assertGreater(generation.drafted, 0)
            # What was computed ahead has been taken, and not computed again for each token.
            self.assertGreater(generation.accepted, 20)
            session.set_draft(None)
            generation = session.generate(max_tokens=5, ignore_end=True)
            list(generation)
            self.assertEqual(generation.drafted, 0)

    def test_a_generation_may_be_left(self):
        """And the session changed, without a word to it; also while it is referred to."""
        for session in self.drafters():
            other = self.asked()
            generation = session.generate(ignore_end=True)
            for _ in range(5):
                self.assertEqual(next(generation).token, other.decode())
            self.assertEqual(session.digest, other.digest)
            for each in (session, other):  # each of them would be refused
                each.set_sampling(stasis.Sampling(temperature=0.5, seed=1))
                each.append([7])
                each.rewind(each.position - 2)
            self.assertEqual(next(generation).token, other.decode())
            self.assertEqual(session.decode(), other.decode())
            second = session.generate(ignore_end=True, log_probabilities=2)
            for each, best in (second, 2), (generation, 0), (second, 2):
                generated = next(each)
                self.assertEqual((generated.token, len(generated.best)), (other.decode(), best))
            session.evict(0, 3)
            other.evict(0, 3)
            self.assertEqual(session.digest, other.digest)
            child = session.fork()  # drafts as well
            self.assertGreater(sum(1 for _ in child.generate(max_tokens=30)), 0)

    def test_say_in_turns(self):
        for session in self.drafters():
            other = self.session(path=LLAMA)
            session.rewind(0)
            for _ in range(2):
                self.assertEqual("".join(session.say(FIRST)), "".join(other.say(FIRST)))
            self.assertEqual(session.digest, other.digest)

    def test_a_scheduler_takes_it(self):
        for session in self.drafters():
            other = self.asked()
            generation = session.generate(ignore_end=True)
            next(generation)
            other.decode()
            with stasis.Scheduler(model(LLAMA)) as scheduler:
                got = [each.token for each in scheduler.submit(session, max_tokens=4)
                       if not each.last]
            self.assertEqual(got, [other.decode() for _ in range(len(got))])

    def test_nothing_keeps_a_session(self):
        session = model(LLAMA).session()
        session.append_message("user", FIRST, reply=True)
        session.set_draft("lookup")
        generation = session.generate(ignore_end=True)
        next(generation)
        gone = weakref.ref(session)
        gc.disable()
        self.addCleanup(gc.enable)
        del session, generation
        self.assertIsNone(gone())

    def test_closed(self):
        for session in self.drafters():
            generation = session.generate(ignore_end=True)
            next(generation)
            session.close()
            with self.assertRaises(stasis.ClosedError):
                next(generation)

    def test_cancelled(self):
        for session in self.drafters():
            cancel = stasis.Cancel()
            generation = session.generate(ignore_end=True, cancel=cancel)
            next(generation)
            before = session.digest
            cancel.request()
            with self.assertRaises(stasis.CancelledError):
                next(generation)
            self.assertEqual(session.digest, before)
            session.append([7])

    def test_refusals(self):
        session = self.asked()
        with self.assertRaises(stasis.ModelMismatchError):
            session.set_draft(model(WITHOUT_TOKENIZER))
        with self.assertRaisesRegex(stasis.InvalidArgumentError, "tokens_max is 100"):
            session.set_draft("lookup", tokens_max=100)
        for wrong in ("search", 3, GEMMA):
            with self.assertRaisesRegex(TypeError, "the drafter is"):
                session.set_draft(wrong)
        generation = session.generate(max_tokens=3)
        list(generation)
        self.assertEqual(generation.drafted, 0)


if __name__ == "__main__":
    unittest.main()
