# The rows of a comparison, in memory, or in a file as well: a line of JSON for each, written as
# soon as it is measured, so that a table of hours can be gone on with.
import json
import pathlib
import sys
import typing

import quiet


class Repetition(typing.NamedTuple):
    stasis: dict  # of the report of `stasis bench`: "machine", "kernels", "results"
    peers: dict   # llama.cpp's tokens per second, by flash mode
    load: quiet.Load
    handover: float  # see quiet.Outputs


class Run(typing.NamedTuple):
    """One row of the table."""
    model: str
    threads: int
    figure: str
    date: str  # YYYY-MM-DD
    commit: str  # of stasis
    peer: str  # llama.cpp's package and version
    repetitions: list


def read_run(text):
    """Returns the run of a line. Throws ValueError, TypeError or KeyError: it is none."""
    run = Run(**json.loads(text))
    repetitions = [Repetition(**each) for each in run.repetitions]
    if not repetitions:
        raise ValueError("no repetition")
    return run._replace(repetitions=[
        each._replace(peers={int(flash): speed for flash, speed in each.peers.items()},
                      load=quiet.Load(*each.load)) for each in repetitions])


def line_of(run):
    return json.dumps(run._replace(repetitions=[
        each._asdict() for each in run.repetitions])._asdict()) + "\n"


class Rows:
    """In the order in which they were measured. `path`: the file, or None. `commit`: of stasis.
    `peer`: llama.cpp's package and version."""

    def __init__(self, path, commit, peer):
        """Ends with 1 if the file holds something else, or rows of another program."""
        self.path, self.runs = path, []
        if path is not None and path.exists():
            for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                try:
                    self.runs.append(read_run(text))
                except (ValueError, TypeError, KeyError, AttributeError):
                    sys.exit(f"bench_peer: {path}, line {number}: this is not a row")
        self.check("commit", lambda run: run.commit, commit)
        self.check("llama.cpp", lambda run: run.peer, peer)

    def check(self, name, of, value):
        if self.runs and of(self.runs[0]) != value:
            sys.exit(f"bench_peer: {self.path} has rows of another {name}: {of(self.runs[0])} in "
                     f"place of {value}")

    def has(self, model, threads, figure):
        return (model, threads, figure) in (run[:3] for run in self.runs)

    def add(self, run):
        """Ends with 1 if the file's rows were measured otherwise."""
        for name, of in (("machine", lambda run: run.repetitions[0].stasis["machine"]),
                         ("choice of --flash", lambda run: [*run.repetitions[0].peers])):
            self.check(name, of, of(run))
        self.runs.append(run)
        if self.path is not None:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(line_of(run))
