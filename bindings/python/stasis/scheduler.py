# Schedulers: many sessions that generate together, for threads, for loops and for async loops.
from __future__ import annotations

import ctypes
import threading
from collections import deque
from typing import (TYPE_CHECKING, Any, AsyncIterator, Deque, Dict, Iterable, Iterator, List,
                    Mapping, NamedTuple, Optional, Sequence, Tuple, Union)

from . import _structs as s
from ._abi import library
from ._call import (Call, Handle, Owned, Unique, created, name_bytes, number, text_bytes,
                    token_array)
from ._text import STOPS
from .errors import Error, NotFoundError, error_of
from .generation import Generated
from .model import json_bytes

if TYPE_CHECKING:
    import asyncio

    from .model import Model
    from .session import Session

WAIT_MS = 50  # a call of the library lasts no longer, and a pass, so that Ctrl-C is heard
EVENT_P = ctypes.POINTER(s.stasis_scheduler_event)


class SchedulerEvent(NamedTuple):
    """A token of a session, or with `end` its last event, whose `generated.text` was held back."""
    session: "Session"
    generated: Generated
    end: bool
    stop: Optional[str]  # with `end`, as `Generation.stop`; None: an error ended it
    error: Optional[Error]  # with `end`: what ended this session alone; CancelledError too
    passed: int  # passes of the scheduler until then
    address: int = 0  # the package's own


class SchedulerStats(NamedTuple):
    """What a scheduler has done."""
    sessions: int  # submitted, and their end not taken
    events: int  # that wait
    passes: int
    tokens: int  # drawn
    prompt_positions: int  # of prompts, computed or taken from the prefix cache
    most_together: int  # sessions in a pass
    slice: int  # positions that the next pass has for prompts
    pass_us_max: int  # the longest pass, in microseconds


