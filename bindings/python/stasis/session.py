# Sessions: timelines of tokens that are appended to, generated into, forked, rewound and saved.
from __future__ import annotations

import ctypes
import io
import json
import os
from typing import (Any, Callable, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple,
                    Union)

from . import _structs as s
from . import _streams
from ._abi import library
from ._call import (Call, Cancel, Handle, Owned, Progress, choice, created, digest_of, filled,
                    name_bytes, number, path_bytes, text_bytes, text_of, token_array)
from ._drafting import Drafting
from .constraint import Constraint, token_bits, words_of
from .data import SessionData, Turn, turns_of
from .errors import BusyError, ClosedError, ConflictError, InvalidArgumentError
from .generation import Generation, Reply
from .info import SessionInfo
from .model import (Model, doubles_view, floats_view, json_bytes, model_of, session_options,
                    words_view)
from .sampling import Sampling
from .snapshot import CODECS, KEEPS, Difference, Snapshot, VerifyReport

# Called with the position and the logits of an appended token, which are the caller's own.
OnLogits = Callable[[int, "memoryview[float]"], Any]


class Candidate(NamedTuple):
    """A token that may come next, with its natural log-probability."""
    token: int
    log_probability: float


class ChatTokens(NamedTuple):
    """What a log lacks of a conversation, and the position where it follows."""
    position: int  # the first one that the log lacks or has otherwise
    tokens: List[int]


