# `python -m stasis ...` runs the command that the wheel brings, or that was built in the clone.
from __future__ import annotations

import os
import sys
from typing import NoReturn

from ._abi import PACKAGE


def main() -> NoReturn:
    for command in PACKAGE / "lib/stasis", PACKAGE.parents[2] / "build/release/stasis":
        if command.exists():
            os.execv(command, [str(command), *sys.argv[1:]])
    sys.exit("stasis: this package was installed without the command")


if __name__ == "__main__":
    main()
