# The stage of tools/gpu_check that runs test cases on the GPU: one process for each source file, a
# few at a time, so that a process that hangs, or loses its device, affects no other file. Converts
# the output of doctest to plain data.
import concurrent.futures
import os
import re
import xml.etree.ElementTree

from programs import Problem, ending, last_line

CASES = "device*"
# Files whose cases use the host grid alone, or arithmetic alone: they need no GPU.
OF_THE_HOST = {"device_arithmetic_test.cpp", "device_grid_test.cpp", "device_errors_test.cpp"}
FILE_SECONDS = 50
LINES_MAX = 30  # lines of a failed case's output


def parse_list(text):
    """Names of cases, in the order they run in, by source file, of doctest's list as XML."""
    files = {}
    try:
        for case in xml.etree.ElementTree.fromstring(text.strip()).iter("TestCase"):
            file = os.path.basename(case.get("filename"))
            if file not in OF_THE_HOST:
                files.setdefault(file, []).append(case.get("name"))
    except xml.etree.ElementTree.ParseError as problem:
        raise Problem(f"its list of cases is no XML: {problem}") from None
    if not files:
        raise Problem("it has no test case for a device")
    return files


def said(out):
    """The output of doctest by name of the case: from the line above "TEST CASE:" on."""
    texts, now, before = {}, None, ""
    for line in out.splitlines():
        if line.startswith("TEST CASE:"):
            now = texts.setdefault(line.split(":", 1)[1].strip(), [])
            now.append(before)
        elif line.startswith(("=====", "[doctest]")) or re.match(r"\d+\.\d+ s: ", line):
            now = None
        elif now is not None and line.strip():
            now.append(line)
        before = line
    return texts


def parse_run(out, code, names):
    """(outcomes, failures) of a run with --duration: [name, outcome, seconds] of each case that was
    to run, and the output of the failed ones. Without an exit code it did not end."""
    texts = said(out)
    bad = [name for name, lines in texts.items()
           if any(": ERROR: " in line or "FATAL ERROR: " in line for line in lines)]
    done = {name: f"{float(seconds):.2f}"
            for seconds, name in re.findall(r"^(\d+\.\d+) s: (.*)$", out, re.MULTILINE)}
    missing = [name for name in names if name not in done]
    outcomes = []
    for name in dict.fromkeys([*names, *done, *bad]):
        last = [name] == missing[:1] and code != 0
        outcome = ("DID NOT END" if last and (code is None or name not in bad) else
                   "FAILED" if name in bad else
                   "skipped" if f"\nSKIPPED: {name}: " in "\n" + out else
                   "passed" if name in done else "not begun")
        outcomes.append([name, outcome, done.get(name, "")])
    return outcomes, {name: texts[name][:LINES_MAX] for name in bad}


class Cases:
    def __init__(self, programs, results, attempt):
        """`attempt(line, work)` does the work, and stores its reason under the line if it fails."""
        self.programs, self.results, self.attempt = programs, results, attempt

    def run(self, names):
        """The cases of these programs."""
        files = []
        for program in names:
            self.attempt(program, lambda program=program: files.extend(
                (program, file, cases) for file, cases in self.listed(program).items()))
        at_once = max(1, min(4, (os.cpu_count() or 1) // 2))
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            running = {pool.submit(self.file, *each): each for each in files}
            for done in concurrent.futures.as_completed(running):
                program, file, cases = running[done]
                self.attempt(f"{program} {file}", lambda done=done, program=program, file=file,
                             cases=cases: self.take(program, file, cases, done))

    def listed(self, program):
        return parse_list(self.programs.ok(program, "--list-test-cases", "--reporters=xml",
                                           f"--test-case={CASES}"))

    def file(self, program, file, _):
        return self.programs.partly(program, f"--source-file=*/{file}", f"--test-case={CASES}",
                                    "--duration=true", seconds_max=FILE_SECONDS, by_line=True)

    def take(self, program, file, names, done):
        """Stores the outcomes that there are in the results, and failures as a problem."""
        found = self.results["tests"].setdefault(program, {"cases": []})
        try:
            code, out, err, seconds = done.result()
        except Problem:
            found["cases"] += [[name, "not begun", ""] for name in names]
            raise
        cases, failures = parse_run(out, code, names)
        found["cases"] += cases
        self.results["failures"].update({f"{program}: {name}": lines
                                         for name, lines in failures.items()})
        if code != 0 and err.strip():
            self.results["failures"][f"{program} {file}: stderr"] = err.splitlines()[-LINES_MAX:]
        at = next((name for name, outcome, _ in cases if outcome == "DID NOT END"), None)
        where = f", in \"{at}\"" if at else ""
        if code is None:
            raise Problem(f"not done after {seconds:.0f} s{where}")
        if code != 0:
            raise Problem(f"{ending(code)}{where}" +
                          ("" if failures or at else f": {last_line(err or out)}"))
        if left := [name for name, outcome, _ in cases if outcome == "not begun"]:
            raise Problem(f"{len(left)} of its cases did not run")
