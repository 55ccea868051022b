# Files, streams, proofs and differences.
import io
import unittest

from fixture import Case, DATA, LLAMA, ROOT, SECOND, model, tokens
import stasis


class Files(Case):
    def test_a_resumed_session_goes_on_with_the_same_bits(self):
        session, _ = self.talk()
        session.set_sampling(stasis.Sampling(temperature=0.8, seed=4))
        for name, options in (("raw", {}), ("zstd", {"codec": "zstd"}), ("none", {"keep": "none"}),
                              ("whole", {"full_logits": True})):
            session.save(self.path(name), **options)
            resumed = model().load(self.path(name))
            self.assertEqual(resumed.digest, session.digest)
            self.assertEqual(list(resumed.say(SECOND)), list(session.fork().say(SECOND)))
        with self.assertRaises(stasis.UnsupportedError):
            model().load(self.path("none"), no_recompute=True)
        with self.assertRaisesRegex(stasis.InvalidArgumentError, "'zstd'"):
            session.save(self.path("other"), codec="zip")

    def test_streams(self):
        session, _ = self.talk()
        stream = io.BytesIO()
        session.save(stream)
        stream.write(b"and more")
        stream.seek(0)
        resumed = stasis.Session.load(model(), stream)
        self.assertEqual(resumed.digest, session.digest)
        self.assertEqual(stream.read(), b"and more")  # no further than the snapshot
        with open(self.path("unbuffered"), "wb", buffering=0) as file:
            session.save(file)
        self.assertEqual(model().load(str(self.path("unbuffered"))).digest, session.digest)
        written = []
        session.save(Reluctant(written))
        self.assertEqual(b"".join(written), stream.getvalue()[:-len(b"and more")])

    def test_load_changes_what_it_is_told(self):
        session, _ = self.talk()
        session.save(self.path("a"))
        self.assertEqual(model().load(self.path("a"), capacity=99).info.capacity, 99)
        self.assertEqual(model().load(self.path("a")).info.capacity, session.info.capacity)
        with self.assertRaises(stasis.FullError):
            model().load(self.path("a"), capacity=10)

    def test_only_over_what_is_known(self):
        session, _ = self.talk()
        session.save(self.path("a"))
        other = model().load(self.path("a"))
        session.append([7])
        session.save(self.path("a"), if_match=True)
        with self.assertRaises(stasis.ConflictError):
            other.save(self.path("a"), if_match=True)
        other.save(self.path("a"), replace=True)
        self.assertEqual(model().load(self.path("a")).digest, other.digest)

    def test_compact(self):
        session = self.session(tokens(300))
        session.save(self.path("a"))
        session.rewind(20, recompute=True)
        session.save(self.path("a"))
        before = self.path("a").stat().st_size
        stasis.compact(self.path("a"))
        self.assertLess(self.path("a").stat().st_size, before / 2)
        self.assertEqual(model().load(self.path("a")).digest, session.digest)


class Snapshots(Case):
    def test_what_a_file_holds(self):
        session, _ = self.talk()
        session.save(self.path("a"), codec="zstd")
        with stasis.Snapshot(self.path("a")) as snapshot:
            info = snapshot.info
            self.assertEqual((info.digest, snapshot.digest), (session.digest, session.digest))
            self.assertEqual((info.position, info.commits, info.keep, info.codec, info.model),
                             (36, 1, "full", "zstd", model().digest))
            self.assertEqual(snapshot.tokens(), session.tokens())
            self.assertEqual(snapshot.tokens(30), session.tokens(30))
            self.assertTrue(all(snapshot.element(number) for number in range(1, 13)))
            with self.assertRaises(stasis.InvalidArgumentError):
                snapshot.element(13)

    def test_verify(self):
        session, _ = self.talk()
        report = session.verify()
        self.assertEqual((report.verified, report.positions, report.drawn, report.position),
                         (True, 36, 6, None))
        session.save(self.path("a"))
        with stasis.Snapshot(self.path("a")) as snapshot:
            self.assertTrue(snapshot.verify(model(), strict=True).sections)
            audited = snapshot.verify(model(), audit_percent=50, audit_seed=3)
            self.assertTrue(audited.verified)
            with self.assertRaises(stasis.ModelMismatchError):
                snapshot.verify(model(LLAMA))

    def test_what_diverges_is_reported(self):
        with stasis.Snapshot(ROOT / "bindings/go/testdata/diverged.stasis") as snapshot:
            with self.assertRaises(stasis.DivergedError) as caught:
                snapshot.verify(model(LLAMA))
            report = caught.exception.report
            self.assertFalse(report.verified)
            self.assertIsNotNone(report.position)
            self.assertIn(report.message, str(caught.exception))
            self.assertIn(f"position {report.position} ", report.message)

    def test_diff(self):
        session, _ = self.talk()
        other = session.fork()
        self.assertIsNone(session.diff(other))
        session.save(self.path("a"))
        self.assertIsNone(other.diff(self.path("a")))
        other.rewind(30)
        other.append([7, 8, 9])
        difference = session.diff(other)
        self.assertEqual((difference.element, difference.position), (4, 30))
        self.assertIn("token", str(difference))
        with stasis.Snapshot(self.path("a")) as snapshot:
            self.assertEqual(snapshot.diff(other).position, 30)
            self.assertIsNone(snapshot.diff(snapshot))

    def test_golden_files(self):
        """Files of the format's first day are read here as by the others."""
        names = sorted((DATA / "golden/v1").glob("*.stasis"))
        self.assertTrue(names)
        for name in names:
            with stasis.Snapshot(name) as snapshot:
                self.assertEqual(len(snapshot.tokens()), snapshot.info.position)


class Reluctant:
    """A stream that takes a few bytes at a time."""

    def __init__(self, written):
        self.written = written

    def write(self, data):
        self.written.append(bytes(data[:1000]))
        return len(self.written[-1])


if __name__ == "__main__":
    unittest.main()
