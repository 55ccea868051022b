# Python for Stasis, by ctypes over the C library; README.md beside this package shows how.
"""Sessions of language models that can be frozen, copied, moved and proven, bit for bit.

A `Model` is opened once and shared freely. A `Session` is one timeline of tokens; a `Snapshot` is
an opened file. Every failure is an `Error` of the class of its status, with the library's message,
and leaves what it worked on as it was. Calls release Python's lock. Ctrl-C cancels a call at once.
"""
from __future__ import annotations

from ._abi import library as _library
from ._call import Cancel
from .backend import Backend
from .constraint import Constraint
from .data import SessionData, SnapshotData, Turn
from .errors import (BufferTooSmallError, BusyError, CancelledError, ClosedError, ConflictError,
                     CorruptError, DeviceError, DivergedError, Error, FileError, FullError,
                     InternalError, InvalidArgumentError, MissingFileError, ModelMismatchError,
                     NoMemoryError, NonfiniteError, NotFoundError, NoTokenError,
                     PoolExhaustedError, Status, StoppedError, TimedOutError, UnsupportedError,
                     VersionError)
from .estimate import ModelEstimate, estimate
from .generation import Generated, Generation, Reply
from .info import EmbedInfo, LeftOut, ModelInfo, ModelStats, SessionInfo, SessionMemory, TokenInfo
from .model import Model
from .quantize import QuantizeReport, quantize
from .sampling import Sampling
from .scheduler import ScheduledReply, Scheduler, SchedulerEvent, SchedulerStats
from .session import Candidate, ChatTokens, Session
from .snapshot import Difference, Snapshot, SnapshotInfo, VerifyReport, compact
from .store import Collected, Store, StoredSession, StoreResult
from .threads import Threads


def version() -> str:
    """Returns the version of the library."""
    number = _library.stasis_version()
    return f"{number >> 16}.{number >> 8 & 255}.{number & 255}"


def build() -> str:
    """Returns how the library was built: version, compiler, kind of build, optional parts."""
    return (_library.stasis_build() or b"").decode("ascii")


__all__ = [
    "Backend", "BufferTooSmallError", "BusyError", "Cancel", "CancelledError", "Candidate",
    "ChatTokens", "ClosedError", "Collected", "ConflictError", "Constraint", "CorruptError",
    "DeviceError", "Difference", "DivergedError", "EmbedInfo", "Error", "FileError", "FullError",
    "Generated", "Generation", "InternalError", "InvalidArgumentError", "LeftOut",
    "MissingFileError", "Model", "ModelEstimate", "ModelInfo", "ModelMismatchError", "ModelStats",
    "NoMemoryError", "NoTokenError", "NonfiniteError", "NotFoundError", "PoolExhaustedError",
    "QuantizeReport", "Reply", "Sampling", "ScheduledReply", "Scheduler", "SchedulerEvent",
    "SchedulerStats", "Session", "SessionData", "SessionInfo", "SessionMemory", "Snapshot",
    "SnapshotData", "SnapshotInfo", "Status", "StoppedError", "Store", "StoreResult",
    "StoredSession", "Threads", "TimedOutError", "TokenInfo", "Turn", "UnsupportedError",
    "VerifyReport", "VersionError", "build", "compact", "estimate", "quantize", "version"]
