# The file as bytes: header, root slots, sections and the trailer of the stream form (FORMAT.md,
# from "Header" to "Sections"). Must not know what sections say.
import dataclasses
import hashlib
import struct

from reader.xxh3 import xxh3_64, xxh3_128

VERSION = 1
BLOCK = 4096
FIRST_SECTION = 3 * BLOCK
FRAME = 64
SECTOR = 512  # what a disk writes whole
MAGIC = b"\x89STASIS\n"
(IDENTITY, NODES, RUN, HIDDEN, LOGITS, MANIFEST, ROOT, EVICTIONS,
 RECURRENT_STATE, HOST_DATA, HOST_VALUE) = range(1, 12)
KINDS = {IDENTITY: "identity", NODES: "nodes", RUN: "run", HIDDEN: "hidden",
         LOGITS: "logits_row", MANIFEST: "manifest", ROOT: "root",
         EVICTIONS: "evictions", RECURRENT_STATE: "recurrent", HOST_DATA: "host_data",
         HOST_VALUE: "host_value"}
EVICTED = 1  # the feature: some positions were evicted
PROFILED = 2  # the feature: some of it was computed under a device profile
RECURRENT = 4  # the feature: some layers have a recurrent state
EXPERTS = 8  # the feature: the contract has a part for experts
LAYERS = 16  # the feature: some layers share keys and values or have other sizes of heads
SETTINGS = 32  # the feature: settings are in a tree, some with sets of tokens
REFUSE_KNOWN = EVICTED | PROFILED | RECURRENT | EXPERTS | LAYERS | SETTINGS
CODECS = ["raw", "zstd"]
RAW, ZSTD = range(2)
ROOT_BYTES = 88
EXPANSION_MAX = 16


class Refused(Exception):
    """Why a file is not read: what is wrong, and where."""


def need(right, what):
    if not right:
        raise Refused(what)


def checksum(data):
    return struct.pack("<QQ", *xxh3_128(data))


def text(name):
    """How digests begin: the length of a string, then the string."""
    return struct.pack("<Q", len(name)) + name


def zero(data):
    return not any(data)


@dataclasses.dataclass
class Root:
    sequence: int
    may_ignore: int
    may_read: int
    must_refuse: int
    length: int
    manifest: int
    manifest_bytes: int
    digest: bytes

    @classmethod
    def at(cls, data):
        return cls(*struct.unpack_from("<7Q32s", data))


@dataclasses.dataclass
class Section:
    offset: int
    kind: int
    codec: int
    stored: int
    raw: int
    xxh3: bytes
    sequence: int

    @property
    def begin(self):
        return self.offset + FRAME

    @property
    def end(self):
        return (self.begin + self.stored + FRAME - 1) // FRAME * FRAME

    def listed(self):
        low, high = struct.unpack("<QQ", self.xxh3)
        return {"name": KINDS[self.kind], "offset": self.offset, "commit": self.sequence,
                "stored": self.stored, "raw": self.raw, "codec": CODECS[self.codec],
                "xxh3": f"{high:016x}{low:016x}"}


