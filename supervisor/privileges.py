"""Becoming another user, once what only root may do is done: ports below 1024 are bound then."""

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
    """Of USER or USER:GROUP. Raises ValueError of one line when there is none of that name."""
    name, _, group = wanted.partition(":")
    try:
        user = pwd.getpwnam(name)
        return Identity(name, user.pw_uid, grp.getgrnam(group).gr_gid if group else user.pw_gid)
    except KeyError:
        raise ValueError(f'--user: there is no "{wanted}"') from None


def become(who: Identity) -> None:
    """For good, with all groups of the user. Who is that user already stays it. Raises ValueError of one line."""
    if os.geteuid() == who.uid and os.getegid() == who.gid:
        return
    if os.geteuid() != ROOT:
        raise ValueError(f"--user: only root can become {who.name}")
    os.initgroups(who.name, who.gid)
    os.setgid(who.gid)
    os.setuid(who.uid)
    # Else the kernel keeps this process's own figures from it, since it was another's.
    lib.process_readable()
    if not os.access(os.__file__, os.R_OK):
        log.warning("%s cannot read %s: what Python loads later fails, as HTTP does", who.name, os.__file__)
