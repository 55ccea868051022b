# Writes a model directory (Llama or Gemma 3, bf16 safetensors) as a GGUF file that llama.cpp can
# time: matrices byte for byte, norms as f32. Not a converter for use: there is no tokenizer, and
# Llama's query and key rows stay in their order, which changes what is computed but not how fast.
# Format: docs/gguf.md of github.com/ggml-org/ggml; names and keys: gguf-py of llama.cpp.
import json
import pathlib
import struct

MAGIC, VERSION, ALIGNMENT = b"GGUF", 3, 32
UINT32, FLOAT32, STRING = 4, 6, 8  # types of values
F32, BF16 = 0, 30                  # types of tensors
MOSTLY_BF16 = 32                   # a type of files

LAYER_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
}
OUTER_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm",
               "lm_head": "output"}


def peer_name(name, gemma):
    """'model.layers.3.mlp.up_proj.weight' as 'blk.3.ffn_up.weight'."""
    stem = name.removeprefix("language_model.").removesuffix(".weight")
    if stem in OUTER_NAMES:
        return OUTER_NAMES[stem] + ".weight"
    _, _, layer, part = stem.split(".", 3)
    if part == "post_attention_layernorm":
        return f"blk.{layer}.{'post_attention_norm' if gemma else 'ffn_norm'}.weight"
    return f"blk.{layer}.{LAYER_NAMES[part]}.weight"


def tensors_of(folder):
    """(name, shape, file, offset, bytes) of every tensor, in the order of the files."""
    for path in sorted(folder.glob("model*.safetensors")):
        with open(path, "rb") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            header = json.loads(file.read(size))
        header.pop("__metadata__", None)
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            assert entry["dtype"] == "BF16", f"{name}: {entry['dtype']}"
            yield name, entry["shape"], path, 8 + size + begin, end - begin


def keys_of(config):
    """The hyperparameters, as (key, type, value)."""
    text = config.get("text_config", config)
    gemma = text["model_type"].startswith("gemma3")
    name = "gemma3" if gemma else "llama"
    heads = text.get("num_attention_heads", 8)
    head_dim = text.get("head_dim", 256 if gemma else text["hidden_size"] // heads)
    keys = [("general.architecture", STRING, name), ("general.file_type", UINT32, MOSTLY_BF16),
            ("tokenizer.ggml.model", STRING, "no_vocab")]

    def add(key, kind, value):
        keys.append((f"{name}.{key}", kind, value))

    add("vocab_size", UINT32, text.get("vocab_size", 262208))
    add("context_length", UINT32, text.get("max_position_embeddings", 131072))
    add("embedding_length", UINT32, text["hidden_size"])
    add("block_count", UINT32, text["num_hidden_layers"])
    add("feed_forward_length", UINT32, text["intermediate_size"])
    add("attention.head_count", UINT32, heads)
    add("attention.head_count_kv", UINT32, text.get("num_key_value_heads", 4))
    add("attention.key_length", UINT32, head_dim)
    add("attention.value_length", UINT32, head_dim)
    add("attention.layer_norm_rms_epsilon", FLOAT32, text.get("rms_norm_eps", 1e-6))
    add("rope.dimension_count", UINT32, head_dim)
    add("rope.freq_base", FLOAT32, text.get("rope_theta", 1e6))
    if gemma:
        add("attention.sliding_window", UINT32, text["sliding_window"])
    return keys


def string(text):
    return struct.pack("<Q", len(text)) + text.encode()


def pack_value(kind, value):
    packed = string(value) if kind == STRING else struct.pack("<I" if kind == UINT32 else "<f",
                                                              value)
    return struct.pack("<I", kind) + packed


def padded(size):
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def as_f32(bf16, addend):
    values = [struct.unpack("<f", b"\0\0" + bf16[at:at + 2])[0] for at in range(0, len(bf16), 2)]
    return struct.pack(f"<{len(values)}f", *(value + addend for value in values))


def header_of(config, tensors, gemma):
    keys = keys_of(config)
    out = MAGIC + struct.pack("<IQQ", VERSION, len(tensors), len(keys))
    for key, kind, value in keys:
        out += string(key) + pack_value(kind, value)
    offset = 0
    for name, shape, _, _, size in tensors:
        dimensions = shape[::-1]  # the fastest first
        is_norm = len(shape) == 1
        out += string(peer_name(name, gemma)) + struct.pack("<I", len(dimensions))
        out += struct.pack(f"<{len(dimensions)}Q", *dimensions)
        out += struct.pack("<IQ", F32 if is_norm else BF16, offset)
        offset += padded(2 * size if is_norm else size)
    return out.ljust(padded(len(out)), b"\0")


def can_write(folder):
    """Other families' files are written by `stasis quantize`."""
    kind = json.loads((folder / "config.json").read_text())["model_type"]
    return kind == "llama" or kind.startswith("gemma3")


def write(folder, path):
    """The model in `folder` as the file `path`, whole or not at all."""
    config = json.loads((folder / "config.json").read_text())
    gemma = "gemma" in config["model_type"]
    tensors = list(tensors_of(folder))
    written = pathlib.Path(f"{path}.tmp")
    with open(written, "wb") as out:
        out.write(header_of(config, tensors, gemma))
        for _, shape, source, offset, size in tensors:
            with open(source, "rb") as file:
                file.seek(offset)
                if len(shape) == 1:
                    out.write(as_f32(file.read(size), 1.0 if gemma else 0.0))
                else:
                    copy(file, out, size)
            out.write(b"\0" * (padded(out.tell()) - out.tell()))
    written.rename(path)


def copy(file, out, size):
    while size > 0:
        block = file.read(min(size, 1 << 24))
        out.write(block)
        size -= len(block)
