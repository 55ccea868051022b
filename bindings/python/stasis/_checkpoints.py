# Checkpoints of graphs on disk: a SQLite database, and beside it the sessions that checkpoints name
# (_kept_sessions.py). What a value means is stasis.langgraph's to know.
from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import threading
from typing import (Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple,
                    Union)

from ._kept_sessions import Files, Fork, InStore
from .errors import FileError, MissingFileError

SCHEMA = """
CREATE TABLE IF NOT EXISTS checkpoints (
    thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL, checkpoint_id TEXT NOT NULL,
    parent_id TEXT, type TEXT NOT NULL, value BLOB NOT NULL,
    metadata_type TEXT NOT NULL, metadata BLOB NOT NULL, run_id TEXT,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id));
CREATE INDEX IF NOT EXISTS by_run ON checkpoints (run_id);
CREATE TABLE IF NOT EXISTS writes (
    thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL, checkpoint_id TEXT NOT NULL,
    task_id TEXT NOT NULL, idx INTEGER NOT NULL, task_path TEXT NOT NULL,
    channel TEXT NOT NULL, type TEXT NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx));
CREATE TABLE IF NOT EXISTS named (
    thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL, checkpoint_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, digest));
CREATE INDEX IF NOT EXISTS by_digest ON named (digest);
PRAGMA user_version = 1;
"""
VERSION = 1
TABLES = ("checkpoints", "writes", "named")
AT = "thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
BUSY_SECONDS = 60.0

Sessions = Dict[str, Optional[Fork]]  # by their digests; None: it is not in memory


class Key(NamedTuple):
    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str


class Stored(NamedTuple):
    """A value as a serializer gives and takes it."""
    type: str
    value: bytes


class Row(NamedTuple):
    """A checkpoint with the writes that are pending at it: (task, channel, value)."""
    key: Key
    parent_id: Optional[str]
    checkpoint: Stored
    metadata: Stored
    writes: List[Tuple[str, str, Stored]]


