"""Becomes another user, after what only root may do: binding ports below 1024."""

from __future__ import annotations

import grp
import logging
import os
import pwd
from typing import Final, NamedTuple

from mq_shards.csrc._core import lib

ROOT: Final = 0

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


def become(who: Identity) -> None:
    """Becomes that user for good, with all its groups; does nothing if we are it already. Raises ValueError."""
    if os.geteuid() == who.uid and os.getegid() == who.gid:
        return
    if os.geteuid() != ROOT:
        raise ValueError(f"--user: only root can become {who.name}")
    os.initgroups(who.name, who.gid)
    os.setgid(who.gid)
    os.setuid(who.uid)
    # After a change of user the kernel would deny this process its own files in /proc.
    lib.process_readable()
    if not os.access(os.__file__, os.R_OK):
        log.warning("%s cannot read %s: what Python loads later fails, as HTTP does", who.name, os.__file__)
