# Made the vocabularies of this folder and the ids that they must give, with Hugging Face tokenizers
# 0.23.3, from the project's own documents: one vocabulary of 600 tokens in the layouts of Llama 3,
# SmolLM2, Qwen2, DeepSeek-Coder and gpt-oss. Once made, the vocabulary stays: that of llama3/.
"""make.py: writes LAYOUT/tokenizer.json and LAYOUT/expected.json beside itself"""
import copy
import json
import pathlib
import random
import unicodedata

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+"
          r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# tiktoken, tiktoken_ext/openai_public.py, o200k_base.
UPPER, LOWER = (r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}")
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{SUFFIX}|"
         rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*{SUFFIX}|\p{{N}}{{1,3}}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
              "use_regex": False}


def split(regex):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


DIGITS = {"type": "Digits", "individual_digits": True}
# Per layout: normalizer, pre-tokenizers, ignore_merges, special texts, other added texts.
LAYOUTS = {
    "llama3": (None, [split(LLAMA3), BYTE_LEVEL], True,
               ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"], []),
    "smollm2": (None, [DIGITS, {**BYTE_LEVEL, "use_regex": True}], False,
                ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], []),
    "qwen2": ({"type": "NFC"}, [split(QWEN2), BYTE_LEVEL], False,
              ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], ["<tool_call>", "</tool_call>"]),
    "deepseek-coder": ({"type": "Sequence", "normalizers": []},
                       [split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"),
                        split("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"), DIGITS, BYTE_LEVEL],
                       False, ["<\uff5cbegin\u2581of\u2581sentence\uff5c>"], ["<|EOT|>"]),
    "gpt-oss": (None, [split(O200K), BYTE_LEVEL], False,
                ["<|startoftext|>", "<|endoftext|>", "<|return|>", "<|constrain|>", "<|channel|>",
                 "<|start|>", "<|end|>", "<|message|>", "<|call|>"], []),
}


def train():
    made = HERE / "llama3/tokenizer.json"
    if made.exists():
        return json.loads(made.read_text(encoding="utf-8"))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    texts = [(ROOT / name).read_text(encoding="utf-8")
             for name in ("README.md", "format/FORMAT.md", "runtime/kernels/NUMERICS.md")]
    texts += ["\u8a00\u8449\u306e\u30e2\u30c7\u30eb \u8a00\u8449 " * 9, "\u00fcber \u00c9t\u00e9 " * 9,
              "\U0001F634\U0001F634 " * 9, "        \n\n\n\n" * 9]
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=alphabet, show_progress=False))
    return json.loads(tokenizer.to_str())


def texts(special, added):
    yield from ["", " ", "   ", "a", "Hello world", " Hello  world ", "the session's state",
                "I'm IT'S we'LL you'\u017f THEY'RE", "x = 1234567890 + 3.14159", "\t\tif (a) {\n\t}\n",
                "line\r\nline\r\n\r\n  end", "\n\n\n   \n x", "a\u0085b\u00a0c\u180ed\u2028e\u3000f",
                "\u00fcber u\u0308ber e\u0301t\u00e9 \u1112\u1161\u11ab \ud55c \u0958 \u2126",
                "\u8a00\u8449\u306e\u30e2\u30c7\u30eb\u3001\uff11\uff12\uff13", "\u0661\u0662\u0663 \u00bd\u2167",
                "\U0001F634 \U0001F468\u200d\U0001F469\u200d\U0001F467 \u2764\ufe0f", "a\0b", "<|not a token|>",
                "!!!??? ... --- ***", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5",
                "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0928\u092e\u0938\u094d\u0924\u0947 \u05e9\u05dc\u05d5\u05dd", "z" * 300, "ab" * 200, " " * 300 + "x"]
    for mark in special + added:
        yield f"a{mark} b{mark}{mark}\n"
    chance = random.Random(3)
    tops = [0x7f, 0x7f, 0x2ff, 0x7ff, 0xffff, 0x1ffff]
    while True:
        points = [chance.randrange(chance.choice(tops) + 1) for _ in range(chance.randrange(30))]
        text = "".join(" " if chance.random() < .2 else chr(p) for p in points
                       if unicodedata.category(chr(p)) not in ("Cn", "Cs", "Co"))
        yield text


def main():
    trained = train()
    for name, (normalizer, parts, ignore_merges, special, added) in LAYOUTS.items():
        layout = copy.deepcopy(trained)
        layout["normalizer"] = normalizer
        layout["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": parts}
        layout["model"]["ignore_merges"] = ignore_merges
        layout["added_tokens"] = [
            {"id": 600 + i, "content": text, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": text in special}
            for i, text in enumerate(special + added)]
        if name in ("smollm2", "deepseek-coder"):  # as older files have them
            layout["model"]["merges"] = [" ".join(pair) for pair in layout["model"]["merges"]]
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        text = json.dumps(layout, ensure_ascii=False, separators=(",", ":"))
        (folder / "tokenizer.json").write_text(text, encoding="utf-8")
        tokenizer = Tokenizer.from_str(text)
        source = texts(special, added)
        cases = [next(source) for _ in range(160)]
        pairs = [[case, tokenizer.encode(case, add_special_tokens=False).ids] for case in cases]
        (folder / "expected.json").write_text(
            "[" + ",\n".join(json.dumps(pair, separators=(",", ":")) for pair in pairs) + "]\n",
            encoding="utf-8")


if __name__ == "__main__":
    main()
