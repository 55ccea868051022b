# Memory of models before they are opened.
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Optional

from . import _structs as s
from ._abi import library
from ._call import Call, number, optional_name, path_bytes
from .info import SessionMemory, plain
from .model import Path, session_options


@dataclass(frozen=True)
class ModelEstimate:
    """A model that is not open: `stasis_estimate` of the header, which explains each field."""
    architecture: str
    layers: int
    hidden: int
    vocabulary: int
    context: int
    parameters: int
    weight_types: str
    weight_bytes: int
    mtp_bytes: int
    file_bytes: int
    mapped_bytes: int  # weights used in mapped files
    allocated_bytes: int  # copies of weights, which opening takes and keeps
    heap_bytes: int  # norms and biases
    workspace_bytes: int  # of a call that computes 512 positions
    session: SessionMemory


def estimate(path: Path, positions: int = 0, *, threads: int = 0, kernels: Optional[str] = None,
             copy_weights: bool = False, state_budget_bytes: int = 0, capacity: int = 0,
             window_retain: int = 0, track_attention: Optional[str] = None) -> ModelEstimate:
    """Returns what `Model(path)` would take of memory, and a session of so many positions in it,
    from the headers of its files, in milliseconds. Options are those of `Model` and
    `Model.session`.

    >>> estimate(RECALL, 100).session.kv_bytes == Model(RECALL).session_memory(100).kv_bytes
    True
    """
    options = s.stasis_model_options(
        threads=number("threads", threads, 32), kernels=optional_name("the kernels", kernels),
        copy_weights=int(copy_weights),
        state_budget_bytes=number("state_budget_bytes", state_budget_bytes, 64))
    session = session_options(capacity, 0, window_retain, track_attention, 0)
    told, memory = s.stasis_estimate(), s.stasis_session_memory()
    Call(names_file=True).run(
        library.stasis_model_estimate, path_bytes(path), ctypes.byref(options),
        ctypes.byref(session), number("positions", positions, 64), ctypes.byref(told),
        ctypes.byref(memory))
    return plain(told, ModelEstimate, session=plain(memory, SessionMemory))
