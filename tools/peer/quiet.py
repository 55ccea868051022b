# Runs programs while the machine is quiet: reads from /proc/stat how much processor time work other
# than this benchmark takes, and repeats what such work disturbed. Knows nothing of models.
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


class Moment(typing.NamedTuple):
    """Seconds of all processors together, each since a fixed moment."""
    total: float
    working: float  # neither idle nor stolen
    stolen: float   # given to other guests by the hypervisor
    own: float      # of this process and of those of its children that have ended


class Load(typing.NamedTuple):
    """Shares of all processors' time in an interval."""
    others: float
    stolen: float

    def __str__(self):
        return f"other work {100 * self.others:.1f} %, stolen {100 * self.stolen:.1f} %"


class Busy(Exception):
    """No attempt was quiet; its text says what the last one saw."""


def times_of(text):
    """Returns (total, working, stolen) in seconds, from the text of /proc/stat (proc(5))."""
    ticks = [int(word) / os.sysconf("SC_CLK_TCK") for word in text.split("\n", 1)[0].split()[1:9]]
    user, nice, system, idle, waiting, interrupts, soft_interrupts, stolen = ticks
    working = user + nice + system + interrupts + soft_interrupts
    return working + idle + waiting + stolen, working, stolen


def now():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return Moment(*times_of(pathlib.Path("/proc/stat").read_text(encoding="utf-8")),
                  sum(each.ru_utime + each.ru_stime for each in used))


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


def attempt(programs, order, anyway):
    """Returns (output by name, greatest load), or (None, load) as soon as the machine is busy.

    With `anyway`, all programs run nevertheless.
    """
    _, load = timed(lambda: time.sleep(IDLE_SECONDS))
    if is_busy(load) and not anyway:
        return None, load
    outputs, loads = {}, []
    for name in order:
        outputs[name], load = timed(programs[name])
        loads.append(load)
        if is_busy(load) and not anyway:
            return None, load
    return outputs, max(loads, key=sum)


def run(programs, order, allow_busy):
    """Runs the programs in this order, and all again, a few times, if the machine was busy.

    Returns (output by name, the greatest load beside one of them). Throws Busy, or with
    `allow_busy` accepts what the last attempt gives.
    """
    for left in reversed(range(ATTEMPTS)):
        outputs, load = attempt(programs, order, allow_busy and left == 0)
        if outputs is not None:
            return outputs, load
        print(f"  the machine is busy: {load}", file=sys.stderr, flush=True)
        if left:
            time.sleep(PAUSE_SECONDS)
    raise Busy(f"{load} of the processors' time, in the last of {ATTEMPTS} attempts; "
               f"up to {100 * LIMIT:.0f} % is accepted")
