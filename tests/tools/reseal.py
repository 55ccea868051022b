# Changes a small snapshot and makes its checksums and digests right again, so that only the checks
# after them can refuse it. For trees of one node each; reads the file with the second reader.
import hashlib
import struct

from reader.container import (BLOCK, FRAME, RAW, RECURRENT_STATE, ROOT_BYTES, RUN, VERSION,
                              Container, Refused, checksum, text)
from reader.constraints import SAMPLING_V3
from reader.features import SAMPLING_V2, features
from reader.host_data import DATA
from reader.state import State, state_digest
from reader.xxh3 import xxh3_64


class Snapshot:
    def __init__(self, data):
        self.data = data
        self.container = Container(data, features)
        self.root = self.container.root
        state = State(self.container)
        manifest = state.manifest
        nodes = [manifest["log"], manifest["texts"]]
        nodes += [group["pages"] for group in manifest["groups"]]
        nodes += [manifest["settings"]]
        self.parts = [(ref["section"] + FRAME + ref["begin"], ref) for ref in nodes
                      if ref["bytes"]]  # without a tokenizer there are no texts
        self.parts += [(ref["offset"] + FRAME, ref)
                       for ref in (manifest["identity"], manifest["hidden"],
                                   manifest["host_data"]) if ref["offset"]]
        self.coded_digests = [
            data.index(page.digest, group["pages"]["section"])
            for group, pages in zip(manifest["groups"], state.groups) for page in pages
            if any(state.container.section(run.offset, RUN, "run").codec != RAW
                   for run in page.runs)]
        self.coded_digests += [
            data.index(each["digest"], self.root.manifest)
            for each in (manifest["recurrent"] or {"states": []})["states"]
            if each["offset"] and state.container.section(
                each["offset"], RECURRENT_STATE, "state").codec != RAW]
        begin = self.root.manifest + FRAME
        self.manifest = slice(begin, begin + self.root.manifest_bytes)
        self.trailer = self.container.trailer
        in_force = [slot["root"] is self.root for slot in self.container.slots]
        self.root_at = (self.trailer.begin if self.trailer
                        else BLOCK * (1 + in_force.index(True)))

    def places(self):
        """Ranges of bytes that say something, the manifest's several times: it has most rules."""
        frames = [range(at, at + FRAME) for at in self.container.reached]
        parts = [range(at, at + ref["bytes"]) for at, ref in self.parts]
        return [range(BLOCK), range(self.root_at, self.root_at + ROOT_BYTES + 8), *frames, *parts,
                *[range(self.manifest.start, self.manifest.stop)] * 4]

    def in_coded_run(self, at):
        return any(section.kind in (RUN, RECURRENT_STATE) and section.codec != RAW
                   and section.offset <= at < section.end
                   for section in self.container.reached.values())

    def changes_digest_of_coded_page(self, forged):
        return any(forged[at:at + 32] != self.data[at:at + 32] for at in self.coded_digests)

    def forbids_writing(self, forged):
        """By a feature with which a reader may only read, and which is not known."""
        return any(forged[self.root_at + 16:self.root_at + 24]) and (
            forged[self.root_at + 16] > SAMPLING_V2 + SAMPLING_V3 + DATA or
            any(forged[self.root_at + 17:self.root_at + 24]))

    def changed(self, at, change):
        data = bytearray(self.data)
        data[at:at + len(change)] = change
        data[BLOCK - 16:BLOCK] = checksum(bytes(data[:BLOCK - 16]))
        for begin, ref in self.parts:
            digest = hashlib.sha256(data[begin:begin + ref["bytes"]]).digest()
            data[self.manifest] = data[self.manifest].replace(ref["digest"], digest)
        for section in self.container.reached.values():
            if section.begin <= at < section.begin + section.stored:
                seal_section(data, section)
            seal_frame(data, section.offset)
        self.seal_root(data)
        try:
            state = State(Container(bytes(data), features))
        except Refused:
            return bytes(data)
        digest = state.manifest["digest"]
        data[self.manifest] = data[self.manifest].replace(digest, state_digest(state))
        self.seal_root(data)
        return bytes(data)

    def seal_root(self, data):
        seal_section(data, self.container.reached[self.root.manifest])
        at, manifest = self.root_at, bytes(data[self.manifest])
        head = struct.pack("<I", VERSION) + data[at + 8:at + 32] + struct.pack("<Q", len(manifest))
        digest = hashlib.sha256(text(b"stasis root") + head + manifest).digest()
        data[at + 56:at + ROOT_BYTES] = digest
        if self.trailer:
            seal_section(data, self.trailer)
        else:
            data[at + BLOCK - 16:at + BLOCK] = checksum(bytes(data[at:at + BLOCK - 16]))


def seal_section(data, section):
    content = bytes(data[section.begin:section.begin + section.stored])
    data[section.offset + 32:section.offset + 48] = checksum(content)
    seal_frame(data, section.offset)


def seal_frame(data, at):
    data[at + 56:at + FRAME] = struct.pack("<Q", xxh3_64(bytes(data[at:at + 56])))
