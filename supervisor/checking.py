"""What is known to end a start on this machine, without starting: for `check-config`.

It may be asked by another user than the one that starts the broker, so nothing here tells of access that is denied.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from mq_shards.shards.meta import read_meta
from mq_shards.shards.paths import META
from mq_shards.shards.store_error import StoreError
from mq_shards.supervisor import privileges, unix_sockets
from mq_shards.supervisor.options.options import Options, worker_count


def obstacles(options: Options) -> Iterator[str]:
    limits = options.settings["broker"]
    try:
        if options.user:
            privileges.identity(options.user)
        unix_sockets.access(str(limits["unix-mode"]), str(limits["unix-owner"]))
    except ValueError as error:
        yield str(error)
    for listen in options.listen:
        if listen.path and (why := _no_socket(Path(listen.path))):
            yield f"cannot listen on {listen}: {why}"
    if options.log_file.path and (why := _no_file(Path(options.log_file.path))):
        yield f"cannot open the log file {options.log_file.path}: {why}"
    if options.data_dir is not None:
        yield from _of_data_directory(options, options.data_dir)


def _of_data_directory(options: Options, path: Path) -> Iterator[str]:
    if not path.is_dir():
        there = next(one for one in (path, *path.absolute().parents) if os.path.lexists(one))
        if not there.is_dir():
            yield f"the data directory {path} cannot be made: {there} is no directory"
    elif os.access(path, os.R_OK | os.X_OK) and os.access(path / META, os.R_OK):
        try:
            shards = read_meta(path).shards
        except StoreError as error:
            yield str(error)
            return
        if options.shards not in (None, shards):
            yield f"the data directory {path} has {shards} shards, which is fixed, and not {options.shards}"
        elif options.workers is not None:
            worker_count(options.workers, options.acceptors, shards, 1)


def _no_socket(path: Path) -> str:
    """Why no socket can be made there; "": it can, as far as is known."""
    found, why = _look(path)
    return os.strerror(errno.EEXIST) if found is not None and not stat.S_ISSOCK(found.st_mode) else why


def _no_file(path: Path) -> str:
    """Why that file cannot be written to."""
    found, why = _look(path, follow=True)
    return os.strerror(errno.EISDIR) if found is not None and stat.S_ISDIR(found.st_mode) else why


def _look(path: Path, *, follow: bool = False) -> tuple[os.stat_result | None, str]:
    """What is there, if anything, and why nothing can be."""
    try:
        return path.stat(follow_symlinks=follow), ""
    except FileNotFoundError:
        parent = path.absolute().parent
        return None, "" if parent.is_dir() or os.path.lexists(path) else f"there is no directory {parent}"
    except PermissionError:
        return None, ""
    except OSError as error:
        return None, os.strerror(error.errno or 0)
