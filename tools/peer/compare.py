# Times the same shapes with stasis and with llama.cpp, one figure of each in turn, and prints one
# Markdown table. Called by tools/bench_peer, which builds both. Usage: compare.py --help.
import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import sys

import gguf

FIGURES = {"pp512": (512, 0, 0), "tg128": (0, 128, 0), "tg128@1024": (0, 128, 1024),
           "tg128@4096": (0, 128, 4096), "tg128@16384": (0, 128, 16384)}


def figures_of(config):
    """Those that the model's context has room for."""
    context = config.get("text_config", config).get("max_position_embeddings", 131072)
    return [name for name, sizes in FIGURES.items() if sum(sizes) < context]


def run_json(command):
    print("  " + " ".join(map(str, command)), file=sys.stderr, flush=True)
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"bench_peer: {command[0]} failed:\n{done.stderr.decode()[-2000:]}")
    return json.loads(done.stdout)


def run_stasis(command, model, figure, threads, repetitions):
    return run_json([command, "bench", model, "--json", "--threads", threads, "--only", figure,
                     "--repetitions", repetitions])


def run_peer(command, model, figure, threads, repetitions):
    prompt, generated, depth = FIGURES[figure]
    return run_json([command, "-m", model, "-t", threads, "-p", prompt, "-n", generated, "-d",
                     depth, "-r", repetitions, "-o", "json"])[0]


def rows_of(runs):
    """One row a run: (model, threads, figure, stasis' report, llama-bench's result)."""
    rows = []
    for model, threads, figure, ours, theirs in runs:
        result = next(each for each in ours["results"] if each["name"] == figure)
        peer = statistics.median(theirs["samples_ts"])
        peer_spread = f"{min(theirs['samples_ts']):.1f}-{max(theirs['samples_ts']):.1f}"
        rows.append(f"| {model} | {threads} | {figure} | {result['median']:.1f} "
                    f"({result['min']:.1f}-{result['max']:.1f}) | {peer:.1f} ({peer_spread}) | "
                    f"{result['median'] / peer:.2f} | {100 * result['share']:.0f} % of "
                    f"{result['ceiling']} |")
    return rows


def table(runs, version, date):
    """Markdown. Tokens per second, medians; the range in brackets."""
    first = runs[0][3]
    lines = [f"{first['machine']}; {date}; stasis with {first['kernels']} kernels, "
             f"llama.cpp of {version} ({runs[0][4]['build_commit']}); bf16; tokens per second, "
             "median (range).", "",
             "| model | threads | figure | stasis | llama.cpp | ratio | share of the ceiling |",
             "|---|---|---|---|---|---|---|"]
    return "\n".join(lines + rows_of(runs)) + "\n"


def gguf_of(model, cache):
    path = cache / f"{model.resolve().name}.gguf"
    newest = max(file.stat().st_mtime for file in model.iterdir())
    if not path.exists() or path.stat().st_mtime < newest:
        print(f"  writing {path}", file=sys.stderr, flush=True)
        gguf.write(model, path)
    return path


def parse_arguments():
    parser = argparse.ArgumentParser(prog="bench_peer")
    parser.add_argument("models", nargs="+", type=pathlib.Path, metavar="MODEL",
                        help="a directory that stasis synth has written")
    parser.add_argument("--threads", default="1,2", help="numbers of threads (default: 1,2)")
    parser.add_argument("--only", default="", help=f"of {', '.join(FIGURES)}")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--stasis", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--peer", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--version", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--cache", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    wrong = set(filter(None, arguments.only.split(","))) - set(FIGURES)
    if wrong:
        parser.error(f"--only: {', '.join(sorted(wrong))} is not one of {', '.join(FIGURES)}")
    return arguments


def main():
    arguments = parse_arguments()
    runs = []
    for model in arguments.models:
        possible = figures_of(json.loads((model / "config.json").read_text()))
        wanted = arguments.only.split(",") if arguments.only else possible
        peer_model = gguf_of(model, arguments.cache)
        for threads in map(int, arguments.threads.split(",")):
            for figure in filter(possible.__contains__, wanted):
                ours = run_stasis(arguments.stasis, model, figure, threads, arguments.repetitions)
                theirs = run_peer(arguments.peer, peer_model, figure, threads,
                                  arguments.repetitions)
                runs.append((model.resolve().name, threads, figure, ours, theirs))
    if not runs:
        sys.exit("bench_peer: nothing to measure")
    print(table(runs, arguments.version, datetime.date.today().isoformat()), end="")


if __name__ == "__main__":
    main()
