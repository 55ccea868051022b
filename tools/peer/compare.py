# Times the same models with stasis and with llama.cpp, repetition by repetition in turn, and prints
# one Markdown table. Called by tools/bench_peer, which builds both. Usage: compare.py --help.
import argparse
import contextlib
import datetime
import functools
import json
import pathlib
import statistics
import subprocess
import sys

import gguf
import quiet
import turns
from rows import Repetition, Rows, Run

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


@contextlib.contextmanager
def opened(arguments, model, threads):
    """The programs by name, both with the model open: "stasis", and llama.cpp by flash mode."""
    commands = {"stasis": [arguments.stasis, "bench", model, "--turns", "--repetitions", 1,
                           "--threads", threads, *["--copy-weights"] * arguments.copy_weights]}
    for flash in arguments.flash:
        commands[flash] = [arguments.peer, model, threads, flash]
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(turns.Program(command))
               for name, command in commands.items()}


def measure(arguments, opened_programs, figure, threads):
    """Returns the repetitions of one row. Every second one runs the programs in reverse order."""
    lines = {name: figure if name == "stasis" else " ".join(map(str, FIGURES[figure]))
             for name in opened_programs}
    programs = {name: functools.partial(program.ask, lines[name])
                for name, program in opened_programs.items()}
    # One thread does not feel where another processor is.
    measured = quiet.no_handover
    if threads > 1 and arguments.handover is not None:
        measured = functools.partial(run_json, [arguments.handover])
    repetitions, places = [], quiet.Places()
    for number in range(arguments.repetitions):
        order = list(programs) if number % 2 == 0 else list(reversed(programs))
        outputs, load, handover = quiet.run(programs, order, arguments.allow_busy, measured, places)
        report = {name: value for name, value in outputs.pop("stasis").items()
                  if name in ("machine", "kernels", "results")}
        repetitions.append(Repetition(report, outputs, load, handover))
    return repetitions


def result_of(run, repetition):
    """What `stasis bench` reports of the row's figure, of one repetition."""
    return next(each for each in repetition.stasis["results"] if each["name"] == run.figure)


def cell(values, digits=1):
    return (f"{statistics.median(values):.{digits}f} "
            f"({min(values):.{digits}f}-{max(values):.{digits}f})")


def row_of(run, flashes):
    results = [result_of(run, each) for each in run.repetitions]
    ours = [result["median"] for result in results]
    theirs = {flash: [each.peers[flash] for each in run.repetitions] for flash in flashes}
    better = max(theirs.values(), key=statistics.median)
    ratios = [mine / other for mine, other in zip(ours, better)]
    share = statistics.median(result["share"] for result in results)
    handovers = [each.handover for each in run.repetitions]
    cells = [run.model, run.threads, run.figure, cell(ours), *map(cell, theirs.values()),
             cell(ratios, 2), f"{100 * share:.0f} % of {results[0]['ceiling']}",
             cell(handovers, 0) if any(handovers) else ""]
    return f"| {' | '.join(map(str, cells))} |"


def ceilings_of(runs):
    """Returns a sentence: the least and the greatest of each ceiling beside a repetition."""
    seen = {}
    for run in runs:
        for result in (result_of(run, each) for each in run.repetitions):
            unit = "B/s" if "bytes_per_s" in result else "FLOP/s"
            key = (result["ceiling"], run.threads, unit)
            seen.setdefault(key, []).append(result["ceiling_rate"])
    texts = [f"{name} with {threads} thread{'s' * (threads > 1)} "
             f"{min(values) / 1e9:.1f}-{max(values) / 1e9:.1f} G{unit}"
             for (name, threads, unit), values in seen.items()]
    return f"Ceilings beside the repetitions: {'; '.join(texts)}."


def percents(values):
    return f"{100 * min(values):.1f}-{100 * max(values):.1f} %"


def span(values, between="-"):
    """Returns "least-greatest", or the one if they are equal."""
    return between.join(map(str, sorted({min(values), max(values)})))


def header_of(runs):
    """Returns the lines over the table: machine, date, programs, repetitions, load."""
    first = runs[0].repetitions[0]
    loads = [each.load for run in runs for each in run.repetitions]
    others, stolen = map(percents, zip(*loads))
    busy = sum(map(quiet.is_busy, loads))
    counts = [len(run.repetitions) for run in runs]
    dates = span([run.date for run in runs], " to ")
    lines = [f"{first.stasis['machine']}; {dates}; stasis {runs[0].commit} with "
             f"{first.stasis['kernels']} kernels, llama.cpp of {runs[0].peer}.",
             f"Repetitions: {span(counts)}, both programs in turn in each; tokens per second and "
             "ratio within a repetition, median (range).",
             f"Of the processors' time in a repetition, {stolen} was stolen and other work took "
             f"{others}."]
    if busy:
        lines.append(f"**Warning: the machine was busy in {busy} of {len(loads)} repetitions.**")
    return lines


