# Runs programs while the machine is quiet: reads from /proc/stat how much processor time work other
# than this benchmark takes, and repeats what such work disturbed. On a virtual machine, runs them
# while the processors are where they were: the hypervisor moves them, and two that share a cache
# share its path to memory. Knows nothing of models.
import os
import pathlib
import resource
import sys
import time
import typing

LIMIT = 0.05  # share of all processors' time; above it, the machine is busy
ATTEMPTS = 4
PAUSE_SECONDS = 5  # between attempts
IDLE_SECONDS = 0.2
RUNS = 6  # of each program within an attempt, at most, while the processors move
SAME_PLACE = 1.5  # times of a handover that differ less are of one place


class Moment(typing.NamedTuple):
    """Seconds of all processors together, each since a fixed moment."""
    total: float
    working: float  # neither idle nor stolen
    stolen: float   # given to other guests by the hypervisor
    own: float      # of this process and its children


class Load(typing.NamedTuple):
    """Shares of all processors' time in an interval."""
    others: float
    stolen: float

    def __str__(self):
        return f"other work {100 * self.others:.1f} %, stolen {100 * self.stolen:.1f} %"


class Busy(Exception):
    """No attempt was quiet, or the processors moved; its text says what the last one saw."""


class Outputs(typing.NamedTuple):
    by_name: dict
    load: Load       # the greatest beside one of the programs
    handover: float  # of a cache line between two processors and back, in ns; 0: not asked


def times_of(text):
    """Returns (total, working, stolen) in seconds, from the text of /proc/stat (proc(5))."""
    ticks = [int(word) / os.sysconf("SC_CLK_TCK") for word in text.split("\n", 1)[0].split()[1:9]]
    user, nice, system, idle, waiting, interrupts, soft_interrupts, stolen = ticks
    working = user + nice + system + interrupts + soft_interrupts
    return working + idle + waiting + stolen, working, stolen


def seconds_of_child(text):
    """Returns what a process has used, from the text of its /proc/PID/stat (proc(5)). The name, in
    parentheses, may have spaces."""
    user, system = text.rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def now():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    running = pathlib.Path("/proc/thread-self/children").read_text(encoding="utf-8").split()
    children = [pathlib.Path(f"/proc/{child}/stat").read_text(encoding="utf-8")
                for child in running]
    return Moment(*times_of(pathlib.Path("/proc/stat").read_text(encoding="utf-8")),
                  sum(each.ru_utime + each.ru_stime for each in used) +
                  sum(map(seconds_of_child, children)))


def load_between(before, after):
    total = after.total - before.total
    if total <= 0:  # shorter than a tick of the clock
        return Load(0.0, 0.0)
    others = (after.working - before.working) - (after.own - before.own)
    return Load(max(others, 0.0) / total, (after.stolen - before.stolen) / total)


def is_busy(load):
    return sum(load) > LIMIT


def timed(program):
    """Returns what `program` returns, and the load while it ran."""
    before = now()
    output = program()
    return output, load_between(before, now())


def is_same_place(handover, other):
    return max(handover, other) <= SAME_PLACE * min(handover, other)


class Places:
    """What ran in each place, until every program has."""
    def __init__(self):
        self.kept = []  # (handover, (output, load) by name)

    def at(self, handover):
        for each in self.kept:
            if is_same_place(each[0], handover):
                return each
        self.kept.append((handover, {}))
        return self.kept[-1]

    def __str__(self):
        return ", ".join(f"{handover:.0f}" for handover, _ in self.kept)


def attempt(programs, order, anyway, handover, places):
    """Returns (Outputs, None), or (None, load) as soon as the machine is busy.

    The outputs are of runs in one place. A run in which the processors moved does not count; where
    they are in another place, the programs without an output there are next. With `anyway`, each
    program runs once and counts.
    """
    _, load = timed(lambda: time.sleep(IDLE_SECONDS))
    if is_busy(load) and not anyway:
        return None, load
    if anyway:
        handover, places = no_handover, Places()
    after = handover()
    for _ in range(RUNS * len(order)):
        before = after
        first, ran = places.at(before)
        name = next(each for each in order if each not in ran)
        output, load = timed(programs[name])
        if is_busy(load) and not anyway:
            return None, load
        after = handover()
        if is_same_place(before, after):
            ran[name] = output, load
        if len(ran) == len(order):
            outputs, loads = zip(*ran.values())
            whole = Outputs(dict(zip(ran, outputs)), max(loads, key=sum), first)
            ran.clear()
            return whole, None
    raise Busy(f"the hypervisor moved the processors too often: a cache line went from one to the "
               f"other and back in {places} ns")


def no_handover():
    return 0.0


def run(programs, order, allow_busy, handover, places):
    """Runs the programs in this order, and the one beside which the machine was busy again, a few
    times.

    `handover` measures what Outputs has of it. `places` holds what earlier calls with the same
    programs left over. Throws Busy, or with `allow_busy` accepts what the last attempt gives.
    """
    for left in reversed(range(ATTEMPTS)):
        outputs, load = attempt(programs, order, allow_busy and left == 0, handover, places)
        if outputs is not None:
            return outputs
        print(f"  the machine is busy: {load}", file=sys.stderr, flush=True)
        if left:
            time.sleep(PAUSE_SECONDS)
    raise Busy(f"{load} of the processors' time, in the last of {ATTEMPTS} attempts; "
               f"up to {100 * LIMIT:.0f} % is accepted")
