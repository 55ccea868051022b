# The report of tools/gpu_check: its lines, and the conversion of results to Markdown. Runs nothing.
# Results are plain data: {"run": {fact: text}, "ceilings": {name: {"value", "how"}}, "tests":
# {program: {"cases": [[name, outcome, seconds]]}}, "models": {line: text}, "figures": {name:
# {"median", "min", "max", "unit", "rate", "ceiling", "share"}}, "failures": {case: [line]},
# "problems": {line: reason}}. A line that is in none of them has not run yet.
import collections
import math

NOT_RUN = "not run yet"

Figure = collections.namedtuple("Figure", "name what ceiling target model")
LARGE, LONG = "tinyllama-1.1b", "llama3.2-1b"  # shapes of `stasis synth`

FACTS = ["device", "compute capability", "memory", "driver", "CUDA", "persistence", "clocks",
         "held open", "host", "date", "commit"]
OUTCOMES = {"passed": "passed", "FAILED": "failed", "skipped": "skipped",
            "DID NOT END": "not ended", "not begun": "not begun"}
FAILURE_LINES, FAILURE_COLUMNS = 200, 200  # of all that failed cases said

CEILINGS = {
    "copy": ("device memory, copied: bytes read and written", "B/s"),
    "read": ("device memory, read", "B/s"),
    "fma_fp32": ("FP32 FMAs", "FLOP/s"),
    "gemm_bf16_prefill": ("cuBLASLt, bf16, a 1.1B model's layer, 512 tokens", "FLOP/s"),
    "gemm_bf16_8192": ("cuBLASLt, bf16, 8192 x 8192 x 8192", "FLOP/s"),
    "to_device": ("link, pinned memory to the device", "B/s"),
    "to_host": ("link, the device to pinned memory", "B/s"),
}

TESTS = ["test_kernels", "test_runtime"]

MODELS = ["recall-gemma3", "recall-llama", LARGE]
MODEL_LINES = {
    "same": "tokens and digest of a prompt and a reply, on the CPU and on the GPU",
    "to_gpu": "saved on the CPU, continued on the GPU, verified on the CPU",
    "to_cpu": "saved on the GPU, continued on the CPU, verified on the GPU",
    "joined": "digests of the two continued",
}
PROFILE_LINES = {  # under the device profile, all on the GPU
    "profile_same": "device profile: tokens and digest of a prompt and a reply, in two processes",
    "profile_kept": "device profile: saved and continued in another process, or never saved",
    "profile_verified": "device profile: the continued one, verified under the same profile",
}

FIGURES = [
    Figure("tg128", "decode, batch 1: weights read for each token", "copy", 0.7, LARGE),
    Figure("tg128@1024", "the same behind 1024 tokens", "copy", None, LARGE),
    Figure("batch8@512", "decode, 8 sessions in one step", "copy", None, LARGE),
    Figure("pp512", "contract prefill, 512 tokens", "fma_fp32", 0.5, LARGE),
    Figure("profile", "profile prefill, 512 tokens", "gemm_bf16_prefill", 0.5, LARGE),
    Figure("save", "save of 2048 tokens", "to_host", None, LARGE),
    Figure("load", "load of 2048 tokens", "to_device", None, LARGE),
    Figure("save@16384", "save of 16384 tokens", "to_host", 0.8, LONG),
    Figure("load@16384", "load of 16384 tokens", "to_device", 0.8, LONG),
    Figure("open", "opening the model, to the first logits", "to_device", None, LARGE),
]

HEAD = """# What ran on a GPU

Written by `tools/gpu_check`, which builds, compares and measures in one command on a machine that
has a GPU. Do not edit: the next run writes it anew. A line says "not run yet" until it has run
there.
"""


def blank():
    return {"run": {}, "ceilings": {}, "tests": {}, "models": {}, "figures": {},
            "failures": {}, "problems": {}}


def cell(text):
    """Text that cannot end a table's cell."""
    return " ".join(str(text).replace("|", "/").split())


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell(part) for part in line) + " |\n" for line in lines)


def missing(results, line):
    """The text in place of a missing result."""
    return results["problems"].get(line, NOT_RUN)


def known(value):
    """A number that others can be compared with: a program may print null, NaN or nothing."""
    return isinstance(value, (int, float)) and math.isfinite(value) and value > 0


def scaled(value, unit):
    """1234567890, "B/s": "1.23 GB/s"."""
    if not known(value):
        return f"no rate: {value}"
    prefixes = ["", "k", "M", "G", "T", "P"]
    while abs(value) >= 1000 and len(prefixes) > 1:
        value /= 1000
        prefixes.pop(0)
    return f"{value:.{2 if value < 100 else 0}f} {prefixes[0]}{unit}"


def number(value):
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return f"no number: {value}"
    return f"{value:.{0 if value >= 1000 else 1 if value >= 10 else 3}f}"


