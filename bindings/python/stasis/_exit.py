# The end of the interpreter, for calls whose library calls functions of Python's. A daemon thread
# that enters such a function after the end is made to exit in the midst of the library, which ends
# the process with an error. So these calls are cancelled before the end, and waited for.
from __future__ import annotations

import atexit
import contextlib
import os
import threading
from typing import Any, Iterator, List

from .errors import CancelledError

# A host's function may block for good, and its thread then does no harm: exiting goes on.
PATIENCE_SECONDS = 5.0


class Calls:
    """The calls of threads other than the main one, which ends the interpreter. When it does, only
    daemon threads are left of them: it has waited for the others."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._cancels: List[Any] = []
        self._over = False

    @contextlib.contextmanager
    def running(self, cancel: Any) -> Iterator[None]:
        """Throws CancelledError after the end."""
        with self._changed:
            if self._over:
                raise CancelledError("the interpreter ends: daemon threads make no more calls with "
                                     "functions that are called back")
            self._cancels.append(cancel)
        try:
            yield
        finally:
            with self._changed:
                self._cancels.remove(cancel)
                self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._over = True
            for cancel in self._cancels:
                if cancel is not None:  # a short call
                    cancel._interrupt()
            self._changed.wait_for(lambda: not self._cancels, PATIENCE_SECONDS)


calls = Calls()
atexit.register(lambda: calls.end())


def _forked() -> None:
    """The other threads, and what they hold, are the parent's."""
    global calls
    calls = Calls()


os.register_at_fork(after_in_child=_forked)
