# Drafting: a session with a drafter keeps the library's generation open from one token to the next,
# for what was computed ahead of the log belongs to it. Whatever changes the session ends it first,
# so that a generation may still be left at any time.
from __future__ import annotations

import ctypes
import weakref
from typing import Any, Callable, List, Optional

from . import _structs as s
from ._abi import library
from ._call import Owned

# A generation's next token, in the manner of a function of the library.
Next = Callable[[Owned, Any], int]


class _Open:
    """A generation of the library that is not over. Does not keep its owner."""

    def __init__(self, owner: Any):
        self.owner = weakref.ref(owner)
        self.begun = False
        self.owned = Owned(library.stasis_generation_end)


class Drafting:
    """What a session has for its drafter. Only who has taken the open generation out of the list
    uses it: a list gives an item to one thread, and to no signal's handler in between."""

    def __init__(self, on: bool = False):
        self.on = on
        self._open: List[_Open] = []

    def park(self, owner: Any = None) -> None:
        """Ends the open generation, or that of an owner, unless a call is in it. Its owner goes on
        with another one when it is asked for a token."""
        taken = self._take()
        if taken is not None and owner is not None and taken.owner() is not owner:
            self._open.append(taken)

    def draw(self, owner: Any, session: Any, options: Any, next_token: Next, error: Any) -> int:
        """Draws a token of the owner's, in the manner of a function of the library."""
        taken = self._take()
        if taken is None or taken.owner() is not owner:
            taken = _Open(owner)  # and the other one is ended
        if not taken.begun:
            status: int = library.stasis_generation_begin(
                session, options, ctypes.byref(taken.owned.pointer), error)
            if status != s.STASIS_OK:
                return status
            taken.begun = True
        status = next_token(taken.owned, error)
        if status == s.STASIS_OK:
            self._open.append(taken)
        return status

    def _take(self) -> Optional[_Open]:
        try:
            return self._open.pop()
        except IndexError:
            return None
