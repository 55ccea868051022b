# Stores: many sessions under names, in which what they share is held once.
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, List, Optional

from . import _store_structs as st
from . import _structs as s
from ._abi import library
from ._call import (Call, Cancel, Handle, Progress, choice, created, digest_of, name_bytes, number,
                    path_bytes)
from .backend import lent
from .data import ESCAPES
from .errors import ConflictError
from .model import Model
from .session import Session, load_options
from .snapshot import CODECS, KEEPS, Snapshot

NO_DIGEST = "0" * 64


@dataclass(frozen=True)
class StoreResult:
    """What a put or an import has done: `stasis_store_result` of the header."""
    root: str  # of what is stored now
    state: str  # the session's digest
    sequence: int  # puts to this name
    bytes_written: int
    bytes_shared: int

    @staticmethod
    def _of(raw: st.stasis_store_result) -> "StoreResult":
        return StoreResult(digest_of(raw.root), digest_of(raw.state), raw.sequence,
                           raw.bytes_written, raw.bytes_shared)


@dataclass(frozen=True)
class StoredSession:
    """A session in the list of a store: `stasis_stored_session` of the header."""
    name: str  # of a damaged root its key
    damage: Optional[str]  # why the root is damaged: then the others are empty
    root: str
    state: str
    model: str
    position: int
    bytes: int  # that an export writes

    @staticmethod
    def _of(raw: st.stasis_stored_session) -> "StoredSession":
        damage = raw.damage and raw.damage.decode("utf-8", "replace")
        root, state, model = ("" if damage else digest_of(each)
                              for each in (raw.root, raw.state, raw.model))
        return StoredSession(raw.name.decode("utf-8", ESCAPES), damage, root, state, model,
                             raw.position, raw.bytes)


@dataclass(frozen=True)
class Collected:
    """What a collection found and removed: `stasis_store_collected` of the header."""
    sessions: int
    objects: int
    bytes: int
    removed_objects: int
    removed_bytes: int


