# Generation: iterators, for loops and for async loops, one token at a time.
from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from typing import (TYPE_CHECKING, Any, AsyncIterator, Callable, Iterator, List, NamedTuple,
                    Optional, Sequence, Tuple, TypeVar, Union)

from . import _structs as s
from ._abi import library
from ._call import Call, Cancel, Unique, milliseconds, number
from ._text import STOPS, TextStream
from .errors import BusyError, ClosedError, TimedOutError

if TYPE_CHECKING:
    from .session import Session

T = TypeVar("T")


@dataclass(frozen=True)
class Generated:
    """A token that is in the session's log now."""
    token: int
    position: int
    text: str  # what can be shown since the one before, perhaps nothing: whole characters
    last: bool  # carries text that was held back, at the end; the token is the last one again
    log_probability: float  # of the model's own distribution; 0 if not asked for, and with `last`
    best: Tuple[Tuple[int, float], ...]  # the most likely tokens in its place, best first


class Generation(Unique):
    """An iterator, and an async iterator, over the tokens that a session draws; see
    `Session.generate`. A token that it has not given is not in the session, so it may be left at
    any time. `stop` says why it has ended: "length", "end" (of the model's own text, or a stop
    token), "string" or "no token" (a constraint allows none); None: it goes on."""

    def __init__(self, session: "Session", tokens_max: int, stop: Union[str, Sequence[str]],
                 stop_tokens: Sequence[int], ignore_end: bool, log_probabilities: int,
                 cancel: Optional[Cancel], timeout: Optional[float]):
        milliseconds(timeout)  # checks it
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self.stop: Optional[str] = None
        self.drafted = self.accepted = 0  # tokens that a drafter proposed, and of these drawn
        self._session = session
        self._text = TextStream(session.model, tokens_max, stop, stop_tokens, ignore_end)
        self._tokens_max = tokens_max
        self._drawn = 0
        self._log_probabilities = number("log_probabilities", log_probabilities, 32)
        self._cancel = cancel or Cancel()
        self._last: Optional[Generated] = None
        self._ended = False

    def __iter__(self) -> "Iterator[Generated]":
        return self

    def __aiter__(self) -> "AsyncIterator[Generated]":
        return self

    def __next__(self) -> Generated:
        generated = self._advance()
        if generated is None:
            raise StopIteration
        return generated

    async def __anext__(self) -> Generated:
        generated = await in_thread(self._advance, self._cancel, self._take_back)
        if generated is None:
            raise StopAsyncIteration
        return generated

    def _time_left(self) -> Optional[float]:
        """Returns seconds, at least 0; None: there is no limit."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def _advance(self) -> Optional[Generated]:
        """Returns the next token; None: the generation has ended."""
        if self._ended:
            return None
        if self.stop is None:
            events: List[Event] = []
            try:
                drawn = self._draw(events)
            except BaseException as problem:  # what a signal's handler raised, too
                self._ended = bool(events) or not isinstance(problem, (BusyError, ClosedError))
                for event in events:
                    self._rewind(event.position)
                raise
            if drawn is not None:
                return drawn
        self._ended = True
        self._session._drafting.park(self)
        held = self._text.finish()
        if not held or self._last is None:
            return None
        return Generated(self._last.token, self._last.position, held, True, 0.0, ())

    def _draw(self, events: "List[Event]") -> Optional[Generated]:
        """Returns the next token, which is in the events as soon as it is in the log; None: the
        session is full."""
        left = self._time_left()
        if left == 0.0:
            raise TimedOutError("the generation's time was over")
        call = Call(self._cancel, timeout=left)
        drafting = self._session._drafting
        options = s.stasis_generate_options(  # the stops are the text's
            timeout_ms=call.timeout_ms, flags=s.STASIS_GENERATE_IGNORE_END,
            tokens_max=self._tokens_max and self._tokens_max - self._drawn if drafting.on else 1,
            cancel=call.cancel_pointer, log_probability_count=self._log_probabilities)
        stops: List[str] = []
        if drafting.on:
            call.run(self._draw_ahead, self._session._handle, ctypes.byref(options), events, stops)
        else:
            call.run(_draw_one, self._session._handle, ctypes.byref(options), events, stops)
        if not events:
            self.stop = stops[0]
            return None
        token, position, log_probability, best = events[0]
        self._drawn += 1
        text = self._text.push(token)
        self.stop = self._text.stop
        self._last = Generated(token, position, text, False, log_probability, best)
        return self._last

    def _draw_ahead(self, session: Any, options: Any, events: "List[Event]", stops: List[str],
                    error: Any) -> int:
        """Draws as `_draw_one`, and leaves what a drafter has computed ahead for the next token."""
        def next_token(generation: Any, error: Any) -> int:
            before = _result_of(generation)
            status = _next(generation, events, stops, error)
            result = _result_of(generation)
            self.drafted += result.drafted - before.drafted
            self.accepted += result.accepted - before.accepted
            return status
        return self._session._drafting.draw(self, session, options, next_token, error)

    def _take_back(self, generated: Optional[Generated]) -> None:
        """A token that was drawn and cannot be given, because its reader was cancelled, was never
        drawn."""
        self._ended = True
        if generated is not None and not generated.last:
            self._rewind(generated.position)

    def _rewind(self, position: int) -> None:
        """Takes the token at the position back, unless another caller has gone on from it."""
        try:
            if self._session.position == position + 1:
                self._session.rewind(position, recompute=True)
        except BusyError:
            pass


class Event(NamedTuple):
    """A token that was drawn, before its text is known."""
    token: int
    position: int
    log_probability: float
    best: Tuple[Tuple[int, float], ...]


def _draw_one(session: Any, options: Any, events: List[Event], stops: List[str],
              error: Any) -> int:
    """Draws one token, in the manner of a function of the library, and leaves the session free. The
    library calls nothing of Python's meanwhile: a daemon thread may be in here when the interpreter
    ends, and could not return from such a function through the library."""
    generation = ctypes.c_void_p()
    status: int = library.stasis_generation_begin(session, options, ctypes.byref(generation), error)
    if status != s.STASIS_OK:
        return status
    try:
        return _next(generation, events, stops, error)
    finally:
        library.stasis_generation_end(generation)


def _next(generation: Any, events: List[Event], stops: List[str], error: Any) -> int:
    """Asks a generation of the library for its next token."""
    raw = s.stasis_generated()
    status: int = library.stasis_generation_next(generation, ctypes.byref(raw), error)
    if status == s.STASIS_OK and raw.last:  # the session is full, or no token is left
        stops.append(STOPS.get(_result_of(generation).stop_reason, "length"))
    elif status == s.STASIS_OK:
        best = tuple((raw.best_tokens[i], raw.best_log_probabilities[i])
                     for i in range(raw.log_probability_count))
        events.append(Event(raw.token, raw.position, raw.log_probability, best))
    return status


def _result_of(generation: Any) -> s.stasis_generate_result:
    result = s.stasis_generate_result()
    library.stasis_generation_get_result(generation, ctypes.byref(result), None)  # cannot fail
    return result


class Reply(Unique):
    """An iterator, and an async iterator, over pieces of a reply's text; see `Session.say`."""

    def __init__(self, generation: Generation, begin: Callable[[], Any]):
        self.generation = generation
        self._begin: Optional[Callable[[], Any]] = begin

    def __iter__(self) -> "Iterator[str]":
        return self

    def __aiter__(self) -> "AsyncIterator[str]":
        return self

    def __next__(self) -> str:
        self._say()
        for generated in self.generation:
            if generated.text:
                return generated.text
        raise StopIteration

    async def __anext__(self) -> str:
        if self._begin is not None:
            await in_thread(self._say, self.generation._cancel, lambda _: None)
        async for generated in self.generation:
            if generated.text:
                return generated.text
        raise StopAsyncIteration

    def _say(self) -> None:
        """Appends the turn, once: not again if a signal came when it had been appended."""
        if self._begin is None:
            return
        before = self.generation._session.position
        try:
            self._begin()
            self._begin = None
        except BaseException:
            if self.generation._session.position != before:
                self._begin = None
            raise


async def in_thread(step: Callable[[], T], cancel: Cancel, undo: Callable[[T], Any]) -> T:
    """Runs a call in a thread of the loop's executor. If the task is cancelled meanwhile, the call
    is, and has ended when the task goes on: the session is nobody's then. What it has done all the
    same, `undo` takes back."""
    import asyncio  # takes longer than the rest of the package, and not every host has a loop
    future = asyncio.get_running_loop().run_in_executor(None, step)
    interrupt: Optional[BaseException] = None
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError as cancelled:
            interrupt = cancelled
            cancel._interrupt()
        except BaseException:
            break  # the call's own, see below
    if interrupt is None:
        return future.result()
    cancel._resume()
    if future.exception() is None:
        undo(future.result())
    raise interrupt
