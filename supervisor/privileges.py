"""Becomes another user, after what only root may do: binding ports below 1024."""

from __future__ import annotations

import grp
import importlib.util
import logging
import os
import pwd
from typing import Final, NamedTuple

from mq_shards.csrc._core import lib

ROOT: Final = 0
# One of Python's, one of a dependency and one of ours, of the modules that are loaded only when HTTP is served.
LOADED_LATER: Final = ("asyncio", "aiohttp", "mq_shards.gateway.process")

log = logging.getLogger(__name__)


class Identity(NamedTuple):
    name: str
    uid: int
    gid: int


def identity(wanted: str) -> Identity:
    """The user of USER or USER:GROUP. Raises ValueError, with one line, if there is no such user or group."""
    name, _, group = wanted.partition(":")
    try:
        user = pwd.getpwnam(name)
        return Identity(name, user.pw_uid, grp.getgrnam(group).gr_gid if group else user.pw_gid)
    except KeyError:
        raise ValueError(f'--user: there is no "{wanted}"') from None


def become(who: Identity, serves_http: bool) -> None:
    """Becomes that user for good, with all its groups; does nothing if we are it already. Raises ValueError, with one
    line, if we are not root, or if HTTP is to be served and the user cannot read what HTTP is loaded from."""
    if os.geteuid() == who.uid and os.getegid() == who.gid:
        return
    if os.geteuid() != ROOT:
        raise ValueError(f"--user: only root can become {who.name}")
    found = [spec.origin for spec in map(importlib.util.find_spec, LOADED_LATER) if spec is not None and spec.origin]
    os.initgroups(who.name, who.gid)
    os.setgid(who.gid)
    os.setuid(who.uid)
    # After a change of user the kernel would deny this process its own files in /proc.
    lib.process_readable()
    unreadable = next((file for file in found if not os.access(file, os.R_OK)), None)
    if unreadable is None:
        return
    if serves_http:
        raise ValueError(f"--user: {who.name} cannot read {unreadable}, which HTTP needs: install that elsewhere")
    log.warning("%s cannot read %s: what Python loads later fails", who.name, unreadable)
