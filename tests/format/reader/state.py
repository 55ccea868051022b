# The state that a root names: manifest, identity, trees, pages, all checks of FORMAT.md, "What a
# reader checks", that need no model. Must not know how it is shown.
import hashlib
import math
import struct

from reader.container import (HIDDEN, IDENTITY, LAYERS, LOGITS, MANIFEST, PROFILED, VERSION, need,
                              text, zero)
from reader.constraints import SAMPLING_V3, check_constraints, uses_constraints
from reader.evictions import evicted_pages, read_evictions
from reader.host_data import read_host_data
from reader.features import NO_PROFILE, SAMPLING_V2
from reader.flatbuffer import Buffer
from reader.pages import Geometry, check_page, finite, page_entries
from reader.recurrent import check_numbers, check_shape, check_states
from reader.schema import (IDENTITY as IDENTITY_FIELDS, MANIFEST as MANIFEST_FIELDS, OFF,
                           SESSION_NUMBERS)
from reader.settings import read_settings
from reader.trees import Trees, log_entries, token_texts

MANIFEST_BYTES_MAX = 64 << 20
NORMAL_MIN = 2.0 ** -126
DRAWN = 3


class State:
    """What the root names, by its bounds and digests; the calls below check what it says."""

    def __init__(self, container):
        self.container = container
        self.manifest = read_manifest(container)
        self.identity = read_identity(container, self.manifest)
        check_geometry(self.manifest, self.identity, container.root)
        trees = Trees(container)
        self.log = log_entries(trees, self.manifest)
        self.texts = token_texts(trees, self.manifest)
        self.geometries = [geometry(self.manifest, i) for i in range(len(self.manifest["groups"]))]
        self.evictions = read_evictions(container, self.manifest)
        gone = evicted_pages(self.evictions, self.manifest)
        self.groups = [page_entries(trees, self.manifest, each, gone)
                       for each in self.geometries]
        self.settings = read_settings(trees, self.manifest)
        stored = sum(run.stored for pages in self.groups for page in pages for run in page.runs)
        need(stored <= container.root.length, "pages: more runs than bytes")
        check_states(self.manifest, container.root.length)
        self.hidden, self.row = read_rows(container, self.manifest)
        self.data = read_host_data(container, self.manifest)

    def check_contents(self):
        check_log(self.manifest, self.log, len(self.settings))
        check_settings(self.manifest, len(self.settings))
        check_profile(self.manifest["profile"], self.manifest["position"],
                      [position for position, _ in self.evictions])
        need(state_digest(self) == self.manifest["digest"], "manifest: state digest")

    def check_states(self):
        """Which recurrent states' digests were computed."""
        return check_numbers(self.container, self.manifest)

    def check_pages(self):
        """Which pages' digests were computed, by group."""
        return [[check_page(self.container, page, each) for page in pages]
                for each, pages in zip(self.geometries, self.groups)]


def read_manifest(container):
    root = container.root
    need(root.manifest_bytes <= MANIFEST_BYTES_MAX,
         f"root: manifest of {root.manifest_bytes} bytes")
    section = container.section(root.manifest, MANIFEST, "manifest")
    end = container.trailer.offset if container.trailer else root.length
    need(section.raw == root.manifest_bytes, "manifest: its section has another length")
    need(section.end == end, f"manifest: ends at {section.end}, not at {end}")
    content = container.content(section, "manifest")
    head = struct.pack("<I4Q", VERSION, root.may_ignore, root.may_read, root.must_refuse,
                       len(content))
    need(hashlib.sha256(text(b"stasis root") + head + content).digest() == root.digest,
         "manifest: root digest")
    manifest = Buffer(content, "manifest").root(b"STSM", MANIFEST_FIELDS)
    need(manifest["keep"] in (0, 1), f"manifest: keep {manifest['keep']}")
    second = any(each["v2"] and each["v2"] != OFF for each in manifest["samplings"])
    need(bool(root.must_refuse & PROFILED) == (manifest["profile"] not in (None, NO_PROFILE)),
         "manifest: a device profile, or not")
    need(second == bool(root.may_read & SAMPLING_V2), "manifest: settings of version 2, or not")
    need(uses_constraints(manifest) == bool(root.may_read & SAMPLING_V3),
         "manifest: settings of version 3, or not")
    return manifest


