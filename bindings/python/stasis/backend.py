# Backends of stores that the host brings: functions of Python as the library's table of them.
from __future__ import annotations

import abc
import contextlib
import ctypes
import itertools
import threading
from ctypes import CFUNCTYPE, c_char_p, c_int32, c_size_t, c_uint64, c_void_p
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

from . import _store_structs as st
from . import _structs as s
from ._call import Call
from .errors import CancelledError, ConflictError, TimedOutError

MARK_BYTES = 128  # with the zero that ends it
NEEDED = ("size", "read", "put", "get_root", "swap", "list", "remove")


class Backend(abc.ABC):
    """A table of keys and bytes that a store is kept in: `Store.over`. Objects ("objects/...") are
    put once and never changed; roots ("roots/...") are replaced. What a method has written when it
    returns must survive. Methods are called on any thread, several at once; they must not use the
    store. What one raises ends the call of the store, and comes back from it as it is.

    A class with the same methods does as well as a subclass. If it has a method `lock(collect)`
    too, that returns a context manager, which is entered for every put, and alone for every
    collection (`collect` is True). Without it, ages decide what a collection may remove. A method
    `release()`, if there is one, is called once, after the last use.
    """

    @abc.abstractmethod
    def size(self, key: str) -> Optional[int]:
        """Returns the bytes of an object; None: there is none."""

    @abc.abstractmethod
    def read(self, key: str, offset: int, length: int) -> Optional[bytes]:
        """Returns bytes of an object, of length 0 too, which asks whether it is there; None: there
        is none, or it ends before them."""

    @abc.abstractmethod
    def put(self, key: str, data: bytes) -> None:
        """Puts an object if there is none of this key; if there is, its age begins anew. Nobody
        ever sees a part of it."""

    @abc.abstractmethod
    def get_root(self, key: str) -> Optional[Tuple[bytes, str]]:
        """Returns a root and its mark, at most 127 bytes, which no other bytes under this key ever
        have; None: there is none."""

    @abc.abstractmethod
    def swap(self, key: str, mark: Optional[str], data: Optional[bytes]) -> Optional[str]:
        """Puts a root in place of the one that has the mark, or with None of none, at once or not
        at all, and returns the new mark. `data` None: it is removed. Raises `ConflictError` if
        another is there, or none."""

    @abc.abstractmethod
    def list(self, prefix: str) -> Iterable[Tuple[str, int, int]]:
        """Returns keys that begin with the prefix, ascending, each with its bytes and the seconds
        since it was put. Other methods may be called between two of them."""

    @abc.abstractmethod
    def remove(self, key: str) -> None:
        """Removes an object; it may be gone already."""


