# Models as GGUF files, with their weights in a smaller type.
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Dict, Optional

from . import _structs as s
from ._abi import library
from ._call import Call, Cancel, Progress, number, optional_name, path_bytes


@dataclass(frozen=True)
class QuantizeReport:
    """Outcome of a quantization."""
    source_bytes: int
    file_bytes: int
    shares: Dict[str, int]  # bytes in the file, by the type of the tensors


def quantize(path: Any, out: Any, *, type: Optional[str] = None, replace: bool = False,
             threads: int = 0, progress: Optional[Progress] = None,
             cancel: Optional[Cancel] = None,
             timeout: Optional[float] = None) -> QuantizeReport:
    """Writes a Hugging Face directory as the GGUF file `out`, whole or not at all. `type` is one of
    stasis_quantize.h, such as "Q4_K_M"; None: Q8_0."""
    call = Call(cancel or Cancel(), names_file=True, timeout=timeout)
    options = s.stasis_quantize_options(
        flags=s.STASIS_QUANTIZE_REPLACE * replace, type=optional_name("the type", type),
        threads=number("threads", threads, 32), cancel=call.cancel_pointer,
        timeout_ms=call.timeout_ms,
        progress=call.progress(progress))
    raw = s.stasis_quantize_report()
    call.run(library.stasis_model_quantize, path_bytes(path), path_bytes(out),
             ctypes.byref(options), ctypes.byref(raw))
    return QuantizeReport(raw.source_bytes, raw.file_bytes,
                          {share.type.decode(): share.bytes
                           for share in raw.shares[:raw.share_count]})
