# Exceptions: one class for each status of the library, with the library's own message.
from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Optional

from . import _structs

if TYPE_CHECKING:
    from .snapshot import VerifyReport


class Status(enum.IntEnum):
    """The statuses of the C header."""
    OK = _structs.STASIS_OK
    INVALID_ARGUMENT = _structs.STASIS_INVALID_ARGUMENT
    NOT_FOUND = _structs.STASIS_NOT_FOUND
    IO = _structs.STASIS_IO
    NO_MEMORY = _structs.STASIS_NO_MEMORY
    UNSUPPORTED = _structs.STASIS_UNSUPPORTED
    CORRUPT = _structs.STASIS_CORRUPT
    VERSION = _structs.STASIS_VERSION
    MODEL_MISMATCH = _structs.STASIS_MODEL_MISMATCH
    FULL = _structs.STASIS_FULL
    BUSY = _structs.STASIS_BUSY
    CANCELLED = _structs.STASIS_CANCELLED
    DIVERGED = _structs.STASIS_DIVERGED
    DEVICE = _structs.STASIS_DEVICE
    STOPPED = _structs.STASIS_STOPPED
    INTERNAL = _structs.STASIS_INTERNAL
    NONFINITE = _structs.STASIS_NONFINITE
    POOL_EXHAUSTED = _structs.STASIS_POOL_EXHAUSTED
    BUFFER_TOO_SMALL = _structs.STASIS_BUFFER_TOO_SMALL
    CONFLICT = _structs.STASIS_CONFLICT
    NO_TOKEN = _structs.STASIS_NO_TOKEN
    TIMEOUT = _structs.STASIS_TIMEOUT


class Error(Exception):
    """What a call failed with. Whatever it worked on is as it was before. `str()` is the library's
    message; `status` says of which kind it is, as does the class."""
    status = Status.INTERNAL


class InvalidArgumentError(Error, ValueError):
    """An argument is out of its domain; the message names it."""
    status = Status.INVALID_ARGUMENT


class ClosedError(InvalidArgumentError):
    """The object was closed."""


class NotFoundError(Error, LookupError):
    """There is no such file, position or state."""
    status = Status.NOT_FOUND


class MissingFileError(NotFoundError, FileNotFoundError):
    """The file that the call was to open is not there."""


class FileError(Error, OSError):
    """The operating system failed a file operation (STASIS_IO)."""
    status = Status.IO


class NoMemoryError(Error, MemoryError):
    """An allocation failed."""
    status = Status.NO_MEMORY


class UnsupportedError(Error):
    """Valid, but not possible with this build or model."""
    status = Status.UNSUPPORTED


class CorruptError(Error):
    """The bytes of a file contradict each other."""
    status = Status.CORRUPT


class VersionError(Error):
    """A format or contract version that this build cannot honour."""
    status = Status.VERSION


class ModelMismatchError(Error):
    """Snapshot and model differ; the message names the element."""
    status = Status.MODEL_MISMATCH


class FullError(Error):
    """The session's capacity, or the model's last position."""
    status = Status.FULL


class BusyError(Error):
    """Another call is running on the object."""
    status = Status.BUSY


class CancelledError(Error):
    """A `Cancel` was requested."""
    status = Status.CANCELLED


class DivergedError(Error):
    """Recomputation did not reproduce the stored bits."""
    status = Status.DIVERGED
    report: Optional["VerifyReport"] = None  # of verify: what differs


class DeviceError(Error):
    """The device or its driver is missing or failed."""
    status = Status.DEVICE


class StoppedError(Error):
    """A callback asked to stop."""
    status = Status.STOPPED


class InternalError(Error):
    """A defect of the library."""
    status = Status.INTERNAL


class NonfiniteError(Error, ArithmeticError):
    """A NaN or infinity was computed or read; the message names layer and position."""
    status = Status.NONFINITE


class PoolExhaustedError(Error):
    """The KV budget is in use at present; closing sessions helps."""
    status = Status.POOL_EXHAUSTED


class BufferTooSmallError(Error):
    """Nothing was written except the required size. The package asks again with that size."""
    status = Status.BUFFER_TOO_SMALL


class ConflictError(Error):
    """The file, the name in a store, or the log, has other contents than expected."""
    status = Status.CONFLICT
    position: Optional[int] = None  # of append_chat: where the log differs from the rendering
    # Of a store's put or import: root and digest of the session that is stored; None: none is.
    root: Optional[str] = None
    state: Optional[str] = None


class NoTokenError(Error):
    """No token is left to draw: the constraint allows none."""
    status = Status.NO_TOKEN


class TimedOutError(Error, TimeoutError):
    """The `timeout` of the call has passed."""
    status = Status.TIMEOUT


CLASSES = {each.status: each for each in (
    InvalidArgumentError, NotFoundError, FileError, NoMemoryError, UnsupportedError, CorruptError,
    VersionError, ModelMismatchError, FullError, BusyError, CancelledError, DivergedError,
    DeviceError, StoppedError, InternalError, NonfiniteError, PoolExhaustedError,
    BufferTooSmallError, ConflictError, NoTokenError, TimedOutError)}


def error_of(status: int, message: str, names_file: bool = False) -> Error:
    """Returns the exception for a status; `names_file`: the call was given a file to open."""
    if status == Status.NOT_FOUND and names_file:
        return MissingFileError(message)
    if status not in CLASSES:  # of a later version of the library
        return Error(f"status {status}: {message}")
    return CLASSES[Status(status)](message)