def table(runs):
    """Returns Markdown. The ratio is to that mode of llama.cpp which has the greater median."""
    flashes = list(runs[0].repetitions[0].peers)
    names = " | ".join("llama.cpp" + (", flash attention" if flash else "") for flash in flashes)
    lines = [*header_of(runs), "",
             f"| model | threads | figure | stasis | {names} | ratio | share of the ceiling | "
             "handover, ns |",
             f"|{'---|' * (7 + len(flashes))}", *[row_of(run, flashes) for run in runs], "",
             ceilings_of(runs)]
    return "\n".join(lines) + "\n"


def is_stale(path, model):
    newest = max(file.stat().st_mtime for file in model.iterdir())
    return not path.exists() or path.stat().st_mtime < newest


def quantize(stasis, model, path, kind):
    run_json([stasis, "quantize", model, path, "--type", kind, "--replace", "--json"])


def subjects_of(arguments):
    """(name, the GGUF file that both programs open) of every model and type. One file, so that
    both read the same pages of memory."""
    for model in arguments.models:
        name = model.resolve().name
        if model.is_file():
            yield name.removesuffix(".gguf"), model
        elif not arguments.types:
            path = arguments.cache / f"{name}.gguf"
            if is_stale(path, model):
                print(f"  writing {path}", file=sys.stderr, flush=True)
                if gguf.can_write(model):
                    gguf.write(model, path)
                else:
                    quantize(arguments.stasis, model, path, "BF16")
            yield f"{name}, bf16", path
        for kind in filter(None, arguments.types.split(",") if model.is_dir() else []):
            path = arguments.cache / f"{name}-{kind}.gguf"
            if is_stale(path, model):
                quantize(arguments.stasis, model, path, kind)
            yield f"{name}, {kind}", path


def parse_arguments():
    parser = argparse.ArgumentParser(prog="bench_peer")
    parser.add_argument("models", nargs="+", type=pathlib.Path, metavar="MODEL",
                        help="a directory that stasis synth has written, or a GGUF file")
    parser.add_argument("--types", default="",
                        help="quantize directories to these first, e.g. Q8_0,Q4_0,Q4_K_M")
    parser.add_argument("--flash", default="0,1",
                        help="llama.cpp without flash attention, with it (default: 0,1)")
    parser.add_argument("--threads", default="1,2", help="numbers of threads (default: 1,2)")
    parser.add_argument("--copy-weights", action="store_true",
                        help="stasis copies the weights: those of bf16 take 12 bits")
    parser.add_argument("--only", default="", help=f"of {', '.join(FIGURES)}")
    parser.add_argument("--repetitions", type=int, default=5,
                        help="in each, every program measures once (default: 5)")
    parser.add_argument("--rows", type=pathlib.Path, metavar="FILE",
                        help="keep each row here when it is measured, measure none that is here, "
                             "leave those for which the machine is too busy, print all")
    parser.add_argument("--allow-busy", action="store_true",
                        help="if the machine is busy, warn in the table instead of ending with 1")
    parser.add_argument("--stasis", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--peer", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--handover", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--version", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--commit", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--cache", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    wrong = set(filter(None, arguments.only.split(","))) - set(FIGURES)
    if wrong:
        parser.error(f"--only: {', '.join(sorted(wrong))} is not one of {', '.join(FIGURES)}")
    for model in arguments.models:
        if not model.exists():
            parser.error(f"{model} does not exist")
    if arguments.repetitions < 1:
        parser.error("--repetitions: at least 1")
    arguments.flash = [int(flash) for flash in arguments.flash.split(",")]
    return arguments


def wanted(arguments, rows):
    """(name, file, threads, figures) of the rows that are asked for, possible and not there yet."""
    for name, model in subjects_of(arguments):
        name += ", copied" * arguments.copy_weights
        possible = figures_of(run_json([arguments.stasis, "info", model, "--json"])["context"])
        figures = arguments.only.split(",") if arguments.only else possible
        for threads in map(int, arguments.threads.split(",")):
            missing = [figure for figure in figures
                       if figure in possible and not rows.has(name, threads, figure)]
            if missing:
                yield name, model, threads, missing


def main():
    arguments = parse_arguments()
    rows, left = Rows(arguments.rows, arguments.commit, arguments.version), 0
    for name, model, threads, figures in wanted(arguments, rows):
        with opened(arguments, model, threads) as programs:
            for figure in figures:
                try:
                    repetitions = measure(arguments, programs, figure, threads)
                except quiet.Busy as busy:
                    text = (f"bench_peer: the machine is too busy to measure {figure} of {name}: "
                            f"{busy}. --allow-busy measures nevertheless.")
                    if arguments.rows is None:
                        sys.exit(text)
                    print(text, file=sys.stderr, flush=True)
                    left += 1
                    continue
                rows.add(Run(name, threads, figure, datetime.date.today().isoformat(),
                             arguments.commit, arguments.version, repetitions))
    if rows.runs:
        print(table(rows.runs), end="")
    if left:
        sys.exit(f"bench_peer: {left} rows are left: the same command measures them")
    if not rows.runs:
        sys.exit("bench_peer: nothing to measure")


if __name__ == "__main__":
    main()
