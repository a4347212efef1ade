"""What goes wrong with files of a data directory, in one line."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator


class StoreError(Exception):
    """One line for the operator. `errno` is the operating system's error; 0: it is not one of those."""

    def __init__(self, text: str, number: int = 0) -> None:
        super().__init__(text)
        self.errno = number


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turns an OSError into a StoreError that begins with `what`."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{what}: {error.strerror or os.strerror(errno.EIO)}", error.errno or 0) from error
