"""Account JWTs in a directory (`resolver: {type: full, dir: ...}`), each in a file KEY.jwt, as with nats-server.

To be used by one thread only, and not by one that serves clients, because disks are slow. All acceptors load(), but
only one of a broker saves and deletes, and only that one knows what the directory holds (learn()). A new file gets a
temporary name and is then renamed, so that nobody reads a part of it, and a power failure leaves the old or the new.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from mq_shards.acceptor.protocols.nats import jwt as nats_jwt
from mq_shards.acceptor.protocols.nats import nkeys as nats_nkeys
from mq_shards.acceptor.protocols.nats.jwt import JwtError

SUFFIX: Final = ".jwt"
DELETED: Final = ".deleted"
WRITING: Final = ".writing"
FULL, CACHE = "full", "cache"
MAX_FILES: Final = 1 << 20  # known at one time
CACHED: Final = 1000  # limit of a cache whose `limit` is not configured
FILE_MODE: Final = 0o640
DIRECTORY_MODE: Final = 0o750

log = logging.getLogger(__name__)


class StoreError(ValueError):
    """Why the directory was not changed, in one line, in nats-server's words."""


class _Kept(NamedTuple):
    digest: bytes
    ends_s: float  # 0: never

    def is_over(self, now_s: float) -> bool:
        return 0 < self.ends_s <= now_s


