# The inputs that the fuzzers begin with: files of the tests' data, small ones that this script
# makes, and the corpus, a file for each target with an input in each line, as Python writes bytes.
"""inputs.py unpack FOLDER       writes them to FOLDER/TARGET/
inputs.py pack TARGET FOLDER  makes the files in FOLDER the corpus of a target"""
import ast
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent / "data"


def sized(header):
    return len(header).to_bytes(8, "little") + header


def safetensors():
    """Each with the byte that says what it is (fuzz_safetensors.cpp)."""
    header = json.dumps({"__metadata__": {"format": "pt"},
                         "a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
                         "b": {"dtype": "F32", "shape": [], "data_offsets": [12, 16]},
                         "c": {"dtype": "I8", "shape": [0], "data_offsets": [16, 16]}}).encode()
    payload = bytes(range(16))
    yield b"\0" + sized(header) + payload
    yield b"\1" + header + b"\0" + payload
    yield b"\2" + json.dumps({"metadata": {}, "weight_map": {"w": "a"}}).encode()
    yield b"\2" + json.dumps({"weight_map": {"w": "b"}}).encode()


def configs():
    for path in sorted(DATA.glob("**/config.json")):
        text = path.read_bytes()
        generation = path.parent / "generation_config.json"
        yield text + (b"\0" + generation.read_bytes() if generation.exists() else b"")


def templates():
    for path in sorted(DATA.glob("**/tokenizer_config.json")):
        template = json.loads(path.read_text(encoding="utf-8")).get("chat_template")
        if template:
            yield template.encode()


def snapshots():
    """Each file there is, used in each way, whole and with each root slot damaged
    (fuzz_snapshot.cpp)."""
    damage = [bytes([9, 1, 0, at & 255, at >> 8, 1, 0x23]) for at in (4100, 8200)]
    for base in range(8):
        for use in range(4):
            for how in (0, 1, 2, 7 << 3, 4 | 2 << 3):
                for edit in (b"", *damage):
                    yield bytes([base | use << 3, how]) + edit


def stores():
    """Each record there is, unchanged, and with each byte of its beginning (fuzz_store.cpp)."""
    for base in range(2):
        for record in range(4):
            yield bytes([base, record])
            for at in range(0, 300, 7):
                yield bytes([base, record, at & 255, at >> 8, 0, 1])


def gguf_models():
    """Each architecture with each type of weights, unchanged (fuzz_gguf_model.cpp)."""
    for architecture in range(12):
        for weights in range(16):
            yield bytes([architecture, weights])


def gguf_text(text):
    return len(text).to_bytes(8, "little") + text


def ggufs():
    """Each with the byte that says what it is (fuzz_gguf.cpp)."""
    file = b"GGUF" + (3).to_bytes(4, "little") + (1).to_bytes(8, "little")
    file += (3).to_bytes(8, "little")
    file += gguf_text(b"general.alignment") + (4).to_bytes(4, "little") + (64).to_bytes(4, "little")
    file += gguf_text(b"general.name") + (8).to_bytes(4, "little") + gguf_text(b"x")
    file += gguf_text(b"list") + (9).to_bytes(4, "little") + (8).to_bytes(4, "little")
    file += (2).to_bytes(8, "little") + gguf_text(b"a") + gguf_text(b"")
    file += gguf_text(b"w") + (2).to_bytes(4, "little") + (32).to_bytes(8, "little")
    file += (2).to_bytes(8, "little") + (8).to_bytes(4, "little") + bytes(8)
    file += bytes(-len(file) % 64)
    yield b"\0" + file + bytes(68)
    # Data of 160 bytes; tensor "w": rank 2, 32 x 2, Q8_0, offset 0; alignment; a text; a list.
    tensor = bytes([4]) + b"w" + bytes([2, 32, 2, 8, 0])
    list_ = bytes([2 | 4 << 2]) + b"list" + bytes([9, 8, 2, 1]) + b"a" + bytes([1]) + b"b"
    yield b"\1" + bytes([20]) + tensor
    yield b"\1" + bytes([20, 1, 64]) + tensor + list_
    yield b"\1" + bytes([0]) + bytes([2 | 1 << 2]) + b"k" + bytes([8, 3]) + b"abc" + list_
    # Two files of a split model: split.no, split.count, the tensor.
    for total in ([], [1 | 3 << 2, 2]):
        yield b"\2" + b"".join(
            bytes([20, 1 | 1 << 2, number, 1 | 2 << 2, 2] + total + [4]) + name +
            bytes([2, 32, 2, 8, 0]) for number, name in ((0, b"v"), (1, b"w")))


