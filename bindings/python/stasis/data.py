# What a host keeps in a session, and the turns of its log.
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Callable, Iterator, List, Mapping, MutableMapping

from . import _structs as s
from ._abi import library
from ._call import Call, Handle, filled, name_bytes, number, text_of
from .errors import NotFoundError

ROLES = {s.STASIS_ROLE_NONE: "none", s.STASIS_ROLE_SYSTEM: "system", s.STASIS_ROLE_USER: "user",
         s.STASIS_ROLE_ASSISTANT: "assistant", s.STASIS_ROLE_OTHER: "other"}
SOURCES = {s.STASIS_SOURCE_PROMPT: "prompt", s.STASIS_SOURCE_TEMPLATE: "template",
           s.STASIS_SOURCE_TEXT: "text", s.STASIS_SOURCE_SAMPLED: "sampled"}
# A name of a file that others wrote may be no UTF-8; it is still the name of its value.
ESCAPES = "surrogateescape"


@dataclass(frozen=True)
class Turn:
    """One turn of a conversation: `stasis_turn` of the header."""
    role: str  # "system", "user", "assistant", "other"; "none": tokens outside all turns
    source: str  # of its content: "sampled", "text", "prompt"; "template": it has none
    begin: int  # positions [begin, end), with what the chat template added
    end: int
    content_begin: int
    content_end: int


def turns_of(handle: Handle, function: Callable[..., int], begin: int) -> List[Turn]:
    begin, size = number("begin", begin, 64), ctypes.sizeof(s.stasis_turn)
    turns, count = filled(Call(), s.stasis_turn, 16,
                          lambda of, place, *rest: function(of, begin, place, size, *rest), handle)
    return [Turn(ROLES[each.role], SOURCES[each.source], each.begin, each.end, each.content_begin,
                 each.content_end) for each in turns[:count]]


def key_bytes(name: str) -> bytes:
    if isinstance(name, str):
        try:
            return name_bytes("the name", name)
        except ValueError:
            if "\0" not in name:
                return name.encode("utf-8", ESCAPES)
            raise
    raise TypeError(f"the name is {name!r}: expected a str")


class SnapshotData(Mapping[str, bytes]):
    """What a host kept in the session of a snapshot: bytes by name, to be read."""

    def __init__(self, handle: Handle, get: Callable[..., int], list_all: Callable[..., int]):
        self._handle, self._get, self._list = handle, get, list_all

    def __getitem__(self, name: str) -> bytes:
        try:
            return text_of(Call(), 256, self._get, self._handle, key_bytes(name))
        except NotFoundError:
            raise KeyError(name) from None

    def _names(self) -> List[str]:
        size = ctypes.sizeof(s.stasis_data_entry)
        entries, count = filled(Call(), s.stasis_data_entry, 16,
                                lambda of, place, *rest: self._list(of, place, size, *rest),
                                self._handle)
        return [each.name.decode("utf-8", ESCAPES) for each in entries[:count]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._names()!r}>"


class SessionData(SnapshotData, MutableMapping[str, bytes]):
    """What a host keeps in a session: bytes by name, saved with it and copied by a fork. Nothing
    that is computed depends on them. `stasis_data.h` says how much there may be.

    >>> session = Model(RECALL).session()
    >>> session.data["title"] = b"About k"
    >>> dict(session.fork().data)
    {'title': b'About k'}
    """

    def __setitem__(self, name: str, value: Any) -> None:
        try:
            given = bytes(memoryview(value))
        except TypeError:
            raise TypeError(f"the value is {value!r:.60}: expected bytes") from None
        Call().run(library.stasis_session_set_data, self._handle, key_bytes(name), given,
                   len(given))

    def __delitem__(self, name: str) -> None:
        try:
            Call().run(library.stasis_session_set_data, self._handle, key_bytes(name), None, 0)
        except NotFoundError:
            raise KeyError(name) from None