class Store:
    """Any number of sessions, each under a name, in a folder ("dir:PATH"), a file of SQLite
    ("sqlite:PATH"), object storage ("s3://...", see stasis_store.h), or a backend of the host's
    (`Store.over`). What they have in common is there once. Any number of threads and processes may
    use it at the same time: a put replaces exactly what its session was put to or got from last, or
    raises `ConflictError`.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Store("dir:" + folder.name) as store:
    ...     put = store.put(Model(RECALL).session(), "talk")
    ...     [each.name for each in store.list()], put.sequence
    (['talk'], 1)
    >>> folder.cleanup()
    """

    def __init__(self, uri: str, *, existing: bool = False):
        options = st.stasis_store_options(flags=st.STASIS_STORE_EXISTING * existing)
        encoded = path_bytes(uri)  # with a path in it
        self._name = uri
        self._handle = Handle(created(Call(names_file=True), library.stasis_store_open,
                                      library.stasis_store_close, encoded, ctypes.byref(options)),
                              "store")

    @classmethod
    def over(cls, backend: Any, name: str) -> "Store":
        """Opens a store over the host's `Backend`. The name is for messages, and tells backends
        apart: a session that was put to or got from a store knows it by its name."""
        encoded = name_bytes("the name", name)
        store = cls.__new__(cls)
        store._name = name
        with lent(backend) as adapter:
            owned = created(Call(), library.stasis_store_open_backend, library.stasis_store_close,
                            ctypes.byref(adapter.table), encoded, None)
            store._handle = Handle(owned, "store", adapter)
        return store

    def close(self) -> None:
        """Closes the store, as soon as no call uses it. Sessions and snapshots stay as they are."""
        self._handle.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<stasis.Store {self._name!r}{' closed' if self._handle.closed else ''}>"

    # ---- Sessions ----

    def put(self, session: Session, name: str, *, overwrite: bool = False,
            full_logits: bool = False, codec: Optional[str] = None, keep: str = "full",
            progress: Optional[Progress] = None, cancel: Optional[Cancel] = None,
            timeout: Optional[float] = None) -> StoreResult:
        """Stores a session under a name, whole or not at all. What is there must be what this
        session, or the one it was forked from, put there or got from there last, and nothing if it
        did neither; otherwise `ConflictError`, whose `root` says what is there, and whose `state`
        is that session's digest: this one's, if it was put before and the answer was lost.
        `overwrite` replaces whatever is there. The others are as of `Session.save`."""
        call = Call(cancel or Cancel(), timeout=timeout)
        options = call_options(call, progress, st.STASIS_STORE_OVERWRITE * overwrite
                               | st.STASIS_STORE_FULL_LOGITS * full_logits)
        options.codec, options.keep = choice("the codec", codec, CODECS), choice("keep", keep,
                                                                                 KEEPS)
        return self._written(call, library.stasis_store_put, session._handle,
                             name_bytes("the name", name), ctypes.byref(options))

    def get(self, model: Model, name: str, *, no_recompute: bool = False, trusted: bool = False,
            any_profile: bool = False, accept_older: bool = False, skip_known: bool = False,
            capacity: int = 0, reserve: int = 0, window_retain: int = 0,
            track_attention: Optional[str] = None, domain: int = 0,
            progress: Optional[Progress] = None, cancel: Optional[Cancel] = None,
            timeout: Optional[float] = None) -> Session:
        """Returns a session that continues a stored one with the same bits, as `Session.load` does
        from a file, and with its options. Pages that the store has lost are computed again, unless
        `no_recompute`."""
        call = Call(cancel or Cancel(), timeout=timeout)
        options = load_options(call, no_recompute, trusted, any_profile, accept_older, skip_known,
                               capacity, reserve, window_retain, track_attention, domain, progress)
        return Session(model, created(call, library.stasis_store_get, library.stasis_session_free,
                                      self._handle, model._handle, name_bytes("the name", name),
                                      ctypes.byref(options)))

    def snapshot(self, name: str, *, cancel: Optional[Cancel] = None,
                 timeout: Optional[float] = None) -> Snapshot:
        """Opens a stored session for inspection, comparison and verification. It reads pages when
        they are needed, which after a put to this name and a collection may be gone."""
        call = Call(cancel or Cancel(), timeout=timeout)
        options = call_options(call)
        owned = created(call, library.stasis_store_snapshot, library.stasis_snapshot_close,
                        self._handle, name_bytes("the name", name), ctypes.byref(options))
        return Snapshot._over(Handle(owned, "snapshot", self._handle.backend))

    def list(self, *, cancel: Optional[Cancel] = None,
             timeout: Optional[float] = None) -> List[StoredSession]:
        """Returns the sessions of the store. Those that come and go meanwhile may be missing."""
        sessions: List[StoredSession] = []
        call = Call(cancel or Cancel(), timeout=timeout)
        options = call_options(call)
        hook = call.hook(lambda _, each: sessions.append(StoredSession._of(each.contents)), 1)
        call.run(library.stasis_store_list, self._handle, ctypes.byref(options),
                 call.keep(st.stasis_stored_session_fn(hook)), None)
        return sessions

    def remove(self, name: str, *, cancel: Optional[Cancel] = None,
               timeout: Optional[float] = None) -> None:
        """Removes a name, also one whose root is damaged; `collect` removes what it alone referred
        to."""
        call = Call(cancel or Cancel(), timeout=timeout)
        options = call_options(call)
        call.run(library.stasis_store_remove, self._handle, name_bytes("the name", name),
                 ctypes.byref(options))

    def fork(self, name: str, to: str, *, overwrite: bool = False,
             cancel: Optional[Cancel] = None, timeout: Optional[float] = None) -> None:
        """Gives a session a second name, under which it goes on by itself: some hundred bytes.
        `ConflictError`: that name is there, unless `overwrite`."""
        call = Call(cancel or Cancel(), timeout=timeout)
        options = call_options(call, None, st.STASIS_STORE_OVERWRITE * overwrite)
        call.run(library.stasis_store_fork, self._handle, name_bytes("the name", name),
                 name_bytes("the second name", to), ctypes.byref(options))

    def collect(self, *, grace_seconds: int = 0, progress: Optional[Progress] = None,
                cancel: Optional[Cancel] = None, timeout: Optional[float] = None) -> Collected:
        """Removes what no session refers to, while others may use the store. A backend without
        locks keeps what was put less than `grace_seconds` ago, which must be longer than any put
        takes; 0: a day. `progress` counts objects that are removed."""
        call = Call(cancel or Cancel(), timeout=timeout)
        options = call_options(call, progress)
        options.grace_seconds = number("grace_seconds", grace_seconds, 64)
        raw = st.stasis_store_collected()
        call.run(library.stasis_store_collect, self._handle, ctypes.byref(options),
                 ctypes.byref(raw))
        return Collected(raw.sessions, raw.objects, raw.bytes, raw.removed_objects,
                         raw.removed_bytes)

    # ---- Files ----

    def import_file(self, path: Any, name: str, *, overwrite: bool = False,
                    progress: Optional[Progress] = None, cancel: Optional[Cancel] = None,
                    timeout: Optional[float] = None) -> StoreResult:
        """Copies a snapshot file into the store, with the history of its commits; no model is
        needed. `ConflictError`: the name is there, unless `overwrite`."""
        call = Call(cancel or Cancel(), names_file=True, timeout=timeout)
        options = call_options(call, progress, st.STASIS_STORE_OVERWRITE * overwrite)
        return self._written(call, library.stasis_store_import, path_bytes(path),
                             name_bytes("the name", name), ctypes.byref(options))

    def export_file(self, name: str, path: Any, *, overwrite: bool = False,
                    progress: Optional[Progress] = None, cancel: Optional[Cancel] = None,
                    timeout: Optional[float] = None) -> None:
        """Copies a stored session into a new file: the bytes that a save would have written there.
        `overwrite` replaces what is at the path."""
        call = Call(cancel or Cancel(), timeout=timeout)
        options = call_options(call, progress, st.STASIS_STORE_OVERWRITE * overwrite)
        call.run(library.stasis_store_export, self._handle, name_bytes("the name", name),
                 path_bytes(path), ctypes.byref(options))

    def _written(self, call: Call, function: Any, *arguments: Any) -> StoreResult:
        raw = st.stasis_store_result()
        try:
            call.run(function, self._handle, *arguments, ctypes.byref(raw))
        except ConflictError as conflict:
            stored = StoreResult._of(raw)
            if stored.root != NO_DIGEST:
                conflict.root, conflict.state = stored.root, stored.state
            raise
        return StoreResult._of(raw)


def call_options(call: Call, progress: Optional[Progress] = None,
                 flags: int = 0) -> st.stasis_store_call_options:
    return st.stasis_store_call_options(
        flags=flags, cancel=call.cancel_pointer, progress=call.progress(progress),
        keep=s.STASIS_KEEP_FULL, timeout_ms=call.timeout_ms)


__all__ = ["Collected", "Store", "StoreResult", "StoredSession"]
