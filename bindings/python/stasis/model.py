# Models: opening them, text, embeddings, and the sessions that they create and load.
from __future__ import annotations

import ctypes
import json
import os
import threading
import weakref
from typing import (TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional,
                    Sequence, Tuple, Union, overload)

from . import _structs as s
from ._abi import library
from ._call import (Call, Cancel, Handle, Progress, choice, created, filled, name_bytes, number,
                    optional_name, path_bytes, text_bytes, text_of, token_array)
from ._model_files import model_source
from .errors import ModelMismatchError, NotFoundError
from .info import EmbedInfo, ModelInfo, ModelStats, SessionMemory, TokenInfo, metadata_value, plain
from .sampling import Sampling
from .threads import Threads

if TYPE_CHECKING:
    from .session import Session

Path = Union[str, "os.PathLike[str]"]
Message = Mapping[str, str]  # {"role": ..., "content": ...}

POOLINGS = {None: 0, "last": s.STASIS_POOLING_LAST, "mean": s.STASIS_POOLING_MEAN}
TRACKS = {None: 0, "total": s.STASIS_TRACK_TOTAL, "by head": s.STASIS_TRACK_BY_HEAD}

# Open models, for sessions that are unpickled.
_open_models: "weakref.WeakSet[Model]" = weakref.WeakSet()
_open_models_lock = threading.Lock()