class Scheduler:
    """Generates for many sessions of a model together: a token of each in a pass over the weights,
    and prompts in slices beside them. Each session gets the bits that it gets alone. Threads that
    call `generate` of their sessions get the throughput of one; this is the way for many.

    >>> model = Model(RECALL)
    >>> with Scheduler(model) as scheduler:
    ...     first, second = model.session(), model.session()
    ...     reply = scheduler.submit(first, "What is m?", max_tokens=5)
    ...     other = scheduler.submit(second, "Tell me about the sea.", max_tokens=5)
    ...     for event in scheduler:       # of either session, until both have ended
    ...         assert event.session in (first, second)
    ...     first.position > 5
    True

    There is no thread behind it: whoever waits for an event computes. `for event in scheduler`
    takes the events of all, `scheduler.submit` returns an iterator (and an async one) over those of
    its session; any number of threads and tasks may do so at the same time."""

    def __init__(self, model: "Model", *, sessions_max: int = 0, stall_ms: int = 0, slice: int = 0,
                 events_max: int = 0):
        """The options are `stasis_scheduler_options` of the header; none influences results."""
        options = s.stasis_scheduler_options(
            sessions_max=number("sessions_max", sessions_max, 32),
            stall_ms=number("stall_ms", stall_ms, 32), slice=number("slice", slice, 32),
            events_max=number("events_max", events_max, 64))
        self.model = model
        self._handle = Handle(created(Call(), library.stasis_scheduler_create,
                                      library.stasis_scheduler_close, model._handle,
                                      ctypes.byref(options)), "scheduler")
        # Sessions by their address, with what keeps each from being freed until its end was taken;
        # twice, if it is submitted again before that was noted.
        self._sessions: Dict[int, List[Tuple["Session", Owned]]] = {}
        self._lock = threading.Lock()
        self._left: Deque[SchedulerEvent] = deque()  # taken by a call that could not return them

    def submit(self, session: "Session", text: Optional[str] = None, *,
               tokens: Iterable[int] = (), conversation: Optional[Mapping[str, Any]] = None,
               role: str = "user", max_tokens: int = 0,
               stop: Union[str, Sequence[str]] = (), stop_tokens: Sequence[int] = (),
               ignore_end: bool = False, log_probabilities: int = 0,
               timeout: Optional[float] = None) -> "ScheduledReply":
        """Gives a session to the scheduler: it appends the text as a turn of `role` (or the tokens,
        or what its log lacks of a conversation, as `Session.append_chat` with `reply`, or nothing),
        and generates. Returns at once an iterator over its tokens. Until its end was taken, the
        session can be read between its tokens, and not be changed. `timeout`: seconds from this
        call on; then its end is a `TimedOutError`. `ConflictError`: the log differs from the
        conversation, or has more; after a `rewind` to the position of `Session.chat_tokens` the
        same call takes it."""
        call = Call(timeout=timeout)
        prompt = s.stasis_prompt()
        prompt.tokens, prompt.token_count = token_array(tokens)
        if text is not None:
            encoded = text_bytes(text)
            prompt.role, prompt.text = name_bytes("role", role), encoded
            prompt.length = len(encoded)
        if conversation is not None:
            prompt.conversation = whole = json_bytes(conversation)
            prompt.conversation_length = len(whole)
        options = s.stasis_generate_options(
            flags=s.STASIS_GENERATE_IGNORE_END if ignore_end else 0,
            tokens_max=number("max_tokens", max_tokens, 64),
            log_probability_count=number("log_probabilities", log_probabilities, 32),
            timeout_ms=call.timeout_ms)
        options.stop_tokens, options.stop_token_count = token_array(stop_tokens)
        strings = [name_bytes("a stop string", each)
                   for each in ([stop] if isinstance(stop, str) else stop)]
        options.stop_strings = (ctypes.c_char_p * len(strings))(*strings)
        options.stop_string_count = len(strings)
        session._drafting.park()
        owned = session._handle.use()
        address = owned.pointer.value
        assert address is not None
        with self._lock:  # before the call: an event may come at once
            self._sessions.setdefault(address, []).append((session, owned))
        try:
            call.run(library.stasis_scheduler_submit, self._handle, owned, ctypes.byref(options),
                     ctypes.byref(prompt))
        except BaseException:
            self._let_go(address)
            raise
        return ScheduledReply(self, session, address)

    def next(self, timeout: Optional[float] = None) -> Optional[SchedulerEvent]:
        """Returns the next event of any session, computing meanwhile; None: no event came within
        so many seconds. Without a timeout it waits as long as there is a session."""
        return self._wait(None, timeout)

    def __iter__(self) -> Iterator[SchedulerEvent]:
        """Events of all sessions, until none is in the scheduler."""
        while True:
            event = self._wait(None, None)
            if event is None:
                return
            yield event

    async def __aiter__(self) -> AsyncIterator[SchedulerEvent]:
        while True:
            event = await self._wait_async(None)
            if event is None:
                return
            yield event

    def cancel(self, session: "Session") -> None:
        """Ends a session: its last event has a `CancelledError`. A prompt that was not complete is
        undone, and tokens stay. Does not wait."""
        Call().run(library.stasis_scheduler_cancel, self._handle, session._handle)

    @property
    def stats(self) -> SchedulerStats:
        """What the scheduler has done until this moment."""
        raw = s.stasis_scheduler_stats()
        Call().run(library.stasis_scheduler_get_stats, self._handle, ctypes.byref(raw))
        return SchedulerStats(*(getattr(raw, name) for name in SchedulerStats._fields))

    def close(self) -> None:
        """Ends everything: sessions are let go, and calls that wait raise `CancelledError`."""
        if not self._handle.closed:
            library.stasis_scheduler_stop(self._handle.use())
            self._handle.close()
            self._sessions.clear()
            self._left.clear()

    def __enter__(self) -> "Scheduler":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # ---- Events ----

    def _wait(self, address: Optional[int], timeout: Optional[float]) -> Optional[SchedulerEvent]:
        """Returns an event, of one session if there is an address; None: the time is over, or, if
        there is no timeout, the session (or every one) has left."""
        left = None if timeout is None else max(0, int(timeout * 1000))
        while True:
            part = WAIT_MS if left is None else min(left, WAIT_MS)
            event = self._take(address, part)
            if event is not None:
                return event
            if left is not None:
                left -= part
                if left <= 0:
                    return None
            elif self._gone(address):
                return None

    async def _wait_async(self, address: Optional[int]) -> Optional[SchedulerEvent]:
        import asyncio  # not every host has a loop
        loop = asyncio.get_running_loop()
        while True:
            future = loop.run_in_executor(None, self._take, address, WAIT_MS)
            try:
                event = await asyncio.shield(future)
            except asyncio.CancelledError:
                future.add_done_callback(self._put_back)  # for whoever asks next
                raise
            if event is not None or self._gone(address):
                return event

    def _gone(self, address: Optional[int]) -> bool:
        return not self._left and (not self._sessions if address is None
                                   else address not in self._sessions)

    def _put_back(self, future: "asyncio.Future[Optional[SchedulerEvent]]") -> None:
        if not future.cancelled() and future.exception() is None:
            event = future.result()
            if event is not None:
                self._left.append(event)

    def _take(self, address: Optional[int], wait_ms: int) -> Optional[SchedulerEvent]:
        for _ in range(len(self._left)):  # first what another call could not return
            try:
                event = self._left.popleft()
            except IndexError:
                break
            if address is None or event.address == address:
                return event
            self._left.append(event)
        self._handle.use()  # or it is closed
        if address is not None and address not in self._sessions:
            return None  # another call has taken its end
        place: Any = EVENT_P()
        events: List[SchedulerEvent] = []
        try:
            Call().run(library.stasis_scheduler_next, self._handle, address, wait_ms,
                       ctypes.byref(place))
            if place:
                events.append(self._read(place))
                place = self._free(place)
            return events[0] if events else None
        except BaseException as problem:  # what a signal's handler raised, too
            if place or events:
                self._left.append(events[0] if events else self._read(place))
                self._free(place)
            if isinstance(problem, NotFoundError) and address is not None:
                return None  # another call has taken its end meanwhile
            raise

    def _let_go(self, address: int) -> None:
        with self._lock:
            kept = self._sessions.get(address, [])
            if len(kept) > 1:
                kept.pop()
            else:
                self._sessions.pop(address, None)

    def _free(self, place: Any) -> Any:
        library.stasis_scheduler_event_free(place)
        return EVENT_P()

    def _read(self, place: Any) -> SchedulerEvent:
        raw = place.contents
        text = ctypes.string_at(raw.text, raw.length).decode("utf-8", "replace")
        best = tuple((raw.best_tokens[i], raw.best_log_probabilities[i])
                     for i in range(raw.log_probability_count))
        generated = Generated(raw.token, raw.position, text, bool(raw.end), raw.log_probability,
                              best)
        session, passed = self._sessions[raw.session][0][0], getattr(raw, "pass")
        if not raw.end:
            return SchedulerEvent(session, generated, False, None, None, passed, raw.session)
        self._let_go(raw.session)
        stop, error = None, None
        if raw.status == s.STASIS_OK:
            stop = STOPS[raw.stop_reason]
        else:
            error = error_of(raw.status, raw.message.decode("utf-8", "replace"))
        return SchedulerEvent(session, generated, True, stop, error, passed, raw.session)


