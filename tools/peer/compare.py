# Times the same models with stasis and with llama.cpp, one figure of each in turn, and prints one
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


def figures_of(context):
    """Those that a context of so many positions has room for."""
    return [name for name, sizes in FIGURES.items() if sum(sizes) < context]


def run_json(command):
    print("  " + " ".join(map(str, command)), file=sys.stderr, flush=True)
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"bench_peer: {command[0]} ended with {done.returncode}:\n"
                 f"{done.stderr.decode()[-2000:]}")
    return json.loads(done.stdout)


def run_stasis(command, model, figure, threads, repetitions):
    return run_json([command, "bench", model, "--json", "--threads", threads, "--only", figure,
                     "--repetitions", repetitions])


def run_peer(command, model, figure, threads, flash, repetitions):
    prompt, generated, depth = FIGURES[figure]
    return run_json([command, "-m", model, "-t", threads, "-p", prompt, "-n", generated, "-d",
                     depth, "-fa", flash, "-r", repetitions, "-o", "json"])[0]


def peer_cell(result):
    samples = result["samples_ts"]
    return f"{statistics.median(samples):.1f} ({min(samples):.1f}-{max(samples):.1f})"


def rows_of(runs, flashes):
    """One row a run: (model, threads, figure, stasis' report, llama-bench's result by flash)."""
    rows = []
    for model, threads, figure, ours, theirs in runs:
        result = next(each for each in ours["results"] if each["name"] == figure)
        best = max(statistics.median(each["samples_ts"]) for each in theirs.values())
        peers = " | ".join(peer_cell(theirs[flash]) for flash in flashes)
        rows.append(f"| {model} | {threads} | {figure} | {result['median']:.1f} "
                    f"({result['min']:.1f}-{result['max']:.1f}) | {peers} | "
                    f"{result['median'] / best:.2f} | {100 * result['share']:.0f} % of "
                    f"{result['ceiling']} |")
    return rows


def table(runs, version, date):
    """Markdown. Tokens per second, medians; the range in brackets; the ratio is to the better."""
    _, _, _, ours, theirs = runs[0]
    flashes = list(theirs)
    commit = theirs[flashes[0]]["build_commit"]
    names = " | ".join("llama.cpp" + (", flash attention" if flash else "") for flash in flashes)
    lines = [f"{ours['machine']}; {date}; stasis with {ours['kernels']} kernels, "
             f"llama.cpp of {version} ({commit}); tokens per second, median (range).", "",
             f"| model | threads | figure | stasis | {names} | ratio | share of the ceiling |",
             f"|{'---|' * (6 + len(flashes))}"]
    return "\n".join(lines + rows_of(runs, flashes)) + "\n"


def is_stale(path, model):
    newest = max(file.stat().st_mtime for file in model.iterdir())
    return not path.exists() or path.stat().st_mtime < newest


def subjects_of(arguments):
    """(name, what stasis opens, what llama.cpp opens) of every model and type."""
    for model in arguments.models:
        name = model.resolve().name
        if model.is_file():
            yield name.removesuffix(".gguf"), model, model
        elif not arguments.types:
            path = arguments.cache / f"{name}.gguf"
            if is_stale(path, model):
                print(f"  writing {path}", file=sys.stderr, flush=True)
                gguf.write(model, path)
            yield f"{name}, bf16", model, path
        for kind in filter(None, arguments.types.split(",") if model.is_dir() else []):
            path = arguments.cache / f"{name}-{kind}.gguf"
            if is_stale(path, model):
                run_json([arguments.stasis, "quantize", model, path, "--type", kind, "--replace",
                          "--json"])
            yield f"{name}, {kind}", path, path


def parse_arguments():
    parser = argparse.ArgumentParser(prog="bench_peer")
    parser.add_argument("models", nargs="+", type=pathlib.Path, metavar="MODEL",
                        help="a directory that stasis synth has written, or a GGUF file")
    parser.add_argument("--types", default="",
                        help="quantize directories to these first, e.g. Q8_0,Q4_0,Q4_K_M")
    parser.add_argument("--flash", default="0,1",
                        help="llama.cpp without flash attention, with it (default: 0,1)")
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
    for model in arguments.models:
        if not model.exists():
            parser.error(f"{model} does not exist")
    return arguments


def main():
    arguments = parse_arguments()
    flashes = [int(flash) for flash in arguments.flash.split(",")]
    runs = []
    for name, model, peer_model in subjects_of(arguments):
        possible = figures_of(run_json([arguments.stasis, "info", model, "--json"])["context"])
        wanted = arguments.only.split(",") if arguments.only else possible
        for threads in map(int, arguments.threads.split(",")):
            for figure in filter(possible.__contains__, wanted):
                ours = run_stasis(arguments.stasis, model, figure, threads, arguments.repetitions)
                theirs = {flash: run_peer(arguments.peer, peer_model, figure, threads, flash,
                                          arguments.repetitions) for flash in flashes}
                runs.append((name, threads, figure, ours, theirs))
    if not runs:
        sys.exit("bench_peer: nothing to measure")
    print(table(runs, arguments.version, datetime.date.today().isoformat()), end="")


if __name__ == "__main__":
    main()
