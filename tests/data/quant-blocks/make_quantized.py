#!/usr/bin/env python3
"""Writes quantized.json: values, and the blocks that the Python package `gguf` (0.19.0 when this was
made) makes of them; for the types whose quantizers are not in it, the root mean square error
that llama.cpp's reference quantizers leave, if a build's libggml-base.so is given.

    pip install gguf numpy && python3 make_quantized.py [LIBGGML_BASE]
"""
import ctypes
import json
import pathlib
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

BLOCKS = ["BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4"]
FITTED = ["Q4_K", "Q5_K", "Q6_K", "Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS"]
random = np.random.default_rng(7)


def edges():
    """Rows of 32: zeros, ties of both signs, one sign only, halves, tiny and large values."""
    ramp = np.arange(32) - 15.5
    rows = [np.zeros(32), np.where(np.arange(32) % 2, 1.0, -1.0), np.where(np.arange(32) % 2, -1, 1),
            np.full(32, 0.25), np.full(32, -3.0), ramp / 16, -ramp, np.abs(ramp), -np.abs(ramp),
            (np.arange(32) - 16) / 2, np.arange(32) * 127 / 62, ramp * 1e-7, ramp * 1e-6,
            ramp * 1000, np.eye(32)[5] * -2, np.eye(32)[31]]
    return np.array(rows) + 0.0  # no negative zero, which this project's bf16 does without


def shapes():
    return {"normal": random.normal(0, 0.02, 2048), "laplace": random.laplace(0, 0.02, 2048),
            "student": random.standard_t(3, 2048) * 0.02,
            "shifted": random.normal(0.01, 0.02, 2048), "uniform": random.uniform(-1, 1, 2048)}


def reference_error(library, name, values):
    elements, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    blocks = np.zeros((values.size // elements, size), np.uint8)
    quantize = getattr(library, f"quantize_row_{name.lower().replace('_k', '_K')}_ref")
    quantize(ctypes.c_void_p(values.ctypes.data), ctypes.c_void_p(blocks.ctypes.data),
             ctypes.c_int64(values.size))
    found = quants.dequantize(blocks, GGMLQuantizationType[name]).ravel()
    return float(np.sqrt(np.mean((found.astype(np.float64) - values) ** 2)))


def main():
    rows = np.concatenate([edges(), random.normal(0, 0.02, (24, 32)),
                           random.standard_t(2, (24, 32))]).astype(np.float32)
    blocks = {name: quants.quantize(rows, GGMLQuantizationType[name]).tobytes().hex()
              for name in BLOCKS}
    path = pathlib.Path(__file__).with_name("quantized.json")
    errors = {}
    for name, values in shapes().items():
        values = values.astype(np.float32)
        errors[name] = {"values": values.tobytes().hex()}
        if len(sys.argv) > 1:
            library = ctypes.CDLL(sys.argv[1])
            errors[name]["rmse"] = {kind: reference_error(library, kind, values)
                                    for kind in FITTED}
    text = {"values": rows.tobytes().hex(), "blocks": blocks, "errors": errors}
    path.write_text(json.dumps(text, indent=1) + "\n")


main()
