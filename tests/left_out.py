# Selects the test cases that the daily run leaves out under sanitizers, where they take some five
# times as long: of those that took long in the optimised build of the same run, all but one in
# eight, which the seed selects. The times vary between runs, so a seed repeats the choice only
# roughly. Prints their number and a filter for doctest, or nothing if there are none.
# Usage: left_out.py SEED LOG... (the output of the optimised program under --duration)
import re
import sys
import zlib

LONG_SECONDS = 0.1
TAKEN = 8  # one of so many

seed, logs = int(sys.argv[1]), sys.argv[2:]
left_out = set()
for log in logs:
    with open(log, encoding="utf-8", errors="replace") as lines:
        for seconds, name in re.findall(r"^=*(\d+\.\d+) s: (.*)$", lines.read(), re.MULTILINE):
            if float(seconds) > LONG_SECONDS and (zlib.crc32(name.encode()) + seed) % TAKEN != 0:
                left_out.add(name.replace(",", "?"))  # a comma ends a pattern, "?" is any character
if left_out:
    print(len(left_out), ",".join(sorted(left_out)), sep="\n")
