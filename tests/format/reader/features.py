# The features that the root of a manifest has (FORMAT.md, "Roots").
from reader.constraints import SAMPLING_V3, uses_constraints
from reader.container import EVICTED, EXPERTS, LAYERS, PROFILED, RECURRENT, SETTINGS
from reader.flatbuffer import Buffer
from reader.host_data import DATA
from reader.schema import MANIFEST, OFF

SAMPLING_V2 = 1  # a feature with which a reader that does not know it may only read
NO_PROFILE = {"id": "", "chunks": [], "foreign": 0}


def features(content):
    """Of a manifest's bytes: those with which a reader may read, those for which it must refuse."""
    manifest = Buffer(content, "manifest").root(b"STSM", MANIFEST)
    second = any(each["v2"] and each["v2"] != OFF for each in manifest["samplings"])
    own = any(group["kv_heads"] or group["head_dim"] for group in manifest["groups"])
    read = {SAMPLING_V2: second, SAMPLING_V3: uses_constraints(manifest),
            DATA: manifest["host_data"]["offset"] != 0}
    refuse = {EVICTED: manifest["evictions"]["offset"] != 0,
              PROFILED: manifest["profile"] not in (None, NO_PROFILE),
              RECURRENT: manifest["recurrent"] is not None,
              EXPERTS: manifest["contract_experts"] != 0,
              LAYERS: own or bool(manifest["sharing"]),
              SETTINGS: manifest["settings"]["section"] != 0}
    return tuple(sum(bit for bit, there in each.items() if there) for each in (read, refuse))
