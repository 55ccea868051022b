# Every failure is an exception of its status's class, with the library's message; and what was
# closed says so.
import builtins
import gc
import io
import unittest
import weakref

from fixture import (Case, FIRST, GEMMA, LLAMA, ROOT, WITHOUT_TOKENIZER, model,
                     tokens)
import stasis
from stasis import errors

GO_DATA = ROOT / "bindings/go/testdata"


class Statuses(Case):
    def refused(self, status, call, *also):
        with self.assertRaises(stasis.Error) as caught:
            call()
        problem = caught.exception
        self.assertEqual(problem.status, status)
        self.assertIs(type(problem).status, status)
        self.assertTrue(str(problem))
        for kind in also:
            self.assertIsInstance(problem, kind)
        return str(problem)

    def test_each(self):
        """All but NO_MEMORY, INTERNAL and BUFFER_TOO_SMALL, which a host does not meet here."""
        plain = model(WITHOUT_TOKENIZER)
        session = plain.session()
        session.append([1, 2, 3])
        session.save(self.path("saved"))
        with plain.session() as other:
            other.append([1, 9])
            other.save(self.path("other"))
        nan = self.altered_model()
        full, empty = plain.session(capacity=5), plain.session()
        small = stasis.Model(WITHOUT_TOKENIZER, kv_budget_bytes=1 << 16)
        status = stasis.Status
        for expected, call, also in (
                (status.INVALID_ARGUMENT, lambda: session.append([1, 100000]), ValueError),
                (status.NOT_FOUND, empty.decode, LookupError),
                (status.IO, lambda: session.save(self.path("no") / "folder"), OSError),
                (status.UNSUPPORTED, session.text, stasis.Error),
                (status.CORRUPT, lambda: stasis.Snapshot(__file__), stasis.Error),
                (status.VERSION, lambda: plain.load(GO_DATA / "version.stasis"), stasis.Error),
                (status.MODEL_MISMATCH, lambda: model().load(self.path("saved")), stasis.Error),
                (status.CONFLICT, lambda: session.save(self.path("other"), if_match=True),
                 stasis.Error),
                (status.FULL, lambda: full.append([1] * 6), stasis.Error),
                (status.DIVERGED, lambda: stasis.Snapshot(GO_DATA / "diverged.stasis").verify(
                    model(LLAMA)), stasis.Error),
                (status.DEVICE, lambda: stasis.Model(GEMMA, device="abacus"), stasis.Error),
                (status.NONFINITE, lambda: stasis.Model(nan), ArithmeticError),
                (status.POOL_EXHAUSTED, lambda: small.session().append([1] * 1000), stasis.Error),
                (status.CANCELLED, lambda: session.append([1], cancel=requested()), stasis.Error)):
            with self.subTest(expected.name):
                self.refused(expected, call, also)

    def altered_model(self):
        """A copy with a NaN for its last weight."""
        folder = self.path("nan")
        folder.mkdir()
        for path in WITHOUT_TOKENIZER.glob("*.*"):
            (folder / path.name).write_bytes(path.read_bytes())
        weights = bytearray((folder / "model.safetensors").read_bytes())
        weights[-2:] = b"\xff\x7f"
        (folder / "model.safetensors").write_bytes(weights)
        return folder

    def test_classes(self):
        """One for each status but OK, and the names of the header."""
        self.assertEqual({each.status for each in errors.CLASSES.values()},
                         set(stasis.Status) - {stasis.Status.OK})
        for status in stasis.Status:
            name = stasis._library.stasis_status_name(status).decode()
            self.assertEqual(status.name, name)
        later = errors.error_of(77, "what")
        self.assertEqual((type(later), str(later)), (stasis.Error, "status 77: what"))

    def test_messages_are_the_librarys(self):
        message = self.refused(stasis.Status.INVALID_ARGUMENT,
                               lambda: self.session().append([5, 100000]))
        self.assertIn("100000", message)
        self.assertIn("1", message)
        with self.assertRaisesRegex(stasis.MissingFileError, "nowhere") as caught:
            stasis.Model(self.path("nowhere"))
        self.assertEqual(caught.exception.status, stasis.Status.NOT_FOUND)

    def test_files_that_are_not_there(self):
        nowhere = self.path("nowhere")
        for call in (lambda: stasis.Model(nowhere), lambda: model().load(nowhere),
                     lambda: stasis.Snapshot(nowhere), lambda: stasis.compact(nowhere),
                     lambda: stasis.quantize(nowhere, self.path("out"))):
            with self.assertRaises(FileNotFoundError):
                call()
        with self.assertRaises(stasis.NotFoundError) as caught:
            self.session().decode()
        self.assertNotIsInstance(caught.exception, FileNotFoundError)
        with self.assertRaisesRegex(stasis.InvalidArgumentError, "zero byte"):
            stasis.Snapshot("a\0b")

    def test_what_a_hosts_function_raises_comes_back(self):
        session = self.session(tokens(10))
        before = session.digest

        def fail(*_):
            raise builtins.KeyError("mine")

        for call in (lambda: session.append(tokens(5), progress=fail),
                     lambda: session.append(tokens(5), logits=fail),
                     lambda: session.save(Broken()), lambda: model().load(Broken()),
                     lambda: session.verify(progress=fail), lambda: stasis.Model(GEMMA,
                                                                                progress=fail)):
            with self.assertRaisesRegex(KeyError, "mine"):
                call()
        self.assertEqual(session.digest, before)
        with self.assertRaisesRegex(ValueError, "were asked for"):
            model().load(Greedy())

    def test_busy_for_its_own_callbacks(self):
        session, seen = self.session(tokens(10)), []

        def ask(*_):
            try:
                session.decode()
            except stasis.BusyError as busy:
                seen.append(busy)

        session.append(tokens(5), progress=ask)
        self.assertTrue(seen)


