# Threads and cancelling: one caller at a time, many sessions at once, and what runs goes on or ends
# whole, on request.
import asyncio
import threading
import time
import unittest

from fixture import Case, FIRST, GEMMA, SECOND, model, tokens
import stasis


class Threads(Case):
    def test_the_second_caller_is_told(self):
        session = self.session()
        inside, over, seen = threading.Event(), threading.Event(), []

        def wait(*_):
            inside.set()
            over.wait(60)

        thread = threading.Thread(target=lambda: session.append(tokens(10), progress=wait))
        thread.start()
        self.assertTrue(inside.wait(60))
        try:
            session.append([1])
        except stasis.BusyError as busy:
            seen.append(busy)
        over.set()
        thread.join()
        self.assertEqual(len(seen), 1)
        self.assertEqual(session.tokens(), tokens(10))

    def test_many_at_once(self):
        """Forks on threads of their own: each with the bits that it gets alone."""
        session, _ = self.talk()
        expected = self.said(session.fork())
        found, threads = [], []
        for _ in range(8):
            fork = session.fork()
            threads.append(threading.Thread(target=lambda fork=fork: found.append(self.said(fork))))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, [expected] * 8)

    def test_read_while_it_generates(self):
        """Each answer is that of a session which was given the same tokens alone."""
        session, plain = self.session(tokens(20)), self.session(tokens(20))
        after = {plain.digest: 20}
        for position in range(21, 61):
            plain.decode()
            after[plain.digest] = position
        over, seen, wrong = threading.Event(), [], []

        def look():
            try:
                while not over.is_set():
                    position = after[session.digest]
                    seen.append(position)
                    if session.position < position:
                        wrong.append(position)
            except Exception as problem:  # BusyError, or a digest of no token
                wrong.append(problem)

        threads = [threading.Thread(target=look) for _ in range(2)]
        for thread in threads:
            thread.start()
        while not seen and not wrong:  # before it begins
            time.sleep(0.001)
        for generated in session.generate(max_tokens=40, ignore_end=True):
            self.assertEqual(after[session.digest], generated.position + 1)
        over.set()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(session.digest, plain.digest)

    @staticmethod
    def said(session):
        return "".join(session.say(SECOND)), session.digest

    def test_others_run_meanwhile(self):
        """A call does not hold Python's lock: this thread counts while another computes."""
        session, counted = self.session(), [0]
        thread = threading.Thread(target=lambda: session.append(tokens(2000)))
        thread.start()
        while thread.is_alive():
            counted[0] += 1
            time.sleep(0.001)
        self.assertEqual(session.position, 2000)
        self.assertGreater(counted[0], 20)

    def test_cancel_from_another_thread(self):
        with stasis.Model(GEMMA, kernels="reference", threads=1) as slow:
            session, cancel = slow.session(), stasis.Cancel()
            session.append(tokens(10))
            before = session.digest
            threading.Timer(0.1, cancel.request).start()
            with self.assertRaises(stasis.CancelledError):
                session.append(tokens(3000), chunk=8, cancel=cancel)
            self.assertTrue(cancel.requested)
            self.assertEqual(session.digest, before)
            with self.assertRaises(stasis.CancelledError):
                next(session.generate(cancel=cancel))
            cancel.reset()
            next(session.generate(cancel=cancel, ignore_end=True))
            self.assertEqual(session.position, 11)

    def test_cancel_reports_progress(self):
        cancel = stasis.Cancel()
        self.assertEqual(cancel.progress, (0, 0))
        self.session().append(tokens(100), cancel=cancel)
        self.assertEqual(cancel.progress, (100, 100))


class Async(Case):
    def test_as_without(self):
        session = self.session()
        reply = asyncio.run(self.collect(session.say(FIRST)))
        self.assertEqual("".join(reply), "k is 5.")
        other, _ = self.talk()
        self.assertEqual(session.digest, other.digest)
        generated = asyncio.run(self.collect(session.generate(max_tokens=5, ignore_end=True)))
        self.assertEqual([each.token for each in generated],
                         [each.token for each in other.generate(max_tokens=5, ignore_end=True)])

    @staticmethod
    async def collect(pieces):
        return [piece async for piece in pieces]

    def test_the_loop_goes_on_meanwhile(self):
        async def both():
            ticks = 0
            task = asyncio.ensure_future(self.collect(session.say("a " * 3000, max_tokens=2)))
            while not task.done():
                ticks += 1
                await asyncio.sleep(0.001)
            return ticks

        with stasis.Model(GEMMA, kernels="reference") as slow:  # a second, thousand ticks
            session = slow.session()
            self.assertGreater(asyncio.run(both()), 20)
            self.assertGreater(session.position, 3000)

    def test_cancelled_tasks_leave_what_was_delivered(self):
        """At whatever moment: the log is what the reader has got."""
        for delay in (0, 0.001, 0.004, 0.01, 0.05):
            session, _ = self.talk()
            before, got = session.tokens(), []

            async def read(session=session, got=got):
                async for generated in session.generate(ignore_end=True):
                    got.append(generated.token)

            async def cancelled(delay=delay):
                task = asyncio.ensure_future(read())
                await asyncio.sleep(delay)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task

            asyncio.run(cancelled())
            self.assertEqual(session.tokens(), before + got)
            again = self.session(before + got)
            self.assertEqual(session.digest, again.digest)
            session.append([7])  # not busy

    def test_a_cancelled_turn_is_not_said(self):
        async def cancelled():
            task = asyncio.ensure_future(self.collect(session.say("a " * 3000)))
            await asyncio.sleep(0.05)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        with stasis.Model(GEMMA, kernels="reference") as slow:
            session = slow.session()
            asyncio.run(cancelled())
            self.assertEqual(session.position, 0)
            self.assertEqual("".join(session.say(FIRST)), "k is 5.")

    def test_errors_reach_the_task(self):
        session = self.session(tokens(3))
        session.close()
        with self.assertRaises(stasis.ClosedError):
            asyncio.run(self.collect(session.generate()))
        self.assertTrue(model())


if __name__ == "__main__":
    unittest.main()