class Model:
    """A model in memory: a Hugging Face directory, or a GGUF file. Any number of threads may use
    it. Its sessions keep it alive, also after `close`.

    >>> model = Model(RECALL)
    >>> model.detokenize(model.tokenize("k is 5."))
    'k is 5.'
    """

    def __init__(self, path: Optional[Path], *, threads: int = 0, device: Optional[str] = None,
                 kernels: Optional[str] = None, kv_budget_bytes: int = 0,
                 chat_template: Optional[str] = None, profile: Optional[str] = None,
                 copy_weights: bool = False, verify_weights: bool = False,
                 state_budget_bytes: int = 0, date: Optional[str] = None,
                 thread_pool: Optional[Threads] = None, progress: Optional[Progress] = None,
                 cancel: Optional[Cancel] = None, timeout: Optional[float] = None,
                 _opening: "Optional[Callable[[Call], Tuple[Any, ...]]]" = None):
        """Opens the model. `stasis_model_options` of the header explains the options; none of them
        influences results, except for `profile="device"` and, in chat templates, `date`. A pickled
        model is opened without `thread_pool`."""
        self.path = None if path is None else os.path.abspath(os.fspath(path))
        self._options: Dict[str, Any] = {
            name: value for name, value in dict(
                threads=threads, device=device, kernels=kernels, kv_budget_bytes=kv_budget_bytes,
                chat_template=chat_template, profile=profile, copy_weights=copy_weights,
                verify_weights=verify_weights,
                state_budget_bytes=state_budget_bytes, date=date).items() if value}
        call = Call(cancel or Cancel(), names_file=True, timeout=timeout)
        pool = thread_pool._handle.use() if thread_pool is not None else None
        options = s.stasis_model_options(
            threads=number("threads", threads, 32), device=optional_name("the device", device),
            kernels=optional_name("the kernels", kernels),
            kv_budget_bytes=number("kv_budget_bytes", kv_budget_bytes, 64),
            chat_template=optional_name("the chat template", chat_template),
            profile=optional_name("the profile", profile), copy_weights=int(copy_weights),
            verify_weights=int(verify_weights),
            state_budget_bytes=number("state_budget_bytes", state_budget_bytes, 64),
            date=optional_name("the date", date), thread_pool=pool.pointer if pool else None,
            cancel=call.cancel_pointer, progress=call.progress(progress),
            timeout_ms=call.timeout_ms)
        function, *place = (library.stasis_model_open, path_bytes(path)) if _opening is None else (
            _opening(call))
        self._handle = Handle(created(call, function, library.stasis_model_close, *place,
                                      ctypes.byref(options)), "model")
        raw = s.stasis_model_info()
        Call().run(library.stasis_model_get_info, self._handle, ctypes.byref(raw))
        self._info = ModelInfo._of(raw)
        with _open_models_lock:
            _open_models.add(self)

    @classmethod
    def from_files(cls, files: Any, name: Optional[str] = None, **options: Any) -> "Model":
        """Opens a model whose files are not at a path: `files` maps their names to buffers or to
        binary files that can be sought in, or is an archive (`zipfile.ZipFile`), whose members are
        read as a whole. `name` is that of a GGUF file among them; None: they are those of a Hugging
        Face directory. The weights are copied; `options` are those of `Model`.

        >>> from pathlib import Path
        >>> files = {path.name: path.read_bytes() for path in Path(RECALL).iterdir()}
        >>> Model.from_files(files).digest == Model(RECALL).digest
        True
        """
        def opening(call: Call) -> Tuple[Any, ...]:
            return (library.stasis_model_open_source, ctypes.byref(model_source(call, files)),
                    optional_name("the name", name))
        return cls(None, _opening=opening, **options)

    @classmethod
    def from_descriptor(cls, file: Any, **options: Any) -> "Model":
        """Opens the GGUF file that an open file, or its descriptor, refers to. It may be closed
        afterwards, and needs no name. `options` are those of `Model`."""
        descriptor = file if isinstance(file, int) else file.fileno()
        return cls(None, _opening=lambda _: (library.stasis_model_open_descriptor, descriptor),
                   **options)

    def _place(self) -> str:
        """Returns the path, from which a copy in another process is opened."""
        if self.path is None:
            raise TypeError("a model that was not opened by a path cannot be pickled, nor can its "
                            "sessions")
        return self.path

    def close(self) -> None:
        """Closes the model; its memory returns when its last session is closed."""
        self._handle.close()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<stasis.Model {self.path!r}{' closed' if self._handle.closed else ''}>"

    def __copy__(self) -> "Model":
        return self  # nothing of it changes

    def __deepcopy__(self, _: Any) -> "Model":
        return self

    def __reduce__(self) -> Tuple[Any, ...]:
        return model_of, (self._place(), self._info.model, self._options)

    @property
    def info(self) -> ModelInfo:
        """What the model is."""
        return self._info

    @property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, of all that determines the model's results."""
        return self._info.model

    @property
    def stats(self) -> ModelStats:
        """How much memory the model and its sessions use."""
        raw = s.stasis_model_stats()
        Call().run(library.stasis_model_get_stats, self._handle, ctypes.byref(raw))
        return plain(raw, ModelStats)

    def tokenize(self, text: str, *, bos: bool = False, special: bool = False) -> List[int]:
        """Returns the tokens of a text. `special`: markers in it are special tokens, and plain text
        otherwise. `bos`: begin with the token that begins a sequence."""
        encoded = text_bytes(text)
        flags = s.STASIS_TOKENIZE_BOS * bos | s.STASIS_TOKENIZE_SPECIAL * special
        tokens, count = filled(Call(), ctypes.c_uint32, len(encoded) + 8,
                               library.stasis_model_tokenize, self._handle, encoded, len(encoded),
                               flags)
        return list(tokens[:count])

    def detokenize(self, tokens: Iterable[int], *, special: bool = False,
                   middle: bool = False) -> str:
        """Returns the text of tokens, with U+FFFD for bytes that are no whole character."""
        return self.detokenize_bytes(tokens, special=special, middle=middle).decode("utf-8",
                                                                                    "replace")

    def detokenize_bytes(self, tokens: Iterable[int], *, special: bool = False,
                         middle: bool = False, piece: bool = False) -> bytes:
        """Returns the bytes of tokens, which may end within a character. `special`: with the
        markers of special tokens. `middle`: keep a leading space, as in the middle of a text.
        `piece`: of one token, as the vocabulary spells it."""
        given, count = token_array(tokens)
        flags = (s.STASIS_DETOKENIZE_SPECIAL * special | s.STASIS_DETOKENIZE_MIDDLE * middle
                 | s.STASIS_DETOKENIZE_PIECE * piece)
        return text_of(Call(), 16 * count + 16, library.stasis_model_detokenize, self._handle,
                       given, count, flags)

    def render(self, messages: Sequence[Message], *, reply: bool = False) -> str:
        """Returns a conversation rendered by the chat template; with `reply` it ends with the
        prompt for the next reply."""
        raw = (s.stasis_message * len(messages))()
        kept = [(name_bytes("a role", each["role"]), text_bytes(each["content"], "a content"))
                for each in messages]
        for to, (role, text) in zip(raw, kept):
            to.struct_size = ctypes.sizeof(s.stasis_message)
            to.role, to.text, to.length = role, text, len(text)
        guess = 64 + sum(len(text) + 64 for _, text in kept)
        return text_of(Call(), guess, library.stasis_model_render, self._handle, raw,
                       ctypes.sizeof(s.stasis_message), len(messages),
                       s.STASIS_RENDER_REPLY * reply).decode("utf-8", "replace")

    def render_chat(self, conversation: Mapping[str, Any], *, reply: bool = False) -> str:
        """Returns a conversation with tools and switches (stasis_chat.h), rendered by the template
        in the model's own files."""
        encoded = json_bytes(conversation)
        return text_of(Call(), 2 * len(encoded) + 1024, library.stasis_model_render_chat,
                       self._handle, encoded, len(encoded),
                       s.STASIS_CHAT_REPLY * reply).decode("utf-8", "replace")

    def token(self, token: int) -> TokenInfo:
        """Returns what a token is in the vocabulary.

        >>> model = Model(RECALL)
        >>> model.token(model.tokenize("k")[-1]).kind
        'normal'
        """
        raw = s.stasis_token_info()
        owned = self._handle.use()  # the piece is the model's
        Call().run(library.stasis_model_get_token, owned, number("the token", token, 32),
                   ctypes.byref(raw))
        return TokenInfo._of(token, raw)

    def vocabulary(self) -> Iterator[TokenInfo]:
        """Iterates over all tokens, in the order of their numbers."""
        return map(self.token, range(self._info.vocabulary))

    def metadata(self) -> Dict[str, Any]:
        """Returns what the model's files say of it: a GGUF file's metadata, or the members of a
        directory's JSON files, as in "config.hidden_size". Arrays are lists, and what was too
        large to be kept is `LeftOut`.

        >>> Model(RECALL).metadata()["config.num_hidden_layers"]
        12
        """
        values: Dict[str, Any] = {}
        raw = s.stasis_metadata()
        owned = self._handle.use()  # the texts are the model's
        while True:
            try:
                Call().run(library.stasis_model_get_metadata_at, owned, len(values),
                           ctypes.byref(raw))
            except NotFoundError:
                return values
            values[raw.key.decode("utf-8")] = metadata_value(raw)

    def session_memory(self, positions: int, *, capacity: int = 0, window_retain: int = 0,
                       track_attention: Optional[str] = None) -> SessionMemory:
        """Returns the memory that a session of these options takes when it has so many positions.
        Nothing is computed."""
        options = session_options(capacity, 0, window_retain, track_attention, 0)
        raw = s.stasis_session_memory()
        Call().run(library.stasis_model_session_memory, self._handle, ctypes.byref(options),
                   number("positions", positions, 64), ctypes.byref(raw))
        return plain(raw, SessionMemory)

    def recommended_sampling(self) -> Sampling:
        """Returns the settings that the model's own files recommend, with seed 0."""
        raw = s.stasis_sampling()
        call = Call()
        owned = self._handle.use()  # the arrays of biases are the model's
        call.run(library.stasis_model_recommended_sampling, owned, ctypes.byref(raw))
        return Sampling._of(raw)

    @property
    def embed_info(self) -> EmbedInfo:
        """How the model's files say that vectors are made."""
        raw = s.stasis_embed_info()
        owned = self._handle.use()  # the names are the model's
        Call().run(library.stasis_model_get_embed_info, owned, ctypes.byref(raw))
        return EmbedInfo._of(raw)

    @overload
    def embed(  # type: ignore[overload-overlap]
        self, texts: str, *, prompt: Optional[str] = ..., pooling: Optional[str] = ...,
        progress: Optional[Progress] = ..., cancel: Optional[Cancel] = ...,
        timeout: Optional[float] = ...) -> memoryview[float]: ...

    @overload
    def embed(self, texts: Sequence[Union[str, Sequence[int]]], *, prompt: Optional[str] = ...,
              pooling: Optional[str] = ..., progress: Optional[Progress] = ...,
              cancel: Optional[Cancel] = ..., timeout: Optional[float] = ...
              ) -> List[memoryview[float]]: ...

    def embed(self, texts: Union[str, Sequence[Union[str, Sequence[int]]]], *,
              prompt: Optional[str] = None, pooling: Optional[str] = None,
              progress: Optional[Progress] = None, cancel: Optional[Cancel] = None,
              timeout: Optional[float] = None
              ) -> Union[memoryview[float], List[memoryview[float]]]:
        """Returns a vector of a text, or of each of several; tokens count as a text. A vector is a
        buffer of floats: `numpy.asarray` takes it without a copy. `prompt` names one of
        `embed_info.prompts`; `pooling` is "last" or "mean" where the files do not say."""
        inputs = [texts] if isinstance(texts, str) else list(texts)
        call = Call(cancel or Cancel(), timeout=timeout)
        raw = (s.stasis_embed_input * len(inputs))()
        for to, each in zip(raw, inputs):
            to.struct_size = ctypes.sizeof(s.stasis_embed_input)
            if isinstance(each, str):
                to.text = call.keep(text_bytes(each))
                to.length = len(call._kept[-1])
            else:
                tokens, to.token_count = token_array(each)
                to.tokens = call.keep(tokens)
        options = s.stasis_embed_options(
            pooling=choice("the pooling", pooling, POOLINGS),
            prompt=optional_name("the prompt", prompt), cancel=call.cancel_pointer,
            progress=call.progress(progress), timeout_ms=call.timeout_ms)
        dimension = self.embed_info.dimension
        vectors = (ctypes.c_float * (dimension * len(inputs)))()
        count = ctypes.c_size_t()
        call.run(library.stasis_model_embed, self._handle, raw,
                 ctypes.sizeof(s.stasis_embed_input), len(inputs), ctypes.byref(options), vectors,
                 len(vectors), ctypes.byref(count))
        whole = floats_view(vectors)
        rows = [whole[i * dimension:(i + 1) * dimension] for i in range(len(inputs))]
        return rows[0] if isinstance(texts, str) else rows

    def session(self, *, capacity: int = 0, reserve: int = 0, window_retain: int = 0,
                track_attention: Optional[str] = None, domain: int = 0,
                sampling: Optional[Sampling] = None) -> "Session":
        """Returns an empty session. It is greedy unless `sampling` says otherwise. The others are
        `stasis_session_options` of the header; `track_attention` is "total" or "by head"."""
        from .session import Session
        return Session._create(self, session_options(capacity, reserve, window_retain,
                                                     track_attention, domain), sampling)

    def load(self, source: Any, **options: Any) -> "Session":
        """Returns a session that continues the one in a file: `Session.load`."""
        from .session import Session
        return Session.load(self, source, **options)


