# Binary streams of Python as the library's sinks and sources.
from __future__ import annotations

import ctypes
from typing import Any

from . import _structs
from ._call import Call


def sink(call: Call, stream: Any) -> _structs.stasis_sink:
    """Returns a sink that writes to the stream, which may be one that takes less than it is given
    (an unbuffered file)."""
    def write(_: Any, data: int, size: int) -> None:
        rest = memoryview((ctypes.c_char * size).from_address(data)).cast("B")
        while rest:
            taken = stream.write(rest)
            if taken is None:
                break  # a buffered stream that does not count
            rest = rest[taken:]

    return _structs.stasis_sink(
        write=call.keep(_structs.stasis_write_fn(call.hook(write, 1))))


def source(call: Call, stream: Any) -> _structs.stasis_source:
    """Returns a source that reads from the stream, and no further than the snapshot's end."""
    def read(_: Any, data: int, size: int) -> int:
        got: bytes = stream.read(size)
        if len(got) > size:
            raise ValueError(f"a stream gave {len(got)} bytes where {size} were asked for")
        ctypes.memmove(data, got, len(got))
        return len(got)

    return _structs.stasis_source(
        read=call.keep(_structs.stasis_read_fn(call.hook(read, -1, None))))


def is_stream(value: Any, method: str) -> bool:
    return hasattr(value, method) and not hasattr(value, "__fspath__")
