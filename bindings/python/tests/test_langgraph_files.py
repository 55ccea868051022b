# What a folder of checkpoints keeps, and for how long: the interface as LangGraph's own tests of
# savers see it, deletion, crashes, and files that are not what they should be.
import asyncio
import contextlib
import fcntl
import os
import sqlite3
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

from fixture import FIRST, LLAMA, PACKAGE, SECOND, model
from graphs import GraphCase, PROGRAM, THIRD, alone, at, graph_of, missing, tests_of
import stasis
from stasis._checkpoints import Checkpoints

if not missing:
    from langgraph.checkpoint.base import ERROR, empty_checkpoint
    from stasis.langgraph import SessionState, StasisSaver

CRASH = """
import os
replace = os.replace
def crash(*paths):
    replace(*paths)
    os._exit(9)
os.replace = crash
""" + PROGRAM


class Interface(GraphCase):
    def test_conformance(self):
        self.check_conformance()

    def test_writes(self):
        """What a task wrote first stays, in the order in which its step would apply it."""
        config = self.saver.put({"configurable": {"thread_id": "a", "checkpoint_ns": ""}},
                                empty_checkpoint(), {}, {})
        for task, path, writes in (("1", "b", [("x", 1), ("y", 2)]), ("2", "a", [("x", 3)]),
                                   ("1", "b", [("x", 4)]), ("2", "a", [(ERROR, "first")]),
                                   ("2", "a", [(ERROR, "last")])):
            self.saver.put_writes(config, writes, task, path)
        self.assertEqual(self.saver.get_tuple(config).pending_writes,
                         [("2", ERROR, "last"), ("2", "x", 3), ("1", "x", 1), ("1", "y", 2)])

    def test_without_langgraph(self):
        done = subprocess.run([sys.executable, "-c", "import sys; sys.modules['langgraph'] = None\n"
                               "import stasis, stasis.langgraph"], capture_output=True, text=True,
                              env=dict(os.environ, PYTHONPATH=str(PACKAGE)), check=False)
        self.assertIn("ImportError: stasis.langgraph needs LangGraph (pip install langgraph)",
                      done.stderr)

    def test_one_opens_after_the_other(self):
        folder = os.open(self.path("kept"), os.O_RDONLY)
        fcntl.flock(folder, fcntl.LOCK_EX)
        opening = threading.Thread(target=self.opened)
        opening.start()
        opening.join(0.2)
        waited = opening.is_alive()
        os.close(folder)
        opening.join(60)
        self.assertEqual((waited, opening.is_alive()), (True, False))

    def test_closed(self):
        with self.saver:
            self.run_turns("a", FIRST)
        with self.assertRaises(sqlite3.ProgrammingError):
            self.graph.get_state(at("a"))


class Deletion(GraphCase):
    def test_a_thread(self):
        self.run_turns("a", FIRST, SECOND)
        self.run_turns("b", FIRST, THIRD)
        self.assertEqual(self.files(), {*alone(FIRST, SECOND), *alone(FIRST, THIRD)})
        self.saver.delete_thread("a")
        self.assertEqual(self.files(), set(alone(FIRST, THIRD)))
        self.assertEqual(self.graph.get_state(at("a")).values, {})
        self.assertEqual(self.run_turns("b", SECOND)[0]["talk"].digest,
                         alone(FIRST, THIRD, SECOND)[-1])
        asyncio.run(self.saver.adelete_thread("b"))
        self.assertEqual(self.files(), set())

    def test_a_copy_keeps_its_sessions(self):
        self.run_turns("a", FIRST)
        self.saver.copy_thread("a", "b")
        self.saver.delete_thread("a")
        self.assertEqual(self.files(), set(alone(FIRST)))
        self.assertEqual(self.run_turns("b", SECOND)[0]["talk"].digest, alone(FIRST, SECOND)[-1])

    def test_prune(self):
        self.run_turns("a", FIRST, SECOND)
        self.saver.prune(["a"])
        self.assertEqual(self.files(), set(alone(FIRST, SECOND)[-1:]))
        self.assertEqual(self.run_turns("a", THIRD)[0]["talk"].digest,
                         alone(FIRST, SECOND, THIRD)[-1])
        with self.assertRaisesRegex(stasis.InvalidArgumentError, "the strategy is 'all'"):
            self.saver.prune(["a"], strategy="all")
        self.saver.prune(["a"], strategy="delete")
        self.assertEqual(self.files(), set())

    def test_runs(self):
        for run, text in (("first", FIRST), ("second", SECOND)):
            self.graph.invoke({"text": text}, {**at("a"), "metadata": {"run_id": run}})
        self.saver.delete_for_runs(["first"])
        self.assertEqual(self.files(), set(alone(FIRST, SECOND)[1:]))
        self.assertEqual(self.graph.get_state(at("a")).values["said"], 2)

    def test_what_a_dead_process_left_behind(self):
        self.run_turns("a", FIRST)
        for name, age in ((".old", 2 * 86400), (".new", 60)):
            path = self.path("kept") / "sessions" / name
            path.write_text("")
            os.utime(path, (time.time() - age,) * 2)
        self.saver.delete_thread("a")
        self.assertEqual(os.listdir(self.path("kept") / "sessions"), [".new"])

    def test_a_state_in_memory_outlives_its_file(self):
        talk = self.run_turns("a", FIRST)[0]["talk"]
        self.saver.delete_thread("a")
        self.assertEqual(self.saver.session(talk).digest, talk.digest)
        self.graph.update_state(at("b"), {"talk": talk})
        self.assertEqual(self.files(), {talk.digest})

    def test_nobody_waits_for_a_file(self):
        """A session is saved while others may write to the database."""
        save, waits = stasis.Session.save, []

        def watch(session, path, **options):
            with contextlib.closing(sqlite3.connect(self.path("kept") / "checkpoints.sqlite",
                                                    timeout=0, isolation_level=None)) as other:
                try:
                    other.execute("BEGIN IMMEDIATE")
                    waits.append(False)
                except sqlite3.OperationalError:
                    waits.append(True)
            save(session, path, **options)
        with mock.patch.object(stasis.Session, "save", watch):
            self.graph.update_state(at("a"), {"talk": self.saver.state(self.session([6, 7]))})
        self.assertEqual(waits, [False])

    def test_a_file_that_goes_while_it_is_named_is_written_again(self):
        begin = Checkpoints._transaction

        def late(store):
            for path in self.path("kept").glob("sessions/*.stasis"):
                path.unlink()
            return begin(store)
        state = self.saver.state(self.session([6, 7]))
        with mock.patch.object(Checkpoints, "_transaction", late):
            self.graph.update_state(at("a"), {"talk": state})
        self.assertEqual(self.files(), {state.digest})


