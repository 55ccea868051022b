# Settings of which some have sets of tokens: the items of a tree (FORMAT.md, "Settings with sets").
# Without such a tree they are those of the manifest.
import dataclasses
import struct

from reader.constraints import token_runs, written
from reader.container import SETTINGS as FEATURE, need
from reader.trees import SETTINGS

ITEM = struct.Struct("<4I")
SETTINGS_MAX, VOCABULARY_MAX, EXPANSION_MAX = 65536, 1 << 23, 16
BIAS_COUNTS, BREAKER_COUNTS = 128, 16


@dataclasses.dataclass
class Settings:
    plain: int  # index in the manifest
    told_from: int = None  # the settings from whose set it is told; None: from no other
    told: list = None  # edges of what differs
    allowed: list = None  # edges of the set; None: there is none

    def listed(self):
        """What JSON says of its set."""
        if self.allowed is None:
            return {}
        found = {} if self.told_from is None else {"allowed_from": self.told_from}
        return {**found, "allowed": self.told}


def read_settings(trees, manifest):
    root, count = manifest["settings"], manifest["setting_count"]
    need(bool(trees.container.root.must_refuse & FEATURE) == (root["section"] != 0),
         "settings: a tree, or not")
    if root["section"] == 0:
        need(count == 0, "settings: a number of them, but no tree")
        return [in_manifest(index, each, manifest)
                for index, each in enumerate(manifest["samplings"])]
    need(0 < count <= SETTINGS_MAX, f"settings: {count} items")
    need(manifest["vocabulary"] <= VOCABULARY_MAX, "settings: items for so large a vocabulary")
    need(all(not each["v3"] or each["v3"]["allowed"] is None for each in manifest["samplings"]),
         "settings: a set in the manifest, beside items")
    found, account = [], {"items": 0, "held": 0, "named": 0}
    for items, content in trees.leaves(SETTINGS, 0, count, root, "settings"):
        at = 0
        for _ in range(items):
            at = read_item(content, at, found, account, manifest)
        need(at == len(content), "settings: a leaf ends late")
    need(account["named"] == len(manifest["samplings"]),
         "settings: some in the manifest are not named")
    need(any(each.allowed is not None for each in found), "settings: items, but no set")
    return found


def in_manifest(index, sampling, manifest):
    added = sampling["v3"]
    if not added or added["allowed"] is None:
        return Settings(index)
    runs = token_runs(bytes(added["allowed"]), manifest["vocabulary"])
    need(runs, f"manifest: sampling {index}: allowed tokens are no set of any")
    return Settings(index, None, runs, runs)


def read_item(content, at, found, account, manifest):
    what = f"settings: item {len(found)}"
    need(at + ITEM.size <= len(content), f"{what}: its leaf ends early")
    plain, back, count, size = ITEM.unpack_from(content, at)
    at += ITEM.size
    need(at + size <= len(content), f"{what}: its leaf ends early")
    named = account["named"]
    need(plain <= named and plain < len(manifest["samplings"]), f"{what}: settings {plain}")
    need(back <= len(found), f"{what}: from {back} before")
    told_from = len(found) - back if back else None
    other = found[told_from].allowed if back else []
    need(other is not None, f"{what}: told from no set")
    told = edges(content[at:at + size], count, what)
    runs = sorted(set(other) ^ set(told))
    need(not runs or runs[-1] <= manifest["vocabulary"], f"{what}: a token beyond the vocabulary")
    need(runs or not count, f"{what}: an empty set")
    account["named"] = max(named, plain + 1)
    account["items"] += ITEM.size + size
    if count:
        account["held"] += len(written(runs, (manifest["vocabulary"] + 7) // 8))
    if plain < named:
        shared = manifest["samplings"][plain]
        breakers = shared["v2"]["dry_breakers"] if shared["v2"] else []
        account["held"] += BIAS_COUNTS * len(shared["bias"]) + BREAKER_COUNTS * len(breakers)
    need(account["held"] // EXPANSION_MAX <= account["items"], f"{what}: too short so far")
    found.append(Settings(plain, told_from, told, runs or None))
    return at + size


def edges(code, count, what):
    """A Rice code: numbers of ones, a zero, and low bits, the lowest first."""
    if count == 0:
        need(not code, f"{what}: a code of nothing")
        return []
    need(count % 2 == 0 and len(code) > 2 and code[0] <= 31 and code[1] <= 31, f"{what}: its code")
    bits, at, end = int.from_bytes(code[2:], "little"), 0, 8 * (len(code) - 2)
    text = bin(bits)[2:].zfill(end)[::-1]  # a character for each bit
    found = []
    for index in range(count):
        low = code[index % 2]
        zero = text.find("0", at)
        need(zero >= 0 and zero + low < end, f"{what}: its code ends early")
        number = (zero - at) << low | (int(text[zero + low:zero:-1], 2) if low else 0)
        at = zero + 1 + low
        found.append(number if index == 0 else found[-1] + number + 1)
    need(end - at < 8 and "1" not in text[at:], f"{what}: its code ends late")
    return found
