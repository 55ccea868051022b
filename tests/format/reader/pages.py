# Page entries and their runs (FORMAT.md, "Pages" and "Codecs"): the places of slots, and page
# digests of raw runs. Only the frames of coded runs are checked; they are not decoded.
import dataclasses
import hashlib
import struct

from reader.container import (CODECS, EXPANSION_MAX, FIRST_SECTION, FRAME, RUN, ZSTD, checksum,
                              need, text)
from reader.trees import PAGES

ENTRY = struct.Struct("<32s4I")
RUN_FIELDS = struct.Struct("<QQ4H")
FRAME_NUMBERS = 131072


@dataclasses.dataclass
class Geometry:
    """Of one layer group."""
    group: int
    layers: int
    kv_heads: int
    head_dim: int
    page_positions: int

    @property
    def rows(self):
        return self.layers * 2 * self.kv_heads

    def raw(self, slots):
        return 2 * self.rows * slots * self.head_dim


@dataclasses.dataclass
class Run:
    offset: int
    stored: int
    slots: int
    first: int
    used: int


@dataclasses.dataclass
class Page:
    index: int
    digest: bytes
    valid: int
    runs: list
    fingerprints: tuple

    def listed(self, container):
        runs = [{**dataclasses.asdict(run), "codec": CODECS[container.reached[run.offset].codec]}
                for run in self.runs]
        return {"index": self.index, "digest": self.digest, "valid": self.valid, "runs": runs,
                "fingerprints": list(self.fingerprints)}


def page_entries(trees, manifest, geometry, evicted):
    """The pages of a group; those of the indexes `evicted` may be missing."""
    pages = []
    position, size = manifest["position"], geometry.page_positions
    group = geometry.group
    what = f"pages of group {group}"
    root = manifest["groups"][group]["pages"]
    for items, content in trees.leaves(PAGES, group, -(-position // size), root, what):
        at = 0
        for _ in range(items):
            valid = min(size, position - len(pages) * size)
            page, at = entry(content, at, len(pages), geometry, trees.container.root.length)
            need(page.valid == valid, f"group {group}, page {page.index}: not {valid} valid slots")
            pages.append(page)
        need(at == len(content), f"{what}: a leaf ends late")
    check_stored(pages, manifest, group, evicted)
    return pages


def entry(content, at, index, geometry, end):
    what = f"group {geometry.group}, page {index}"
    need(at + ENTRY.size <= len(content), f"{what}: its leaf ends early")
    digest, valid, run_count, print_count, unused = ENTRY.unpack_from(content, at)
    need(unused == 0, f"{what}: bytes 44 to 47 of the entry are not zero")
    at += ENTRY.size
    after = at + run_count * RUN_FIELDS.size + print_count * 4
    need(after <= len(content), f"{what}: its leaf ends early")
    runs = []
    for i in range(run_count):
        *fields, zero = RUN_FIELDS.unpack_from(content, at + i * RUN_FIELDS.size)
        run = Run(*fields)
        check_run(run, geometry, end, f"{what}, run {i}")
        need(zero == 0, f"{what}, run {i}: bytes 22 and 23 are not zero")
        runs.append(run)
    need(not runs or sum(run.used for run in runs) == valid, f"{what}: slots of its runs")
    need(print_count in (0, valid + geometry.layers), f"{what}: {print_count} fingerprints")
    need(not (runs and print_count), f"{what}: runs and fingerprints")
    prints = struct.unpack_from(f"<{print_count}I", content, after - print_count * 4)
    return Page(index, digest, valid, runs, prints), after


def check_run(run, geometry, end, what):
    need(run.offset % FRAME == 0 and run.offset >= FIRST_SECTION, f"{what}: offset {run.offset}")
    need(run.offset + FRAME + run.stored <= end, f"{what}: ends behind the state")
    need(1 <= run.slots <= geometry.page_positions, f"{what}: {run.slots} slots")
    need(run.used > 0 and run.first + run.used <= run.slots,
         f"{what}: slots {run.first} + {run.used} of {run.slots}")
    need(geometry.raw(run.slots) // EXPANSION_MAX <= run.stored, f"{what}: too few stored bytes")


def check_stored(pages, manifest, group, evicted):
    """Which pages must have runs, and which cannot."""
    position, window = manifest["position"], manifest["groups"][group]["window"]
    stored = False
    for page in pages:
        what = f"group {group}, page {page.index}"
        if manifest["keep"]:
            need(not page.runs, f"{what}: keys and values in a file that keeps none")
            continue
        if page.index in evicted:
            continue
        need(page.runs or not stored, f"{what}: released behind a stored one")
        stored = bool(page.runs)
        seen = window == 0 or (page.index + 1) * manifest["page_positions"] + window > position
        need(stored or not seen, f"{what}: not stored, but a later token sees it")


def check_page(container, page, geometry):
    """All that can be said without decoding. True if the page digest was computed."""
    what = f"group {geometry.group}, page {page.index}"
    contents = []
    for run in page.runs:
        section = container.section(run.offset, RUN, what)
        need(section.stored == run.stored, f"{what}: stored bytes of the run at {run.offset}")
        need(section.raw == geometry.raw(run.slots), f"{what}: raw bytes of run at {run.offset}")
        if section.codec == ZSTD:
            check_frames(container.stored(section), geometry.rows, run.slots * geometry.head_dim,
                         f"{what}: coded run at {run.offset}")
        else:
            contents.append(container.content(section, what))
    if not page.runs or len(contents) < len(page.runs):
        return False
    numbers = []
    for row in range(geometry.rows):
        for run, content in zip(page.runs, contents):
            slot = geometry.head_dim * 2
            begin = (row * run.slots + run.first) * slot
            numbers.append(content[begin:begin + run.used * slot])
    numbers = b"".join(numbers)
    head = struct.pack("<IQI", geometry.group, page.index, page.valid)
    need(hashlib.sha256(text(b"stasis page") + head + numbers).digest() == page.digest,
         f"{what}: page digest")
    need(finite(numbers), f"{what}: a number is not finite")
    return True


def finite(numbers):
    """bf16: none has an exponent of ones."""
    return not any(high & 0x7F == 0x7F and low & 0x80
                   for low, high in zip(numbers[::2], numbers[1::2]))


def check_frames(stored, rows, row_numbers, where):
    """The table of a coded run, and the checksum of each frame."""
    rows_each = max(1, FRAME_NUMBERS // row_numbers)
    count = -(-rows // rows_each)
    begin = 16 * count
    need(begin <= len(stored), f"{where}: its table is cut off")
    for i in range(count):
        *planes, low = struct.unpack_from("<4I", stored, 16 * i)
        need(planes[1] > 0 and planes[2] > 0, f"{where}: frame {i} lacks a plane")
        frame = stored[begin:begin + sum(planes)]
        need(len(frame) == sum(planes), f"{where}: frame {i} ends behind the section")
        need(checksum(frame)[:4] == struct.pack("<I", low), f"{where}: checksum of frame {i}")
        begin += sum(planes)
    need(begin == len(stored), f"{where}: its frames end early")
