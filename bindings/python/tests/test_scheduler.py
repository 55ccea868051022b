# Schedulers: sessions that generate together have what they have alone, for a loop over all of
# them, for loops of several threads, and for tasks.
import asyncio
import signal
import threading
import unittest

from fixture import FIRST, GEMMA, LLAMA, SECOND, Case, model, stasis

TEXTS = [FIRST, SECOND, "Tell me about the sea.", "What is m?"]


class Schedulers(Case):
    def sessions(self, count=4):
        return [self.session(sampling=stasis.Sampling(temperature=0.8, seed=i))
                for i in range(count)]

    def expected(self, count=4, **options):
        """(text, digest) of each alone."""
        alone = []
        for session, text in zip(self.sessions(count), TEXTS):
            alone.append(("".join(session.say(text, **options)), session.digest))
        return alone

    def scheduler(self, path=GEMMA, **options):
        scheduler = stasis.Scheduler(model(path), **options)
        self.addCleanup(scheduler.close)
        return scheduler

    def test_a_loop_over_all(self):
        scheduler, sessions = self.scheduler(slice=16), self.sessions()
        for session, text in zip(sessions, TEXTS):
            scheduler.submit(session, text, max_tokens=12)
        texts = {session: "" for session in sessions}
        ends = []
        for event in scheduler:
            texts[event.session] += event.generated.text
            if event.end:
                ends.append(event.stop)
        self.assertEqual([(texts[each], each.digest) for each in sessions],
                         self.expected(max_tokens=12))
        self.assertEqual(len(ends), 4)
        self.assertLessEqual(set(ends), {"end", "length"})
        stats = scheduler.stats
        self.assertEqual((stats.sessions, stats.events), (0, 0))
        self.assertGreater(stats.tokens, 10)
        self.assertIsNone(scheduler.next(timeout=0))

    def test_a_thread_for_each(self):
        scheduler, sessions = self.scheduler(), self.sessions()
        texts = [None] * 4

        def talk(i):
            reply = scheduler.submit(sessions[i], TEXTS[i], max_tokens=12)
            texts[i] = "".join(generated.text for generated in reply)
        threads = [threading.Thread(target=talk, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([(text, each.digest) for text, each in zip(texts, sessions)],
                         self.expected(max_tokens=12))

    def test_a_task_for_each(self):
        scheduler, sessions = self.scheduler(), self.sessions()

        async def talk(i):
            text = ""
            async for generated in scheduler.submit(sessions[i], TEXTS[i], max_tokens=12):
                text += generated.text
            return text

        async def all_of_them():
            return await asyncio.gather(*(talk(i) for i in range(4)))
        texts = asyncio.run(all_of_them())
        self.assertEqual([(text, each.digest) for text, each in zip(texts, sessions)],
                         self.expected(max_tokens=12))

        async def for_all():
            scheduler.submit(sessions[0], SECOND, max_tokens=3)
            return [event.end async for event in scheduler]
        self.assertTrue(asyncio.run(for_all())[-1])

    def test_a_task_that_is_cancelled_loses_no_event(self):
        scheduler, session, twin = self.scheduler(), self.session(), self.session()
        reply = scheduler.submit(session, FIRST, max_tokens=8)

        async def impatient():
            task = asyncio.ensure_future(reply.__anext__())
            await asyncio.sleep(0)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
        asyncio.run(impatient())
        text = "".join(generated.text for generated in reply)
        self.assertEqual(text, "".join(twin.say(FIRST, max_tokens=8)))
        self.assertEqual(session.digest, twin.digest)

    def test_log_probabilities_stops_and_tokens(self):
        scheduler = self.scheduler()
        tokens = model().tokenize(SECOND)
        session, twin = self.session(tokens[:5]), self.session(tokens)
        reply = scheduler.submit(session, tokens=tokens[5:], max_tokens=9, stop=["e"],
                                 ignore_end=True, log_probabilities=2)
        self.assertEqual(list(reply), list(twin.generate(max_tokens=9, stop=["e"],
                                                         ignore_end=True, log_probabilities=2)))
        self.assertIn(reply.stop, ("string", "length"))
        self.assertEqual(list(reply), [])

    def test_conversations(self):
        scheduler, session = self.scheduler(LLAMA, slice=16), self.session(path=LLAMA)

        def alone(conversation):
            twin = self.session(path=LLAMA)
            twin.append_chat(conversation, reply=True)
            list(twin.generate(max_tokens=12))
            return twin.digest
        first, other = ({"messages": [{"role": "user", "content": text}]}
                        for text in (FIRST, "Let's end."))
        list(scheduler.submit(session, conversation=first, max_tokens=12))
        digest = session.digest
        self.assertEqual(digest, alone(first))
        with self.assertRaises(stasis.ConflictError):
            scheduler.submit(session, conversation=other, max_tokens=12)
        self.assertEqual((session.digest, scheduler.stats.sessions), (digest, 0))
        session.rewind(session.chat_tokens(other, reply=True).position)
        list(scheduler.submit(session, conversation=other, max_tokens=12))
        self.assertEqual(session.digest, alone(other))

    def test_a_session_in_a_scheduler(self):
        scheduler, session = self.scheduler(), self.session(range(5, 25))
        reply = scheduler.submit(session, max_tokens=5, ignore_end=True)
        with self.assertRaises(stasis.BusyError):
            session.append([5])
        with self.assertRaises(stasis.BusyError):
            scheduler.submit(session)
        next(reply)
        self.assertEqual(session.position, 21)
        session.close()  # the scheduler keeps it until its end
        self.assertEqual(len(list(reply)), 4)

    def test_cancel_and_close(self):
        scheduler, session = self.scheduler(), self.session(range(5, 25))
        other = self.session(range(5, 25))
        before = session.digest
        reply = scheduler.submit(session, FIRST)
        reply.cancel()
        with self.assertRaises(stasis.CancelledError):
            next(reply)
        self.assertEqual(session.digest, before)
        reply = scheduler.submit(other)
        scheduler.close()
        scheduler.close()
        with self.assertRaises(stasis.ClosedError):
            next(reply)
        other.append([5])  # free
        with self.assertRaises(stasis.ClosedError):
            scheduler.submit(session)

    def test_errors_of_one_session(self):
        scheduler = self.scheduler()
        well, barred = self.session(range(5, 25)), self.session(range(5, 25))
        barred.set_sampling(stasis.Sampling(bias={token: float("-inf") for token in
                                                  range(model().info.vocabulary)}))
        first, second = (scheduler.submit(each, max_tokens=3, ignore_end=True)
                         for each in (barred, well))
        with self.assertRaises(stasis.InvalidArgumentError):
            list(first)
        self.assertEqual(len(list(second)), 3)

    def test_refusals(self):
        with self.assertRaises(stasis.InvalidArgumentError):
            self.scheduler(sessions_max=1025)
        scheduler = self.scheduler()
        with self.assertRaises(stasis.NotFoundError):
            scheduler.submit(self.session())
        with self.assertRaises(stasis.InvalidArgumentError):
            scheduler.submit(self.session(path=LLAMA), tokens=[1])
        with self.assertRaises(stasis.InvalidArgumentError):
            scheduler.submit(self.session(), "text", tokens=[1])
        with self.assertRaises(stasis.InvalidArgumentError):
            scheduler.submit(self.session(), "text", conversation={"messages": []})
        with self.assertRaises(stasis.InvalidArgumentError):
            scheduler.submit(self.session(), conversation={})
        with self.assertRaises(stasis.InvalidArgumentError):
            scheduler.submit(self.session(range(5)), stop=[""])
        self.assertEqual(scheduler.stats.sessions, 0)
        self.assertIsNone(next(iter(scheduler), None))

    def test_a_signal_loses_no_event(self):
        scheduler, session, twin = self.scheduler(), self.session(), self.session()
        expected = list(self.talk_of(twin))
        heard, signals = [], 0

        class Now(BaseException):
            pass

        def interrupt(*_):
            raise Now
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            reply = scheduler.submit(session, FIRST, max_tokens=60, ignore_end=True)
            while True:
                try:  # which a slow machine may enter later than the timer ends
                    signal.setitimer(signal.ITIMER_REAL, 0.0005 if signals < 100 else 0)
                    generated = next(reply, None)
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except Now:
                    signals += 1
                    continue
                if generated is None:
                    break
                heard.append(generated)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        self.assertGreater(signals, 0)
        # One may be lost in this test's own line, between the call and the assignment.
        self.assertEqual(session.digest, twin.digest)
        self.assertEqual([each for each in expected if each in heard], heard)
        self.assertEqual((reply.stop, scheduler.stats.events), ("length", 0))

    def talk_of(self, session):
        session.append_message("user", FIRST, reply=True)
        return session.generate(max_tokens=60, ignore_end=True)


if __name__ == "__main__":
    unittest.main()
