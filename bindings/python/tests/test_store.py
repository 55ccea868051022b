# Stores: sessions under names, of which two writers never lose a turn, in folders, in SQLite and in
# a backend of Python's.
import contextlib
import gc
import shutil
import threading
import unittest
import weakref

from fixture import Case, FIRST, LLAMA, SECOND, model, tokens
import stasis


class Memory:
    """A backend in memory, with a lock if it is asked for, and with what its methods raise."""

    def __init__(self):
        self.objects, self.roots, self.marks, self.calls = {}, {}, 0, []
        self.raising = {}  # method: what it raises
        self.mutex = threading.Lock()

    @contextlib.contextmanager
    def _called(self, method):
        with self.mutex:
            self.calls.append(method)
            if method in self.raising:
                raise self.raising[method]
            yield

    def size(self, key):
        with self._called("size"):
            return len(self.objects[key]) if key in self.objects else None

    def read(self, key, offset, length):
        with self._called("read"):
            data = self.objects.get(key)
            return None if data is None or offset + length > len(data) else data[offset:][:length]

    def put(self, key, data):
        with self._called("put"):
            self.objects.setdefault(key, data)

    def get_root(self, key):
        with self._called("get_root"):
            return self.roots.get(key)

    def swap(self, key, mark, data):
        with self._called("swap"):
            if self.roots.get(key, (None, None))[1] != mark:
                raise stasis.ConflictError("another is there")
            if data is None:
                del self.roots[key]
                return None
            self.marks += 1
            self.roots[key] = data, str(self.marks)
            return str(self.marks)

    def list(self, prefix):
        with self._called("list"):
            sizes = {**{key: len(data) for key, data in self.objects.items()},
                     **{key: len(root[0]) for key, root in self.roots.items()}}
        for key in sorted(each for each in sizes if each.startswith(prefix)):
            yield key, sizes[key], 100

    def remove(self, key):
        with self._called("remove"):
            self.objects.pop(key, None)


class Locked(Memory):
    """The same with locks, of which it tells."""

    def __init__(self):
        super().__init__()
        self.held, self.released = [], 0

    @contextlib.contextmanager
    def lock(self, collect):
        with self._called("lock"):
            self.held.append(collect)
        yield
        self.calls.append("unlock")

    def release(self):
        self.released += 1


