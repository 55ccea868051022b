# Where the sessions that checkpoints name are kept, each under its digest: as files of their own,
# or in a store, where what they share is there once. Which ones are named is _checkpoints.py's to
# know.
from __future__ import annotations

import contextlib
import os
import re
import time
import uuid
from typing import Any, Callable, Dict, Optional, Set

from .errors import CorruptError, NotFoundError, UnsupportedError
from .model import Model
from .session import Session
from .store import Store

ABANDONED_SECONDS = 24 * 3600.0  # after it a file under another name is of a process that died

Fork = Callable[[], Session]  # a session of the caller's own, to be written


class Files:
    """A file for each session. One is complete once it is there."""

    def __init__(self, folder: str, options: Dict[str, Any]):
        self.folder, self._options = folder, options
        os.makedirs(folder, mode=0o700, exist_ok=True)

    def close(self) -> None:
        """Nothing is open."""

    def path(self, digest: str) -> str:
        return os.path.join(self.folder, digest + ".stasis")

    place = path  # for messages

    def there(self, digest: str, fork: Optional[Fork]) -> bool:
        return os.path.exists(self.path(digest))

    def load(self, model: Model, digest: str) -> Session:
        return model.load(self.path(digest))

    def write(self, digest: str, fork: Fork) -> None:
        written = os.path.join(self.folder, f".{digest}.{uuid.uuid4().hex}")
        try:
            fork().save(written, **self._options)
            os.replace(written, self.path(digest))
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(written)
            raise
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def remove_others(self, named: Set[str]) -> None:
        abandoned = time.time() - ABANDONED_SECONDS
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if (entry.stat().st_mtime < abandoned if entry.name[0] == "."
                            else entry.name.partition(".")[0] not in named):
                        os.unlink(entry.path)

    def free(self) -> None:
        """A file that is removed takes no place."""


class InStore:
    """A store with a name for each session, which begins with PREFIX: what it has under other names
    is left alone. It is for one saver; another would remove what this one names."""

    PREFIX = "graph-"

    def __init__(self, uri: str, options: Dict[str, Any]):
        self._uri, self._options = uri, options
        self._store = Store(uri)
        self._removed = False

    def close(self) -> None:
        self._store.close()

    def path(self, digest: str) -> str:
        raise UnsupportedError(f"the session {digest} has no file: it is in the store {self._uri}, "
                               "of which stasis.Store.export_file makes one")

    def place(self, digest: str) -> str:
        return f"{self._uri}, {self.PREFIX}{digest}"

    def there(self, digest: str, fork: Optional[Fork]) -> bool:
        """One that is damaged is not, where there is a fork to write in its place."""
        try:
            self._store.snapshot(self.PREFIX + digest).close()
        except NotFoundError:
            return False
        except CorruptError:
            if fork is None:
                raise
            return False
        return True

    def load(self, model: Model, digest: str) -> Session:
        return self._store.get(model, self.PREFIX + digest)

    def write(self, digest: str, fork: Fork) -> None:
        # Whatever has this name is this session: of another process, which was first, or damaged.
        self._store.put(fork(), self.PREFIX + digest, overwrite=True, **self._options)

    def remove_others(self, named: Set[str]) -> None:
        for each in self._store.list():
            found = re.fullmatch(self.PREFIX + "([0-9a-f]{64})", each.name)
            if found and found.group(1) not in named:
                with contextlib.suppress(NotFoundError):
                    self._store.remove(each.name)
                self._removed = True

    def free(self) -> None:
        if self._removed:
            # A damaged session, of whomever, ends a collection; the next one removes the rest.
            with contextlib.suppress(CorruptError):
                self._store.collect()
                self._removed = False
