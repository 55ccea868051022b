# The two tables of format/manifest.fbs as data for flatbuffer.py: fields in the order of their ids.
import struct

from reader.flatbuffer import STRING, Optional, Scalar, Vector

U32, U64 = Scalar("<I", default=0), Scalar("<Q", align=8, default=0)
U8 = Scalar("<B", align=1, default=0)
F32 = Scalar("<f", default=0.0)
DIGEST = Scalar("<32s", align=1)
SECTION_REF = Scalar("<QQ32s", "offset", "bytes", "digest", align=8)
NO_REF = Scalar("<QQ32s", "offset", "bytes", "digest", align=8,
                default={"offset": 0, "bytes": 0, "digest": bytes(32)})
NODE_REF = Scalar("<QII32s", "section", "begin", "bytes", "digest", align=8)
NO_NODE = Scalar("<QII32s", "section", "begin", "bytes", "digest", align=8,
                 default={"section": 0, "begin": 0, "bytes": 0, "digest": bytes(32)})
CONTRACT = Scalar("<III", "core", "kv", "sampling")
TOKEN_VALUE = Scalar("<If", "token", "value")

PAIR = {"name": STRING, "value": STRING}
IDENTITY = {
    "architecture": STRING, "config": Vector(PAIR), "embeddings": DIGEST, "norms": DIGEST,
    "attention": Vector(DIGEST), "mlp": Vector(DIGEST), "head": DIGEST, "model": DIGEST,
    "tokenizer": DIGEST, "tokenizer_type": STRING, "tokenizer_rules": Vector(PAIR),
    "chat_template": STRING,
}
GROUP = {"window": U32, "layers": Vector(U32), "pages": NODE_REF, "kv_heads": U32,
         "head_dim": U32}
SAMPLING_V2 = {
    "typical_p": F32, "top_n_sigma": F32, "xtc_probability": F32, "xtc_threshold": F32,
    "dry_multiplier": F32, "dry_base": F32, "dry_allowed_length": U32, "dry_range": U32,
    "min_keep": U32, "dry_breakers": Vector(U32),
}
# Of settings that use nothing of version 2.
OFF = {"typical_p": 1.0, "top_n_sigma": 0.0, "xtc_probability": 0.0,
       "xtc_threshold": struct.unpack("<f", struct.pack("<f", 0.1))[0], "dry_multiplier": 0.0,
       "dry_base": 1.75, "dry_allowed_length": 2, "dry_range": 0, "min_keep": 1,
       "dry_breakers": []}
SAMPLING_V3 = {"constraint": U32, "allowed": Optional(Vector(U8))}
CONSTRAINT = {"kind": U32, "text": STRING}
SAMPLING = {
    "seed": U64, "temperature": F32, "top_k": U32, "top_p": F32, "min_p": F32,
    "repetition_penalty": F32, "frequency_penalty": F32, "presence_penalty": F32,
    "penalty_window": U32, "bias": Vector(TOKEN_VALUE), "v2": Optional(SAMPLING_V2),
    "v3": Optional(SAMPLING_V3),
}
PROFILE_CHUNK = Scalar("<III", "skip", "rows", "padded")
PROFILE = {"id": STRING, "chunks": Vector(PROFILE_CHUNK), "foreign": U64}
RECURRENT_STATE = Scalar("<QQQ32s", "position", "offset", "stored", "digest", align=8)
RECURRENT = {"layers": Vector(U32), "key_heads": U32, "value_heads": U32, "key_dim": U32,
             "value_dim": U32, "taps": U32, "states": Vector(RECURRENT_STATE)}
MANIFEST = {
    "contract": CONTRACT, "identity": SECTION_REF, "layers": U32, "kv_heads": U32,
    "head_dim": U32, "hidden_size": U32, "vocabulary": U32, "page_positions": U32,
    "groups": Vector(GROUP), "position": U64, "samplings": Vector(SAMPLING), "sampling": U32,
    "capacity": U64, "window_retain": U64, "pending_system": STRING, "logits": DIGEST,
    "top": Vector(TOKEN_VALUE), "digest": DIGEST, "log": NODE_REF, "texts": NODE_REF,
    "text_count": U64, "keep": U32, "hidden": SECTION_REF, "logits_row": SECTION_REF,
    "evictions": NO_REF,
    "tracking": U32, "profile": Optional(PROFILE), "recurrent": Optional(RECURRENT),
    "contract_recurrent": U32, "contract_experts": U32, "sharing": Optional(Vector(U32)),
    "constraints": Optional(Vector(CONSTRAINT)), "host_data": NO_REF,
    "settings": NO_NODE, "setting_count": U32,
}
# Numbers of the session that element 6 lists: the greatest value each may have, or None.
SESSION_NUMBERS = {"capacity": None, "window_retain": None, "tracking": 2}
