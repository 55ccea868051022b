# A host's data: an index of names, and a section for each value (FORMAT.md, "Data of hosts").
import struct

from reader.container import HOST_DATA, HOST_VALUE, need

DATA = 4  # a feature with which a reader that does not know it may only read
NAME_MAX, ENTRIES_MAX, BYTES_MAX = 255, 1024, 16 << 20


def read_host_data(container, manifest):
    """Values by name, as bytes; names as text, with what is no UTF-8 escaped."""
    content = container.referred(manifest["host_data"], HOST_DATA, "data of hosts")
    need((content is not None) == bool(container.root.may_read & DATA),
         "data of hosts: the root's features and the manifest disagree")
    if content is None:
        return {}
    need(len(content) >= 8, "data of hosts: its index ends early")
    (count,), at = struct.unpack_from("<Q", content), 8
    need(1 <= count <= ENTRIES_MAX, f"data of hosts: {count} entries")
    entries, total = [], 0
    for _ in range(count):
        need(at + 52 <= len(content), "data of hosts: its index ends early")
        offset, size, digest, length = struct.unpack_from("<QQ32sI", content, at)
        name = content[at + 52:at + 52 + length]
        at += 52 + length
        need(at <= len(content) and 1 <= length <= NAME_MAX and 0 not in name,
             "data of hosts: a name")
        need(not entries or entries[-1][0] < name, "data of hosts: names do not ascend")
        need(size > 0 or (offset, digest) == (0, bytes(32)), "data of hosts: a place of no bytes")
        entries.append((name, {"offset": offset, "bytes": size, "digest": digest}))
        total += size
    need(at == len(content), "data of hosts: bytes behind the names")
    need(total <= container.root.length, "data of hosts: longer than the state")
    need(total + sum(len(name) for name, _ in entries) <= BYTES_MAX, "data of hosts: too much")
    found = {}
    for name, ref in entries:
        need(ref["bytes"] == 0 or ref["offset"] != 0, "data of hosts: a value without a place")
        value = container.referred(ref, HOST_VALUE, "a value of a host") or b""
        found[name.decode("utf-8", "backslashreplace")] = value
    return found
