# Checkpoints of LangGraph's graphs, in which sessions are values.
"""A checkpointer for LangGraph that keeps a graph's sessions: `StasisSaver`.

It needs the package langgraph-checkpoint, which langgraph brings; nothing else of stasis does.
"""
from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import threading
from typing import Any, AsyncIterator, Dict, Iterator, List, Optional, Sequence, Tuple

try:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (WRITES_IDX_MAP, BaseCheckpointSaver, ChannelVersions,
                                           Checkpoint, CheckpointMetadata, CheckpointTuple,
                                           get_checkpoint_id, get_checkpoint_metadata)
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
except ImportError as problem:
    raise ImportError(f"stasis.langgraph needs LangGraph (pip install langgraph): {problem}"
                      ) from problem

from ._call import choice, number
from ._checkpoints import Checkpoints, Key, Row, Sessions, Stored
from .errors import CorruptError, InvalidArgumentError, ModelMismatchError
from .model import Model
from .session import Session
from .snapshot import CODECS, KEEPS

__all__ = ["SessionState", "StasisSaver"]

# What the serializer has met in this thread since `named_by` asked: states by their digests.
_met = threading.local()


class _Live:
    """A session in memory, which may be forked and saved by several threads."""

    def __init__(self, session: Session):
        self._session, self._lock = session, threading.Lock()

    @property
    def model(self) -> Model:
        return self._session.model

    def fork(self) -> Session:
        with self._lock:
            return self._session.fork()


class SessionState:
    """A session as it was at one moment: what a graph's state holds of it. It is a value, and may
    be compared, copied, pickled, and put anywhere into the state, into lists and models too. One
    that `StasisSaver.state` made, or that was loaded, has its session in memory as well, which does
    not travel with it."""
    __slots__ = ("_digest", "_position", "_live")

    def __init__(self, digest: str, position: int):
        if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
            raise InvalidArgumentError(f"the digest is {digest!r:.100}: expected 64 digits in "
                                       "hexadecimal, as Session.digest has them")
        self._digest, self._position = digest, number("the position", position, 64)
        self._live: Optional[_Live] = None

    @property
    def digest(self) -> str:
        """The session's digest, by which it is found."""
        return self._digest

    @property
    def position(self) -> int:
        """Tokens in its log."""
        return self._position

    def __repr__(self) -> str:
        return f"SessionState(digest={self._digest!r}, position={self._position})"

    def __eq__(self, other: object) -> bool:
        return (self._digest == other._digest if isinstance(other, SessionState)
                else NotImplemented)

    def __hash__(self) -> int:
        return hash(self._digest)

    def __copy__(self) -> "SessionState":
        return self  # nothing of it changes

    def __deepcopy__(self, _: Any) -> "SessionState":
        return self

    def _asdict(self) -> Dict[str, Any]:
        """What LangGraph's serializer, and pydantic's, store of it and give to the constructor."""
        met = getattr(_met, "states", None)
        if met is not None and (self._live or self._digest not in met):
            met[self._digest] = self
        return {"digest": self._digest, "position": self._position}

    def __reduce__(self) -> Tuple[Any, ...]:
        return SessionState, tuple(self._asdict().values())

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> Any:
        """For states that are models of pydantic's."""
        from pydantic_core import core_schema
        return core_schema.no_info_plain_validator_function(
            lambda value: value if isinstance(value, cls) else cls(**value),
            serialization=core_schema.plain_serializer_function_ser_schema(cls._asdict))


@contextlib.contextmanager
def named_by() -> Iterator[Dict[str, SessionState]]:
    """Collects the states that this thread serializes within."""
    states: Dict[str, SessionState] = {}
    _met.states = states
    try:
        yield states
    finally:
        _met.states = None