class Checkpoints:
    """Any number of threads and processes may use one folder. A session is kept whole before the
    checkpoint that names it is committed, and it is removed after the last of these is."""

    def __init__(self, folder: Any, store: Optional[str], options: Dict[str, Any]):
        """`store` is the URI of the store that keeps the sessions; None: files of the folder do.
        `options` are those with which they are written."""
        self.folder = os.path.abspath(os.fspath(folder))
        self._lock = threading.Lock()
        self._writing: Set[str] = set()  # digests, each by one thread: others wait for it
        self._written = threading.Condition()
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            self.kept: Union[Files, InStore] = (
                Files(os.path.join(self.folder, "sessions"), options) if store is None
                else InStore(store, options))
            self._database = self._open()
        except (OSError, sqlite3.Error) as problem:
            raise FileError(f"{self.folder}: cannot keep checkpoints there: {problem}") from problem

    def _open(self) -> sqlite3.Connection:
        """Opens the database, one process at a time: the change to a write-ahead log does not wait
        for others."""
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            database = sqlite3.connect(
                os.path.join(self.folder, "checkpoints.sqlite"), timeout=BUSY_SECONDS,
                isolation_level=None, check_same_thread=False)
            version, = database.execute("PRAGMA user_version").fetchone()
            if version > VERSION:
                raise sqlite3.DatabaseError(f"a later version wrote it ({version})")
            if version < VERSION:
                database.execute("PRAGMA journal_mode = WAL")
                database.executescript(SCHEMA)
            return database
        finally:
            os.close(folder)

    def close(self) -> None:
        with self._lock:
            self._database.close()
        self.kept.close()

    # ---- Reading ----

    def _rows(self, query: str, values: Sequence[Any]) -> List[Any]:
        with self._lock:
            return self._database.execute(query, values).fetchall()

    def read(self, thread_id: str, checkpoint_ns: str, checkpoint_id: Optional[str]
             ) -> Optional[Row]:
        """Returns a checkpoint, the latest one for None; None: there is none."""
        query = ("SELECT checkpoint_id, parent_id, type, value, metadata_type, metadata"
                 " FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ?")
        values = [thread_id, checkpoint_ns]
        if checkpoint_id is not None:
            query += " AND checkpoint_id = ?"
            values.append(checkpoint_id)
        with self._lock:  # for both queries: the writes are those of this checkpoint
            found = self._database.execute(query + " ORDER BY checkpoint_id DESC LIMIT 1",
                                           values).fetchone()
            if found is None:
                return None
            key = Key(thread_id, checkpoint_ns, found[0])
            writes = self._database.execute(
                f"SELECT task_id, channel, type, value FROM writes WHERE {AT}"
                " ORDER BY task_path, task_id, idx", key).fetchall()
        return Row(key, found[1], Stored(*found[2:4]), Stored(*found[4:6]),
                   [(task, channel, Stored(*stored)) for task, channel, *stored in writes])

    def find(self, thread_id: Optional[str] = None, checkpoint_ns: Optional[str] = None,
             checkpoint_id: Optional[str] = None, before: Optional[str] = None
             ) -> List[Tuple[Key, Stored]]:
        """Returns checkpoints with their metadata, the latest first."""
        conditions = {"thread_id = ?": thread_id, "checkpoint_ns = ?": checkpoint_ns,
                      "checkpoint_id = ?": checkpoint_id, "checkpoint_id < ?": before}
        asked = {text: value for text, value in conditions.items() if value is not None}
        where = " WHERE " + " AND ".join(asked) if asked else ""
        return [(Key(*row[:3]), Stored(*row[3:])) for row in self._rows(
            "SELECT thread_id, checkpoint_ns, checkpoint_id, metadata_type, metadata"
            f" FROM checkpoints{where} ORDER BY checkpoint_id DESC", list(asked.values()))]

    def of_run(self, run_id: str) -> List[Key]:
        return [Key(*row) for row in self._rows(
            "SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints WHERE run_id = ?",
            [run_id])]

    def of_thread(self, thread_id: str) -> List[Key]:
        """Returns all keys of a thread, those of writes without a checkpoint among them."""
        return [Key(thread_id, *row) for row in self._rows(
            " UNION ".join(f"SELECT checkpoint_ns, checkpoint_id FROM {table}"
                           " WHERE thread_id = ?" for table in TABLES),
            [thread_id] * len(TABLES))]

    # ---- Writing ----

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _naming(self, key: Key, sessions: Sessions) -> Iterator[sqlite3.Connection]:
        """A transaction in which the key comes to name sessions. These are written before it, so
        that nobody waits for them; one that was removed meanwhile is written again within."""
        for digest, fork in sessions.items():
            self._ensure(digest, fork)
        with self._transaction() as database:
            for digest, fork in sessions.items():
                self._ensure(digest, fork)
                database.execute("INSERT OR IGNORE INTO named VALUES (?, ?, ?, ?)",
                                 (*key, digest))
            yield database

    def _ensure(self, digest: str, fork: Optional[Fork]) -> None:
        """Returns when the session is kept."""
        with self._written:
            self._written.wait_for(lambda: digest not in self._writing)
            if self.kept.there(digest, fork):
                return
            if fork is None:
                raise MissingFileError(f"{self.kept.place(digest)}: a checkpoint cannot name this "
                                       "session, for it is neither there nor in this process")
            self._writing.add(digest)
        try:
            self.kept.write(digest, fork)
        finally:
            with self._written:
                self._writing.remove(digest)
                self._written.notify_all()

    def put(self, key: Key, parent_id: Optional[str], checkpoint: Stored, metadata: Stored,
            run_id: Optional[str], sessions: Sessions) -> None:
        with self._naming(key, sessions) as database:
            database.execute(
                "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*key, parent_id, *checkpoint, *metadata, run_id))

    def put_writes(self, key: Key, task_id: str, task_path: str,
                   writes: Iterable[Tuple[int, str, Stored]],
                   sessions: Sessions) -> None:
        """Stores (index, channel, value). Of those with an index from 0 on the first stays."""
        with self._naming(key, sessions) as database:
            for index, channel, stored in writes:
                database.execute(
                    f"INSERT OR {'REPLACE' if index < 0 else 'IGNORE'} INTO writes"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (*key, task_id, index, task_path, channel, *stored))

    def copy(self, source: str, target: str) -> None:
        with self._transaction() as database:
            for table in TABLES:
                columns = database.execute(f"PRAGMA table_info({table})").fetchall()
                listed = ", ".join(column[1] for column in columns[1:])
                database.execute(f"INSERT OR REPLACE INTO {table} (thread_id, {listed}) SELECT ?,"
                                 f" {listed} FROM {table} WHERE thread_id = ?", (target, source))

    def delete(self, keys: Iterable[Key]) -> None:
        """Removes checkpoints with their writes, then the sessions that none names."""
        listed = list(keys)
        with self._transaction() as database:
            for table in TABLES:
                database.executemany(f"DELETE FROM {table} WHERE {AT}", listed)
        # What follows happens again with the next deletion if the process ends here. Whoever names
        # a session looks for it under the same lock, so that no checkpoint loses its own.
        with self._transaction() as database:
            named = {row[0] for row in database.execute("SELECT DISTINCT digest FROM named")}
            self.kept.remove_others(named)
        self.kept.free()