class Lifetimes(Case):
    def test_use_after_close(self):
        opened = stasis.Model(WITHOUT_TOKENIZER)
        session = opened.session()
        session.append([1, 2, 3])
        session.save(self.path("saved"))
        snapshot = stasis.Snapshot(self.path("saved"))
        generation = session.generate()
        digest = session.digest
        opened.close()
        opened.close()
        self.assertEqual(session.digest, digest)  # it keeps the model alive
        session.append([4])
        for each in (session, snapshot):
            each.close()
            each.close()
        for noun, call in (("model", opened.session), ("model", lambda: opened.tokenize("a")),
                           ("model", lambda: opened.load(self.path("saved"))),
                           ("session", lambda: session.append([1])),
                           ("session", lambda: session.position),
                           ("session", lambda: session.digest), ("session", session.fork),
                           ("session", lambda: next(generation)),
                           ("session", lambda: session.save(self.path("saved"))),
                           ("snapshot", lambda: snapshot.info),
                           ("snapshot", lambda: snapshot.verify(model(WITHOUT_TOKENIZER)))):
            with self.assertRaisesRegex(stasis.ClosedError, f"the {noun} is closed"):
                call()
        self.assertIn("closed", repr(session))
        self.assertIn("closed", repr(opened))
        self.assertEqual(opened.info.architecture, "llama")  # known without the library

    def test_with(self):
        with stasis.Model(WITHOUT_TOKENIZER) as opened, opened.session() as session:
            session.append([1])
        for each in (opened, session):
            self.assertTrue(each._handle.closed)

    def test_closed_under_a_call(self):
        """The call goes on to its end; the object is freed after it."""
        session = self.session()
        gone = weakref.ref(session._handle._owned)
        seen = []

        def close(*_):
            session.close()
            seen.append(gone() is not None)

        session.append(tokens(200), chunk=10, progress=close)
        with self.assertRaises(stasis.ClosedError):
            session.append([1])
        self.assertEqual(set(seen), {True})
        self.assertIsNone(gone())

    def test_what_nobody_holds_is_freed(self):
        opened = stasis.Model(WITHOUT_TOKENIZER)
        session = opened.session()
        session.append([1] * 100)
        self.assertGreater(opened.stats.kv_used_bytes, 0)
        gone = weakref.ref(session), weakref.ref(session._handle._owned)
        del session
        gc.collect()
        self.assertEqual([each() for each in gone], [None, None])
        self.assertEqual(opened.stats.kv_used_bytes, 0)

    def test_a_session_keeps_its_model(self):
        session = stasis.Model(GEMMA).session()
        gc.collect()
        self.assertEqual("".join(session.say(FIRST)), "k is 5.")


class Broken(io.RawIOBase):
    def write(self, _):
        raise KeyError("mine")

    def read(self, _=-1):
        raise KeyError("mine")


class Greedy(io.RawIOBase):
    def read(self, size=-1):
        return bytes(size + 1)


def requested():
    cancel = stasis.Cancel()
    cancel.request()
    return cancel


if __name__ == "__main__":
    unittest.main()