class Stores(Case):
    def each(self):
        """A store of each kind."""
        self.backend = Locked()
        yield stasis.Store(f"dir:{self.path('store')}")
        yield stasis.Store(f"sqlite:{self.path('file')}")
        yield stasis.Store.over(self.backend, "memory")

    def test_what_is_got_goes_on_with_the_same_bits(self):
        talk, _ = self.talk()
        talk.set_constraint(stasis.Constraint.of_regex("m is [0-9]+\\."))
        expected = talk.fork()
        said = "".join(expected.say(SECOND))
        for store in self.each():
            with store:
                put = store.put(talk, "talk")
                self.assertEqual((put.state, put.sequence), (talk.digest, 1))
                self.assertGreater(put.bytes_written, 0)
                got = store.get(model(), "talk")
                self.assertEqual(got.digest, talk.digest)
                self.assertEqual("".join(got.say(SECOND)), said)
                self.assertEqual(got.digest, expected.digest)
                self.assertEqual(store.put(got, "talk").sequence, 2)
                self.assertEqual(store.get(model(), "talk", capacity=99).info.capacity, 99)
                listed, = store.list()
                self.assertEqual((listed.name, listed.damage, listed.state, listed.position),
                                 ("talk", None, got.digest, got.position))
                self.assertEqual(listed.model, model().digest)

    def test_conflict_says_what_is_there(self):
        for store in self.each():
            first = self.session(tokens(70))
            store.put(first, "s")
            second = store.get(model(), "s")
            fork = second.fork()
            first.append([7])
            newer = store.put(first, "s")
            for late in second, fork, self.session(tokens(3)):
                with self.assertRaisesRegex(stasis.ConflictError, "session 's'") as caught:
                    store.put(late, "s")
                self.assertEqual(caught.exception.root, newer.root)
                self.assertEqual(caught.exception.state, first.digest)
                self.assertIsInstance(caught.exception, stasis.Error)
            self.assertEqual(store.get(model(), "s").digest, first.digest)
            self.assertEqual(store.put(second, "s", overwrite=True).sequence, 3)
            self.assertEqual(store.get(model(), "s").digest, second.digest)
            store.remove("s")
            with self.assertRaises(stasis.ConflictError) as caught:
                store.put(second, "s")
            self.assertIsNone(caught.exception.root)
            self.assertIsNone(caught.exception.state)

    def test_forks_removal_and_collection(self):
        for store in self.each():
            session = self.session(tokens(150))
            first = store.put(session, "a")
            self.assertEqual(store.put(session, "b", codec="zstd").bytes_written > 0, True)
            store.fork("a", "c")
            with self.assertRaises(stasis.ConflictError):
                store.fork("b", "c")
            store.fork("b", "c", overwrite=True)
            self.assertEqual([each.name for each in store.list()], ["a", "b", "c"])
            self.assertEqual(store.get(model(), "c").digest, session.digest)
            alike = self.session(tokens(150))
            shared = store.put(alike, "d")
            self.assertGreater(shared.bytes_shared, shared.bytes_written)
            self.assertLess(shared.bytes_written, first.bytes_written)
            for name in "abcd":
                store.remove(name)
            with self.assertRaises(stasis.NotFoundError):
                store.remove("a")
            with self.assertRaises(stasis.NotFoundError):
                store.get(model(), "a")
            seen = []
            collected = store.collect(progress=lambda done, total: seen.append((done, total)))
            self.assertEqual((collected.sessions, collected.removed_objects),
                             (0, collected.objects))
            self.assertEqual(collected.bytes, collected.removed_bytes)
            self.assertGreater(collected.removed_bytes, 0)
            self.assertTrue(seen)
            self.assertEqual(store.collect().objects, 0)

    def test_files(self):
        session, _ = self.talk()
        session.save(self.path("a"))
        session.append([7])
        session.save(self.path("a"))
        for number, store in enumerate(self.each()):
            imported = store.import_file(self.path("a"), "a")
            self.assertEqual(imported.state, session.digest)
            with self.assertRaises(stasis.ConflictError) as caught:
                store.import_file(self.path("a"), "a")
            self.assertEqual(caught.exception.root, imported.root)
            store.import_file(self.path("a"), "a", overwrite=True)
            place = self.path(f"out{number}")
            store.export_file("a", place)
            self.assertEqual(model().load(place).digest, session.digest)
            with self.assertRaises(stasis.InvalidArgumentError):
                store.export_file("a", place)
            store.export_file("a", place, overwrite=True)
            with self.assertRaises(FileNotFoundError):
                store.import_file(self.path("nowhere"), "b")

    def test_snapshots(self):
        session, _ = self.talk()
        for store in self.each():
            store.put(session, "a")
            with store, store.snapshot("a") as snapshot:
                self.assertIsNone(snapshot.diff(session))
                store.close()
                self.assertEqual(snapshot.tokens(), session.tokens())
                self.assertTrue(snapshot.verify(model()).verified)

    def test_another_model(self):
        store = stasis.Store(f"dir:{self.path('store')}")
        store.put(self.session(tokens(5)), "a")
        with self.assertRaises(stasis.ModelMismatchError):
            store.get(model(LLAMA), "a")

    def test_damage(self):
        store = stasis.Store(f"dir:{self.path('store')}")
        store.put(self.session(tokens(5)), "a")
        root, = [each for each in (self.path("store") / "roots").rglob("*") if each.is_file()]
        root.write_bytes(b"?" * 100)
        listed, = store.list()
        self.assertTrue(listed.damage)
        self.assertEqual((listed.root, listed.position), ("", 0))
        with self.assertRaises(stasis.CorruptError):
            store.get(model(), "a")
        store.remove("a")
        self.assertEqual(store.list(), [])

    def test_what_is_refused(self):
        with self.assertRaisesRegex(stasis.UnsupportedError, "scheme 'ftp'"):
            stasis.Store("ftp:x")
        with self.assertRaises(stasis.InvalidArgumentError):
            stasis.Store("x")
        with self.assertRaises(FileNotFoundError):
            stasis.Store(f"dir:{self.path('nowhere')}", existing=True)
        store = stasis.Store(f"dir:{self.path('store')}")
        stasis.Store(f"dir:{self.path('store')}", existing=True).close()
        session = self.session()
        for name in "", "x" * 256, "a\0b":
            with self.assertRaises(stasis.InvalidArgumentError):
                store.put(session, name)
        with self.assertRaisesRegex(stasis.InvalidArgumentError, "codec"):
            store.put(session, "a", codec="zip")
        with self.assertRaisesRegex(ValueError, "grace_seconds is -1"):
            store.collect(grace_seconds=-1)
        self.assertIn(str(self.path("store")), repr(store))
        store.close()
        self.assertIn("closed", repr(store))
        for call in (store.list, store.collect, lambda: store.put(session, "a"),
                     lambda: store.get(model(), "a"), lambda: store.snapshot("a"),
                     lambda: store.remove("a"), lambda: store.fork("a", "b"),
                     lambda: store.import_file("a", "b"), lambda: store.export_file("a", "b")):
            with self.assertRaisesRegex(stasis.ClosedError, "the store is closed"):
                call()

    def test_cancel_and_progress(self):
        store, session = stasis.Store(f"dir:{self.path('store')}"), self.session(tokens(300))
        cancel = stasis.Cancel()
        cancel.request()
        store.put(session, "there")
        for call in (lambda: store.put(session, "a", cancel=cancel),
                     lambda: store.get(model(), "there", cancel=cancel),
                     lambda: store.snapshot("there", cancel=cancel),
                     lambda: store.fork("there", "b", cancel=cancel),
                     lambda: store.list(cancel=cancel),
                     lambda: store.remove("there", cancel=cancel),
                     lambda: store.collect(cancel=cancel)):
            with self.assertRaises(stasis.CancelledError):
                call()
        seen = []

        def enough(done, total):
            seen.append((done, total))
            raise ZeroDivisionError

        with self.assertRaises(ZeroDivisionError):
            store.put(session, "a", progress=enough)
        self.assertEqual(len(seen), 1)
        self.assertEqual([each.name for each in store.list()], ["there"])
        store.put(session, "a")
        with self.assertRaises(ZeroDivisionError):
            stasis.Store(f"dir:{self.path('store')}").get(model(), "a", progress=enough)

    def test_threads_race_for_one_name(self):
        store, lost = stasis.Store(f"sqlite:{self.path('file')}"), []
        first = self.session(tokens(40))
        store.put(first, "s")
        ends = []

        def run(number):
            for turn in range(4):
                while True:
                    session = store.get(model(), "s")
                    session.append([10 + number])
                    try:
                        store.put(session, "s")
                        break
                    except stasis.ConflictError as conflict:
                        lost.append(conflict.root)
            ends.append(number)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(sorted(ends), [0, 1, 2, 3])
        log = store.get(model(), "s").tokens()[40:]
        self.assertEqual(sorted(log), sorted([10, 11, 12, 13] * 4))  # no turn is lost

    def test_ctrl_c(self):
        """While a backend's method runs: it goes on to its end, and the name is as it was."""
        child = self.script("""
from fixture import stasis, tokens, GEMMA
from test_store import Memory
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
class Slow(Memory):
    sent = False
    def put(self, key, data):
        if not self.sent:
            self.sent = True
            os.kill(os.getpid(), signal.SIGINT)
        super().put(key, data)
session = stasis.Model(GEMMA).session()
session.append(tokens(300))
backend = Slow()
store = stasis.Store.over(backend, "slow")
try:
    store.put(session, "a")
except KeyboardInterrupt:
    print("interrupted", [each.name for each in store.list()] in ([], ["a"]))
print(store.put(session, "b").state == session.digest)
""")
        out, err = child.communicate()
        self.assertEqual((child.returncode, err, out.split()), (0, "", ["interrupted", "True",
                                                                        "True"]))


