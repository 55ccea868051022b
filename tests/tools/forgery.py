# Snapshots that were changed on purpose and whose checksums and digests are all right again: only
# computing them again shows the change. Reads files with the second reader (tests/format/reader).
# Usage: forgery.py FILE LAYER_GROUP LAYER POSITION BIT
import hashlib
import pathlib
import struct
import sys

from stasis_process import ROOT

sys.path.insert(0, str(ROOT / "tests/format"))

import reseal  # noqa: E402
from reader.container import RUN, text  # noqa: E402
from reader.state import State, geometry  # noqa: E402


def flip_value(path, layer_group, layer, position, bit=0):
    """Flips a bit of the first value of the last head at a position of a raw snapshot."""
    snapshot = reseal.Snapshot(pathlib.Path(path).read_bytes())
    state = State(snapshot.container)
    shape = geometry(state.manifest, layer_group)
    page = state.groups[layer_group][position // shape.page_positions]
    slot = position % shape.page_positions
    run = page.runs[0]
    assert len(page.runs) == 1 and run.used == page.valid and run.first == 0
    row = (layer * 2 + 1) * shape.kv_heads + shape.kv_heads - 1
    section = snapshot.container.section(run.offset, RUN, "a page")
    data = bytearray(snapshot.data)
    number = section.begin + (row * run.slots + slot) * shape.head_dim * 2
    before = struct.unpack_from("<H", data, number)[0]
    struct.pack_into("<H", data, number, before ^ 1 << bit)
    reseal.seal_section(data, section)
    # The page's digest, in its entry: FORMAT.md, "Pages".
    size = run.used * shape.head_dim * 2
    rows = range(section.begin, section.begin + section.stored, run.slots * shape.head_dim * 2)
    numbers = b"".join(bytes(data[at:at + size]) for at in rows)
    head = struct.pack("<IQI", layer_group, page.index, page.valid)
    digest = hashlib.sha256(text(b"stasis page") + head + numbers).digest()
    snapshot.data = bytes(data)
    pathlib.Path(path).write_bytes(snapshot.changed(snapshot.data.index(page.digest), digest))
    return before, before ^ 1 << bit


def change(path, old, new):
    """Puts `new` in the place of `old`, which the file's own parts hold once."""
    snapshot = reseal.Snapshot(pathlib.Path(path).read_bytes())
    assert snapshot.data.count(old) == 1 and len(old) == len(new)
    pathlib.Path(path).write_bytes(snapshot.changed(snapshot.data.index(old), new))


if __name__ == "__main__":
    flip_value(sys.argv[1], *map(int, sys.argv[2:]))
