# Snapshots: what a file holds, without its model, and whether it is what the model computes.
from __future__ import annotations

import ctypes
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence

from . import _structs as s
from . import _streams
from ._abi import library
from ._call import (Call, Cancel, Handle, Progress, Unique, choice, created, filled, number,
                    path_bytes, text_of)
from .data import SnapshotData, Turn, turns_of
from .errors import DivergedError
from .info import plain

if TYPE_CHECKING:
    from .model import Model

CODECS = {None: s.STASIS_CODEC_DEFAULT, "raw": s.STASIS_CODEC_RAW, "zstd": s.STASIS_CODEC_ZSTD}
KEEPS: Dict[Optional[str], int] = {"full": s.STASIS_KEEP_FULL, "none": s.STASIS_KEEP_NONE}


@dataclass(frozen=True)
class SnapshotInfo:
    """A snapshot's state: `stasis_snapshot_info` of the header."""
    format: int
    contract: Sequence[int]
    page_positions: int
    position: int
    file_bytes: int
    digest: str
    root: str
    model: str
    damaged_root: bool
    keep: str
    codec: str
    commits: int
    kv_bytes: int
    kv_stored_bytes: int
    positions_foreign: int
    profile: str
    dead_bytes: int
    older: bool

    @staticmethod
    def _of(raw: s.stasis_snapshot_info) -> "SnapshotInfo":
        return plain(raw, SnapshotInfo, older=bool(raw.older),
                     damaged_root=bool(raw.flags & s.STASIS_SNAPSHOT_DAMAGED_ROOT),
                     keep="none" if raw.keep == s.STASIS_KEEP_NONE else "full",
                     codec="zstd" if raw.codec == s.STASIS_CODEC_ZSTD else "raw")


@dataclass(frozen=True)
class Difference:
    """The first difference between two states."""
    element: int  # 1 .. 12, as of Snapshot.element
    layer: Optional[int]
    head: Optional[int]
    position: Optional[int]
    message: str

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class VerifyReport:
    """Outcome of a verification: `stasis_verify_report` of the header."""
    verified: bool
    positions: int  # computed again
    position: Optional[int]  # the first that differs
    layer: Optional[int]
    head: Optional[int]
    part: Optional[str]  # "keys" or "values"
    element: int
    message: str
    drawn: int
    drawn_otherwise: int
    audit_pages: int
    audit_drawn: int
    unreachable_begin: int
    unreachable_end: int
    sections: int
    older: bool

    @staticmethod
    def _of(raw: s.stasis_verify_report) -> "VerifyReport":
        return plain(raw, VerifyReport, verified=bool(raw.verified), older=bool(raw.older),
                     position=None if raw.position == 2**64 - 1 else raw.position,
                     layer=somewhere(raw.layer), head=somewhere(raw.head),
                     part={s.STASIS_KEYS: "keys", s.STASIS_VALUES: "values"}.get(raw.part))


def somewhere(place: int) -> Optional[int]:
    return None if place == s.STASIS_NOWHERE else place


