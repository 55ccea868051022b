# Holds the logits and greedy texts of stasis beside llama.cpp's for one GGUF file, and each beside
# its own with the same tokens cut in other pieces. Prints Markdown. Called by tools/peer_logits,
# which builds both; tools/benchmarks/agreement.md says what the figures mean.
# Usage: agreement.py --help.
import argparse
import array
import datetime
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import differences

TOKENS, GENERATED, PIECE = 256, 60, 512
TEXT = """\
The lighthouse at the end of the harbour had not been lit for thirty years, but its keeper still \
climbed the stairs every evening. He carried a lamp, a notebook and a loaf of bread, and he \
counted the steps aloud: one hundred and twelve, always the same number. From the top he could \
see the whole bay, the fishing boats coming home, and on clear days the mountains on the other \
side of the water.

One night in October a storm came up from the south. The wind tore the roof off the old \
boathouse, and the waves rose higher than the harbour wall. The keeper looked out and saw a \
small ship without lights, drifting towards the rocks. He did what he had not done in thirty \
years: he filled the great lamp with oil, cleaned the glass with his sleeve, and lit it.

In the morning the captain came to thank him. "We thought that the lighthouse was closed," she \
said. "It was," the keeper answered, "but the stairs never were." Then he wrote the date in his \
notebook, the number of steps, and the name of the ship.

The sum of the first n odd numbers is n squared: 1 + 3 + 5 + 7 = 16.
"""
QUESTIONS = ["Tell me the capital of France in one sentence.", "What is the capital of France?",
             "How many legs does a spider have?", "Write a short poem about the sea.",
             "Explain in two sentences why the sky is blue."]