class Session:
    """A timeline of tokens, created by `Model.session` or `Session.load`. It serves one caller at a
    time; a second thread gets `BusyError`, or waits where that is short: what reads it (`digest`,
    `info`, `tokens`, ...) waits for the token that another thread has it generate. A call that
    fails or is cancelled, by Ctrl-C too, leaves it as it was. `copy.copy` forks it, and `pickle`
    carries all of it but the model, which is opened again from its path and must be the same.

    >>> session = Model(RECALL).session()
    >>> "".join(session.say("Let's start by defining a variable k equal to 5. What is k?"))
    'k is 5.'
    """

    def __init__(self, model: Model, owned: Owned, drafts: bool = False):
        """For the package: hosts use `Model.session` and `Session.load`."""
        self.model = model
        self._handle = Handle(owned, "session")
        self._drafting = Drafting(drafts)

    @classmethod
    def _create(cls, model: Model, options: s.stasis_session_options,
                sampling: Optional[Sampling]) -> "Session":
        session = cls(model, created(Call(), library.stasis_session_create,
                                     library.stasis_session_free, model._handle,
                                     ctypes.byref(options)))
        if sampling is not None:
            session.set_sampling(sampling)
        return session

    def close(self) -> None:
        """Frees the session, as soon as no call uses it. Later calls raise `ClosedError`."""
        self._drafting.park()
        self._handle.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        try:
            state = f"at {self.position}"
        except BusyError:
            state = "in a call"
        except ClosedError:
            state = "closed"
        return f"<stasis.Session of {self.model.path!r} {state}>"

    def _change(self, call: Call, function: Callable[..., int], *arguments: Any) -> None:
        """Makes a call that changes the session, which no generation may have begun then."""
        self._drafting.park()
        call.run(function, self._handle, *arguments)

    # ---- What it holds ----

    @property
    def info(self) -> SessionInfo:
        """What the session is at this moment."""
        raw = s.stasis_session_info()
        Call().run(library.stasis_session_get_info, self._handle, ctypes.byref(raw))
        return SessionInfo._of(raw)

    @property
    def position(self) -> int:
        """Tokens in the log; the next one takes this position."""
        raw = s.stasis_session_info()
        Call().run(library.stasis_session_get_info, self._handle, ctypes.byref(raw))
        position: int = raw.position
        return position

    def __len__(self) -> int:
        return self.position

    def __bool__(self) -> bool:
        return True  # also when it is empty

    @property
    def digest(self) -> str:
        """SHA-256 over the session's state, in hexadecimal. Sessions with equal digests compute the
        same from here on."""
        raw = s.stasis_digest()
        Call().run(library.stasis_session_digest, self._handle, ctypes.byref(raw))
        return digest_of(raw)

    def tokens(self, begin: int = 0) -> List[int]:
        """Returns the log's tokens from a position on."""
        begin = number("begin", begin, 64)
        tokens, count = filled(Call(), ctypes.c_uint32, 256,
                               lambda session, *place: library.stasis_session_tokens(
                                   session, begin, place[0], None, *place[1:]),
                               self._handle)
        return list(tokens[:count])

    def sources(self, begin: int = 0) -> List[int]:
        """Returns the source of each token: STASIS_SOURCE_... of the header."""
        begin = number("begin", begin, 64)
        sources, count = filled(Call(), ctypes.c_uint8, 256,
                                lambda session, *place: library.stasis_session_tokens(
                                    session, begin, None, *place), self._handle)
        return list(sources[:count])

    def text(self, begin: int = 0, end: Optional[int] = None) -> str:
        """Returns the text of positions [begin, end), without special tokens."""
        return text_of(Call(), 4096, library.stasis_session_text, self._handle,
                       number("begin", begin, 64),
                       self.position if end is None else number("end", end, 64)
                       ).decode("utf-8", "replace")

    def turns(self, begin: int = 0) -> List[Turn]:
        """Returns the turns of the log from the one that a position is in."""
        return turns_of(self._handle, library.stasis_session_turns, begin)

    @property
    def data(self) -> SessionData:
        """Bytes of the caller's own by name, saved with the session."""
        return SessionData(self._handle, library.stasis_session_get_data,
                           library.stasis_session_list_data)

    # ---- What makes it grow ----

    def append(self, tokens: Union[str, Iterable[int]], *, chunk: int = 0,
               logits: Optional[OnLogits] = None, progress: Optional[Progress] = None,
               cancel: Optional[Cancel] = None,
               timeout: Optional[float] = None) -> None:
        """Appends all of the tokens or, on any failure, none. A text is tokenized first, as plain
        text, after the token that begins a sequence where the session is empty. `logits` is called
        with those of each position; `chunk` never influences results. `timeout`, here as in other
        calls: seconds after which it ends with `TimedOutError`."""
        if isinstance(tokens, str):
            tokens = self.model.tokenize(
                tokens, bos=self.position == 0 and self.model.info.bos is not None)
        given, count = token_array(tokens)
        call = Call(cancel or Cancel(), timeout=timeout)
        self._change(call, library.stasis_session_append, given, count,
                     run_options(call, chunk, logits, progress))

    def append_message(self, role: str, text: str, *, reply: bool = False, chunk: int = 0,
                       logits: Optional[OnLogits] = None, progress: Optional[Progress] = None,
                       cancel: Optional[Cancel] = None,
                       timeout: Optional[float] = None) -> None:
        """Renders one turn through the chat template and appends it; with `reply`, the prompt for
        the next reply too. A reply that is still open is closed first."""
        encoded = text_bytes(text)
        call = Call(cancel or Cancel(), timeout=timeout)
        self._change(call, library.stasis_session_append_message, name_bytes("the role", role),
                     encoded, len(encoded), s.STASIS_MESSAGE_REPLY * reply,
                     run_options(call, chunk, logits, progress))

    def append_chat(self, conversation: Mapping[str, Any], *, reply: bool = False, chunk: int = 0,
                    logits: Optional[OnLogits] = None, progress: Optional[Progress] = None,
                    cancel: Optional[Cancel] = None,
                    timeout: Optional[float] = None) -> int:
        """Appends what the log lacks of a conversation (stasis_chat.h) and returns the position.
        Where the log differs from its rendering, `ConflictError.position` says from where on;
        after `rewind` to it the same call appends."""
        encoded = json_bytes(conversation)
        call = Call(cancel or Cancel(), timeout=timeout)
        position = ctypes.c_uint64()
        try:
            self._change(call, library.stasis_session_append_chat, encoded, len(encoded),
                         s.STASIS_CHAT_REPLY * reply, ctypes.byref(position),
                         run_options(call, chunk, logits, progress))
        except ConflictError as conflict:
            conflict.position = position.value
            raise
        return position.value

    def chat_tokens(self, conversation: Mapping[str, Any], *, reply: bool = False) -> ChatTokens:
        """Returns what `append_chat` appends, after a `rewind` to the position where the log
        differs, and appends nothing."""
        encoded = json_bytes(conversation)
        position = ctypes.c_uint64()
        tokens, count = filled(Call(), ctypes.c_uint32, 256, library.stasis_session_chat_tokens,
                               self._handle, encoded, len(encoded), s.STASIS_CHAT_REPLY * reply,
                               ctypes.byref(position))
        return ChatTokens(position.value, list(tokens[:count]))

    def reply(self, conversation: Optional[Mapping[str, Any]] = None, *,
              complete: bool = False) -> Any:
        """Returns what follows the last generation prompt as a message: "role", "content", and
        where there are any "reasoning_content" and "tool_calls". `complete`: it will not go on,
        though no end token has come."""
        encoded = None if conversation is None else json_bytes(conversation)
        message = text_of(Call(), 1024, library.stasis_session_reply, self._handle, encoded,
                          len(encoded or b""), s.STASIS_REPLY_COMPLETE * complete)
        return json.loads(message)

    def say(self, text: str, *, max_tokens: int = 0, role: str = "user",
            stop: Union[str, Sequence[str]] = (), cancel: Optional[Cancel] = None,
            timeout: Optional[float] = None) -> Reply:
        """Says a turn and returns the reply: an iterator, and an async iterator, over pieces of its
        text. The turn is appended when the first piece is asked for. `max_tokens` 0: until the
        model ends its reply, or the session is full. `timeout`: seconds from this call on for all
        of it; then `TimedOutError`, and the tokens stay."""
        generation = self.generate(max_tokens=max_tokens, stop=stop, cancel=cancel,
                                   timeout=timeout)
        return Reply(generation, lambda: self.append_message(
            role, text, reply=True, cancel=generation._cancel, timeout=generation._time_left()))

    def generate(self, *, max_tokens: int = 0, stop: Union[str, Sequence[str]] = (),
                 stop_tokens: Sequence[int] = (), ignore_end: bool = False,
                 log_probabilities: int = 0, cancel: Optional[Cancel] = None,
                 timeout: Optional[float] = None) -> Generation:
        """Returns an iterator, and an async iterator, over tokens that are drawn and appended as it
        is asked for them. `stop`: the text ends before this string, or the first of these.
        `log_probabilities`: report each token's, and those of this many most likely ones.
        `timeout`: seconds from this call on for all of it; then `TimedOutError`."""
        return Generation(self, max_tokens, stop, stop_tokens, ignore_end, log_probabilities,
                          cancel, timeout)

    def decode(self) -> int:
        """Draws the next token, appends and returns it, or does neither."""
        token = ctypes.c_uint32()
        self._change(Call(), library.stasis_session_decode, ctypes.byref(token))
        return token.value

    # ---- What may come next ----

    def set_sampling(self, sampling: Optional[Sampling]) -> None:
        """Sets how tokens are drawn from now on; None: greedy."""
        call = Call()
        self._change(call, library.stasis_session_set_sampling,
                     None if sampling is None else ctypes.byref(sampling._raw(call)))

    def set_constraint(self, constraint: Optional[Constraint], *,
                       cancel: Optional[Cancel] = None) -> None:
        """Sets which texts replies may be, from now on; None: any. Each reply, up to its end token,
        is one text. The constraint is saved with the session, and tokens are verified under it."""
        if constraint is not None and not isinstance(constraint, Constraint):
            raise TypeError(f"the constraint is {constraint!r:.60}: expected a stasis.Constraint")
        kind, text = (s.STASIS_CONSTRAINT_NONE, b"") if constraint is None else constraint._raw()
        call = Call(cancel)
        self._change(call, library.stasis_session_set_constraint, kind, text, len(text),
                     call.cancel_pointer)

    def set_draft(self, draft: Union[Model, str, None], *, tokens_min: int = 0,
                  tokens_max: int = 0) -> None:
        """Sets what proposes tokens for `generate` and `say`, of which several are then computed
        together: "lookup", what followed earlier in the log; a smaller model with the same
        tokenizer; the session's own model, for its MTP head; None: nothing. It changes the speed
        and no token. A fork inherits it, a saved session does not. Each pass has at most
        `tokens_max` proposals, and at least `tokens_min` where there are so many; 0: chosen."""
        if draft is not None and draft != "lookup" and not isinstance(draft, Model):
            raise TypeError(f"the drafter is {draft!r:.60}: expected a stasis.Model, \"lookup\" or "
                            "None")
        options = s.stasis_draft_options(tokens_min=number("tokens_min", tokens_min, 64),
                                         tokens_max=number("tokens_max", tokens_max, 64))
        self._change(Call(), library.stasis_session_set_draft,
                     draft._handle if isinstance(draft, Model) else None,
                     None if draft is None else ctypes.byref(options))
        self._drafting.on = draft is not None

    def set_allowed(self, tokens: Optional[Iterable[int]] = None, *, bits: Any = None) -> None:
        """Sets the tokens that the next draw may give, for masks of the caller's own: their
        numbers, or a buffer with a bit for each token of the vocabulary in words of 32 bits, as
        xgrammar and outlines fill it. It holds for one token. Neither: all tokens."""
        words = None
        if tokens is not None and bits is not None:
            raise InvalidArgumentError("tokens and bits: expected one of them")
        if tokens is not None:
            words = token_bits(tokens, self.model.info.vocabulary)
        elif bits is not None:
            words = words_of(bits)
        self._change(Call(), library.stasis_session_set_allowed, words,
                     0 if words is None else len(words))

    def sample(self) -> int:
        """Returns the token that would be drawn next, and changes nothing."""
        token = ctypes.c_uint32()
        Call().run(library.stasis_session_sample, self._handle, ctypes.byref(token))
        return token.value

    def logits(self) -> memoryview[float]:
        """Returns the logits of the next token as a buffer of floats: `numpy.asarray` takes it
        without a copy. It is the caller's own; the session does not change it."""
        logits, _ = filled(Call(), ctypes.c_float, self.model.info.vocabulary,
                           library.stasis_session_logits, self._handle)
        return floats_view(logits)

    def top(self, count: int) -> List[Candidate]:
        """Returns the most likely next tokens, best first."""
        space = min(number("count", count, 32), self.model.info.vocabulary)
        tokens, likely = (ctypes.c_uint32 * space)(), (ctypes.c_float * space)()
        Call().run(library.stasis_session_top, self._handle, count, tokens, likely)
        return [Candidate(*each) for each in zip(tokens, likely)]

    def score(self, tokens: Iterable[int], *, chunk: int = 0, progress: Optional[Progress] = None,
              cancel: Optional[Cancel] = None,
              timeout: Optional[float] = None) -> List[float]:
        """Returns the natural log-probability of each token of a continuation."""
        given, count = token_array(tokens)
        likely = (ctypes.c_double * count)()
        call = Call(cancel or Cancel(), timeout=timeout)
        call.run(library.stasis_session_score, self._handle, given, count, likely,
                 run_options(call, chunk, None, progress))
        return list(likely)

    def kv(self, layer: int, begin: int, end: int) -> Tuple[memoryview[int], memoryview[int]]:
        """Returns keys and values of positions [begin, end) in a layer: buffers of bf16 as 16-bit
        words, each [end - begin][KV heads][their size]."""
        count = ctypes.c_size_t()
        call, place = Call(), (number("layer", layer, 32), number("begin", begin, 64),
                               number("end", end, 64))
        call.call(library.stasis_session_kv, self._handle, *place, None, None, 0,
                  ctypes.byref(count))
        keys, values = ((ctypes.c_uint16 * count.value)() for _ in range(2))
        call.run(library.stasis_session_kv, self._handle, *place, keys, values, count.value,
                 ctypes.byref(count))
        return words_view(keys), words_view(values)

    def attention(self, *, by_head: bool = False) -> memoryview[float]:
        """Returns the accumulated attention of each position, as a buffer of doubles."""
        weights, count = filled(Call(), ctypes.c_double, 0, library.stasis_session_attention,
                                self._handle, s.STASIS_ATTENTION_BY_HEAD * by_head)
        return doubles_view(weights)

    # ---- Copies and the past ----

    def fork(self) -> "Session":
        """Returns a second session with the same state and settings. It copies no page."""
        return Session(self.model, created(Call(), library.stasis_session_fork,
                                           library.stasis_session_free, self._handle),
                       self._drafting.on)

    def __copy__(self) -> "Session":
        return self.fork()

    def __deepcopy__(self, _: Any) -> "Session":
        return self.fork()

    def rewind(self, position: int, *, recompute: bool = False, chunk: int = 0,
               progress: Optional[Progress] = None, cancel: Optional[Cancel] = None,
               timeout: Optional[float] = None) -> None:
        """Removes the tokens from a position on, as if they had never been appended. `recompute`
        reaches below `info.rewind_floor`."""
        call = Call(cancel or Cancel(), timeout=timeout)
        self._change(call, library.stasis_session_rewind, number("position", position, 64),
                     s.STASIS_REWIND_RECOMPUTE * recompute,
                     run_options(call, chunk, None, progress))

    def evict(self, begin: int, end: int) -> None:
        """Hides positions [begin, end) from every later token; part of the log from now on."""
        self._change(Call(), library.stasis_session_evict, number("begin", begin, 64),
                     number("end", end, 64))

    # ---- Files ----

    def save(self, to: Any, *, replace: bool = False, if_match: bool = False,
             full_logits: bool = False, codec: Optional[str] = None, keep: str = "full",
             progress: Optional[Progress] = None, cancel: Optional[Cancel] = None,
             timeout: Optional[float] = None) -> None:
        """Saves the session to a path, whole or not at all, or writes it to a binary stream. To a
        file of the session's own past only what is new is appended. `codec` is "raw" or "zstd";
        `keep` "none" stores tokens and digests, from which a load computes the rest.
        `if_match`: raise `ConflictError` if the file has other contents than this session knows."""
        call = Call(cancel or Cancel(), timeout=timeout)
        options = s.stasis_save_options(
            flags=(s.STASIS_SAVE_REPLACE * replace | s.STASIS_SAVE_IF_MATCH * if_match
                   | s.STASIS_SAVE_FULL_LOGITS * full_logits),
            cancel=call.cancel_pointer, progress=call.progress(progress),
            codec=choice("the codec", codec, CODECS),
            keep=choice("keep", keep, KEEPS), timeout_ms=call.timeout_ms)
        if _streams.is_stream(to, "write"):
            sink = _streams.sink(call, to)
            call.run(library.stasis_session_write, self._handle, ctypes.byref(sink),
                     ctypes.byref(options))
        else:
            call.run(library.stasis_session_save, self._handle, path_bytes(to),
                     ctypes.byref(options))

    @classmethod
    def load(cls, model: Model, source: Any, *, no_recompute: bool = False, trusted: bool = False,
             any_profile: bool = False, accept_older: bool = False, skip_known: bool = False,
             capacity: int = 0, reserve: int = 0, window_retain: int = 0,
             track_attention: Optional[str] = None, domain: int = 0,
             progress: Optional[Progress] = None, cancel: Optional[Cancel] = None,
             timeout: Optional[float] = None) -> "Session":
        """Returns a session that continues a saved one with the same bits and settings, from a path
        or a binary stream, of which no more is read than the snapshot. `stasis_load_options` of the
        header explains the flags; what is said of the session itself replaces what was saved."""
        call = Call(cancel or Cancel(), names_file=True, timeout=timeout)
        options = load_options(call, no_recompute, trusted, any_profile, accept_older, skip_known,
                               capacity, reserve, window_retain, track_attention, domain, progress)
        if _streams.is_stream(source, "read"):
            function = library.stasis_session_read
            place: Any = _streams.source(call, source)
        else:
            function, place = library.stasis_session_load, path_bytes(source)
        return cls(model, created(call, function, library.stasis_session_free, model._handle,
                                  place, ctypes.byref(options)))

    def snapshot(self) -> Snapshot:
        """Returns the session's present state as a snapshot in memory."""
        written = io.BytesIO()
        self.save(written)
        written.seek(0)
        return Snapshot(written)

    def verify(self, **options: Any) -> VerifyReport:
        """Computes the session again from its tokens and compares every bit: `Snapshot.verify`."""
        with self.snapshot() as snapshot:
            return snapshot.verify(self.model, **options)

    def diff(self, other: Union["Session", Snapshot, str, "os.PathLike[str]"]
             ) -> Optional[Difference]:
        """Returns the first difference from another session, a snapshot or a file; None: none."""
        with self.snapshot() as snapshot:
            return snapshot.diff(other)

    def __reduce__(self) -> Tuple[Any, ...]:
        written = io.BytesIO()
        self.save(written)
        model = self.model
        return _restored, (model._place(), model.digest, model._options, written.getvalue())


