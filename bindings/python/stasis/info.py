# What the library reports of models and sessions, as plain values.
from __future__ import annotations

import ctypes
import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Dict, Optional, Sequence, Type, TypeVar

from . import _structs
from ._call import digest_of

T = TypeVar("T")


def plain(raw: Any, kind: Type[T], **more: Any) -> T:
    """Returns a dataclass whose fields are those of the struct with the same names, or given."""
    values = dict(more)
    for each in dataclasses.fields(kind):  # type: ignore[arg-type]
        if each.name in values:
            continue
        value = getattr(raw, each.name)
        if isinstance(value, _structs.stasis_digest):
            value = digest_of(value)
        elif isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        elif isinstance(value, ctypes.Array):
            value = tuple(value)
        values[each.name] = value
    return kind(**values)


TOKEN_KINDS = {_structs.STASIS_TOKEN_NORMAL: "normal", _structs.STASIS_TOKEN_UNKNOWN: "unknown",
               _structs.STASIS_TOKEN_SPECIAL: "special", _structs.STASIS_TOKEN_UNUSED: "unused",
               _structs.STASIS_TOKEN_BYTE: "byte"}


@dataclass(frozen=True)
class TokenInfo:
    """A token in its vocabulary."""
    token: int
    piece: bytes  # as the vocabulary spells it; nearly always UTF-8
    kind: str  # "normal", "unknown", "special", "unused" or "byte"
    ends: bool  # it ends replies
    score: Optional[float]  # None: the vocabulary gives it no finite one

    @staticmethod
    def _of(token: int, raw: _structs.stasis_token_info) -> "TokenInfo":
        return TokenInfo(token, ctypes.string_at(raw.piece, raw.length) if raw.length else b"",
                         TOKEN_KINDS[raw.kind], bool(raw.flags & _structs.STASIS_TOKEN_ENDS),
                         raw.score if raw.flags & _structs.STASIS_TOKEN_SCORED else None)


class LeftOut(str):
    """Metadata that was too large to be kept: a text that says what it is."""


def metadata_value(raw: _structs.stasis_metadata) -> Any:
    """Returns a value as Python has it."""
    value = ctypes.string_at(raw.value, raw.length).decode("utf-8") if raw.length else ""
    if raw.kind == _structs.STASIS_METADATA_JSON:
        return json.loads(value)
    return LeftOut(value) if raw.kind == _structs.STASIS_METADATA_LEFT_OUT else value


@dataclass(frozen=True)
class SessionMemory:
    """Memory of a session, in bytes: `stasis_session_memory` of the header, which explains each
    field."""
    page_positions: int
    kv_bytes: int  # of its pages between calls
    kv_most_bytes: int  # never more on the way there
    position_bytes: int  # keys and values of one position in all layers
    global_position_bytes: int  # of it in layers without a window, which keep growing
    states: int  # recurrent states
    state_bytes: int  # of them
    log_bytes: int  # tokens and tables of pages
    tracking_bytes: int  # sums of attention
    fixed_bytes: int  # whatever its length

    @property
    def bytes(self) -> int:
        """All of it, between calls."""
        return (self.kv_bytes + self.state_bytes + self.log_bytes + self.tracking_bytes +
                self.fixed_bytes)


@dataclass(frozen=True)
class ModelInfo:
    """A model: `stasis_model_info` of the header, which explains each field."""
    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int  # tokens are 0 .. vocabulary - 1
    context: int  # most positions that the model allows
    page_positions: int
    threads: int
    contract: Sequence[int]  # versions of the numerics contract: core, KV, sampling
    end_tokens: Sequence[int]
    layer_windows: Sequence[int]
    bos: Optional[int]
    kernels: str
    device: str
    chat_template: str
    model: str  # digest of all that determines results
    tokenizer: str
    has_tokenizer: bool
    converted: bool
    weight_types: str
    weight_bytes: int
    profile: str
    layer_recurrent: Sequence[bool]
    state_bytes: int
    experts: int
    experts_chosen: int
    ignored: str
    mtp_bytes: int

    @staticmethod
    def _of(raw: _structs.stasis_model_info) -> "ModelInfo":
        return plain(raw, ModelInfo,
                     end_tokens=tuple(raw.end_tokens[:raw.end_token_count]),
                     layer_windows=tuple(raw.layer_windows[:raw.layers]),
                     layer_recurrent=tuple(map(bool, raw.layer_recurrent[:raw.layers])),
                     bos=None if raw.bos < 0 else raw.bos,
                     has_tokenizer=bool(raw.flags & _structs.STASIS_MODEL_TOKENIZER),
                     converted=bool(raw.flags & _structs.STASIS_MODEL_CONVERTED))


@dataclass(frozen=True)
class ModelStats:
    """Use of memory by a model and its sessions: `stasis_model_stats` of the header."""
    kv_budget_bytes: int
    kv_used_bytes: int
    kv_cached_bytes: int
    kv_shared_bytes: int
    scratch_bytes: int
    kv_known_bytes: int
    kv_free_bytes: int
    state_budget_bytes: int
    state_used_bytes: int
    state_cached_bytes: int


@dataclass(frozen=True)
class EmbedInfo:
    """How a model makes vectors of texts: `stasis_embed_info` of the header."""
    pooling: int
    dimension: int
    normalised: bool
    tokens_max: int
    prompts: Dict[str, str]
    default_prompt: str
    refusal: str

    @staticmethod
    def _of(raw: _structs.stasis_embed_info) -> "EmbedInfo":
        prompts = {raw.prompt_names[i].decode("utf-8", "replace"):
                   raw.prompts[i].decode("utf-8", "replace") for i in range(raw.prompt_count)}
        return plain(raw, EmbedInfo, prompts=prompts, normalised=bool(raw.normalised))


@dataclass(frozen=True)
class SessionInfo:
    """A session at one moment: `stasis_session_info` of the header."""
    window: int
    position: int
    capacity: int
    rewind_floor: int
    window_retain: int
    window_begin: int
    pages_own: int
    pages_shared: int
    kv_bytes: int
    pending_bytes: int
    positions_evicted: int
    tokens_reused: int
    positions_foreign: int
    older: bool
    states: int

    @staticmethod
    def _of(raw: _structs.stasis_session_info) -> "SessionInfo":
        return plain(raw, SessionInfo, older=bool(raw.older))