class Directory:
    def __init__(self, terms: Mapping[str, Any]) -> None:
        """`terms`: from conf_directory.py."""
        self.path: Final = Path(terms["dir"])
        self.is_cache: Final[bool] = terms["type"] == CACHE
        self._writer = os.urandom(4).hex()  # distinguishes brokers that share the directory
        self._written = 0
        self._ttl_s = terms["ttl_ns"] / 1e9
        self._limit = min(terms["limit"] or (CACHED if self.is_cache else MAX_FILES), MAX_FILES)
        self._deletes: str = terms["deletes"]
        self.may_delete: Final = bool(self._deletes)
        self._kept: dict[str, _Kept] = {}  # least recently used first
        self._hash = 0  # XOR of all digests

    def load(self, key: str) -> str:
        """Returns an account's JWT, "" if there is none. Raises OSError."""
        if not nats_nkeys.is_public(nats_nkeys.ACCOUNT, key):
            return ""
        try:
            # Without O_NONBLOCK, opening a FIFO could block for ever.
            fd = os.open(self._file(key), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return ""
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                log.warning("%s is no file", self._file(key))
                return ""
            found = file.read(nats_jwt.MAX_BYTES + 1)
        if len(found) > nats_jwt.MAX_BYTES or not found.isascii():
            log.warning("%s is no JWT", self._file(key))
            return ""
        return found.decode().strip()

    def read(self, keys: Iterable[str]) -> dict[str, str]:
        """The JWTs of those accounts that exist. Files that cannot be read are skipped with a warning."""
        found: dict[str, str] = {}
        for key in keys:
            try:
                if jwt := self.load(key):
                    found[key] = jwt
            except OSError as error:
                log.warning("accounts' directory: %s", error)
        return found

    def newest(self, key: str, jwt: str) -> str:
        """Returns `jwt`, or the stored one if that was issued later. Raises OSError."""
        there = self.load(key)
        return there if there and _issued_s(there, key) > _issued_s(jwt, key) else jwt

    # --- for the one acceptor that writes ---------------------------------------------------------------------------

    @property
    def digest(self) -> bytes:
        """A hash that is equal for directories with the same JWTs."""
        return self._hash.to_bytes(hashlib.sha256().digest_size, "big")

    def scan(self) -> list[str]:
        """The accounts whose files exist now, for learn(). Raises OSError."""
        self.path.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        found: list[str] = []
        with os.scandir(self.path) as entries:
            for entry in entries:
                if entry.name.endswith(WRITING):
                    _drop_if_left(entry.path)
                elif entry.name.endswith(SUFFIX) and len(found) < MAX_FILES:
                    found.append(entry.name.removesuffix(SUFFIX))
        return found

    def learn(self, keys: Iterable[str], now_s: float) -> None:
        for key, jwt in self.read(keys).items():
            self._know(key, jwt, now_s)

    def save(self, key: str, jwt: str, now_s: float) -> None:
        """Stores an account's JWT. Raises OSError or StoreError."""
        if not nats_nkeys.is_public(nats_nkeys.ACCOUNT, key):
            raise StoreError("invalid public key")
        before = self._kept.get(key)
        if before is None and len(self._kept) >= self._limit:
            if not self.is_cache:
                raise StoreError("jwt store is full")
            self._remove(next(iter(self._kept)))
        if before is None or before.digest != _digest(jwt) or not self._file(key).exists():
            self._write(key, jwt)
        self._know(key, jwt, now_s)

    def save_if_newer(self, key: str, jwt: str, now_s: float) -> str:
        """Stores a JWT unless a newer one is stored; returns the stored one. Raises OSError or StoreError."""
        newest = self.newest(key, jwt)
        self.save(key, newest, now_s)
        return newest

    def delete(self, key: str) -> None:
        """Deletes an account's JWT, durably after sync(). Raises OSError or StoreError."""
        if not self._deletes or not nats_nkeys.is_public(nats_nkeys.ACCOUNT, key):
            raise StoreError("store is not set up to for delete")
        if self._deletes == "rename":
            with contextlib.suppress(FileNotFoundError):
                self._file(key).rename(self.path / f"{key}{SUFFIX}{DELETED}")
            self._forget(key)
        else:
            self._remove(key)

    def sync(self) -> None:
        """Makes created and deleted files survive a power failure. Raises OSError."""
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def expire(self, now_s: float) -> None:
        if not self._ttl_s:
            self.learn(self._over(now_s), now_s)  # newer files may have been put there
        for key in self._over(now_s):
            try:
                self._remove(key)
            except OSError as error:  # goes on: the others have expired too
                log.warning("accounts' directory: %s", error)

    def _over(self, now_s: float) -> list[str]:
        return [key for key, kept in self._kept.items() if kept.is_over(now_s)]

    def keys(self) -> list[str]:
        return sorted(self._kept)

    def pack(self, keys: Iterable[str], now_s: float) -> list[bytes]:
        """The given accounts that exist and have not expired, as lines `KEY|JWT`."""
        known = [key for key in keys if (kept := self._kept.get(key)) is not None and not kept.is_over(now_s)]
        return [f"{key}|{jwt}".encode() for key, jwt in self.read(known).items()]

    # --- files ------------------------------------------------------------------------------------------------------

    def _file(self, key: str) -> Path:
        return self.path / f"{key}{SUFFIX}"

    def _write(self, key: str, jwt: str) -> None:
        self.path.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        beside, file = self._open_beside(key)
        try:
            with os.fdopen(file, "wb") as to:
                to.write(jwt.encode())
                to.flush()
                os.fsync(to.fileno())
                beside.replace(self._file(key))  # while it is still locked: see _drop_if_left()
        except OSError:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise
        self.sync()

    def _open_beside(self, key: str) -> tuple[Path, int]:
        """Creates a temporary file and locks it while it is open: other brokers remove such files if not locked."""
        while True:
            self._written += 1  # a new name each time: a broker that saw the last one does not remove this
            beside = self.path / f"{key}{SUFFIX}.{self._writer}{self._written}{WRITING}"
            file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
            with contextlib.suppress(OSError):  # without locks no broker removes files either
                fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file).st_nlink > 0:
                return beside, file
            os.close(file)  # another broker removed it before it was locked

    def _remove(self, key: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._file(key).unlink()
        self._forget(key)

    def _know(self, key: str, jwt: str, now_s: float) -> None:
        self._forget(key)
        digest = _digest(jwt)
        self._kept[key] = _Kept(digest, now_s + self._ttl_s if self._ttl_s else _expires_s(jwt, key))
        self._hash ^= int.from_bytes(digest, "big")

    def _forget(self, key: str) -> None:
        if (kept := self._kept.pop(key, None)) is not None:
            self._hash ^= int.from_bytes(kept.digest, "big")


def _drop_if_left(path: str) -> None:
    """Removes a temporary file whose writer was killed, which its missing lock shows."""
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            Path(path).unlink()
        finally:
            os.close(file)


def _digest(jwt: str) -> bytes:
    return hashlib.sha256(jwt.encode()).digest()


def _issued_s(jwt: str, key: str) -> int:
    """When a JWT was issued; -1, before all others, if it is invalid or another account's."""
    try:
        token = nats_jwt.decode(jwt, nats_jwt.ACCOUNT)
    except JwtError:
        return -1
    return token.issued_s if token.subject == key else -1


def _expires_s(jwt: str, key: str) -> int:
    try:
        return nats_jwt.decode(jwt, nats_jwt.ACCOUNT).expires_s
    except JwtError:
        log.warning("%s%s is no JWT of an account", key, SUFFIX)
        return 0
