# Calls: what one call of the library needs beside its arguments, and how a signal reaches it.
#
# Python runs the handlers of signals in the main thread, between two of its own instructions, and
# so not while the main thread is inside the library. Calls that can take long are therefore made by
# a thread of their own if it is the main thread that asks: it waits on a lock, which a signal
# interrupts, requests the call's cancellation, waits for the call's end and raises what the handler
# raised (KeyboardInterrupt, as a rule). Nothing of the process is touched: no signal handler, no
# wakeup descriptor, which belong to the host and its event loop. Starting the thread takes about
# 50 microseconds. Other threads never see a signal, and call the library themselves.
from __future__ import annotations

import _thread
import atexit
import contextlib
import ctypes
import functools
import operator
import os
import threading
from typing import TYPE_CHECKING, Any, Callable, Iterable, List, Optional

from . import _exit, _structs
from ._abi import library
from .errors import ClosedError, InvalidArgumentError, error_of

if TYPE_CHECKING:
    from .backend import Adapter

Progress = Callable[[int, int], Any]


class Unique:
    """What a copy cannot stand for: it would be freed twice, or closed with the other."""

    def __reduce_ex__(self, _: Any) -> Any:
        raise TypeError(f"a {type(self).__name__} can neither be copied nor pickled")


class Owned(Unique):
    """The address of an object of the library, and a place for one that a call creates. The object
    is freed when nothing refers to this any more: Python counts that, and no signal's handler can
    come between, as it could between a call and a count of our own."""

    def __init__(self, free: Callable[[Any], Any]):
        self.pointer = self._as_parameter_ = ctypes.c_void_p()
        self._free = functools.partial(free, self.pointer)

    # What it is to call is found and called without an instruction of Python's, before one of which
    # a signal's handler might raise: into nowhere, and in place of the call.
    __del__ = property(operator.attrgetter("_free"))

    def release(self) -> None:
        value, self.pointer.value = self.pointer.value, None  # first, so that none is freed twice
        self._free.func(value)


def _keep_all() -> None:
    """The process ends anyway, and daemon threads may still use what there is."""
    Owned.__del__ = lambda self: None  # type: ignore[assignment]


atexit.register(_keep_all)


class Handle(Unique):
    """An object of the library until it is closed. Calls that run keep it, so that nothing is freed
    under a call. Whether calls may overlap is the library's decision. `backend` is that of a store
    over functions of the host's, which calls on it may call."""

    def __init__(self, owned: Owned, noun: str, backend: "Optional[Adapter]" = None):
        self.noun = noun
        self.backend = backend
        self._owned: Optional[Owned] = owned

    @property
    def closed(self) -> bool:
        return self._owned is None

    def use(self) -> Owned:
        """Returns the object's address, which is good while this is referred to."""
        owned = self._owned
        if owned is None:
            raise ClosedError(f"the {self.noun} is closed")
        return owned

    def close(self) -> None:
        self._owned = self.backend = None


class Cancel(Unique):
    """Ends calls that were given it, from another thread: `session.append(tokens, cancel=cancel)`
    raises `CancelledError` soon after `cancel.request()`, and so does every later call until
    `cancel.reset()`."""

    def __init__(self) -> None:
        pointer, error = Owned(library.stasis_cancel_release), _structs.stasis_error()
        status = library.stasis_cancel_create(ctypes.byref(pointer.pointer), ctypes.byref(error))
        if status != _structs.STASIS_OK:
            raise error_of(status, message_of(error))
        self._pointer = pointer
        self._requested = False

    def request(self) -> None:
        """Ends the calls that have this handle. May be called by any thread."""
        self._requested = True
        library.stasis_cancel_request(self._pointer)

    def reset(self) -> None:
        """Later calls run again."""
        self._requested = False
        library.stasis_cancel_reset(self._pointer)

    @property
    def requested(self) -> bool:
        """Whether `request` was called, and not `reset` since."""
        return self._requested

    @property
    def progress(self) -> "tuple[int, int]":
        """How far the last call that was given this handle has come: done, and of how many."""
        done, total = ctypes.c_uint64(), ctypes.c_uint64()
        library.stasis_cancel_progress(self._pointer, ctypes.byref(done), ctypes.byref(total))
        return done.value, total.value

    def _interrupt(self) -> None:
        """A request of the package, which ends with the call: see `_resume`."""
        library.stasis_cancel_request(self._pointer)

    def _resume(self) -> None:
        library.stasis_cancel_reset(self._pointer)
        if self._requested:
            library.stasis_cancel_request(self._pointer)


