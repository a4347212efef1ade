"""Listeners as doors to topics: topics that one listener guards must not be open at another. Checked before anything is
bound, and again when the addresses of the service manager's sockets are known."""

from __future__ import annotations

import ipaddress
import socket
import stat
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mq_shards.acceptor.access.rights import Users
from mq_shards.acceptor.option_kinds import OptionsError
from mq_shards.acceptor.protocols.table import PROTOCOLS
from mq_shards.gateway.services import SERVICES
from mq_shards.supervisor.options.schemes import SECURE

if TYPE_CHECKING:
    from mq_shards.supervisor.options.listen import Listen

ADMINISTRATION: Final = "http"  # the service that may do everything


class Doors(NamedTuple):
    listen: Sequence[Listen]
    settings: Mapping[str, Mapping[str, Any]]
    users: Users | None
    insecure: Sequence[str]
    contents: Mapping[str, bytes]  # configuration files in other servers' formats, by protocol


def check_names(doors: Doors) -> None:
    """Checks that the users that listeners name exist. For a start only: when a reload removes such a user, the
    listener just lets nobody in. Raises OptionsError."""
    for one in doors.listen:
        if one.user and doors.users is not None and one.user not in doors.users.by_name:
            raise OptionsError(f"--listen: {one}: there is no user {one.user}")


def check_doors(doors: Doors) -> None:
    """Raises OptionsError."""
    for one in doors.listen:
        if one.user and doors.users is None:
            raise OptionsError(f"--listen: {one}: there are no users (--users FILE)")
    if doors.users is not None:
        _with_users(doors)
    else:
        _without(doors)


def _with_users(doors: Doors) -> None:
    for one in doors.listen:
        if _is_left_open(doors, one) or one.user or _wants_certificates(doors, one) or _has_logins(one):
            continue
        if _guards_itself(doors, one.spoken):
            continue
        raise OptionsError(
            f"{one} would be open to whoever connects, and there are users: name one for it ({one}?user=NAME), or say "
            f"--insecure {one.protocol}"
        )


def _without(doors: Doors) -> None:
    guarded = [one for one in doors.listen if _guards_itself(doors, one.spoken) and _leads_to_topics(doors, one)]
    for one in doors.listen:
        if _is_left_open(doors, one) or _wants_certificates(doors, one) or _guards_itself(doors, one.spoken):
            continue
        if one.spoken == ADMINISTRATION and not is_local(one):
            raise OptionsError(
                f"{one} is not on loopback, and whoever reaches it may do everything: make users with tokens "
                f"(--users FILE), or say --insecure {one.protocol}"
            )
        # Also on loopback: other users of the machine could connect there.
        if guarded and not _is_for_few(doors, one) and _leads_to_topics(doors, one):
            raise OptionsError(
                f"{one} is open to whoever connects, and leads to the topics that {guarded[0]} guards: make users "
                f"(--users FILE), or say --insecure {one.protocol}"
            )


def _is_left_open(doors: Doors, one: Listen) -> bool:
    return one.protocol in doors.insecure


def _has_logins(one: Listen) -> bool:
    return one.by_gateway or PROTOCOLS[one.spoken].has_logins


def _wants_certificates(doors: Doors, one: Listen) -> bool:
    tls = doors.settings["tls"]
    return one.protocol in SECURE and bool(tls["client-ca"]) and not tls["client-cert-optional"]


def _guards_itself(doors: Doors, spoken: str) -> bool:
    """Whether the protocol's own options restrict access, without --users."""
    name = SERVICES[spoken].guarded_as if spoken in SERVICES else spoken
    if not name:
        return False
    protocol = PROTOCOLS[name]
    return protocol.is_guarded(protocol.settings_of(doors.settings), doors.contents.get(name, b""))


def _is_for_few(doors: Doors, one: Listen) -> bool:
    """Whether it is a socket file that only owner and group may connect to, for which write access is needed."""
    return bool(one.path) and not int(str(doors.settings["broker"]["unix-mode"]), 8) & stat.S_IWOTH


def _leads_to_topics(doors: Doors, one: Listen) -> bool:
    if one.spoken in SERVICES:
        return SERVICES[one.spoken].leads_to_topics
    protocol = PROTOCOLS[one.spoken]
    return protocol.leads_to_topics(protocol.settings_of(doors.settings))


def is_local(one: Listen) -> bool:
    """Whether no other machine can connect. A systemd socket counts as local until its address is known."""
    if one.path or one.inherited is not None:
        return True
    try:
        found = socket.getaddrinfo(one.host_name, None, type=socket.SOCK_STREAM) if one.host else []
    except (OSError, UnicodeError):
        return False  # binding will fail, and report why
    return bool(found) and all(ipaddress.ip_address(str(at[4][0]).partition("%")[0]).is_loopback for at in found)
