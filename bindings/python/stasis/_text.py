# Text of the tokens of a generation: whole characters, nothing that may yet become a stop string,
# and the stop that ends it. The library's own text stream.
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence, Union

from . import _structs as s
from ._abi import library
from ._call import Call, Handle, Unique, created, name_bytes, number, token_array

if TYPE_CHECKING:
    from .model import Model

STOPS = {s.STASIS_STOP_LENGTH: "length", s.STASIS_STOP_END_TOKEN: "end",
         s.STASIS_STOP_STRING: "string", s.STASIS_STOP_NO_TOKEN: "no token",
         s.STASIS_STOP_TIMEOUT: "timeout"}


class TextStream(Unique):
    def __init__(self, model: "Model", tokens_max: int, stop: Union[str, Sequence[str]],
                 stop_tokens: Sequence[int], ignore_end: bool):
        stops = [stop] if isinstance(stop, str) else stop
        strings = [name_bytes("a stop string", each) for each in stops]
        tokens, count = token_array(stop_tokens)
        options = s.stasis_generate_options(
            flags=s.STASIS_GENERATE_IGNORE_END * ignore_end,
            tokens_max=number("max_tokens", tokens_max, 64), stop_tokens=tokens,
            stop_token_count=count, stop_strings=(ctypes.c_char_p * len(strings))(*strings),
            stop_string_count=len(strings))
        self._handle = Handle(created(Call(), library.stasis_text_stream_create,
                                      library.stasis_text_stream_free, model._handle,
                                      ctypes.byref(options)), "text stream")
        self.stop: Optional[str] = None  # why the text has ended

    def push(self, token: int) -> str:
        """Takes a token and returns what can be shown."""
        return self._piece(library.stasis_text_stream_push, token)

    def finish(self) -> str:
        """The text has ended: returns what was held back."""
        return self._piece(library.stasis_text_stream_finish)

    def _piece(self, function: Callable[..., int], *arguments: Any) -> str:
        piece = s.stasis_text_piece()
        Call().run(function, self._handle, *arguments, ctypes.byref(piece))
        if piece.stopped:
            self.stop = STOPS[piece.stop_reason]
        return ctypes.string_at(piece.text, piece.length).decode("utf-8", "replace")