def message_of(error: _structs.stasis_error) -> str:
    message: bytes = error.message
    return message.decode("utf-8", "replace")


def text_bytes(text: str, what: str = "the text") -> bytes:
    """Returns UTF-8. A text with a lone surrogate is refused."""
    if not isinstance(text, str):
        raise TypeError(f"{what} is {text!r}: expected a str")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise InvalidArgumentError(f"{what} cannot be encoded as UTF-8: {problem}") from None


def name_bytes(what: str, name: str) -> bytes:
    """Returns a name that ends at its first zero byte, which it must not contain."""
    encoded = text_bytes(name, what)
    if b"\0" in encoded:
        raise InvalidArgumentError(f"{what} holds a zero byte")
    return encoded


def optional_name(what: str, name: Optional[str]) -> Optional[bytes]:
    return None if name is None else name_bytes(what, name)


def path_bytes(path: Any) -> bytes:
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise InvalidArgumentError("the path holds a zero byte")
    return encoded


def token_array(tokens: Any) -> "tuple[ctypes.Array[ctypes.c_uint32], int]":
    """Returns tokens for the library. Numbers that 32 bits do not hold are refused here; the
    library refuses those outside the vocabulary."""
    if isinstance(tokens, (str, bytes, bytearray)) or not hasattr(tokens, "__iter__"):
        raise TypeError(f"the tokens are {tokens!r}: expected numbers, as tokenize gives them")
    listed = list(tokens)
    for index, token in enumerate(listed):
        if type(token) is not int:
            listed[index] = token = whole(f"token {index}", token)
        if not 0 <= token < 2**32:
            raise InvalidArgumentError(f"token {index} is {token}")
    return (ctypes.c_uint32 * len(listed))(*listed), len(listed)


