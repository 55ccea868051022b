# Snapshots with another log and other texts than the one that they are made of, all checksums and
# digests right: files that a hostile author would make to unfold. The original has one commit,
# keeps no keys and values, and is of a session whose capacity is large enough.
import hashlib
import struct

import forgery  # noqa: F401 (makes the second reader's modules known)
from reader.container import BLOCK, FRAME, MANIFEST, NODES, VERSION, Container, checksum, text
from reader.features import features
from reader.state import State, state_digest
from reader.trees import CHILDREN, LEAF, LOG, NODE_REF, PAGES, TEXTS
from reader.xxh3 import xxh3_64


def section(kind, content):
    frame = b"SECT" + struct.pack("<3I2Q", kind, 0, 0, len(content), len(content))
    frame += checksum(content) + struct.pack("<Q", 1)
    return frame + struct.pack("<Q", xxh3_64(frame)) + content + bytes(-len(content) % 64)


class Nodes:
    """The nodes of trees, of which a section at a place is made."""

    def __init__(self, offset):
        self.offset, self.content = offset, b""

    def tree(self, kind, group, items):
        level, fan = 0, LEAF[kind]
        while True:
            nodes = [items[i:i + fan] for i in range(0, len(items), fan)]
            items = [self.put(struct.pack("<4I", kind, group, level, len(node)) + b"".join(node))
                     for node in nodes]
            if len(items) == 1:
                return items[0]
            level, fan = level + 1, CHILDREN

    def put(self, node):
        begin = len(self.content)
        self.content += node
        return NODE_REF.pack(self.offset, begin, len(node), hashlib.sha256(node).digest())


def replaced(manifest, old, new):
    assert manifest.count(old) == 1 and len(old) == len(new), old
    return manifest.replace(old, new)


def sealed(data, manifest, nodes):
    """The file with these sections behind what lies in front of its manifest."""
    begin = Container(data, features).root.manifest
    whole = bytearray(data[:begin] + section(NODES, nodes.content))
    place = len(whole)
    whole += section(MANIFEST, manifest)
    bits = data[BLOCK + 8:BLOCK + 32]
    size = struct.pack("<Q", len(manifest))
    digest = hashlib.sha256(text(b"stasis root") + struct.pack("<I", VERSION) + bits + size +
                            manifest).digest()
    root = struct.pack("<Q", 1) + bits + struct.pack("<3Q", len(whole), place, len(manifest))
    block = root + digest + bytes(BLOCK - 16 - len(root) - 32)
    whole[BLOCK:2 * BLOCK] = block + checksum(block)
    return bytes(whole)


def unfolded(data, entries, texts):
    """`entries`: (token, sampling, source, turn) for each position; `texts`: (token, bytes)."""
    container = Container(data, features)
    old = State(container).manifest
    nodes = Nodes(container.root.manifest)

    def ref_of(ref):
        return NODE_REF.pack(ref["section"], ref["begin"], ref["bytes"], ref["digest"])

    begin = container.root.manifest + FRAME
    manifest = data[begin:begin + container.root.manifest_bytes]
    log = nodes.tree(LOG, 0, [struct.pack("<IHBB", *entry) for entry in entries])
    manifest = replaced(manifest, ref_of(old["log"]), log)
    listed = nodes.tree(TEXTS, 0, [struct.pack("<II", token, len(shown)) + shown
                                   for token, shown in texts])
    manifest = replaced(manifest, ref_of(old["texts"]), listed)
    size = old["page_positions"]
    for group, each in enumerate(old["groups"]):
        pages = [struct.pack("<32s4I", b"", min(size, len(entries) - at), 0, 0, 0)
                 for at in range(0, len(entries), size)]
        manifest = replaced(manifest, ref_of(each["pages"]), nodes.tree(PAGES, group, pages))
    for name, value in (("position", len(entries)), ("text_count", len(texts))):
        manifest = replaced(manifest, struct.pack("<Q", old[name]), struct.pack("<Q", value))
    forged = sealed(data, manifest, nodes)
    digest = state_digest(State(Container(forged, features)))
    return sealed(data, replaced(manifest, old["digest"], digest), nodes)