class StasisSaver(BaseCheckpointSaver[int]):
    """Keeps the checkpoints of a graph, and the sessions that they name, in a folder: a SQLite
    database, and each session once, in a file called by its digest, or in a store of sessions,
    where pages that they share are there once. A node takes a session of its own from the state,
    continues it, and returns its new state:

        def answer(state):
            session = saver.session(state.get("talk"))
            reply = "".join(session.say(state["text"]))
            return {"reply": reply, "talk": saver.state(session)}

    So going back in time, forking and resuming continue from the session of that checkpoint, with
    the bits that the first run had. Any number of threads, tasks and processes may use one folder.
    A session is kept whole before the checkpoint that names it is committed; when the last of these
    is deleted, the session is."""

    def __init__(self, folder: Any, model: Model, *, store: Optional[str] = None,
                 keep: str = "full", codec: Optional[str] = None,
                 serde: Optional[SerializerProtocol] = None):
        """Opens the folder, or creates it. `model` is whose sessions `session` returns. `store` is
        the URI of a `stasis.Store` for this folder's sessions alone, such as "sqlite:PATH", the
        same each time; None: they are files. `keep` and `codec` are those of `Session.save`: with
        `keep="none"` a session has about 14 bytes a token, and loading it computes it again."""
        choice("the codec", codec, CODECS)
        choice("keep", keep, KEEPS)
        super().__init__(serde=serde)
        self.model = model
        self._store = Checkpoints(folder, store, {"keep": keep, "codec": codec})
        if (hasattr(self, "with_allowlist")  # not in LangGraph 1.0, whose serializer needs none
                and isinstance(self.serde, (JsonPlusSerializer, EncryptedSerializer))):
            self.serde = self.with_allowlist([OWN_TYPE]).serde
        logging.getLogger(JsonPlusSerializer.__module__).addFilter(_is_news)

    def close(self) -> None:
        """Closes the database and the store. Later calls raise `sqlite3.ProgrammingError`."""
        self._store.close()

    def __enter__(self) -> "StasisSaver":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # ---- Sessions ----

    def state(self, session: Session) -> SessionState:
        """Returns the session's present state, to be put into the graph's. It costs a fork, which
        copies no page; it is written with the first checkpoint that names it."""
        fork = session.fork()
        state = SessionState(fork.digest, fork.position)
        state._live = _Live(fork)
        return state

    def session(self, state: Optional[SessionState] = None, *,
                model: Optional[Model] = None) -> Session:
        """Returns a session that continues from a state, or an empty one: the caller's own, as
        nothing that is done to it changes the state. `model` is for sessions of another model than
        the saver's."""
        model = self.model if model is None else model
        if state is None:
            return model.session()
        if not isinstance(state, SessionState):
            raise TypeError(f"the state is {state!r:.100}: expected a stasis.langgraph."
                            "SessionState, or None for an empty session")
        live = state._live
        if live is None:
            live = state._live = _Live(self._load(model, state))
        if live.model.digest != model.digest:
            raise ModelMismatchError(f"the session {state.digest} is of the model "
                                     f"{live.model.digest}, not of {model.digest}")
        return live.fork()

    def path(self, state: SessionState) -> str:
        """Returns the path of a state's file: a snapshot as any other, to be read, verified and
        copied. It is not to be saved to. `UnsupportedError` where a store has the sessions."""
        return self._store.kept.path(state.digest)

    def _load(self, model: Model, state: SessionState) -> Session:
        session = self._store.kept.load(model, state.digest)
        if session.digest != state.digest:
            raise CorruptError(f"{self._store.kept.place(state.digest)}: it is another session: "
                               f"{session.digest}")
        return session

    def _savers(self, states: Dict[str, SessionState]) -> Sessions:
        return {digest: state._live.fork if state._live else None
                for digest, state in states.items()}

    def _dump(self, value: Any) -> Stored:
        return Stored(*self.serde.dumps_typed(value))

    # ---- What LangGraph asks for ----

    def get_tuple(self, config: RunnableConfig) -> Optional[CheckpointTuple]:
        """Returns the checkpoint that the config names, or the latest one of its thread."""
        thread_id, checkpoint_ns = place_of(config)
        row = self._store.read(thread_id, checkpoint_ns, get_checkpoint_id(config) or None)
        return None if row is None else self._tuple(row)

    def _tuple(self, row: Row) -> CheckpointTuple:
        return CheckpointTuple(
            config_of(row.key), self.serde.loads_typed(row.checkpoint),
            self.serde.loads_typed(row.metadata),
            config_of(row.key._replace(checkpoint_id=row.parent_id)) if row.parent_id else None,
            [(task, channel, self.serde.loads_typed(stored))
             for task, channel, stored in row.writes])

    def _find(self, config: Optional[RunnableConfig], filter: Optional[Dict[str, Any]],
              before: Optional[RunnableConfig], limit: Optional[int]) -> List[Key]:
        asked = config["configurable"] if config else {}
        thread_id = asked.get("thread_id")
        found = self._store.find(None if thread_id is None else str(thread_id),
                                 asked.get("checkpoint_ns"), asked.get("checkpoint_id") or None,
                                 get_checkpoint_id(before) if before else None)
        return [key for key, metadata in found
                if not filter or filter.items() <= self.serde.loads_typed(metadata).items()][:limit]

    def list(self, config: Optional[RunnableConfig], *, filter: Optional[Dict[str, Any]] = None,
             before: Optional[RunnableConfig] = None,
             limit: Optional[int] = None) -> Iterator[CheckpointTuple]:
        """Iterates over checkpoints, the latest first."""
        for key in self._find(config, filter, before, limit):
            row = self._store.read(*key)
            if row is not None:  # it may be deleted meanwhile
                yield self._tuple(row)

    def put(self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata,
            new_versions: ChannelVersions) -> RunnableConfig:
        """Stores a checkpoint, and first the sessions that it names and that are not there."""
        key = Key(*place_of(config), checkpoint["id"])
        all_metadata = get_checkpoint_metadata(config, metadata)
        with named_by() as states:
            stored, about = self._dump(checkpoint), self._dump(all_metadata)
        run_id = all_metadata.get("run_id")
        self._store.put(key, get_checkpoint_id(config), stored, about,
                        None if run_id is None else str(run_id), self._savers(states))
        return config_of(key)

    def put_writes(self, config: RunnableConfig, writes: Sequence[Tuple[str, Any]], task_id: str,
                   task_path: str = "") -> None:
        """Stores what a task wrote, and first the sessions that it names and that are not there."""
        with named_by() as states:
            listed = [(WRITES_IDX_MAP.get(channel, index), channel, self._dump(value))
                      for index, (channel, value) in enumerate(writes)]
        key = Key(*place_of(config), str(config["configurable"]["checkpoint_id"]))
        self._store.put_writes(key, task_id, task_path, listed, self._savers(states))

    def delete_thread(self, thread_id: str) -> None:
        """Deletes a thread, and the sessions that no other checkpoint names."""
        self._store.delete(self._store.of_thread(str(thread_id)))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Deletes the checkpoints of runs, and the sessions that no other checkpoint names."""
        self._store.delete(key for run_id in run_ids for key in self._store.of_run(str(run_id)))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies a thread with its whole history. Sessions are shared."""
        self._store.copy(str(source_thread_id), str(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Deletes all checkpoints of threads but the latest of each namespace ("keep_latest"), or
        all of them ("delete"). A latest one with a channel of differences keeps its ancestors."""
        if strategy not in ("keep_latest", "delete"):
            raise InvalidArgumentError(f"the strategy is {strategy!r}: expected 'keep_latest' or "
                                       "'delete'")
        for thread_id in map(str, thread_ids):
            kept = self._latest(thread_id) if strategy == "keep_latest" else set()
            self._store.delete(key for key in self._store.of_thread(thread_id) if key not in kept)

    def _latest(self, thread_id: str) -> "set[Key]":
        latest: Dict[str, Tuple[Key, Stored]] = {}
        for key, metadata in self._store.find(thread_id):
            latest.setdefault(key.checkpoint_ns, (key, metadata))
        kept = {key for key, _ in latest.values()}
        for key, metadata in latest.values():
            if self.serde.loads_typed(metadata).get("counters_since_delta_snapshot"):
                row = self._store.read(*key)
                while row is not None and row.parent_id:
                    kept.add(row.key._replace(checkpoint_id=row.parent_id))
                    row = self._store.read(*row.key[:2], row.parent_id)
        return kept

    # ---- The same for event loops: in threads, as files are read and written ----

    async def aget_tuple(self, config: RunnableConfig) -> Optional[CheckpointTuple]:
        """As `get_tuple`."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(self, config: Optional[RunnableConfig], *,
                    filter: Optional[Dict[str, Any]] = None,
                    before: Optional[RunnableConfig] = None,
                    limit: Optional[int] = None) -> AsyncIterator[CheckpointTuple]:
        """As `list`."""
        for key in await asyncio.to_thread(self._find, config, filter, before, limit):
            row = await asyncio.to_thread(self._store.read, *key)
            if row is not None:
                yield self._tuple(row)

    async def aput(self, config: RunnableConfig, checkpoint: Checkpoint,
                   metadata: CheckpointMetadata, new_versions: ChannelVersions) -> RunnableConfig:
        """As `put`."""
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(self, config: RunnableConfig, writes: Sequence[Tuple[str, Any]],
                          task_id: str, task_path: str = "") -> None:
        """As `put_writes`."""
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """As `delete_thread`."""
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As `delete_for_runs`."""
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """As `copy_thread`."""
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As `prune`."""
        await asyncio.to_thread(self.prune, thread_ids, strategy=strategy)


OWN_TYPE = (SessionState.__module__, SessionState.__name__)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a line of the serializer's log is not about our own type, of which it warns in each
    process that is not in its strict mode."""
    return not (isinstance(record.args, tuple) and record.args[:2] == OWN_TYPE)


def place_of(config: RunnableConfig) -> Tuple[str, str]:
    """Returns thread and namespace."""
    asked = config["configurable"]
    return str(asked["thread_id"]), str(asked.get("checkpoint_ns") or "")


def config_of(key: Key) -> RunnableConfig:
    return {"configurable": key._asdict()}