def _restored(path: str, digest: str, options: Any, saved: bytes) -> Session:
    """Returns what `pickle` carried."""
    return Session.load(model_of(path, digest, options), io.BytesIO(saved))


def load_options(call: Call, no_recompute: bool, trusted: bool, any_profile: bool,
                 accept_older: bool, skip_known: bool, capacity: int, reserve: int,
                 window_retain: int, track_attention: Optional[str], domain: int,
                 progress: Optional[Progress]) -> s.stasis_load_options:
    own = session_options(capacity, reserve, window_retain, track_attention, domain)
    changed = any((capacity, reserve, window_retain, track_attention, domain))
    return s.stasis_load_options(
        flags=(s.STASIS_LOAD_NO_RECOMPUTE * no_recompute | s.STASIS_LOAD_TRUSTED * trusted
               | s.STASIS_LOAD_ANY_PROFILE * any_profile
               | s.STASIS_LOAD_ACCEPT_OLDER * accept_older
               | s.STASIS_LOAD_SKIP_KNOWN * skip_known),
        session=ctypes.pointer(own) if changed else None, cancel=call.cancel_pointer,
        progress=call.progress(progress), timeout_ms=call.timeout_ms)


def run_options(call: Call, chunk: int, logits: Optional[OnLogits],
                progress: Optional[Progress]) -> Any:
    options = s.stasis_run_options(chunk=number("chunk", chunk, 32), cancel=call.cancel_pointer,
                                   progress=call.progress(progress),
                                   timeout_ms=call.timeout_ms)
    if logits is not None:
        def each(_: Any, position: int, values: Any, count: int) -> None:
            row = (ctypes.c_float * count)()  # a copy, as it may be kept
            ctypes.memmove(row, values, ctypes.sizeof(row))
            logits(position, floats_view(row))
        options.logits = call.keep(s.stasis_logits_fn(call.hook(each, 1)))
    return ctypes.byref(options)


