# Walks the trees of a state (FORMAT.md, "Trees"): nodes by their SHA-256, leaves cut into items.
# Must not know what items mean beyond their sizes.
import hashlib
import struct

from reader.container import FRAME, NODES, RAW, need, zero

LOG, TEXTS, PAGES, SETTINGS = 1, 2, 3, 4
LEAF = {LOG: 256, TEXTS: 64, PAGES: 8, SETTINGS: 16}
CHILDREN = 32
NODE_HEADER = 16
NODE_REF = struct.Struct("<QII32s")


class Trees:
    def __init__(self, container):
        self.container = container
        self.bytes = 0

    def node(self, ref, expected, what):
        """What follows a node's first 16 bytes, which are the `expected` ones."""
        section = self.container.section(ref["section"], NODES, what)
        need(section.codec == RAW, f"{what}: its section at {section.offset} is coded")
        need(ref["begin"] + ref["bytes"] <= section.stored,
             f"{what}: leads outside its section at {section.offset}")
        self.bytes += ref["bytes"]
        need(self.bytes <= self.container.root.length, f"{what}: more nodes than bytes")
        at = section.offset + FRAME + ref["begin"]
        content = self.container.data[at:at + ref["bytes"]]
        need(hashlib.sha256(content).digest() == ref["digest"], f"{what}: SHA-256 of node at {at}")
        need(content[:NODE_HEADER] == struct.pack("<4I", *expected),
             f"{what}: node at {at} is not (kind, group, level, count) {expected}")
        return content[NODE_HEADER:]

    def leaves(self, kind, group, count, ref, what):
        """(items, bytes) of each leaf of a list of `count` items, in order."""
        if count == 0:
            need(ref["section"] == ref["begin"] == ref["bytes"] == 0 and zero(ref["digest"]),
                 f"{what}: a root, but no items")
            return
        widths = [(count + LEAF[kind] - 1) // LEAF[kind]]
        while widths[-1] > 1:
            widths.append((widths[-1] + CHILDREN - 1) // CHILDREN)
        yield from self.below(kind, group, count, widths, len(widths) - 1, 0, ref, what)

    def below(self, kind, group, count, widths, level, index, ref, what):
        if level == 0:
            items = min(LEAF[kind], count - index * LEAF[kind])
            yield items, self.node(ref, (kind, group, 0, items), what)
            return
        first = index * CHILDREN
        children = min(CHILDREN, widths[level - 1] - first)
        content = self.node(ref, (kind, group, level, children), what)
        need(len(content) == children * NODE_REF.size, f"{what}: bytes of a node of level {level}")
        for i, fields in enumerate(NODE_REF.iter_unpack(content)):
            child = dict(zip(("section", "begin", "bytes", "digest"), fields))
            yield from self.below(kind, group, count, widths, level - 1, first + i, child, what)


def log_entries(trees, manifest):
    """(token, sampling, source, turn) for each position."""
    entries = []
    for items, content in trees.leaves(LOG, 0, manifest["position"], manifest["log"], "log"):
        need(len(content) == items * 8, "log: bytes of a leaf")
        entries += struct.iter_unpack("<IHBB", content)
    return entries


def token_texts(trees, manifest):
    texts = {}
    count = manifest["text_count"]
    for items, content in trees.leaves(TEXTS, 0, count, manifest["texts"], "texts"):
        at = 0
        for _ in range(items):
            need(at + 8 <= len(content), "texts: a leaf ends early")
            token, size = struct.unpack_from("<II", content, at)
            need(size <= 65536, f"texts: {size} bytes for token {token}")
            need(at + 8 + size <= len(content), "texts: a leaf ends early")
            need(token not in texts, f"texts: token {token} twice")
            need(token < manifest["vocabulary"], f"texts: token {token} is beyond the vocabulary")
            texts[token] = content[at + 8:at + 8 + size]
            at += 8 + size
        need(at == len(content), "texts: a leaf ends late")
    return texts
