# Text on its way to the reader of a generation: whole characters, and nothing that may yet become a
# stop string.
from __future__ import annotations

import codecs
from typing import Sequence

from ._call import name_bytes
from .errors import InvalidArgumentError


class TextStream:
    def __init__(self, stop_strings: Sequence[str]):
        self._stops = [name_bytes("a stop string", each) or b"" for each in stop_strings]
        if b"" in self._stops:
            raise InvalidArgumentError("a stop string is empty")
        self._waiting = b""  # stop strings can only be here: what may begin one is held back
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.stopped = False

    def add(self, text: bytes) -> str:
        """Takes text of a token and returns what can be shown. The text ends at the first byte that
        completes a stop string; of several that it completes, the longest is cut off."""
        for at in range(len(text)):
            self._waiting += text[at:at + 1]
            completed = [len(stop) for stop in self._stops if self._waiting.endswith(stop)]
            if completed:
                self.stopped = True
                self._waiting = self._waiting[:-max(completed)]
                return self._take(len(self._waiting))
        return self._take(len(self._waiting) - self._held())

    def finish(self) -> str:
        """The text has ended: returns what was held back."""
        return self._take(len(self._waiting))

    def _held(self) -> int:
        """Returns the length of the longest end that is the beginning of a stop string."""
        return max((length for stop in self._stops for length in range(len(stop))
                    if self._waiting.endswith(stop[:length])), default=0)

    def _take(self, length: int) -> str:
        shown, self._waiting = self._waiting[:length], self._waiting[length:]
        return self._decode(shown)
