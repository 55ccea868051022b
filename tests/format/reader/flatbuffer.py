# Reads FlatBuffers by a schema given as data (flatbuffers.dev, "Internals": tables, vtables,
# vectors, strings). Every offset is checked before it is followed. Knows no schema of its own.
import struct

from reader.container import Refused

LEVELS_MAX = 8
TABLES_MAX = 1 << 18
STRING = "string"


class Scalar:
    """A number, or a struct when there are names: then a dict. A default: may be missing."""

    def __init__(self, form, *names, align=4, default=None):
        self.form, self.names, self.align = struct.Struct(form), names, align
        self.default = default

    def value(self, data, at):
        values = self.form.unpack_from(data, at)
        return dict(zip(self.names, values)) if self.names else values[0]


class Vector:
    def __init__(self, element):
        self.element = element


class Optional:
    """A table or a vector that may be missing: then None."""

    def __init__(self, kind):
        self.kind = kind


class Buffer:
    def __init__(self, data, what):
        self.data, self.what = data, what
        self.tables = 0
        self.copied = 0

    def need(self, right, at, what):
        if not right:
            raise Refused(f"{self.what}: {what} at byte {at} of its FlatBuffer")

    def number(self, form, at):
        size = struct.calcsize(form)
        self.need(0 <= at and at + size <= len(self.data), at, "an offset leads outside")
        self.need(at % size == 0, at, "a number is not aligned")
        return struct.unpack_from(form, self.data, at)[0]

    def root(self, identifier, fields):
        self.need(self.data[4:8] == identifier, 4, f"the identifier is not {identifier.decode()}")
        return self.table(self.number("<I", 0), fields, 1)

    def table(self, at, fields, level):
        """A dict by the names of `fields`, whose order is that of their ids."""
        self.tables += 1
        self.need(level <= LEVELS_MAX and self.tables <= TABLES_MAX, at, "too many tables")
        vtable = at - self.number("<i", at)
        vtable_bytes = self.number("<H", vtable)
        self.need(vtable_bytes % 2 == 0 and vtable + vtable_bytes <= len(self.data), vtable,
                  "a vtable leads outside")
        found = {}
        for index, (name, kind) in enumerate(fields.items()):
            slot = 4 + 2 * index
            offset = self.number("<H", vtable + slot) if slot + 2 <= vtable_bytes else 0
            default = kind.default if isinstance(kind, Scalar) else None
            self.need(offset or default is not None or isinstance(kind, Optional), at,
                      f"the field {name} is missing")
            found[name] = self.field(at + offset, kind, level) if offset else default
        return found

    def field(self, at, kind, level):
        if isinstance(kind, Scalar):
            self.need(at + kind.form.size <= len(self.data), at, "a field leads outside")
            self.need(at % kind.align == 0, at, "a field is not aligned")
            return kind.value(self.data, at)
        offset = self.number("<I", at)
        self.need(offset, at, "an offset is zero")
        at += offset
        kind = kind.kind if isinstance(kind, Optional) else kind
        if isinstance(kind, dict):
            return self.table(at, kind, level + 1)
        count = self.number("<I", at)
        if kind == STRING:
            text = bytes(self.content(at + 4, count, 1))
            self.need(self.data[at + 4 + count:at + 5 + count] == b"\0", at, "a string has no end")
            return text.decode("utf-8", "replace")
        return self.vector(at + 4, count, kind.element, level)

    def vector(self, at, count, kind, level):
        if isinstance(kind, Scalar):
            self.need(count == 0 or at % kind.align == 0, at, "a vector is not aligned")
            self.content(at, count, kind.form.size)
            return [kind.value(self.data, at + i * kind.form.size) for i in range(count)]
        self.content(at, count, 4)
        return [self.field(at + 4 * i, kind, level) for i in range(count)]

    def content(self, at, count, size):
        """What is copied is counted: more than the buffer holds only if offsets share targets."""
        self.need(at + count * size <= len(self.data), at, "a vector leads outside")
        self.copied += count * size
        self.need(self.copied <= len(self.data), at, "offsets share a target")
        return self.data[at:at + count * size]
