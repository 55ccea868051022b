# Pools of threads that models share.
from __future__ import annotations

import ctypes
from typing import Any, Iterable, Optional

from . import _structs as s
from ._abi import library
from ._call import Call, Handle, created, number, optional_name


class Threads:
    """Threads that any number of models compute with, given as `Model(path, thread_pool=...)`. The
    results are the same. Models keep the threads that they were opened with, also after `close`.

    >>> threads = Threads(2, name="models")
    >>> models = [Model(RECALL, thread_pool=threads) for _ in range(3)]
    >>> models[2].info.threads
    2
    """

    def __init__(self, count: int = 0, *, cpus: Iterable[int] = (), name: Optional[str] = None):
        """Starts `count` threads less one, for the caller computes too; 0: one for each of `cpus`,
        or else one per core. They run on any of `cpus` (none: where this thread may), and are
        called `name` followed by their number, in 15 bytes at most."""
        numbers = [number("a CPU", cpu, 32) for cpu in cpus]
        options = s.stasis_threads_options(
            count=number("count", count, 32), cpus=(ctypes.c_uint32 * len(numbers))(*numbers),
            cpu_count=len(numbers), name=optional_name("the name", name))
        self._handle = Handle(created(Call(), library.stasis_threads_create,
                                      library.stasis_threads_free, ctypes.byref(options)),
                              "pool of threads")

    def close(self) -> None:
        """Lets go of the threads: they end with the last model that has them."""
        self._handle.close()

    def __enter__(self) -> "Threads":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
