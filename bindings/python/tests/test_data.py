# What a host keeps in a session, as a mapping; turns.
import copy
import io
import os
import pathlib
import pickle
import tempfile
import unittest

from fixture import Case, GEMMA, LLAMA, model
import stasis


class Data(Case):
    def test_a_mapping(self):
        data = model(LLAMA).session().data
        self.assertEqual((dict(data), len(data), list(data)), ({}, 0, []))
        data["title"] = b"About k"
        data["user"] = b""
        data["\u00e9"] = bytearray(b"a\0b\xff")
        self.assertEqual(list(data), ["title", "user", "\u00e9"])
        self.assertEqual(dict(data), {"title": b"About k", "user": b"", "\u00e9": b"a\0b\xff"})
        self.assertIn("user", data)
        self.assertNotIn("User", data)
        self.assertEqual(data.get("nothing", b"x"), b"x")
        del data["user"]
        for name in "user", "":
            with self.assertRaises(KeyError):
                data[name]
        with self.assertRaises(KeyError):
            del data["user"]
        data["title"] = b"x" * 100000
        self.assertEqual(data["title"], b"x" * 100000)
        self.assertEqual(data.pop("title"), b"x" * 100000)
        self.assertIn("'\u00e9'", repr(data))

    def test_what_is_refused(self):
        data = model(LLAMA).session().data
        for name, value, error in (("", b"x", stasis.InvalidArgumentError),
                                   ("n" * 256, b"x", stasis.InvalidArgumentError),
                                   ("a\0b", b"x", stasis.InvalidArgumentError),
                                   ("\udcff", b"x", stasis.InvalidArgumentError),
                                   ("a", bytes(2**24 + 1), stasis.UnsupportedError),
                                   (7, b"x", TypeError), ("a", "text", TypeError),
                                   ("a", None, TypeError)):
            with self.assertRaises(error):
                data[name] = value
        self.assertEqual(len(data), 0)

    def test_it_goes_where_the_session_goes(self):
        session = model(LLAMA).session()
        plain = session.digest
        session.data["title"] = b"About k"
        session.data["large"] = bytes(range(256)) * 1000
        self.assertEqual(session.digest, plain)
        kept = dict(session.data)
        child = copy.copy(session)
        child.data["title"] = b"Another"
        self.assertEqual(dict(session.data), kept)
        session.append([1, 2, 3])
        session.rewind(0)
        self.assertEqual(dict(session.data), kept)
        self.assertEqual(dict(pickle.loads(pickle.dumps(session)).data), kept)
        with session.snapshot() as snapshot:
            self.assertEqual(dict(snapshot.data), kept)
            self.assertFalse(hasattr(snapshot.data, "__setitem__"))
            with self.assertRaises(KeyError):
                snapshot.data["nothing"]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "s")
            session.save(path)
            stasis.compact(path)
            self.assertEqual(dict(model(LLAMA).load(path).data), kept)
            before = os.path.getsize(path)
            session.save(path)
            self.assertLess(os.path.getsize(path) - before, 20000)
            damaged = bytearray(pathlib.Path(path).read_bytes())
            damaged[damaged.index(b"About k")] ^= 1
            with self.assertRaises(stasis.CorruptError):
                stasis.Snapshot(io.BytesIO(damaged))


class Turns(Case):
    def test_of_a_conversation(self):
        for name in LLAMA, GEMMA:
            session = model(name).session()
            self.assertEqual(session.turns(), [])
            said = "Let's start by defining a variable k equal to 5. What is k?"
            reply = "".join(session.say(said))
            turns = session.turns()
            self.assertEqual([(each.role, each.source) for each in turns],
                             [("user", "text"), ("assistant", "sampled")])
            self.assertEqual([session.text(each.content_begin, each.content_end)
                              for each in turns], [said, reply])
            self.assertEqual((turns[0].begin, turns[0].end, turns[1].end),
                             (0, turns[1].begin, session.position))
            self.assertEqual(session.turns(turns[1].end - 1), turns[1:])
            with session.snapshot() as snapshot:
                self.assertEqual(snapshot.turns(), turns)
            with self.assertRaises(stasis.InvalidArgumentError):
                session.turns(session.position + 1)
        bare = model(LLAMA).session()
        bare.append([5, 6])
        self.assertEqual(bare.turns(), [stasis.Turn("none", "prompt", 0, 2, 0, 2)])


if __name__ == "__main__":
    unittest.main()
