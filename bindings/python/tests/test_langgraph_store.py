# Checkpoints whose sessions are in a store: what the graph computes is what it computes with files,
# pages that sessions share are there once, and what nothing names goes.
import contextlib
import pathlib
import re
import sqlite3
import threading
import unittest
from unittest import mock

from fixture import FIRST, SECOND, model
from graphs import GraphCase, THIRD, alone, at, graph_of, tests_of
import stasis


def bytes_of(place):
    place = pathlib.Path(place)
    return sum(path.stat().st_size for path in
               (place.rglob("*") if place.is_dir() else place.parent.glob(place.name + "*"))
               if path.is_file())


class Stored(GraphCase):
    scheme = "dir"

    def setUp(self):
        super().setUp()
        self.saver.close()
        self.uri = f"{self.scheme}:{self.path('pages')}"
        self.saver = self.opened("stored", store=self.uri)
        self.graph = graph_of(self.saver)

    def names(self):
        with stasis.Store(self.uri, existing=True) as store:
            return {re.sub("^graph-", "", each.name) for each in store.list()}

    def damage_segments(self):
        """Of all sessions. Their tables are in them."""
        changed = 0
        if self.scheme == "dir":
            for path in self.path("pages").rglob("*"):
                if path.is_file() and path.read_bytes()[1:6] == b"STSEG":
                    path.chmod(0o600)
                    path.write_bytes(path.read_bytes()[:-1] + b"x")
                    changed += 1
        else:
            with contextlib.closing(sqlite3.connect(self.path("pages"))) as database, database:
                for key, value in database.execute("SELECT id, bytes FROM objects").fetchall():
                    if value[1:6] == b"STSEG":
                        database.execute("UPDATE objects SET bytes = ? WHERE id = ?",
                                         (value[:-1] + b"x", key))
                        changed += 1
        self.assertGreater(changed, 0)

    def test_the_same_sessions(self):
        """As without a graph, and in another process's saver; forked and rewound."""
        self.run_turns("a", FIRST, SECOND)
        self.saver.close()
        saver = self.opened("stored", store=self.uri)
        graph = graph_of(saver)
        self.assertEqual(graph.get_state(at("a")).values["talk"].digest, alone(FIRST, SECOND)[-1])
        self.assertEqual(self.run_turns("a", THIRD, graph=graph)[0]["talk"].digest,
                         alone(FIRST, SECOND, THIRD)[-1])
        first = [state for state in graph.get_state_history(at("a"))
                 if state.values.get("said") == 1 and not state.next][0]
        forked = graph.invoke({"text": THIRD}, first.config)
        self.assertEqual(forked["talk"].digest, alone(FIRST, THIRD)[-1])
        self.assertEqual(self.names(), {*alone(FIRST, SECOND, THIRD), *alone(FIRST, THIRD)})
        self.assertFalse((self.path("stored") / "sessions").exists())

    def test_conformance(self):
        self.check_conformance(store=self.uri)

    def test_what_is_shared_is_there_once(self):
        files = self.opened("files")
        state = {}
        for saver in (files, self.saver):
            session = model().session()
            session.append(range(3, 603))
            for token in range(8):  # eight sessions, of which the first 600 positions are equal
                session.append([token + 7])
                state[saver] = saver.state(session)
                graph_of(saver).update_state(at(f"a{token}"), {"talk": state[saver]})
        self.saver.close()  # and with it SQLite's log
        of_files, of_store = bytes_of(self.path("files") / "sessions"), bytes_of(self.path("pages"))
        self.assertEqual(len(self.files("files")), 8)
        self.assertLess(3 * of_store, of_files)
        self.assertEqual(state[files], state[self.saver])
        again = self.opened("stored", store=self.uri)
        kept = graph_of(again).get_state(at("a3")).values["talk"]
        self.assertEqual(again.session(kept).digest, kept.digest)

    def test_what_nothing_names_goes(self):
        self.run_turns("a", FIRST, SECOND)
        self.run_turns("b", FIRST, THIRD)
        self.saver.delete_thread("a")
        self.assertEqual(self.names(), set(alone(FIRST, THIRD)))
        self.assertEqual(self.run_turns("b", SECOND)[0]["talk"].digest,
                         alone(FIRST, THIRD, SECOND)[-1])
        with stasis.Store(self.uri) as store:
            session = model().session()
            session.append([5, 6])
            store.put(session, "another's")
        self.saver.delete_thread("b")
        self.assertEqual(self.names(), {"another's"})
        with stasis.Store(self.uri) as store:
            self.assertEqual(store.collect().removed_objects, 0)  # nothing was left to remove

    def test_threads_that_keep_the_same_session(self):
        others = [self.opened("stored", store=self.uri) for _ in range(4)]
        session = model().session()
        session.append(range(3, 203))
        failures = []

        def keep(saver, thread):
            try:
                graph_of(saver).update_state(at(thread), {"talk": saver.state(session.fork())})
            except Exception as problem:  # shown by the test's thread
                failures.append(problem)
        threads = [threading.Thread(target=keep, args=(saver, str(i)))
                   for i, saver in enumerate(others)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertEqual(self.names(), {session.digest})

    def test_another_process_was_first(self):
        """A session that is not there, and then is, is the same one."""
        session = model().session()
        session.append([5, 6, 7])
        self.graph.update_state(at("a"), {"talk": self.saver.state(session)})
        with mock.patch("stasis._kept_sessions.InStore.there", lambda *_: False):
            self.graph.update_state(at("b"), {"talk": self.saver.state(session)})
        self.assertEqual(self.names(), {session.digest})

    def test_what_the_store_has_lost(self):
        self.run_turns("a", FIRST)
        self.saver.close()
        with stasis.Store(self.uri) as store:
            store.remove("graph-" + alone(FIRST)[-1])
        saver = self.opened("stored", store=self.uri)
        talk = graph_of(saver).get_state(at("a")).values["talk"]
        with self.assertRaisesRegex(stasis.NotFoundError, talk.digest):
            saver.session(talk)
        with self.assertRaisesRegex(stasis.MissingFileError, "cannot name this session"):
            graph_of(saver).update_state(at("b"), {"talk": talk})
        with self.assertRaisesRegex(stasis.UnsupportedError, "it is in the store"):
            saver.path(talk)


    def test_a_session_outlives_the_thread_it_is_from(self):
        """It was got from a name that is gone, and is written under it again."""
        self.run_turns("a", FIRST)
        self.saver.close()
        saver = self.opened("stored", store=self.uri)
        session = saver.session(graph_of(saver).get_state(at("a")).values["talk"])
        saver.delete_thread("a")
        self.assertEqual(self.names(), set())
        graph_of(saver).update_state(at("b"), {"talk": saver.state(session)})
        self.assertEqual(self.names(), {session.digest})
        saver.close()
        again = self.opened("stored", store=self.uri)
        kept = graph_of(again).get_state(at("b")).values["talk"]
        self.assertEqual(again.session(kept).digest, session.digest)

    def test_a_damaged_session_is_written_anew(self):
        self.run_turns("a", FIRST)
        self.damage_segments()
        session = model().session()
        session.append_message("user", FIRST, reply=True)
        "".join(each.text for each in session.generate(max_tokens=16))
        self.graph.update_state(at("b"), {"talk": self.saver.state(session)})
        self.saver.close()
        again = self.opened("stored", store=self.uri)
        kept = graph_of(again).get_state(at("b")).values["talk"]
        self.assertEqual(again.session(kept).digest, session.digest)

    def test_another_s_damaged_session_is_not_this_one_s_failure(self):
        with stasis.Store(self.uri) as store:
            session = model().session()
            session.append([5, 6])
            store.put(session, "another's")
        self.damage_segments()
        self.run_turns("a", FIRST)
        self.saver.delete_thread("a")
        self.assertEqual(self.names(), {"another's"})
        with stasis.Store(self.uri) as store:
            with self.assertRaises(stasis.CorruptError):
                store.collect()
            store.remove("another's")
        self.saver.delete_thread("none")  # what the first deletion left is removed by the next
        with stasis.Store(self.uri) as store:
            self.assertEqual(store.collect().removed_objects, 0)


class StoredInSqlite(Stored):
    scheme = "sqlite"


def load_tests(*_):
    return tests_of(Stored, StoredInSqlite)


if __name__ == "__main__":
    unittest.main()