def facts(results):
    return table(["this run", ""],
                 [[fact, results["run"].get(fact, "unknown" if results["run"] else
                                              missing(results, fact))] for fact in FACTS])


def ceilings(results):
    rows = []
    for name, (what, unit) in CEILINGS.items():
        found = results["ceilings"].get(name)
        rows.append([f"`{name}`", what, scaled(found.get("value"), unit), found.get("how", "")]
                    if found else
                    [f"`{name}`", what, missing(results, name), ""])
    return table(["ceiling", "what", "best", "how"], rows)


def figure_row(results, figure):
    target = f"{100 * figure.target:.0f} %" if figure.target else "none"
    found = results["figures"].get(figure.name)
    row = [f"`{figure.name}`", figure.what]
    if not found:
        return [*row, missing(results, figure.name), "", f"`{figure.ceiling}`", "", target, "", ""]
    middle, least, most = (number(found.get(key)) for key in ("median", "min", "max"))
    unit = CEILINGS[figure.ceiling][1]
    row += [f"{middle} {found.get('unit')} ({least}-{most})", scaled(found.get("rate"), unit)]
    own = ""  # what the benchmark itself held it against, at the same time: files and their SHA-256
    if found.get("ceiling"):
        share = found.get("share")
        own = f"`{found['ceiling']}`, {number(100 * share if known(share) else share)} %"
    ceiling = results["ceilings"].get(figure.ceiling)
    if not ceiling:
        reason = f"`{figure.ceiling}`: {missing(results, figure.ceiling)}"
        return [*row, reason, "", target, "", own]
    row.append(f"`{figure.ceiling}`, {scaled(ceiling.get('value'), unit)}")
    if not known(found.get("rate")) or not known(ceiling.get("value")):
        return [*row, "unknown", target, "unknown" if figure.target else "", own]
    share = found["rate"] / ceiling["value"]
    reached = "" if not figure.target else "yes" if share >= figure.target else "NO"
    return [*row, f"{100 * share:.1f} %", target, reached, own]


def figures(results):
    return table(["figure", "what", "median (range)", "rate", "ceiling", "share", "target",
                  "reached", "also held against"],
                 [figure_row(results, figure) for figure in FIGURES])


def outcomes(results, program):
    """The number of cases of each outcome, and the failures by file."""
    found = [outcome for _, outcome, _ in results["tests"][program]["cases"]]
    counts = ", ".join(f"{found.count(outcome)} {words}" for outcome, words in OUTCOMES.items()
                       if outcome in found or outcome in ("passed", "FAILED"))
    wrong = [f"{line.removeprefix(program).strip()}: {reason}"
             for line, reason in results["problems"].items() if line.split(" ")[0] == program]
    return "; ".join([counts, *wrong])


def equality(results):
    rows = []
    for program in TESTS:
        found = results["tests"].get(program)
        line = f"`{program}`: kernels and models on the device, against the CPU's"
        rows.append([line, outcomes(results, program) if found else missing(results, program)])
    for model in MODELS:
        for key, what in [*MODEL_LINES.items(), *PROFILE_LINES.items()]:
            line = f"{model} {key}"
            rows.append([f"`{model}`: {what}",
                         results["models"].get(line, missing(results, line))])
    return table(["what is equal, bit for bit", "outcome"], rows)


def cases(results):
    rows = [[f"`{program}`", name, outcome, seconds]
            for program in TESTS if program in results["tests"]
            for name, outcome, seconds in results["tests"][program]["cases"]]
    return table(["program", "test case", "outcome", "seconds"], rows or [["all", NOT_RUN, "", ""]])


def failures(results):
    """The output of each failed case, in one block that it cannot end."""
    lines = [line[:FAILURE_COLUMNS].replace("```", "~~~")
             for name, said in results["failures"].items() for line in ["", name, *said]][1:]
    more = len(lines) - FAILURE_LINES
    return "```text\n" + "\n".join(lines[:FAILURE_LINES]) + "\n" + \
        (f"... and {more} lines more: --json has them\n" if more > 0 else "") + "```\n"


def render(results):
    other = "".join(f"- {line}: {cell(reason)}\n" for line, reason in results["problems"].items())
    return "\n".join([
        HEAD, facts(results),
        "## Equality\n", equality(results),
        "## Figures\n\nBy `stasis bench --device cuda`, on random weights in the shape of"
        f" `{LARGE}` (`@16384`:\n`{LONG}`), files in memory where there is room; what each figure"
        " is, tools/BENCHMARKS.md says.\nWhat `stasis bench` holds a figure against itself, in the"
        " same run, stands last: files, their SHA-256.\n", figures(results),
        "## Ceilings\n\nBy `tools/gpu/ceilings.cu`, in the same run.\n", ceilings(results),
        "## Test cases\n", cases(results),
        *(["## What went wrong\n", other] if other else []),
        *(["## What failed cases said\n", failures(results)] if results["failures"] else [])])
