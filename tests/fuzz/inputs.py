# The inputs that the fuzzers begin with: files of the tests' data, small ones made here, and the
# corpus, a file for each target with an input in each line, as Python writes bytes.
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
    """Each file there is, used in each way (fuzz_snapshot.cpp)."""
    for base in range(6):
        for use in range(4):
            for how in (0, 1, 2, 7 << 3, 4 | 2 << 3):
                yield bytes([base | use << 3, how])


def runs():
    """What to do, then edits of a coded run, a run as it is, or numbers (fuzz_codec.cpp)."""
    for what in range(9):
        yield bytes([what, 0, 0, 1, 255])
        yield bytes([what]) + bytes(5 * i % 256 for i in range(200))


SEEDS = {
    "chat": templates,
    "codec": runs,
    "config": configs,
    "jinja": templates,
    "safetensors": safetensors,
    "snapshot": snapshots,
    "tokenizer": lambda: [p.read_bytes() for p in sorted(DATA.glob("**/tokenizer.model"))],
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