class ScheduledReply(Unique):
    """An iterator, and an async iterator, over the tokens of one session; see `Scheduler.submit`.
    What ended the session alone is raised. `stop` then says why it ended, as `Generation.stop`. If
    others take the events (`for event in scheduler`), it need not be used."""

    def __init__(self, scheduler: Scheduler, session: "Session", address: int):
        self.stop: Optional[str] = None
        self.session = session
        self._scheduler = scheduler
        self._address = address
        self._ended = False

    def cancel(self) -> None:
        """Ends the session; the iterator then raises `CancelledError`."""
        self._scheduler.cancel(self.session)

    def __iter__(self) -> "Iterator[Generated]":
        return self

    def __aiter__(self) -> "AsyncIterator[Generated]":
        return self

    def __next__(self) -> Generated:
        generated = None if self._ended else self._hear(self._scheduler._wait(self._address, None))
        if generated is None:
            raise StopIteration
        return generated

    async def __anext__(self) -> Generated:
        generated = None if self._ended else self._hear(
            await self._scheduler._wait_async(self._address))
        if generated is None:
            raise StopAsyncIteration
        return generated

    def _hear(self, event: Optional[SchedulerEvent]) -> Optional[Generated]:
        if event is None:
            self._ended = True
            return None
        if not event.end:
            return event.generated
        self._ended = True
        self.stop = event.stop
        if event.error is not None:
            raise event.error
        return event.generated if event.generated.text else None