def whole(what: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is {value!r}: expected a whole number") from None


def number(what: str, value: int, bits: int) -> int:
    """Returns the value. ctypes would cut it to its lowest bits."""
    value = whole(what, value)
    if not 0 <= value < 2**bits:
        raise InvalidArgumentError(f"{what} is {value}: expected 0 to {2**bits - 1}")
    return value


def choice(what: str, value: Optional[str], choices: "dict[Optional[str], int]") -> int:
    """Returns the number of one of the choices."""
    if value not in choices:
        names = ", ".join(repr(each) for each in choices)
        raise InvalidArgumentError(f"{what} is {value!r}: expected one of {names}")
    return choices[value]


def milliseconds(timeout: Optional[float]) -> int:
    """Returns a time of so many seconds in milliseconds, at least one; None: 0, no limit."""
    if timeout is None:
        return 0
    if not timeout >= 0:
        raise InvalidArgumentError(f"the timeout is {timeout}: expected seconds, or None")
    return max(1, round(min(timeout * 1e3, 2.0**62)))


def digest_of(raw: _structs.stasis_digest) -> str:
    return bytes(raw.bytes).hex()


class Call:
    """One call of the library: its error, the handle that ends it, and the host's functions, which
    live until it returns. A call without `cancel` is a short one, which nothing ends early."""

    def __init__(self, cancel: Optional[Cancel] = None, names_file: bool = False,
                 timeout: Optional[float] = None):
        self.cancel = cancel
        self.names_file = names_file
        self.timeout_ms = milliseconds(timeout)
        self.error = _structs.stasis_error()
        self.status = _structs.STASIS_OK
        self.failure: Optional[BaseException] = None  # what a function of the host raised
        self._kept: List[Any] = []
        self._calls_back = False

    def keep(self, value: Any) -> Any:
        self._kept.append(value)
        return value

    def hook(self, function: Callable[..., Any], failed: int, passed: Optional[int] = 0) -> Any:
        """Returns a function for the library that calls the host's. If it raises, the library gets
        `failed`, and `run` raises the same once the library has returned. `passed` None: the
        library gets what the function returns."""
        self._calls_back = True

        def called(*arguments: Any) -> int:
            try:
                result = function(*arguments)
            except BaseException as failure:  # it must not pass through the library
                self.failure = self.failure or failure
                return failed
            return result if passed is None else passed
        return called

    def progress(self, function: Optional[Progress]) -> Any:
        if function is None:
            return _structs.stasis_progress_fn()
        hook = self.hook(lambda _, done, total: function(done, total), 1)
        return self.keep(_structs.stasis_progress_fn(hook))

    @property
    def cancel_pointer(self) -> Any:
        return self.cancel._pointer.pointer if self.cancel else None

    def call(self, function: Callable[..., int], *arguments: Any) -> int:
        """Calls the function, with the addresses of what is a `Handle` among the arguments."""
        backend = backend_of(arguments)
        passed = [each.use() if isinstance(each, Handle) else each for each in arguments]
        try:
            with backend.serving(self) if backend is not None else contextlib.nullcontext():
                return function(*passed, ctypes.byref(self.error))
        finally:
            passed.clear()  # a traceback, which would keep them, may be kept for long

    def run(self, function: Callable[..., int], *arguments: Any,
            undo: Optional[Callable[[], Any]] = None) -> None:
        """Makes the call and raises what it failed with. If a signal's handler raised meanwhile and
        the call had succeeded before it saw the request, `undo` takes its outcome back."""
        if threading.current_thread() is not threading.main_thread():
            self._calls_back = self._calls_back or backend_of(arguments) is not None
            with (_exit.calls.running(self.cancel) if self._calls_back
                  else contextlib.nullcontext()):
                self.status = self.call(function, *arguments)
        elif self.cancel is None:
            self.status = self.call(function, *arguments)
        else:
            interrupt = self._run_apart(function, *arguments)
            if interrupt is not None:
                self.cancel._resume()
                if self.status == _structs.STASIS_OK and undo is not None:
                    undo()
                try:
                    raise interrupt
                finally:
                    interrupt = self.failure = None
                    self._kept.clear()
        self.check()

    def check(self) -> None:
        """Raises what the call failed with. An exception's traceback refers to this call and to all
        that its callers have, so that the call must not refer to the exception: through a function
        that ctypes holds, Python's collector does not see such a circle."""
        failure, self.failure = self.failure, None
        self._kept.clear()
        try:
            if self.status == _structs.STASIS_OK:
                return
            if failure is not None and self.status in (_structs.STASIS_STOPPED,
                                                       _structs.STASIS_IO):
                raise failure
            raise error_of(self.status, message_of(self.error), self.names_file)
        finally:
            failure = None

    def _run_apart(self, function: Callable[..., int],
                   *arguments: Any) -> Optional[BaseException]:
        """Makes the call in another thread. Returns what a signal's handler raised meanwhile."""
        claim, over = _thread.allocate_lock(), _thread.allocate_lock()
        over.acquire()
        outcome: List[Optional[BaseException]] = []

        def work() -> None:
            if not claim.acquire(False):
                return  # started twice, see below
            problem = None
            try:
                self.status = self.call(function, *arguments)
            except BaseException as raised:
                problem = raised
            outcome.append(problem)
            over.release()

        interrupt, started = None, False
        while not outcome:
            try:
                if not started:  # a handler may raise after the start and before the next line
                    _thread.start_new_thread(work, ())
                    started = True
                over.acquire()
            except BaseException as raised:
                if not started and isinstance(raised, RuntimeError) and claim.acquire(False):
                    raise  # no thread can be started, and none was
                interrupt = interrupt or raised
                assert self.cancel is not None
                self.cancel._interrupt()
        if outcome[0] is not None:
            raise outcome[0]
        return interrupt


def backend_of(arguments: Iterable[Any]) -> "Optional[Adapter]":
    return next((each.backend for each in arguments
                 if isinstance(each, Handle) and each.backend is not None), None)


def created(call: Call, function: Callable[..., int], free: Callable[[Any], Any],
            *arguments: Any) -> Owned:
    """Runs a call whose last argument is a place for a new object, and returns that object."""
    owned = Owned(free)
    call.run(function, *arguments, ctypes.byref(owned.pointer), undo=owned.release)
    return owned


def filled(call: Call, kind: Any, guess: int, function: Callable[..., int],
           *arguments: Any) -> Any:
    """Runs a short call that fills an array of `kind`, whose size it tells, and returns the array
    and its length."""
    needed = ctypes.c_size_t()
    capacity = guess
    while True:
        array = (kind * capacity)()
        call.status = call.call(function, *arguments, array, capacity, ctypes.byref(needed))
        if call.status != _structs.STASIS_BUFFER_TOO_SMALL:
            break
        capacity = needed.value
    call.check()
    return array, needed.value


def text_of(call: Call, guess: int, function: Callable[..., int], *arguments: Any) -> bytes:
    array, length = filled(call, ctypes.c_char, guess, function, *arguments)
    raw: bytes = array.raw
    return raw[:length]
