# Binary streams of Python as the library's sinks and sources.
from __future__ import annotations

import ctypes
import errno
import io
import operator
from typing import Any

from . import _structs
from ._call import Call


def sink(call: Call, stream: Any) -> _structs.stasis_sink:
    """Returns a sink that writes to the stream, which may be one that takes less than it is given
    (an unbuffered file). The stream gets a copy, which it may keep."""
    def write(_: Any, data: int, size: int) -> None:
        rest = memoryview(ctypes.string_at(data, size))
        while rest:
            taken = stream.write(rest)
            if taken is None and isinstance(stream, io.RawIOBase):
                raise BlockingIOError(errno.EAGAIN, "a stream that does not block took nothing of "
                                      f"{len(rest)} bytes")
            if taken is None:
                break  # a buffered stream that does not count
            if not 0 < operator.index(taken) <= len(rest):
                raise OSError(f"a stream says that it took {taken} of {len(rest)} bytes")
            rest = rest[taken:]

    return _structs.stasis_sink(
        write=call.keep(_structs.stasis_write_fn(call.hook(write, 1))))


def source(call: Call, stream: Any) -> _structs.stasis_source:
    """Returns a source that reads from the stream, and no further than the snapshot's end."""
    def read(_: Any, data: int, size: int) -> int:
        got = stream.read(size)
        if got is None:
            raise BlockingIOError(errno.EAGAIN, "a stream that does not block has nothing to read")
        if not isinstance(got, (bytes, bytearray, memoryview)):
            raise TypeError(f"a stream gave {type(got).__name__} where bytes were asked for")
        got = bytes(got)
        if len(got) > size:
            raise ValueError(f"a stream gave {len(got)} bytes where {size} were asked for")
        ctypes.memmove(data, got, len(got))
        return len(got)

    return _structs.stasis_source(
        read=call.keep(_structs.stasis_read_fn(call.hook(read, -1, None))))


def is_stream(value: Any, method: str) -> bool:
    return hasattr(value, method) and not hasattr(value, "__fspath__")
