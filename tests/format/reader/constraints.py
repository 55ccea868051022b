# Settings of version 3: constraints, and sets of tokens (FORMAT.md, "Constraints").
from reader.container import need

SAMPLING_V3 = 2  # a feature with which a reader that does not know it may only read
KINDS = ["json_schema", "json", "regex", "grammar"]  # from 1 on
TEXT_MAX = 262144


def uses_constraints(manifest):
    return manifest["settings"]["section"] != 0 or any(
        each["v3"] and (each["v3"]["constraint"] or each["v3"]["allowed"] is not None)
        for each in manifest["samplings"])


def check_constraints(manifest):
    known = [(each["kind"], each["text"]) for each in manifest["constraints"] or []]
    need(len(set(known)) == len(known), "manifest: a constraint is there twice")
    for kind, text in known:
        need(1 <= kind <= len(KINDS), f"manifest: constraint of kind {kind}")
        need(len(text.encode()) <= (0 if KINDS[kind - 1] == "json" else TEXT_MAX),
             "manifest: text of a constraint")
    used = 0
    for index, each in enumerate(manifest["samplings"]):
        added = each["v3"] or {"constraint": 0}
        need(added["constraint"] <= min(used + 1, len(known)),
             f"manifest: sampling {index}: constraint {added['constraint']}")
        used = max(used, added["constraint"])
    need(used == len(known), "manifest: a constraint that no settings name")


def token_runs(data, vocabulary):
    """Begin and end of each run of tokens that are in a set; None: these bytes are no set."""
    bits = (vocabulary + 7) // 8
    if not data or len(data) > 1 + bits:
        return None
    runs = read_bits(data[1:], bits) if data[0] == 0 else read_runs(data[1:])
    if runs is None or any(end > vocabulary for end in runs) or written(runs, bits) != data:
        return None
    return runs


def read_runs(data):
    runs, number, shift = [], 0, 0
    for byte in data:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            if runs and number == 0:
                return None
            runs.append(number + (runs[-1] if runs else 0))
            number = shift = 0
    return runs if shift == 0 and len(runs) % 2 == 0 else None


def read_bits(data, bits):
    if len(data) != bits:
        return None
    members = [index for index in range(8 * bits) if data[index // 8] >> index % 8 & 1]
    runs = []
    for token in members:
        if runs and runs[-1] == token:
            runs[-1] += 1
        else:
            runs += [token, token + 1]
    return runs


def written(runs, bits):
    """The one form in which a set is stored."""
    data, before = bytearray([1]), 0
    for token in runs:
        number, before = token - before, token
        while number >= 128:
            data.append(number & 127 | 128)
            number >>= 7
        data.append(number)
    if len(data) <= 1 + bits:
        return bytes(data)
    data = bytearray(1 + bits)
    for begin, end in zip(runs[::2], runs[1::2]):
        for token in range(begin, end):
            data[1 + token // 8] |= 1 << token % 8
    return bytes(data)


def listed(manifest):
    """What JSON says of constraints, each once; nothing where there are none."""
    found = [{"kind": KINDS[each["kind"] - 1], "text": each["text"]}
             for each in manifest["constraints"] or []]
    return {"constraints": found} if found else {}


def listed_constraint(sampling):
    number = sampling["v3"]["constraint"] if sampling["v3"] else 0
    return {"constraint": number - 1} if number else {}
