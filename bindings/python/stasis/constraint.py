# Which texts a session may draw.
from __future__ import annotations

import ctypes
import json
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Optional, Tuple, Union

from . import _structs as s
from ._call import text_bytes, token_array
from .errors import InvalidArgumentError

KINDS = {"json_schema": s.STASIS_CONSTRAINT_JSON_SCHEMA, "json": s.STASIS_CONSTRAINT_JSON,
         "regex": s.STASIS_CONSTRAINT_REGEX, "grammar": s.STASIS_CONSTRAINT_GRAMMAR}


@dataclass(frozen=True)
class Constraint:
    """A set of texts that a reply must be one of; `Session.set_constraint` takes it. CONSTRAINTS.md
    says what each notation means, and what of it is not supported: that is refused by its name.

    >>> Constraint.of_json_schema({"type": "integer"})
    Constraint(kind='json_schema', text='{"type": "integer"}')
    """
    kind: str  # "json_schema", "json", "regex" or "grammar"
    text: str = ""

    @staticmethod
    def of_json_schema(schema: Union[str, Mapping[str, Any], bool, type]) -> "Constraint":
        """The instances of a JSON schema: its text, a dict, or a model of pydantic's."""
        describe = getattr(schema, "model_json_schema", None)
        if describe is not None:
            schema = describe()
        text = schema if isinstance(schema, str) else json.dumps(schema, ensure_ascii=False)
        return Constraint("json_schema", text)

    @staticmethod
    def of_json() -> "Constraint":
        """Any JSON value."""
        return Constraint("json")

    @staticmethod
    def of_regex(text: str) -> "Constraint":
        """The texts that match a regular expression as a whole."""
        return Constraint("regex", text)

    @staticmethod
    def of_grammar(text: str) -> "Constraint":
        """The texts of a grammar in GBNF, the notation of llama.cpp."""
        return Constraint("grammar", text)

    def _raw(self) -> Tuple[int, bytes]:
        if self.kind not in KINDS:
            raise InvalidArgumentError(f"kind is {self.kind!r}: expected one of "
                                       + ", ".join(map(repr, KINDS)))
        return KINDS[self.kind], text_bytes(self.text, "the constraint")


def token_bits(tokens: Iterable[int], vocabulary: int) -> "ctypes.Array[ctypes.c_uint32]":
    """Returns a bit for each token of the vocabulary."""
    given, _ = token_array(tokens)
    bits = (ctypes.c_uint32 * ((vocabulary + 31) // 32))()
    for index, token in enumerate(given):
        if token >= vocabulary:
            raise InvalidArgumentError(f"token {index} is {token}: the vocabulary has {vocabulary}")
        bits[token // 32] |= 1 << token % 32
    return bits


def words_of(bits: Any) -> "ctypes.Array[ctypes.c_uint32]":
    """Returns a copy of a buffer of 32-bit words, signed or not."""
    view = memoryview(bits).cast("B")
    if len(view) % 4 != 0:
        raise InvalidArgumentError(f"bits of {len(view)} bytes: expected words of 32 bits")
    return (ctypes.c_uint32 * (len(view) // 4)).from_buffer_copy(view)


__all__ = ["Constraint"]
