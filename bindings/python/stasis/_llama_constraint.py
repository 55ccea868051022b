# JSON mode and grammars, in the manner of llama-cpp-python; see llama_cpp.py.
from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, Optional

from .constraint import Constraint
from .errors import UnsupportedError


@dataclass(frozen=True)
class LlamaGrammar:
    """Which texts a completion may be."""
    constraint: Constraint

    @classmethod
    def from_string(cls, grammar: str, verbose: bool = True) -> "LlamaGrammar":
        """A grammar in GBNF."""
        return cls(Constraint.of_grammar(grammar))

    @classmethod
    def from_json_schema(cls, json_schema: str, verbose: bool = True) -> "LlamaGrammar":
        """The instances of a JSON schema."""
        return cls(Constraint.of_json_schema(json_schema))


def take_constraint(arguments: Dict[str, Any]) -> Optional[Constraint]:
    """Takes `grammar` and `response_format` out of the arguments; the latter counts."""
    grammar, wanted = arguments.pop("grammar", None), arguments.pop("response_format", None)
    if grammar is not None and not isinstance(grammar, LlamaGrammar):
        raise UnsupportedError(f"grammar={grammar!r}: not supported by stasis.llama_cpp: expected "
                               "its own LlamaGrammar")
    kind = wanted.get("type") if isinstance(wanted, dict) else wanted
    if kind in (None, "text"):
        return grammar.constraint if grammar is not None else None
    schema = wanted.get("schema") if isinstance(wanted, dict) else None
    if kind == "json_schema":  # as of the service that llama-cpp-python follows
        schema = (wanted.get("json_schema") or {}).get("schema", schema)
    if kind not in ("json_object", "json_schema") or (kind == "json_schema" and schema is None):
        raise UnsupportedError(f"response_format={wanted!r}: not supported by stasis.llama_cpp")
    if schema is None:
        schema = {"type": "object"}
    return Constraint.of_json_schema(schema if isinstance(schema, str) else json.dumps(schema))
