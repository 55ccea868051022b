# How the next token is drawn.
from __future__ import annotations

import ctypes
import dataclasses
from dataclasses import dataclass, field
from typing import Any, Dict, Sequence

from . import _structs
from ._call import Call, number, token_array


@dataclass(frozen=True)
class Sampling:
    """Settings that draw tokens; `Sampling()` is greedy. 0 is off, or a setting's own default.
    `stasis_generate.h` states what each does, and NUMERICS.md (C7) the order.

    >>> Sampling(temperature=0.7, top_p=0.9, seed=3).top_k
    0
    """
    temperature: float = 0.0  # 0: greedy
    top_k: int = 0
    top_p: float = 0.0
    min_p: float = 0.0
    repetition_penalty: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_window: int = 0  # last tokens that penalties count; 0: 64; 2**32 - 1: all
    seed: int = 0  # draws depend on seed and position and nothing else
    typical_p: float = 0.0
    top_n_sigma: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 0.0
    dry_allowed_length: int = 0
    dry_range: int = 0
    min_keep: int = 0
    bias: Dict[int, float] = field(default_factory=dict)  # added to the logit; -inf forbids
    dry_breakers: Sequence[int] = ()

    def _raw(self, call: Call) -> _structs.stasis_sampling:
        raw = _structs.stasis_sampling()
        for name in _PLAIN:
            value: Any = getattr(self, name)
            if name in _WHOLE:
                value = number(name, value, 64 if name == "seed" else 32)
            setattr(raw, name, value)
        # Snapshots keep the settings: in an order, so that equal sessions give equal files.
        tokens, raw.bias_count = token_array(sorted(self.bias))
        raw.bias_tokens = call.keep(tokens)
        raw.bias = call.keep((ctypes.c_float * len(tokens))(*(self.bias[each] for each in tokens)))
        breakers, raw.dry_breaker_count = token_array(self.dry_breakers)
        raw.dry_breakers = call.keep(breakers)
        return raw

    @staticmethod
    def _of(raw: _structs.stasis_sampling) -> "Sampling":
        return Sampling(**{name: getattr(raw, name) for name in _PLAIN},
                        bias={raw.bias_tokens[i]: raw.bias[i] for i in range(raw.bias_count)},
                        dry_breakers=tuple(raw.dry_breakers[:raw.dry_breaker_count]))


_PLAIN = [each.name for each in dataclasses.fields(Sampling)
          if each.name not in ("bias", "dry_breakers")]
_WHOLE = ("top_k", "penalty_window", "seed", "dry_allowed_length", "dry_range", "min_keep")