def read_identity(container, manifest):
    content = container.referred(manifest["identity"], IDENTITY, "identity")
    need(content is not None, "identity: none")
    need(len(content) <= MANIFEST_BYTES_MAX, f"identity: {len(content)} bytes")
    return Buffer(content, "identity").root(b"STSI", IDENTITY_FIELDS)


def check_geometry(manifest, identity, root):
    for name in "layers", "kv_heads", "head_dim":
        need(1 <= manifest[name] <= 65536, f"manifest: {name} {manifest[name]}")
    page = manifest["page_positions"]
    need(page % 32 == 0 and 0 < page <= 256, f"manifest: page_positions {page}")
    layers = [layer for group in manifest["groups"] for layer in group["layers"]]
    layers += check_shape(manifest, root) + check_sharing(manifest, root)
    need(sorted(layers) == list(range(manifest["layers"])), "manifest: layers of the groups")
    for group in manifest["groups"]:
        need(group["layers"] == sorted(group["layers"]), "manifest: layers of a group descend")
        need(group["layers"], "manifest: a group without layers")
        check_sizes(manifest, group)
    for name in "attention", "mlp":
        need(len(identity[name]) == manifest["layers"], f"identity: not one {name} for each layer")
    need(manifest["position"] <= root.length // 8, f"manifest: position {manifest['position']}")


def check_sizes(manifest, group):
    """Of the heads of a group, where they are not the manifest's."""
    sizes = group["kv_heads"], group["head_dim"]
    need(sizes == (0, 0) or all(1 <= size <= 65536 for size in sizes),
         f"manifest: a group of {sizes[0]} KV heads of {sizes[1]}")
    need(sizes != (manifest["kv_heads"], manifest["head_dim"]),
         "manifest: sizes of a group are those of the rest")


def check_sharing(manifest, root):
    """Returns the layers that use others' keys and values."""
    sharing = manifest["sharing"] or []
    need(sharing == sorted(set(sharing)), "manifest: sharing layers do not ascend")
    need(manifest["groups"] or not sharing, "manifest: sharing layers alone")
    own = any(group["kv_heads"] or group["head_dim"] for group in manifest["groups"])
    need(bool(root.must_refuse & LAYERS) == (own or bool(sharing)),
         "manifest: layers that differ, or not")
    return sharing


def geometry(manifest, index):
    group = manifest["groups"][index]
    return Geometry(index, len(group["layers"]), group["kv_heads"] or manifest["kv_heads"],
                    group["head_dim"] or manifest["head_dim"], manifest["page_positions"])


def read_rows(container, manifest):
    hidden = container.referred(manifest["hidden"], HIDDEN, "hidden state")
    row = container.referred(manifest["logits_row"], LOGITS, "row of logits")
    need((hidden is None) == (manifest["position"] == 0), "hidden state: there or not")
    if hidden is None:
        need(row is None, "row of logits: at position 0")
        need(zero(manifest["logits"]), "manifest: logits at position 0")
        return b"", None
    need(len(hidden) == 2 * manifest["hidden_size"], f"hidden state: {len(hidden)} bytes")
    need(finite(hidden), "hidden state: a number is not finite")
    if row is not None:
        need(len(row) == 4 * manifest["vocabulary"], f"row of logits: {len(row)} bytes")
        need(manifest["logits_row"]["digest"] == manifest["logits"], "row of logits: its SHA-256")
    return hidden, row


def check_log(manifest, log, settings):
    for position, (token, sampling, source, turn) in enumerate(log):
        where = f"log: position {position}"
        need(token < manifest["vocabulary"], f"{where}: token {token} is beyond the vocabulary")
        need(source <= DRAWN, f"{where}: source {source}")
        need(turn & 0x0F <= 4 and turn & 0x30 == 0, f"{where}: turn {turn:#x}")
        need(sampling < settings if source == DRAWN else sampling == 0,
             f"{where}: sampling {sampling}")


def flushed(value):
    return 0.0 if abs(value) < NORMAL_MIN else value


def check_settings(manifest, count):
    samplings = manifest["samplings"]
    need(1 <= len(samplings) <= 65536, f"manifest: {len(samplings)} samplings")
    need(manifest["sampling"] < count, "manifest: settings in force do not exist")
    for index, each in enumerate(samplings):
        where = f"manifest: sampling {index}"
        for name in "temperature", "repetition_penalty", "frequency_penalty", "presence_penalty":
            need(math.isfinite(each[name]), f"{where}: {name}")
        need(flushed(each["temperature"]) >= 0, f"{where}: temperature")
        need(0 <= flushed(each["min_p"]) <= 1, f"{where}: min_p")
        need(0 < flushed(each["top_p"]) <= 1, f"{where}: top_p")
        need(flushed(each["repetition_penalty"]) > 0, f"{where}: repetition_penalty")
        check_settings_v2(manifest, each["v2"] or OFF, where)
        tokens = [bias["token"] for bias in each["bias"]]
        need(tokens == sorted(set(tokens)), f"{where}: biases do not ascend")
        need(all(token < manifest["vocabulary"] for token in tokens), f"{where}: token of a bias")
        need(all(math.isfinite(bias["value"]) or bias["value"] == -math.inf
                 for bias in each["bias"]), f"{where}: a bias is not a number")
    check_constraints(manifest)
    need(manifest["capacity"] >= manifest["position"], "manifest: capacity below position")
    for name, most in SESSION_NUMBERS.items():
        need(most is None or manifest[name] <= most, f"manifest: {name}")
    need(not any(math.isnan(each["value"]) for each in manifest["top"]), "manifest: top")
    order = [(-flushed(each["value"]), each["token"]) for each in manifest["top"]]
    need(len(order) <= 64 and all(a < b for a, b in zip(order, order[1:])), "manifest: top")
    need(all(token < manifest["vocabulary"] for _, token in order), "manifest: a token of top")


def check_profile(profile, position, evictions):
    if profile is None:
        return
    need(len(profile["id"]) <= 191 and all(32 <= byte <= 126 for byte in profile["id"].encode()),
         "profile: id")
    need(profile["foreign"] <= position, "profile: foreign")
    need(profile["id"] or not profile["chunks"], "profile: chunks without an id")
    end = 0
    for each in profile["chunks"]:
        begin = each["begin"] = end + each.pop("skip")
        end = begin + each["rows"]
        need(begin >= profile["foreign"] and end <= position and
             1 <= each["rows"] <= each["padded"] <= 65536, "profile: a chunk")
        need(not any(begin < at < end for at in evictions), "profile: a chunk holds an eviction")


def check_settings_v2(manifest, added, where):
    for name, least, most in (("typical_p", NORMAL_MIN, 1), ("top_n_sigma", 0, math.inf),
                              ("xtc_probability", 0, 1), ("xtc_threshold", NORMAL_MIN, 0.5),
                              ("dry_multiplier", 0, math.inf), ("dry_base", 1, math.inf)):
        value = flushed(added[name])
        need(least <= value <= most and math.isfinite(value), f"{where}: {name}")
    for name in "dry_allowed_length", "min_keep":
        need(added[name] >= 1, f"{where}: {name}")
    tokens = added["dry_breakers"]
    need(tokens == sorted(set(tokens)), f"{where}: dry_breakers do not ascend")
    need(all(token < manifest["vocabulary"] for token in tokens), f"{where}: dry_breakers")


def state_digest(state):
    manifest = state.manifest
    tokens = b"".join(struct.pack("<I", entry[0]) for entry in state.log)
    digest = hashlib.sha256(text(b"stasis state"))
    digest.update(struct.pack("<II", manifest["contract"]["core"], manifest["contract"]["kv"]))
    digest.update(state.identity["model"] + struct.pack("<Q", manifest["position"]))
    evicted = [(position, begin, end)
               for position, ranges in state.evictions for begin, end in ranges]
    digest.update(hashlib.sha256(tokens).digest() + struct.pack("<Q", len(evicted)))
    digest.update(b"".join(struct.pack("<3Q", *each) for each in evicted))
    digest.update(struct.pack("<Q", len(state.groups)))
    for group, pages in zip(manifest["groups"], state.groups):
        digest.update(struct.pack("<IQ", group["window"], len(pages)))
        digest.update(b"".join(page.digest for page in pages))
    digest.update(struct.pack("<Q", len(state.hidden) // 2) + state.hidden)
    profile = manifest["profile"]
    if profile and profile["id"]:
        digest.update(text(b"device profile") + text(profile["id"].encode()))
    if manifest["contract_recurrent"]:
        states = manifest["recurrent"]["states"]
        digest.update(text(b"recurrent layers") +
                      struct.pack("<I", manifest["contract_recurrent"]) +
                      (states[-1]["digest"] if states else bytes(32)))
    if manifest["contract_experts"]:
        digest.update(text(b"experts") + struct.pack("<I", manifest["contract_experts"]))
    return digest.digest()