class Snapshot(Unique):
    """A saved session, opened for inspection from a path or a binary stream. It keeps the state
    that it was opened with. One caller at a time."""

    def __init__(self, source: Any):
        call = Call(names_file=True)
        if _streams.is_stream(source, "read"):
            function = library.stasis_snapshot_open_source
            place: Any = _streams.source(call, source)
        else:
            function, place = library.stasis_snapshot_open, path_bytes(source)
        self._handle = Handle(created(call, function, library.stasis_snapshot_close, place),
                              "snapshot")

    @classmethod
    def _over(cls, handle: Handle) -> "Snapshot":
        snapshot = cls.__new__(cls)
        snapshot._handle = handle
        return snapshot

    def close(self) -> None:
        """Closes the file. Later calls raise `ClosedError`."""
        self._handle.close()

    def __enter__(self) -> "Snapshot":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @property
    def info(self) -> SnapshotInfo:
        """What is known of the state without its model."""
        raw = s.stasis_snapshot_info()
        Call().run(library.stasis_snapshot_get_info, self._handle, ctypes.byref(raw))
        return SnapshotInfo._of(raw)

    @property
    def digest(self) -> str:
        """That of the session that was saved."""
        return self.info.digest

    def element(self, number_of_element: int) -> Any:
        """Returns one of the twelve elements of the state, 1 to 12, as JSON is read."""
        return json.loads(text_of(Call(), 0, library.stasis_snapshot_element, self._handle,
                                  number("the element", number_of_element, 32)))

    def tokens(self, begin: int = 0) -> List[int]:
        """Returns the log's tokens from a position on."""
        begin = number("begin", begin, 64)
        tokens, count = filled(Call(), ctypes.c_uint32, 256,
                               lambda snapshot, *place: library.stasis_snapshot_tokens(
                                   snapshot, begin, place[0], None, *place[1:]), self._handle)
        return list(tokens[:count])

    def turns(self, begin: int = 0) -> List[Turn]:
        """Returns the turns of the log from the one that a position is in."""
        return turns_of(self._handle, library.stasis_snapshot_turns, begin)

    @property
    def data(self) -> SnapshotData:
        """What the host kept in the session: bytes by name."""
        return SnapshotData(self._handle, library.stasis_snapshot_get_data,
                            library.stasis_snapshot_list_data)

    def diff(self, other: Any) -> Optional[Difference]:
        """Returns the first difference from another snapshot, a file or a session; None: none."""
        if isinstance(other, Snapshot):
            return self._compare(other)
        opened = other.snapshot() if hasattr(other, "snapshot") else Snapshot(other)
        with opened:
            return self._compare(opened)

    def _compare(self, other: "Snapshot") -> Optional[Difference]:
        raw = s.stasis_difference()
        Call().run(library.stasis_snapshot_compare, self._handle, other._handle, ctypes.byref(raw))
        if raw.equal:
            return None
        return Difference(raw.element, somewhere(raw.layer), somewhere(raw.head),
                          None if raw.position == 2**64 - 1 else raw.position,
                          raw.message.decode("utf-8", "replace"))

    def verify(self, model: "Model", *, strict: bool = False, audit_percent: float = 0.0,
               audit_seed: int = 0, chunk: int = 0, progress: Optional[Progress] = None,
               cancel: Optional[Cancel] = None,
               timeout: Optional[float] = None) -> VerifyReport:
        """Computes everything again from the tokens and compares it with what is stored, or with
        `audit_percent` a share of the pages that `audit_seed` draws. Raises `DivergedError`, whose
        `report` says where, if anything differs."""
        call = Call(cancel or Cancel(), timeout=timeout)
        options = s.stasis_verify_options(
            timeout_ms=call.timeout_ms,
            chunk=number("chunk", chunk, 32), cancel=call.cancel_pointer,
            progress=call.progress(progress), audit_percent=audit_percent,
            audit_seed=number("audit_seed", audit_seed, 64), flags=s.STASIS_VERIFY_STRICT * strict)
        raw = s.stasis_verify_report()
        try:
            call.run(library.stasis_snapshot_verify, self._handle, model._handle,
                     ctypes.byref(options), ctypes.byref(raw))
        except DivergedError as diverged:
            diverged.report = VerifyReport._of(raw)
            raise
        return VerifyReport._of(raw)


def compact(path: Any, *, codec: Optional[str] = None, progress: Optional[Progress] = None,
            cancel: Optional[Cancel] = None, timeout: Optional[float] = None) -> None:
    """Replaces a snapshot file by a new one that holds its state and nothing else."""
    call = Call(cancel or Cancel(), names_file=True, timeout=timeout)
    options = s.stasis_save_options(codec=choice("the codec", codec, CODECS),
                                    cancel=call.cancel_pointer, progress=call.progress(progress),
                                    timeout_ms=call.timeout_ms)
    call.run(library.stasis_snapshot_compact, path_bytes(path), ctypes.byref(options))
