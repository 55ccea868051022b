# Ctrl-C: a real SIGINT, sent to a Python process that is inside a call. The call ends at once with
# KeyboardInterrupt, and its session is whole: as before the call, or with what was delivered.
import signal
import unittest

from fixture import Case, model, tokens

SLOW = """
from fixture import stasis, tokens, GEMMA
import random, signal, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
model = stasis.Model(GEMMA, kernels="reference", threads=1)
session = model.session()
session.append(tokens(20))
print(session.digest)
def interrupted(call, delay=0.03):
    # The signal comes from this process, whose calls and timers stand still together.
    sent = []
    def send():
        sent.append(time.monotonic())
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    try:
        threading.Timer(delay, send).start()
        call()
        print("missed it")
        time.sleep(60)
    except KeyboardInterrupt:
        print("interrupted", time.monotonic() - sent[0])
"""


class Interrupt(Case):
    def interrupt(self, text, rounds):
        """The lines of a script, but those of `interrupted`; and the seconds that these took."""
        child = self.script(SLOW + text, self.path("file"))
        out, err = child.communicate()
        self.assertEqual((child.returncode, err), (0, ""))
        lines, waits = [], []
        for line in out.splitlines():
            if line.startswith("interrupted"):
                waits.append(float(line.split()[1]))
            else:
                lines.append(line)
        self.assertEqual(len(waits), rounds, lines)
        self.assertNotIn("missed it", lines)
        return lines, waits

    def test_calls(self):
        """Each would take seconds or more with these kernels."""
        lines, waits = self.interrupt("""
interrupted(lambda: session.append(tokens(3000)))
print(session.digest)
interrupted(lambda: session.append_message("user", "k is 5. " * 400))
print(session.digest)
interrupted(lambda: session.score(tokens(3000)))
print(session.digest)
other = model.session()
other.append(tokens(1500))
interrupted(lambda: other.verify())
other.save(sys.argv[1], keep="none")
afresh = stasis.Model(GEMMA, kernels="reference", threads=1)  # which knows no pages
interrupted(lambda: afresh.load(sys.argv[1]))
interrupted(lambda: model.embed([tokens(3000)], pooling="mean"))
session.append(tokens(5, 2))
print(session.digest, *session.tokens())
""", rounds=6)
        first, *after, last = lines
        self.assertEqual(after, [first] * 3)
        whole = self.session(tokens(20) + tokens(5, 2))
        self.assertEqual(last.split()[0], whole.digest)
        # The reference kernels take milliseconds for a layer of a pass.
        self.assertLess(max(waits), 5.0)

    def test_generation_at_any_moment(self):
        """Whatever was delivered is in the log, and nothing else."""
        lines, _ = self.interrupt("""
chance = random.Random(1)
for round in range(25):
    fork, got = session.fork(), []
    def run():
        for generated in fork.generate(ignore_end=True):
            got.append(generated.token)
    interrupted(run, chance.uniform(0.002, 0.08))
    print(fork.digest, fork.tokens() == tokens(20) + got, *got)
""", rounds=25)
        counts = []
        for line in lines[1:]:
            digest, complete, *got = line.split()
            self.assertEqual(complete, "True")
            counts.append(len(got))
            again = self.session(tokens(20) + list(map(int, got)))
            self.assertEqual(digest, again.digest)
        self.assertGreater(len(set(counts)), 3)

    def test_a_reply_goes_on_after_it(self):
        lines, _ = self.interrupt("""
reply = []
def run():
    reply.extend(session.say("k is 5. " * 300))
interrupted(run)
print(session.digest, reply)
""", rounds=1)
        self.assertEqual(lines[1], f"{lines[0]} []")

    def test_a_handle_of_the_host_is_not_used_up(self):
        lines, _ = self.interrupt("""
cancel = stasis.Cancel()
interrupted(lambda: session.append(tokens(3000), cancel=cancel))
session.append([7], cancel=cancel)
print(cancel.requested, session.position)
""", rounds=1)
        self.assertEqual(lines[1], "False 21")

    def test_other_handlers_raise_what_they_raise(self):
        """The host's own, for another signal, in the middle of a call."""
        child = self.script(SLOW + """
import signal
class Enough(Exception): pass
def enough(*_): raise Enough
signal.signal(signal.SIGALRM, enough)
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    session.append(tokens(3000))
except Enough:
    print("enough", session.position)
signal.signal(signal.SIGALRM, lambda *_: print("seen"))
signal.setitimer(signal.ITIMER_REAL, 0.05)
session.append(tokens(2000, 2))
print(session.position)
""")
        out, err = child.communicate()
        self.assertEqual((out.splitlines()[1:], err), (["enough 20", "seen", "2020"], ""))

    def test_in_a_loop_of_events(self):
        child = self.script(SLOW + """
import asyncio
got = []
async def run():
    async for generated in session.generate(ignore_end=True):
        got.append(generated.token)
        if len(got) == 3:
            print("ready")
try:
    asyncio.run(run())
except KeyboardInterrupt:
    print(session.tokens() == tokens(20) + got, session.position > 20)
""")
        for line in child.stdout:
            if line == "ready\n":
                child.send_signal(signal.SIGINT)
                break
        out, err = child.communicate()
        self.assertEqual((out, err), ("True True\n", ""))
        self.assertTrue(model())


if __name__ == "__main__":
    unittest.main()
