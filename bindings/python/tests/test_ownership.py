# Who owns what, and until when: copies, what callbacks keep, what failed calls leave, and threads
# and signals at the worst moments.
import copy
import gc
import io
import os
import pickle
import unittest
import weakref

from fixture import Case, model, tokens
import stasis


class Copies(Case):
    def test_what_owns_an_object_is_not_copied(self):
        session = self.session(tokens(5))
        for each in (stasis.Cancel(), session.snapshot(), session.generate(), session.say("a"),
                     session._handle, session._handle._owned, session.generate()._text):
            for copied in (copy.copy, copy.deepcopy, pickle.dumps):
                with self.assertRaisesRegex(TypeError, type(each).__name__):
                    copied(each)

    def test_a_model_is_its_own_copy(self):
        self.assertIs(copy.copy(model()), model())
        self.assertIs(copy.deepcopy([model()])[0], model())


class Kept(Case):
    """What a host's function was given and keeps is good for as long as it is kept."""

    def test_logits(self):
        session, kept, seen = self.session(tokens(10)), [], []

        def keep(_, row):
            kept.append(row)
            seen.append(bytes(row))

        session.append(tokens(5), logits=keep)
        session.append(tokens(50))
        self.assertEqual(len(set(seen)), 5)
        self.assertTrue([bytes(each) for each in kept] == seen)

    def test_what_a_stream_is_given(self):
        class Keeping(list):
            write = list.append

        session, kept, written = self.session(tokens(150)), Keeping(), io.BytesIO()
        session.save(kept)
        session.save(written)
        self.assertTrue(b"".join(kept) == written.getvalue())


class Leaks(Case):
    def test_what_a_function_raises_holds_nothing(self):
        def fail(*_):
            raise ZeroDivisionError

        class Full:
            write = fail

        for call in (lambda session: session.append(tokens(3), logits=fail),
                     lambda session: session.append(tokens(3), progress=fail),
                     lambda session: session.save(Full())):
            session = model().session()
            session.append([7])
            gone = weakref.ref(session)
            try:  # assertRaises would clear the frames of the traceback
                call(session)
                self.fail("nothing was raised")
            except ZeroDivisionError:
                pass
            del session
            gc.collect()
            self.assertIsNone(gone())

    def test_what_a_function_refers_to(self):
        """After a call that succeeds, too."""
        class Progress:
            def __call__(self, *_):
                pass

        progress = Progress()
        gone = weakref.ref(progress)
        self.session().append(tokens(3), progress=progress)
        del progress
        gc.collect()
        self.assertIsNone(gone())


class Others(Case):
    def test_a_generation_takes_back_its_own_only(self):
        """What another thread appends while a generation is told that the session is busy."""
        session = self.session(tokens(10))
        generation = session.generate(ignore_end=True)

        def refused(*_):
            session.append([7])
            raise stasis.BusyError

        generation._draw = refused
        with self.assertRaises(stasis.BusyError):
            next(generation)
        self.assertEqual(session.tokens(), tokens(10) + [7])
        del generation._draw
        self.assertEqual(next(generation).position, 11)  # it has not ended
        session.close()
        for _ in range(2):
            with self.assertRaises(stasis.ClosedError):
                next(generation)

    def test_nor_what_has_come_after_its_own(self):
        session = self.session(tokens(10))
        generation = session.generate(ignore_end=True)
        generated = next(generation)
        session.append([7])
        generation._take_back(generated)
        self.assertEqual(session.position, 12)


class Signals(Case):
    def test_short_calls_at_any_moment(self):
        """Whatever a handler interrupts, a closed session is freed."""
        child = self.script("""
from fixture import stasis, tokens, model
import gc, random, signal
session, chance, armed, hits = model().session(), random.Random(1), False, 0
session.append(tokens(100))
class Now(BaseException): pass
def now(*_):
    if armed: raise Now
signal.signal(signal.SIGALRM, now)
for call in (lambda: len(session), lambda: session.fork()):
    for round in range(2000):
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 2e-4))
            for _ in range(5000): call()
        except Now:
            hits += 1
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
gc.collect()
session.close()
print(hits, model().stats.kv_used_bytes)
""")
        self.assertEqual(child.communicate(timeout=120), ("4000 0\n", ""))


class Exit(Case):
    def test_a_daemon_thread_that_generates(self):
        for _ in range(5):
            child = self.script("""
from fixture import stasis, tokens, model
import threading, time
session = model().session()
session.append(tokens(5))
begun = threading.Event()
def run():
    while True:
        for _ in session.fork().generate(ignore_end=True, max_tokens=500): begun.set()
threading.Thread(target=run, daemon=True).start()
begun.wait(60)
""")
            out, err = child.communicate(timeout=120)
            self.assertEqual((child.returncode, out, err), (0, "", ""))


    def test_daemon_threads_that_are_called_back(self):
        for call in ("session.fork().append(tokens(100, 5), logits=seen)",
                     "session.fork().append(tokens(100, 5), chunk=4, progress=seen)",
                     "session.save(Stream())", "model().load(io.BytesIO(saved))"):
            child = self.script(f"""
from fixture import stasis, tokens, model
import io, threading
session = model().session()
session.append(tokens(50))
saved = io.BytesIO()
session.save(saved)
saved = saved.getvalue()
begun = threading.Event()
seen = lambda *_: begun.set()
class Stream:
    def write(self, _): seen()
def run():
    while True:
        try:
            {call}
            begun.set()
        except (stasis.CancelledError, stasis.BusyError):  # the other one forks it
            pass
threads = [threading.Thread(target=run, daemon=True) for _ in range(1 + ("save" not in {call!r}))]
for each in threads: each.start()
begun.wait(60)
""")
            out, err = child.communicate(timeout=120)
            self.assertEqual((child.returncode, out, err), (0, "", ""), call)

    def test_a_function_that_blocks_for_good(self):
        """Exiting goes on without it."""
        child = self.script("""
from fixture import stasis, tokens, model
from stasis import _exit
import threading
_exit.PATIENCE_SECONDS = 0.2
session, begun = model().session(), threading.Event()
def block(*_):
    begun.set()
    threading.Event().wait()
threading.Thread(target=lambda: session.append(tokens(9), progress=block), daemon=True).start()
begun.wait(60)
""")
        out, err = child.communicate(timeout=60)
        self.assertEqual((child.returncode, out, err), (0, "", ""))


class Streams(Case):
    def test_one_that_does_not_block_and_is_full(self):
        session = self.session(tokens(150))
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        os.set_blocking(writing, False)
        with os.fdopen(writing, "wb", buffering=0) as pipe:
            with self.assertRaises(BlockingIOError):
                session.save(pipe)

    def test_counts_that_cannot_be(self):
        session = self.session(tokens(5))
        for taken in (0, -1, 10**9):
            with self.assertRaisesRegex(OSError, f"took {taken} of"):
                session.save(Counting(taken))
        with self.assertRaises(BlockingIOError):
            model().load(Counting(None))
        with self.assertRaisesRegex(TypeError, "str"):
            model().load(io.StringIO("abc" * 10000))


class Counting:
    def __init__(self, result):
        self.result = result

    def write(self, _):
        return self.result

    def read(self, _=-1):
        return self.result


if __name__ == "__main__":
    unittest.main()