class Container:
    """Chooses the root of a file; gives the sections below its length, each checked once."""

    def __init__(self, data, features):
        """`features`: of a manifest's bytes (features.py)."""
        self.data = data
        self.features = features
        self.reached = {}
        need(len(data) >= FIRST_SECTION, f"{len(data)} bytes are too few for a snapshot")
        self.check_header()
        self.trailer = None
        self.slots = [self.slot(name, at) for name, at in (("A", BLOCK), ("B", 2 * BLOCK))]
        good = [slot["root"] for slot in self.slots if slot["root"]]
        need(len({root.sequence for root in good}) == len(good), "root slots: of the same commit")
        self.root = max(good, key=lambda root: root.sequence) if good else self.trailing_root()
        self.check_root()
        self.older = len(data) > self.root.length and any(
            slot["state"] == "damaged" and self.was_finished(slot["bytes"]) for slot in self.slots)

    def check_header(self):
        header = self.data[:BLOCK]
        need(header[:8] == MAGIC, "header: no snapshot begins so, at byte 0")
        need(checksum(header[:-16]) == header[-16:], "header: checksum, at byte 4080")
        version, block = struct.unpack_from("<II", header, 8)
        need(version == VERSION, f"header: format version {version}, this reads {VERSION}")
        need(block == BLOCK, f"header: block size {block} is not {BLOCK}")
        need(zero(header[16:-16]), "header: bytes 16 to 4079 are not zero")

    def slot(self, name, at):
        block = self.data[at:at + BLOCK]
        if zero(block):
            return {"slot": name, "state": "empty", "root": None}
        if checksum(block[:-16]) != block[-16:]:
            return {"slot": name, "state": "damaged", "root": None, "bytes": block}
        return {"slot": name, "state": "good", "root": Root.at(block),
                "rest": block[ROOT_BYTES:-16]}

    def trailing_root(self):
        at = FIRST_SECTION
        while at < len(self.data):
            section = self.frame(at, len(self.data))
            if section.kind == ROOT:
                break
            at = section.end
        else:
            raise Refused("root: no good slot, and no section of kind root")
        need(section.codec == RAW and section.stored == ROOT_BYTES, f"trailer: its sizes, at {at}")
        content = self.content(section, "trailer")
        self.check_padding(section, "trailer")
        root = Root.at(content)
        need(root.sequence == section.sequence, f"trailer: commit of its frame, at {at}")
        need(root.length == section.end, f"trailer: length {root.length}, ends at {section.end}")
        self.trailer = section
        return root

    def check_root(self):
        root = self.root
        need(root.must_refuse & ~REFUSE_KNOWN == 0,
             f"root: unknown features {root.must_refuse:#x}")
        need(root.sequence > 0, "root: sequence 0")
        for slot in self.slots:
            need(slot["root"] is not root or zero(slot["rest"]),
                 f"root slot {slot['slot']}: bytes 88 to 4079 are not zero")
        need(root.length <= len(self.data),
             f"root: length {root.length}, the file has {len(self.data)}")

    def was_finished(self, slot):
        """Whether a slot that is not good held a whole commit after this one."""
        before = [bytes(BLOCK), *self.slots_before()]
        pairs = zip(checksum(slot[:-16]), slot[-16:])
        kept = 16 - next(i for i, (right, found) in enumerate(pairs) if right != found)
        return all(slot[:SECTOR] != each[:SECTOR] and slot[-SECTOR:] != each[-SECTOR:]
                   and slot[-kept:] != each[-kept:] for each in before)

    def slots_before(self):
        """What the slot of the commit before was; nothing if its manifest is not found."""
        at = FIRST_SECTION
        try:
            while at < self.root.manifest:
                section = self.frame(at, self.root.length)
                at = section.end
                if section.kind == MANIFEST and section.sequence == self.root.sequence - 1:
                    manifest = self.stored(section)
                    read, refuse = self.features(manifest)
                    break
            else:
                return
        except Refused:
            return  # the sections lead nowhere
        digest = hashlib.sha256(text(b"stasis root") + struct.pack(
            "<I4Q", VERSION, 0, read, refuse, len(manifest)) + manifest).digest()
        root = struct.pack("<7Q32s", section.sequence, 0, read, refuse, section.end, section.offset,
                           len(manifest), digest).ljust(BLOCK - 16, b"\0")
        yield root + checksum(root)

    def frame(self, at, end):
        """A section whose frame and stored bytes are right and lie before `end`."""
        where = f"section at {at}"
        need(at % FRAME == 0 and FIRST_SECTION <= at <= end - FRAME, f"{where}: no place for one")
        frame = self.data[at:at + FRAME]
        magic, kind, codec, unused, stored, raw, xxh3, sequence, own = struct.unpack(
            "<4sIIIQQ16sQQ", frame)
        need(magic == b"SECT", f"{where}: does not begin with SECT")
        need(xxh3_64(frame[:56]) == own, f"{where}: checksum of its frame")
        need(unused == 0, f"{where}: bytes 12 to 15 are not zero")
        need(kind in KINDS, f"{where}: unknown kind {kind}")
        need(codec == RAW or codec == ZSTD and kind in (RUN, RECURRENT_STATE),
             f"{where}: unknown codec {codec}")
        need(raw == stored if codec == RAW else raw // EXPANSION_MAX <= stored,
             f"{where}: {raw} raw bytes in {stored} stored ones")
        need(sequence > 0, f"{where}: written by commit 0")
        section = Section(at, kind, codec, stored, raw, xxh3, sequence)
        need(section.end <= end, f"{where}: ends at {section.end}, behind {end}")
        return section

    def section(self, at, kind, what):
        """The section that the state names there."""
        found = self.reached.get(at)
        if not found:
            found = self.frame(at, self.root.length)
            need(found.sequence <= self.root.sequence,
                 f"{what}: section at {at} is of a later commit, {found.sequence}")
            self.check_padding(found, what)
            self.reached[at] = found
        need(found.kind == kind, f"{what}: section at {at} is {KINDS[found.kind]}")
        return found

    def check_padding(self, section, what):
        need(zero(self.data[section.begin + section.stored:section.end]),
             f"{what}: padding of the section at {section.offset} is not zero")

    def stored(self, section):
        return self.data[section.begin:section.begin + section.stored]

    def content(self, section, what):
        """The bytes of a raw section, by its checksum."""
        need(section.codec == RAW, f"{what}: section at {section.offset} is coded")
        content = self.stored(section)
        need(checksum(content) == section.xxh3, f"{what}: checksum of section at {section.offset}")
        return content

    def referred(self, ref, kind, what):
        """The bytes that a SectionRef names; None if it names none."""
        if ref["offset"] == 0:
            need(ref["bytes"] == 0 and zero(ref["digest"]), f"{what}: half a reference")
            return None
        section = self.section(ref["offset"], kind, what)
        need(section.raw == ref["bytes"], f"{what}: {section.raw} bytes, not {ref['bytes']}")
        content = self.content(section, what)
        need(hashlib.sha256(content).digest() == ref["digest"],
             f"{what}: SHA-256 of the section at {section.offset}")
        return content