class Backends(Case):
    def test_locks_and_release(self):
        backend = Locked()
        store = stasis.Store.over(backend, "memory")
        session = self.session(tokens(100))
        store.put(session, "a")
        store.collect()
        self.assertIn(False, backend.held)
        self.assertIn(True, backend.held)
        self.assertEqual(backend.calls.count("lock"), backend.calls.count("unlock"))
        snapshot = store.snapshot("a")
        store.close()
        self.assertEqual(backend.released, 0)  # the snapshot may read
        self.assertEqual(snapshot.tokens(), session.tokens())
        snapshot.close()
        self.assertEqual(backend.released, 1)

    def test_without_locks_ages_decide(self):
        backend = Memory()
        store = stasis.Store.over(backend, "memory")
        store.put(self.session(tokens(100)), "a")
        store.remove("a")
        self.assertEqual(store.collect().removed_objects, 0)
        self.assertEqual(store.collect(grace_seconds=101).removed_objects, 0)
        self.assertGreater(store.collect(grace_seconds=99).removed_objects, 0)

    def test_what_it_raises_comes_back(self):
        session = self.session(tokens(300))
        for method, call in (
                ("put", lambda store: store.put(session.fork(), "b")),
                ("get_root", lambda store: store.put(session, "a")),
                ("swap", lambda store: store.put(session.fork(), "b")),
                ("read", lambda store: store.get(model(), "a")),
                ("lock", lambda store: store.put(session, "a")),
                ("list", lambda store: store.list()),
                ("list", lambda store: store.collect())):
            backend = Locked()
            store = stasis.Store.over(backend, f"memory of {method} {call.__code__.co_firstlineno}")
            store.put(session, "a")
            backend.raising = {method: ZeroDivisionError(method)}
            with self.assertRaises(ZeroDivisionError) as caught:
                call(store)
            self.assertIs(caught.exception, backend.raising[method])
            backend.raising = {}
            self.assertEqual(store.get(model(), "a").digest, session.digest)
            self.assertEqual([each.name for each in store.list()], ["a"])
            self.assertEqual(backend.calls.count("lock") - (method == "lock"),
                             backend.calls.count("unlock"))

    def test_a_snapshots_reads_too(self):
        backend = Memory()
        store = stasis.Store.over(backend, "memory")
        store.put(self.session(tokens(300)), "a")
        snapshot = store.snapshot("a")
        backend.raising = {"read": ZeroDivisionError(), "size": ZeroDivisionError()}
        with self.assertRaises(ZeroDivisionError):
            snapshot.verify(model())
        backend.raising = {}
        self.assertTrue(snapshot.verify(model()).verified)

    def test_statuses_that_are_its_own(self):
        backend = Memory()
        store, session = stasis.Store.over(backend, "memory"), self.session(tokens(100))
        for raised in stasis.CancelledError("a"), stasis.TimedOutError("b"):
            backend.raising = {"swap": raised}
            with self.assertRaisesRegex(type(raised), "swap of roots/"):
                store.put(session, "a")

    def test_what_it_returns_is_checked(self):
        class Wrong(Memory):
            wrong = {}

            def size(self, key):
                return self.wrong.get("size", super().size(key))

            def read(self, *place):
                return self.wrong.get("read", super().read(*place))

            def get_root(self, key):
                return self.wrong.get("get_root", super().get_root(key))

        backend, session = Wrong(), self.session(tokens(300))
        store = stasis.Store.over(backend, "memory")
        store.put(session, "a")
        for method, value, kind, text in (
                ("size", "big", TypeError, "size of objects/.* returned 'big'"),
                ("read", "text", TypeError, "read of objects/.* returned str"),
                ("read", b"short", ValueError, "returned 5 bytes where"),
                ("get_root", (b"x" * 300, ""), ValueError, "the mark ''"),
                ("get_root", (b"x" * 300, "m" * 128), ValueError, "the mark")):
            backend.wrong = {method: value}
            with self.assertRaisesRegex(kind, text):
                store.get(model(), "a")
        backend.wrong = {"get_root": (b"x" * 9000, "m")}
        with self.assertRaises(stasis.CorruptError):
            store.get(model(), "a")
        backend.wrong = {}
        self.assertEqual(store.get(model(), "a").digest, session.digest)
        with self.assertRaisesRegex(TypeError, "it has no size, no read, no put"):
            stasis.Store.over(object(), "memory")
        with self.assertRaises(stasis.InvalidArgumentError):
            stasis.Store.over(backend, "")

    def test_a_subclass_says_what_it_lacks(self):
        class Half(stasis.Backend):
            def size(self, key):
                return None

        with self.assertRaisesRegex(TypeError, "abstract"):
            Half()

    def test_nothing_keeps_it(self):
        backend = Memory()
        store = stasis.Store.over(backend, "memory")
        store.put(self.session(tokens(10)), "a")
        backend.raising = {"get_root": ZeroDivisionError()}
        with contextlib.suppress(ZeroDivisionError):
            store.get(model(), "a")
        seen = weakref.ref(backend)
        del backend
        store.close()
        gc.collect()
        self.assertIsNone(seen())


class Together(Case):
    def test_a_folder_is_read_by_all_that_know_it(self):
        """A whole copy of a store is a store."""
        session, _ = self.talk()
        stasis.Store(f"dir:{self.path('a')}").put(session, "talk")
        shutil.copytree(self.path("a"), self.path("b"))
        got = stasis.Store(f"dir:{self.path('b')}").get(model(), "talk")
        self.assertEqual(list(got.say(FIRST)), list(session.say(FIRST)))


if __name__ == "__main__":
    unittest.main()
