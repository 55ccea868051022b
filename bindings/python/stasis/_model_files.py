# Files of models that are not at a path: in memory, in archives, or of the caller's own.
from __future__ import annotations

import ctypes
import os
from typing import Any, Dict, Optional, Tuple

from . import _structs as s
from ._call import Call


def model_source(call: Call, files: Any) -> s.stasis_model_source:
    """Returns a source that reads from `files`; see `Model.from_files`."""
    found: Dict[str, Optional[Tuple[int, Any]]] = {}

    def find(name: bytes) -> Optional[Tuple[int, Any]]:
        text = os.fsdecode(name)
        if text not in found:
            found[text] = file_of(files, text)
        return found[text]

    def size(_: Any, name: bytes) -> int:
        file = find(name)
        return -1 if file is None else file[0]

    def read(_: Any, name: bytes, offset: int, data: int, count: int) -> int:
        file = find(name)
        assert file is not None  # its size was asked for before
        got = file[1](offset, count)
        if len(got) > count:
            raise ValueError(f"a file gave {len(got)} bytes where {count} were asked for")
        ctypes.memmove(data, got, len(got))
        return len(got)

    return s.stasis_model_source(
        size=call.keep(s.stasis_file_size_fn(call.hook(size, -2, None))),
        read=call.keep(s.stasis_file_read_fn(call.hook(read, -2, None))))


def file_of(files: Any, name: str) -> Optional[Tuple[int, Any]]:
    """Returns the size of a file and what reads it from an offset on; None: there is none of this
    name."""
    try:
        file = files.read(name) if hasattr(files, "read") else files[name]
    except KeyError:
        return None
    if hasattr(file, "seek"):
        def read(offset: int, count: int) -> bytes:
            file.seek(offset)
            got = file.read(count)
            if not isinstance(got, (bytes, bytearray, memoryview)):
                raise TypeError(f"a file gave {type(got).__name__} where bytes were asked for")
            return bytes(got)
        return file.seek(0, os.SEEK_END), read
    view = memoryview(file).cast("B")
    return len(view), lambda offset, count: bytes(view[offset:offset + count])
