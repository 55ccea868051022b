# The time of calls. Callbacks wait until it is over, so that nothing depends on the machine.
import time
import unittest

from fixture import Case, FIRST, GEMMA, model, tokens
import stasis

TIME = 0.005


def wait(done, total):
    time.sleep(TIME + 0.001)


class Timeouts(Case):
    def times_out(self, call, *arguments, **options):
        with self.assertRaises(stasis.TimedOutError) as raised:
            call(*arguments, timeout=TIME, progress=wait, **options)
        self.assertIsInstance(raised.exception, TimeoutError)

    def test_calls_leave_everything_as_before(self):
        session = self.session(tokens(300))
        before = session.digest
        self.times_out(session.append, tokens(300, 2))
        self.times_out(session.append_message, "user", FIRST)
        self.times_out(session.score, tokens(20, 2))
        self.assertEqual(session.digest, before)
        path = self.path("a")
        self.times_out(session.save, path)
        self.assertFalse(path.exists())
        session.save(path, timeout=3600)
        self.times_out(model().load, path)
        self.times_out(stasis.compact, path)
        with stasis.Snapshot(path) as snapshot:
            self.times_out(snapshot.verify, model())
            self.assertEqual(snapshot.verify(model(), timeout=1e300).positions, 300)
        self.times_out(stasis.Model, GEMMA)
        self.times_out(stasis.quantize, GEMMA, self.path("b"))
        self.times_out(model().embed, FIRST, pooling="last")
        self.assertFalse(self.path("b").exists())

    def test_a_generation_keeps_its_tokens(self):
        session = self.session(tokens(40))
        drawn = 0
        with self.assertRaises(stasis.TimedOutError):
            for _ in session.generate(max_tokens=1000, ignore_end=True, timeout=2):
                drawn += 1
                time.sleep(0.7)
        self.assertTrue(1 <= drawn <= 3, drawn)
        self.assertEqual(session.position, 40 + drawn)
        with self.assertRaises(stasis.TimedOutError):
            list(self.session().say(FIRST, timeout=0))
        self.assertEqual(list(session.generate(max_tokens=1, timeout=None))[0].position, 40 + drawn)

    def test_a_scheduled_session_ends_alone(self):
        late, other = self.session(), self.session()
        with stasis.Scheduler(model()) as scheduler:
            timed = scheduler.submit(late, FIRST, max_tokens=5, timeout=TIME)
            whole = scheduler.submit(other, FIRST, max_tokens=5)
            wait(0, 0)
            with self.assertRaises(stasis.TimedOutError):
                list(timed)
            self.assertEqual(len([each for each in whole if not each.last]), 5)
        self.assertEqual((late.position, other.position > 5), (0, True))

    def test_what_is_no_time(self):
        for timeout in (-1, float("nan")):
            with self.assertRaisesRegex(stasis.InvalidArgumentError, "timeout"):
                self.session().generate(timeout=timeout)
            with self.assertRaisesRegex(stasis.InvalidArgumentError, "timeout"):
                self.session().append(tokens(3), timeout=timeout)


if __name__ == "__main__":
    unittest.main()
