#!/usr/bin/env python3
"""Writes blocks.json: random blocks of each type of integer weights, and what they stand for
according to the Python package `gguf` (0.19.0 when this was made), which is no part of the project.

    pip install gguf numpy && python3 make.py
"""
import json
import pathlib

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

# Offsets of a block's f16 scales.
SCALES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
          "Q2_K": [80, 82], "Q3_K": [108], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": []}
BLOCKS = 4


def blocks_of(name, random):
    elements, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    blocks = random.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
    for at in SCALES[name]:
        scales = random.normal(0, 0.05, BLOCKS).astype(np.float16)
        scales[1] = np.float16(3e-7)  # a denormal f16
        blocks[:, at:at + 2] = scales.view(np.uint8).reshape(BLOCKS, 2)
    if name == "MXFP4":  # an exponent, of which the least two are denormals, and 255 is none
        blocks[:, 0] = [121, 2, 127, 250]
    values = quants.dequantize(blocks, GGMLQuantizationType[name]).astype(np.float32)
    assert values.shape == (BLOCKS, elements) and np.isfinite(values).all()
    return [{"bytes": block.tobytes().hex(), "values": row.tobytes().hex()}
            for block, row in zip(blocks, values)]


random = np.random.default_rng(1)
types = {name: blocks_of(name, random) for name in SCALES}
path = pathlib.Path(__file__).with_name("blocks.json")
path.write_text(json.dumps(types, indent=1) + "\n")
