# Writes a model that says what a test wants: after each of its tokens it gives the one that a
# script names. Its layer adds nothing, so the logits are a table of the last token. Texts that it
# is to say are tokens of their own, which are not special, and the last character of its
# generation prompt decides which of them begins a reply.
import array
import json
import struct

BOS, END = "<|im_start|>", "<|im_end|>"

# In the form of Hermes; a reply to a tool has another prompt than one to the user.
TEMPLATE = r"""
{%- if tools %}
    {{- '<|im_start|>system\n<tools>' + (tools | tojson) + '</tools><|im_end|>\n' }}
{%- endif %}
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\n' }}
    {%- if m.reasoning_content %}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}
    {{- m.content }}
    {%- for call in m.tool_calls or [] %}
        {{- '\n<tool_call>\n' + (call.function | tojson) + '\n</tool_call>' }}
    {%- endfor %}
    {%- if m.role == 'tool' %}{{ ' (' + m.name + ', ' + m.tool_call_id + ')' }}{% endif %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined %}{{ '<think>' if enable_thinking else '<think></think>-' }}
    {%- elif messages[-1].role == 'tool' %}{{ '\t' }}
    {%- elif messages[-1].content == 'hello' %}{{ ' ' }}
    {%- endif %}
{%- endif %}"""


def byte_characters():
    """GPT-2's character for each byte, as byte-level vocabularies spell them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def write_tensors(path, tensors):
    header, at = {}, 0
    for name, (shape, numbers) in tensors.items():
        size = 4 * len(numbers)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, numbers in tensors.values():
            file.write(numbers.tobytes())


def write(folder, script, template=TEMPLATE):
    """`script`: by the prompt's last character, the texts that a reply consists of; a number is a
    byte of one."""
    texts = list(dict.fromkeys(text for replies in script.values() for text in replies
                               if isinstance(text, str)))
    added = [BOS, END, *texts]
    ids = {text: 256 + index for index, text in enumerate(added)}
    token_of = lambda text: text if isinstance(text, int) else ids[text]
    size = -(-(256 + len(added)) // 32) * 32
    follows = {}
    for begin, replies in script.items():
        at = ord(begin)
        for text in [*replies, END]:
            assert follows.setdefault(at, token_of(text)) == token_of(text), (
                "one token follows each")
            at = token_of(text)

    def zeros(*shape):
        count = 1
        for each in shape:
            count *= each
        return list(shape), array.array("f", bytes(4 * count))

    def ones(count):
        return [count], array.array("f", [1.0] * count)

    embeddings, head = zeros(size, size), zeros(size, size)
    for token in range(size):
        embeddings[1][token * size + token] = 1.0
        head[1][follows.get(token, ids[END]) * size + token] = 1.0
    layer = "model.layers.0."
    folder.mkdir()
    write_tensors(folder / "model.safetensors", {
        "model.embed_tokens.weight": embeddings, "lm_head.weight": head,
        "model.norm.weight": ones(size), layer + "input_layernorm.weight": ones(size),
        layer + "post_attention_layernorm.weight": ones(size),
        layer + "self_attn.q_proj.weight": zeros(32, size),
        layer + "self_attn.k_proj.weight": zeros(32, size),
        layer + "self_attn.v_proj.weight": zeros(32, size),
        layer + "self_attn.o_proj.weight": zeros(size, 32),
        layer + "mlp.gate_proj.weight": zeros(32, size),
        layer + "mlp.up_proj.weight": zeros(32, size),
        layer + "mlp.down_proj.weight": zeros(size, 32)})
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": size,
        "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1,
        "num_key_value_heads": 1, "head_dim": 32, "vocab_size": size, "hidden_act": "silu",
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
        "tie_word_embeddings": False, "bos_token_id": ids[BOS], "eos_token_id": ids[END]}))
    characters = byte_characters()
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "normalizer": None, "post_processor": None,
        "added_tokens": [
            {"id": token, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": text in (BOS, END)} for text, token in ids.items()],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                          "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                    "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "byte_fallback": False, "ignore_merges": False, "merges": [],
                  "vocab": {characters[byte]: byte for byte in range(256)}}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": BOS, "eos_token": END, "chat_template": template}))
    (folder / "generation_config.json").write_text(json.dumps({"do_sample": False}))
    return folder