def session_options(capacity: int, reserve: int, window_retain: int,
                    track_attention: Optional[str], domain: int) -> s.stasis_session_options:
    return s.stasis_session_options(
        capacity=number("capacity", capacity, 64), reserve=number("reserve", reserve, 64),
        window_retain=number("window_retain", window_retain, 64),
        track_attention=choice("track_attention", track_attention, TRACKS),
        domain=number("domain", domain, 64))


def model_of(path: str, digest: str, options: Dict[str, Any]) -> Model:
    """Returns an open model with this digest: one of this process, preferably opened in the same
    way, or the one at the path."""
    with _open_models_lock:
        known = [each for each in _open_models
                 if each.digest == digest and not each._handle.closed]
    if known:
        return max(known, key=lambda each: (each._options == options, each.path == path))
    model = Model(path, **options)
    if model.digest != digest:
        model.close()
        raise ModelMismatchError(f"the model in {path} is another one: expected {digest}, "
                                 f"found {model.digest}")
    return model


def json_bytes(value: Any) -> bytes:
    return text_bytes(json.dumps(value, ensure_ascii=False))


def floats_view(values: "ctypes.Array[ctypes.c_float]") -> memoryview[float]:
    """Returns the array as a buffer of floats, without a copy."""
    return memoryview(values).cast("B").cast("f")


def doubles_view(values: "ctypes.Array[ctypes.c_double]") -> memoryview[float]:
    return memoryview(values).cast("B").cast("d")


def words_view(values: "ctypes.Array[ctypes.c_uint16]") -> memoryview[int]:
    return memoryview(values).cast("B").cast("H")