class Runtimes:
    """Both commands on one file."""

    def __init__(self, arguments, folder):
        self.stasis, self.peer = arguments.stasis, arguments.peer
        self.file, self.threads, self.folder = arguments.file, arguments.threads, folder
        self.info = self.ask("info", self.file)

    def run(self, command, text=""):
        print("  " + " ".join(str(word)[:60] for word in command), file=sys.stderr, flush=True)
        done = subprocess.run([str(word) for word in command], input=text.encode(),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if done.returncode != 0:
            sys.exit(f"peer_logits: {command[0]} ended with {done.returncode}:\n"
                     f"{done.stderr.decode()[-2000:]}")
        return done.stdout.decode()

    def ask(self, *words):
        return json.loads(self.run([self.stasis, *words, "--json"]))

    def tokens_of(self, text):
        return self.ask("tokenize", self.file, text)["tokens"]

    def chat_tokens(self, question):
        messages = self.folder / "messages.json"
        messages.write_text(json.dumps([{"role": "user", "content": question}]))
        return self.ask("template", self.file, "--messages", messages)["tokens"]

    def text_of(self, tokens):
        text = self.run([self.stasis, "detokenize", self.file, ",".join(map(str, tokens))])
        return text.replace("|", r"\|").replace("\n", " ").strip()

    def rows_in(self, path):
        values = array.array("f", path.read_bytes())
        path.unlink()
        vocabulary = self.info["vocabulary"]
        return [values[at:at + vocabulary] for at in range(0, len(values), vocabulary)]

    def our_logits(self, tokens, threads=None, piece=PIECE):
        out = self.folder / "ours"
        self.run([self.stasis, "logits", self.file, "--tokens", ",".join(map(str, tokens)), "--out",
                  out, "--threads", threads or self.threads, "--chunk", piece])
        return self.rows_in(out)

    def peer_logits(self, tokens, threads=None, piece=PIECE, flash=0, file=None):
        out = self.folder / "theirs"
        self.run([self.peer, "logits", file or self.file, threads or self.threads, piece, flash,
                  out], " ".join(map(str, tokens)))
        return self.rows_in(out)

    def our_greedy(self, tokens):
        return self.ask("run", self.file, "--tokens", ",".join(map(str, tokens)), "-n", GENERATED,
                        "--threads", self.threads)["tokens"]

    def peer_greedy(self, tokens, piece=PIECE):
        """(token, how far it is above the next best) for each."""
        out = self.run([self.peer, "greedy", self.file, self.threads, piece, 0, GENERATED],
                       " ".join(map(str, tokens)))
        return [(int(token), float(gap)) for token, gap in map(str.split, out.splitlines())]


def cells(found):
    gaps = f", their gaps up to {max(found['gaps']):.2f}" if found["gaps"] else ""
    return (f"{'the same' if found['same_bits'] else 'others'} | {len(found['gaps'])}{gaps} | "
            f"{100 * found['rms']:.1f} % | {100 * found['max']:.0f} % | {found['divergence']:.4f}")


HEAD = "bits | most likely token differs | rms | maximum | divergence |"
LINE = "---|---|---|---|---|"


def cuts_of(both, text, tokens):
    """Both runtimes beside themselves: logits of each, all tokens at once and one by one, and the
    lines of the table."""
    theirs, ours = both.peer_logits(tokens), both.our_logits(tokens)
    peer_single, our_single = both.peer_logits(tokens, piece=1), both.our_logits(tokens, piece=1)
    rows = [("llama.cpp", "one by one", peer_single, theirs),
            ("stasis", "one by one", our_single, ours),
            ("llama.cpp", "32 at a time", both.peer_logits(tokens, piece=32), theirs),
            ("stasis", "32 at a time", both.our_logits(tokens, piece=32), ours),
            ("llama.cpp", "on one thread", both.peer_logits(tokens, threads=1), theirs),
            ("stasis", "on one thread", both.our_logits(tokens, threads=1), ours),
            ("llama.cpp", "with flash attention", both.peer_logits(tokens, flash=1), theirs)]
    lines = [f"| {text} | {who} | {how} | {cells(differences.compare(rows_, whole))} |"
             for who, how, rows_, whole in rows]
    return theirs, peer_single, ours, lines


def distances_of(both, text, tokens, theirs, peer_single, ours):
    expanded = both.folder / "expanded.gguf"
    if not expanded.exists():
        both.run([both.peer, "expand", both.file, expanded])
    exact = both.peer_logits(tokens, file=expanded)
    pairs = [("stasis", "llama.cpp, all at once", ours, theirs),
             ("stasis", "llama.cpp, one by one", ours, peer_single),
             ("stasis", "F32", ours, exact), ("llama.cpp, all at once", "F32", theirs, exact),
             ("llama.cpp, one by one", "F32", peer_single, exact)]
    return [f"| {text} | {left} | {right} | {cells(differences.compare(rows, reference))} |"
            for left, right, rows, reference in pairs]


def told(tokens, reference):
    """Where they part from the reference's (token, gap)."""
    if tokens == [token for token, _ in reference]:
        return f"nowhere, {len(tokens)} tokens"
    pairs = zip(tokens, reference)
    at = next(at for at, (token, (wanted, _)) in enumerate(pairs) if token != wanted)
    return f"token {at}, its gap {reference[at][1]:.2f}"


def greedy_of(both):
    lines = []
    for question in QUESTIONS:
        prompt = both.chat_tokens(question)
        theirs, ours = both.peer_greedy(prompt), both.our_greedy(prompt)
        single = [token for token, _ in both.peer_greedy(prompt, piece=1)]
        texts = [both.text_of(tokens) for tokens in (ours, [token for token, _ in theirs])]
        lines.append(f"| {question} | {texts[0]} | {texts[1]} | {told(ours, theirs)} | "
                     f"{told(single, theirs)} |")
    return lines


def parse_arguments():
    parser = argparse.ArgumentParser(prog="peer_logits")
    parser.add_argument("file", nargs="?", type=pathlib.Path, metavar="FILE", help="a GGUF file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--record", type=pathlib.Path, metavar="JSON",
                        help="keep a selection of llama.cpp's logits here, for tests")
    for name in "stasis", "peer", "smollm2":
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--version", required=True, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.file = arguments.file or arguments.smollm2
    return arguments


def main():
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="stasis-peer-") as folder:
        both = Runtimes(arguments, pathlib.Path(folder))
        draw = random.Random(1)
        texts = {"prose": both.tokens_of(TEXT)[:TOKENS],
                 "random": [draw.randrange(both.info["vocabulary"]) for _ in range(TOKENS)]}
        cuts, distances = [], []
        for text, tokens in texts.items():
            theirs, peer_single, ours, lines = cuts_of(both, text, tokens)
            cuts += lines
            distances += distances_of(both, text, tokens, theirs, peer_single, ours)
            if text == "prose" and arguments.record:
                kept = differences.record(tokens, theirs, peer_single)
                arguments.record.write_text(json.dumps(kept, separators=(",", ":")) + "\n")
        greedy = greedy_of(both)
    print(f"`{arguments.file.name}`; {datetime.date.today().isoformat()}; stasis with "
          f"{both.info['kernels']} kernels, llama.cpp of {arguments.version}; "
          f"{arguments.threads} threads; {TOKENS} tokens.\n")
    print("\n".join([f"| text | runtime | against all at once: | {HEAD}", f"|---|---|---|{LINE}",
                     *cuts, "", f"| text | logits of | against | {HEAD}", f"|---|---|---|{LINE}",
                     *distances, "", "| prompt | stasis | llama.cpp | the two part at | llama.cpp, "
                     "prompt one by one, parts from llama.cpp at |", "|---|---|---|---|---|",
                     *greedy]))


if __name__ == "__main__":
    main()