class Adapter:
    """A host's backend as the library calls it. It lives until the library has released it, which
    is after the store, its snapshots and its sessions."""

    def __init__(self, backend: Any):
        missing = [name for name in NEEDED if not callable(getattr(backend, name, None))]
        if missing:
            raise TypeError(f"the backend is {backend!r:.60}: it has no {', no '.join(missing)}")
        self.backend = backend
        self._running: List[Call] = []
        self._here = threading.local()  # the call that this thread makes
        self._locks: Dict[int, Any] = {}
        self._numbers = itertools.count(1)
        self._functions: List[Any] = []
        self.table = self._table()

    def _table(self) -> st.stasis_store_backend:
        key, data, size = c_char_p, c_void_p, c_size_t
        kinds: Dict[str, Tuple[Callable[..., int], Tuple[Any, ...]]] = {
            "size": (self._size, (key, ctypes.POINTER(c_uint64))),
            "read": (self._read, (key, c_uint64, data, size)),
            "put": (self._put, (key, data, size)),
            "get_root": (self._get_root, (key, data, size, ctypes.POINTER(size), data)),
            "swap": (self._swap, (key, c_char_p, data, size, data)),
            "list": (self._list, (key, st.stasis_store_key_fn, c_void_p)),
            "remove": (self._remove, (key,))}
        if hasattr(self.backend, "lock"):
            kinds["lock"] = self._lock, (c_int32, ctypes.POINTER(c_void_p))
        table = st.stasis_store_backend()
        for name, (function, arguments) in kinds.items():
            kind = CFUNCTYPE(c_int32, c_void_p, *arguments)
            self._set(table, name, kind(self._guarded(function)))
        if hasattr(self.backend, "lock"):
            self._set(table, "unlock", CFUNCTYPE(None, c_void_p, c_void_p)(self._unlock))
        self._set(table, "release", RELEASE)
        table.user = next(_numbers)
        return table

    def _set(self, table: st.stasis_store_backend, name: str, function: Any) -> None:
        self._functions.append(function)
        setattr(table, name, ctypes.cast(function, c_void_p))

    # ---- Whose call it is, and what it fails with ----

    @contextlib.contextmanager
    def serving(self, call: Call) -> Iterator[None]:
        """While the call runs, it gets what the host's methods raise."""
        outer = getattr(self._here, "call", None)
        self._here.call = call
        self._running.append(call)
        try:
            yield
        finally:
            self._running.remove(call)
            self._here.call = outer

    def _guarded(self, function: Callable[..., int]) -> Callable[..., int]:
        def called(_: Any, *arguments: Any) -> int:
            try:
                return function(*arguments)
            except CancelledError:
                return s.STASIS_CANCELLED
            except TimedOutError:
                return s.STASIS_TIMEOUT
            except BaseException as problem:  # it must not pass through the library
                here = getattr(self._here, "call", None)
                # The library's own threads serve one of these calls; which, they cannot say.
                for call in [here] if here is not None else list(self._running):
                    call.failure = call.failure or problem
                return s.STASIS_IO
        return called

    # ---- The functions ----

    def _size(self, key: bytes, to: Any) -> int:
        size = self.backend.size(key.decode())
        if size is None:
            return s.STASIS_NOT_FOUND
        if not isinstance(size, int) or size < 0:
            raise TypeError(f"size of {key.decode()} returned {size!r:.60}: expected bytes")
        to[0] = size
        return s.STASIS_OK

    def _read(self, key: bytes, offset: int, to: int, length: int) -> int:
        data = self.backend.read(key.decode(), offset, length)
        if data is None:
            return s.STASIS_NOT_FOUND
        data = as_bytes("read", key, data)
        if len(data) != length:
            raise ValueError(f"read of {key.decode()} returned {len(data)} bytes where {length} "
                             "were asked for")
        ctypes.memmove(to, data, length)
        return s.STASIS_OK

    def _put(self, key: bytes, data: int, length: int) -> int:
        self.backend.put(key.decode(), ctypes.string_at(data, length) if length else b"")
        return s.STASIS_OK

    def _get_root(self, key: bytes, to: int, capacity: int, length: Any, mark: int) -> int:
        found = self.backend.get_root(key.decode())
        if found is None:
            return s.STASIS_NOT_FOUND
        data = as_bytes("get_root", key, found[0])
        encoded = mark_bytes("get_root", key, found[1])
        length[0] = len(data)
        if len(data) <= capacity:
            ctypes.memmove(to, data, len(data))
            ctypes.memmove(mark, encoded, len(encoded))
        return s.STASIS_OK

    def _swap(self, key: bytes, mark: Optional[bytes], data: Optional[int], length: int,
              new_mark: int) -> int:
        given = None if data is None else ctypes.string_at(data, length)
        try:
            made = self.backend.swap(key.decode(), None if mark is None else mark.decode(), given)
        except ConflictError:
            return s.STASIS_CONFLICT
        if given is not None:
            encoded = mark_bytes("swap", key, made)
            ctypes.memmove(new_mark, encoded, len(encoded))
        return s.STASIS_OK

    def _list(self, prefix: bytes, visit: Any, user: Any) -> int:
        for key, size, age in self.backend.list(prefix.decode()):
            if visit(user, key.encode(), size, max(0, int(age))) != 0:
                break
        return s.STASIS_OK

    def _remove(self, key: bytes) -> int:
        self.backend.remove(key.decode())
        return s.STASIS_OK

    def _lock(self, collect: int, to: Any) -> int:
        lock = self.backend.lock(bool(collect))
        lock.__enter__()
        number = next(self._numbers)
        self._locks[number] = lock
        to[0] = number
        return s.STASIS_OK

    def _unlock(self, _: Any, number: int) -> None:
        self._locks.pop(number).__exit__(None, None, None)


def as_bytes(method: str, key: bytes, data: Any) -> bytes:
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"{method} of {key.decode()} returned {type(data).__name__} where bytes "
                        "were asked for")
    return bytes(data)


def mark_bytes(method: str, key: bytes, mark: Any) -> bytes:
    """Returns a mark with the zero that ends it."""
    encoded = mark.encode() if isinstance(mark, str) else b""
    if not encoded or b"\0" in encoded or len(encoded) >= MARK_BYTES:
        raise ValueError(f"{method} of {key.decode()} returned the mark {mark!r:.60}: expected a "
                         f"text of 1 to {MARK_BYTES - 1} bytes")
    return encoded + b"\0"


_numbers = itertools.count(1)
_used: Dict[int, Adapter] = {}  # those that the library has, by what it calls their user


def _release(user: int) -> None:
    release = getattr(_used.pop(user).backend, "release", None)
    if release is not None:
        release()


# One for all: a function of ctypes must not be freed while it runs.
RELEASE = CFUNCTYPE(None, c_void_p)(_release)


@contextlib.contextmanager
def lent(backend: Any) -> Iterator[Adapter]:
    """Returns the adapter of a backend, which the library has from now on, if no error comes."""
    adapter = Adapter(backend)
    _used[adapter.table.user] = adapter
    try:
        yield adapter
    except BaseException:
        _used.pop(adapter.table.user)
        raise


__all__ = ["Backend"]