class Failures(GraphCase):
    def kept(self):
        self.run_turns("a", FIRST)
        self.saver.close()
        saver = self.opened()
        return saver, graph_of(saver).get_state(at("a")).values["talk"]

    def test_a_process_that_dies(self):
        """Between a session's file and the checkpoint: the checkpoint before it is the last one."""
        self.run_turns("a", FIRST)
        self.saver.close()
        with self.script(CRASH, self.path("kept"), "a", SECOND) as process:
            _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 9, err)
        orphans = self.files() - set(alone(FIRST)) - {""}  # "": not complete
        self.assertEqual(len(orphans), 1)
        self.assertLessEqual(orphans, set(alone(FIRST, SECOND)[2:]))
        saver = self.opened()
        graph = graph_of(saver)
        self.assertEqual(graph.get_state(at("a")).values["talk"].digest, alone(FIRST)[-1])
        self.assertEqual(graph.invoke(None, at("a"))["talk"].digest, alone(FIRST, SECOND)[-1])
        saver.delete_thread("a")
        self.assertLessEqual(self.files(), {""})

    def test_a_file_that_cannot_be_written(self):
        self.run_turns("a", FIRST)
        files = self.files()

        def fail(_, path, **__):
            with open(path, "wb") as file:
                file.write(b"some of it")
            raise stasis.FileError("disk full")
        with mock.patch.object(stasis.Session, "save", fail):
            with self.assertRaisesRegex(stasis.FileError, "disk full"):
                self.run_turns("a", SECOND)
        self.assertEqual(self.files(), files)
        self.assertEqual(self.graph.get_state(at("a")).values["talk"].digest, alone(FIRST)[-1])

    def test_a_missing_file(self):
        saver, talk = self.kept()
        os.unlink(saver.path(talk))
        with self.assertRaisesRegex(stasis.MissingFileError, talk.digest):
            saver.session(talk)
        with self.assertRaisesRegex(stasis.MissingFileError, "cannot name this session"):
            graph_of(saver).update_state(at("b"), {"talk": talk})
        self.assertEqual(graph_of(saver).get_state(at("b")).values, {})

    def test_another_file(self):
        saver, talk = self.kept()
        other = saver.path(SessionState(alone(FIRST)[0], 0))
        os.replace(other, saver.path(talk))
        with self.assertRaisesRegex(stasis.CorruptError, f"another session: {alone(FIRST)[0]}"):
            saver.session(talk)

    def test_a_changed_file(self):
        saver, talk = self.kept()
        changed = bytearray(open(saver.path(talk), "rb").read())
        changed[len(changed) // 2] ^= 1
        with open(saver.path(talk), "wb") as file:
            file.write(changed)
        with self.assertRaises(stasis.CorruptError):
            saver.session(talk)

    def test_another_model(self):
        saver, talk = self.kept()
        with StasisSaver(self.path("kept"), model(LLAMA)) as other:
            with self.assertRaises(stasis.ModelMismatchError):
                other.session(talk)
            self.assertEqual(other.session(talk, model=model()).digest, talk.digest)
            with self.assertRaisesRegex(stasis.ModelMismatchError, "is of the model"):
                other.session(talk)  # now in memory
            self.assertIs(other.session().model, model(LLAMA))

    def test_what_is_no_state(self):
        for bad in ("../../etc/passwd", "A" * 64, 5, ""):
            with self.assertRaisesRegex(stasis.InvalidArgumentError, "the digest is"):
                SessionState(bad, 0)
        with self.assertRaisesRegex(stasis.InvalidArgumentError, "the position is -1"):
            SessionState("0" * 64, -1)
        with self.assertRaisesRegex(TypeError, "the state is 'talk'"):
            self.saver.session("talk")
        with self.assertRaisesRegex(stasis.InvalidArgumentError, "keep is 'some'"):
            StasisSaver(self.path("kept"), model(), keep="some")

    def test_folders(self):
        self.path("file").write_text("")
        with self.assertRaisesRegex(stasis.FileError, "cannot keep checkpoints there"):
            StasisSaver(self.path("file"), model())
        self.saver.close()
        with contextlib.closing(sqlite3.connect(self.path("kept") / "checkpoints.sqlite")) as other:
            other.execute("PRAGMA user_version = 2")
        with self.assertRaisesRegex(stasis.FileError, r"a later version wrote it \(2\)"):
            StasisSaver(self.path("kept"), model())


def load_tests(*_):
    return tests_of(Interface, Deletion, Failures)


if __name__ == "__main__":
    unittest.main()