def tokenizer_jsons():
    """The layouts of the tests' data with fewer tokens and merges, and a smaller one by hand."""
    for path in sorted(DATA.glob("byte-bpe/*/tokenizer.json")):
        layout = json.loads(path.read_text(encoding="utf-8"))
        model = layout["model"]
        model["vocab"] = {text: id_ for text, id_ in model["vocab"].items() if id_ < 300}
        model["merges"] = model["merges"][:20]
        yield json.dumps(layout).encode()
    model = {"vocab": {"a": 0, "b": 1, "ab": 2, "\u0120": 3}, "merges": ["a b"],
             "ignore_merges": True}
    for pattern in ("a+|b", "(?i:AB)|[^\\s\\p{L}]", "(a+)+[bc]", "\\s+(?!\\S)|\\s+"):
        parts = [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"},
                 {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]
        yield json.dumps({"model": model, "normalizer": {"type": "NFC"},
                          "pre_tokenizer": {"type": "Sequence", "pretokenizers": parts},
                          "added_tokens": [{"id": 4, "content": "<s>", "special": True}]}).encode()


def vocabularies():
    """Rules, ids, tokens with type, size and score, merges (fuzz_tokenizer_gguf.cpp)."""
    def tokens(entries):
        return b"".join(bytes([kind << 5 | len(text), score]) + text
                        for kind, score, text in entries) + b"\xff"
    words = [(2, 0, b"<unk>"), (3, 0, b"<s>"), (4, 0, b"<pad>"), (4, 0, b"ba")]
    words += [(1, 250 - i, text.encode()) for i, text in
              enumerate(("a", "b", "ab", "abab", "\u2581", "\u2581a", "\u0120", "aa"))]
    merges = b"".join(bytes([len(merge)]) + merge for merge in (b"a b", b"ab ab", b"a a"))
    for rules in (1, 1 | 1 << 1, 1 | 2 << 1, 1 | 6 << 1):
        yield bytes([rules, 0, 1]) + tokens(words) + merges
    for rules in (0, 16, 32):
        yield bytes([rules, 0, 1]) + tokens(words)
        yield bytes([rules | 64, 0, 1]) + tokens(words)


def runs():
    """What to do, then edits of a coded run, a run as it is, or numbers (fuzz_codec.cpp)."""
    for what in range(9):
        yield bytes([what, 0, 0, 1, 255])
        yield bytes([what]) + bytes(5 * i % 256 for i in range(200))


def replies():
    """A form, how much has come, and a reply (fuzz_reply.cpp): whole, half, as a conversation."""
    call = b'{"name": "f", "arguments": {"a": [1, "}"]}}'
    forms = (b"text", b"<tool_call>" + call + b"</tool_call>",
             b"<tool_call><function=f><parameter=a>\n1\n</parameter></function></tool_call>",
             call.replace(b"arguments", b"parameters"),
             b"[TOOL_CALLS][" + call + b"][TOOL_CALLS]f[CALL_ID]x[ARGS]{}",
             b'<|tool_call>call:f{a:[1,<|"|>x<|"|>]}<tool_call|>',
             b"<|channel|>analysis<|message|>x<|end|><|start|>assistant to=functions.f"
             b"<|message|>{}<|call|>")
    for form, text in enumerate(forms):
        for come in (128, 255):
            yield bytes([form, come]) + text
            yield bytes([form | 128, come]) + b"<think>x</think>" + text + b" y " + text
    chats = json.loads((DATA / "chat/cases.json").read_text(encoding="utf-8"))["conversations"]
    for chat in chats.values():
        yield bytes([0, 255]) + json.dumps(chat).encode()


def constraints():
    """A kind, a constraint, and a text (fuzz_constraint.cpp)."""
    schemas = (b'{"type":"object","properties":{"a":{"type":"integer","minimum":-3.5},"b":{"enum":'
               b'["x",{"y":[1]}]}},"required":["a"]}\0{"a": 1, "b": {"y":[1]}, "c": null}',
               b'{"type":"array","prefixItems":[{"type":"string","maxLength":2}],"items":{"$ref":'
               b'"#/$defs/e"},"$defs":{"e":{"anyOf":[{"type":"null"},{"$ref":"#"}]}},"minItems":1}'
               b'\0["a",null,["b"]]',
               b'{"allOf":[{"type":"string","pattern":"^[a-c]+"},{"minLength":3}]}\0"abcd"',
               b'{"oneOf":[{"const":1},{"const":"a"}]}\0"a"',
               b'{"type":["string","number"],"format":"date","exclusiveMaximum":1e2}\0"2024-02-29"')
    regexes = (b"(a|b)*[^c-e]{2,3}\\d?\0abab", b"^\\u00e9.+|\\x41(?:b{2})$\0\xc3\xa9a",
               b"\\w\\s[\\d_-]")
    grammars = (b'root ::= "a" root "b" | [x-z]{1,3} # c\n\0aaxbb',
                b'root ::= (item ",")* item?\nitem ::= [^,\\]] | "[" root "]"\n\0a,[b,c],',
                b'root ::= "a" root root | "\\u00e9" | .\n\0aaaa',
                b'root ::= "<" %json {"enum": [1, {"a": "}"}]} ">" | .\n\0<1>')
    for kind, texts in ((0, schemas), (1, (b"\0[1, {\"a\": -2.5e3}]",)), (2, regexes),
                        (3, grammars)):
        for text in texts:
            yield bytes([kind]) + text


def requests():
    """How it is cut, and what a client sends (fuzz_http.cpp)."""
    host = b"HTTP/1.1\r\nHost: a\r\n"
    texts = (b"GET /a%20b?c=d " + host + b"\r\n",
             b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
             b"OPTIONS * " + host + b"Expect: 100-continue\r\nContent-Length: 0\r\n\r\n",
             b"POST http://a/x " + host + b"Content-Length: 3\r\nConnection: close, a\r\n\r\nabc",
             b"POST / " + host + b"Transfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\nA\r\n"
             b"0123456789\r\n0\r\nT: v\r\n\r\n",
             b"POST / " + host + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc",
             b"GET / HTTP/1.1\nHost: a\n\n", b"GET / " + host + b"A: b\r\n c\r\n\r\n")
    for step in (0, 1, 6):
        yield from (bytes([step]) + text for text in texts)
        yield bytes([step]) + b"".join(texts[:5])


def bodies():
    """Which API, and a body with much of what it may have (fuzz_requests.cpp)."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    function = {"name": "f", "description": "d", "parameters": schema}
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    parts = [{"type": "text", "text": "a"}]
    settings = {"model": "m", "stream": True, "temperature": 1, "top_p": 0.5, "seed": 1}
    chat = {"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": parts},
                         {"role": "assistant", "content": None, "tool_calls": [call]},
                         {"role": "tool", "tool_call_id": "call_1", "content": "b"}],
            "tools": [{"type": "function", "function": function}], "tool_choice": "required",
            "logprobs": True, "top_logprobs": 2, "stop": ["x"], "logit_bias": {"1": 2},
            "response_format": {"type": "json_schema", "json_schema": {"schema": schema}},
            "reasoning_effort": "low", "chat_template_kwargs": {"x": 1}, "n": 2, **settings}
    completion = {"prompt": [1, 2], "logprobs": 1, "guided_choice": ["a", "b"], **settings}
    items = [{"role": "user", "content": [{"type": "input_text", "text": "a"}]},
             {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "b"}]},
             {"type": "message", "role": "assistant", "content": "c"},
             {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
             {"type": "function_call_output", "call_id": "1", "output": "d"}]
    response = {"input": items, "instructions": "i", "tools": [{"type": "function", **function}],
                "text": {"format": {"type": "json_schema", "name": "n", "schema": schema}},
                "previous_response_id": "resp_1", "reasoning": {"effort": "high"},
                "include": ["message.output_text.logprobs"], "metadata": {"a": "b"}, **settings}
    blocks = [{"type": "thinking", "thinking": "a", "signature": ""}, *parts,
              {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}}]
    result = {"type": "tool_result", "tool_use_id": "1", "content": parts}
    count = {"system": parts, "messages": [{"role": "assistant", "content": blocks},
                                           {"role": "user", "content": [result, *parts]}],
             "tools": [{"name": "f", "input_schema": schema}], "thinking": {"type": "adaptive"},
             "tool_choice": {"type": "tool", "name": "f"}, "output_config": {"effort": "low"}}
    message = {"max_tokens": 9, "stop_sequences": ["x"], **count, **settings}
    embedding = {"input": ["a", "b"], "encoding_format": "base64", "dimensions": 2}
    kept = {"items": items, "metadata": {"a": "b"}}
    for api, body in enumerate((chat, completion, response, message, count, embedding, kept)):
        yield bytes([api]) + json.dumps(body).encode()


SEEDS = {
    "chat": templates,
    "codec": runs,
    "config": configs,
    "constraint": constraints,
    "gguf": ggufs,
    "gguf_model": gguf_models,
    "http": requests,
    "jinja": templates,
    "reply": replies,
    "requests": bodies,
    "safetensors": safetensors,
    "snapshot": snapshots,
    "store": stores,
    "tokenizer": lambda: [p.read_bytes() for p in sorted(DATA.glob("**/tokenizer.model"))],
    "tokenizer_gguf": vocabularies,
    "tokenizer_json": tokenizer_jsons,
    "tokenizer_config": lambda: [p.read_bytes()
                                 for p in sorted(DATA.glob("**/tokenizer_config.json"))],
}


def unpack(folder):
    for name in sorted(set(SEEDS) | {path.stem for path in HERE.glob("corpus/*.txt")}):
        target = folder / name
        target.mkdir(parents=True, exist_ok=True)
        inputs = list(SEEDS.get(name, list)())
        corpus = HERE / "corpus" / f"{name}.txt"
        if corpus.exists():
            lines = corpus.read_text(encoding="ascii").splitlines()
            inputs += [ast.literal_eval(line) for line in lines]
        for number, data in enumerate(inputs):
            (target / f"{number:05}").write_bytes(data)


def pack(name, folder):
    inputs = sorted({path.read_bytes() for path in folder.iterdir()}, key=lambda i: (len(i), i))
    text = "".join(f"{data!r}\n" for data in inputs)
    (HERE / "corpus").mkdir(exist_ok=True)
    (HERE / "corpus" / f"{name}.txt").write_text(text, encoding="ascii")


if __name__ == "__main__":
    if sys.argv[1:2] == ["unpack"] and len(sys.argv) == 3:
        unpack(pathlib.Path(sys.argv[2]))
    elif sys.argv[1:2] == ["pack"] and len(sys.argv) == 4:
        pack(sys.argv[2], pathlib.Path(sys.argv[3]))
    else:
        sys.exit(__doc__)
