# Recurrent layers and their states (FORMAT.md, "Recurrent states"): sizes, positions and places,
# and the digests of raw states. Of coded ones only the frames are checked; they are not decoded.
import hashlib
import struct

from reader.container import (EXPANSION_MAX, EXPERTS, FIRST_SECTION, FRAME, RECURRENT,
                              RECURRENT_STATE, ZSTD, need, text)
from reader.pages import check_frames

NUMBERS_MAX = 1 << 32
TAPS_MAX = 256
PIECE = 262144  # numbers


def state_numbers(shape):
    """Of all layers: inputs of the convolution, then S."""
    channels = 2 * shape["key_heads"] * shape["key_dim"] + shape["value_heads"] * shape["value_dim"]
    rule = shape["value_heads"] * shape["key_dim"] * shape["value_dim"]
    return len(shape["layers"]) * ((shape["taps"] - 1) * channels + rule)


def check_shape(manifest, root):
    """Returns the recurrent layers."""
    shape = manifest["recurrent"]
    need(bool(root.must_refuse & RECURRENT) == (shape is not None),
         "manifest: recurrent layers, or not")
    need(bool(root.must_refuse & EXPERTS) == (manifest["contract_experts"] != 0),
         "manifest: experts, or not")
    need((shape is not None) == (manifest["contract_recurrent"] != 0),
         "manifest: contract of recurrent layers")
    if shape is None:
        return []
    layers = shape["layers"]
    need(layers and layers == sorted(set(layers)), "recurrent: layers do not ascend")
    need(layers[-1] < manifest["layers"], "recurrent: a layer beyond the last")
    keys = ["key_heads", "key_dim"]
    if shape["key_heads"] == shape["key_dim"] == 0:  # short convolutions
        keys = []
    for name in [*keys, "value_heads", "value_dim", "taps"]:
        need(1 <= shape[name] <= 65536, f"recurrent: {name} {shape[name]}")
    need(shape["taps"] <= TAPS_MAX and state_numbers(shape) <= NUMBERS_MAX,
         "recurrent: too many numbers")
    return layers


def check_states(manifest, end):
    shape = manifest["recurrent"]
    if shape is None:
        return
    need(manifest["evictions"]["offset"] == 0, "recurrent layers: with evictions")
    before, stored = 0, 0
    raw = 4 * state_numbers(shape)
    for each in shape["states"]:
        what = f"recurrent state at {each['position']}"
        need(before < each["position"] <= manifest["position"], f"{what}: out of order")
        before = each["position"]
        stored += each["stored"]
        if manifest["keep"]:
            need(each["offset"] == each["stored"] == 0, f"{what}: in a file that keeps none")
            continue
        need(each["offset"] % FRAME == 0 and each["offset"] >= FIRST_SECTION, f"{what}: its offset")
        need(each["offset"] + FRAME + each["stored"] <= end, f"{what}: ends behind the state")
        need(raw // EXPANSION_MAX <= each["stored"], f"{what}: too few stored bytes")
    need(before == manifest["position"], f"recurrent states: the last is at {before}")
    need(stored <= end, "recurrent states: more than there are bytes")


def check_numbers(container, manifest):
    """Which states' digests were computed."""
    shape = manifest["recurrent"]
    found = []
    for each in shape["states"] if shape else ():
        what = f"recurrent state at {each['position']}"
        if each["offset"] == 0:
            found.append(False)
            continue
        section = container.section(each["offset"], RECURRENT_STATE, what)
        count = state_numbers(shape)
        need(section.stored == each["stored"] and section.raw == 4 * count, f"{what}: its sizes")
        if section.codec == ZSTD:
            stored = container.stored(section)
            need(len(stored) >= 2 * count, f"{what}: its lower halves are cut off")
            check_frames(stored[2 * count:], count, 1, f"{what}: coded")
            found.append(False)
            continue
        content = container.content(section, what)
        need(digest_of(each["position"], content) == each["digest"], f"{what}: its digest")
        need(all(low < 0x80 or high & 0x7F != 0x7F
                 for low, high in zip(content[2::4], content[3::4])), f"{what}: not finite")
        found.append(True)
    return found


def digest_of(position, content):
    whole = hashlib.sha256(text(b"stasis recurrent state"))
    whole.update(struct.pack("<QQ", position, len(content) // 4))
    for index, at in enumerate(range(0, len(content), 4 * PIECE)):
        head = text(b"stasis recurrent piece") + struct.pack("<Q", index)
        whole.update(hashlib.sha256(head + content[at:at + 4 * PIECE]).digest())
    return whole.digest()


def listed(manifest, proven):
    """As the JSON of element 1 has it, and which digests were computed."""
    shape = manifest["recurrent"]
    if shape is None:
        return {}
    states = [{**each, "offset": each["offset"] or None, "digest_checked": checked}
              for each, checked in zip(shape["states"], proven)]
    return {"recurrent": {**shape, "dtype": "f32", "state_bytes": 4 * state_numbers(shape),
                          "states": states}}
