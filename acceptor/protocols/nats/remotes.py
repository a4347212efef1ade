"""Hubs that this server is to be a leaf node of, as the options and a configuration file have them.

    read(settings, content)      all of them
    remote.next_url()            whose turn it is of its servers
    remote.proves(nonce, url)    who we are to one: what CONNECT says of that

Owns no connection, and asks nobody.
"""

from __future__ import annotations

import base64
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mq_shards.acceptor import named_files
from mq_shards.acceptor.option_kinds import SECOND
from mq_shards.acceptor.protocols.nats import (
    nkeys as nats_nkeys,
)
from mq_shards.acceptor.protocols.nats.cluster_options import RouteUrl, is_address, server_url
from mq_shards.acceptor.protocols.nats.route_compression import AUTO, THRESHOLDS_NS, mode_of, thresholds_of
from mq_shards.acceptor.protocols.nats.tls_options import OPTIONS as TLS_OPTIONS
from mq_shards.acceptor.protocols.nats.tls_options import with_defaults
from mq_shards.acceptor.protocols.nats.who import GLOBAL_ACCOUNT

if TYPE_CHECKING:
    import ssl

DEFAULT_PORT: Final = 7422
MOST: Final = 64  # NATS_HUBS, csrc/acceptor/protocols/nats/nats.h
MOST_URLS: Final = 256  # of one hub's servers, that it tells of
FIRST_INFO_NS: Final = SECOND
WEBSOCKETS: Final = ("ws", "wss")
# As people keep a JWT and its seed: each between two lines of dashes.
CREDENTIALS: Final = re.compile(rb"-{3,}[^\n]*-{3,}\r?\n([\w\-.=]+)\r?\n-{3,}[^\n]*-{3,}")


class RemoteError(Exception):
    """Why it cannot be said who we are."""


class HubUrl(RouteUrl):
    """Where a hub takes leaf nodes, and who we are to it. A user without a password is a token too."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"nats-leaf://{self.address}"

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def hub_url(text: str) -> HubUrl | None:
    """nats-leaf://[USER[:PASSWORD]@]HOST[:PORT], or ws:// or wss://, with a path perhaps; None when it is none.

    >>> hub_url("nats-leaf://u:p@hub")
    HubUrl(host='hub', port=7422, user='u', password='p', path='')
    """
    scheme, url = server_url(text, DEFAULT_PORT)
    return HubUrl(*url) if url is not None and scheme else None


def by_websocket(text: str) -> bool:
    return text.partition(":")[0].lower() in WEBSOCKETS


class HubWebsocket(NamedTuple):
    """How a hub is reached by one."""

    compresses: bool = False
    masks: bool = True


@dataclass(frozen=True, slots=True)
class HubTls:
    """How connections to a hub are encrypted."""

    context: ssl.SSLContext
    timeout_ns: int
    pinned: frozenset[str]
    is_first: bool  # the handshake comes before INFO


@dataclass(frozen=True, slots=True)
class Remote:
    """A hub, and the account here that is connected to one there."""

    urls: tuple[HubUrl, ...]
    account: str = GLOBAL_ACCOUNT
    credentials: str = ""  # a file
    nkey: str = ""  # a seed
    deny_imports: tuple[str, ...] = ()
    deny_exports: tuple[str, ...] = ()
    in_order: bool = False  # its servers are tried as they are written
    ignores_discovered: bool = False
    first_info_ns: int = FIRST_INFO_NS
    dial_ns: int = SECOND
    compression: str = AUTO  # route_compression.py
    thresholds_ns: tuple[int, ...] = THRESHOLDS_NS
    websocket: HubWebsocket | None = None
    tls: tuple[tuple[str, Any], ...] | None = None  # options without a prefix; None: only if the hub wants it

    def encryption(self) -> HubTls:
        """Raises ValueError of one line."""
        from mq_shards.acceptor.protocols.nats.tls import client_context

        said = with_defaults(dict(self.tls or ()))
        context = client_context(said, "", verify=not said.get("insecure"))
        pinned = frozenset(pin.lower() for pin in said["tls-pinned-certs"])
        return HubTls(context, said["tls-timeout"], pinned, is_first=bool(said["tls-handshake-first"]))

    def proves(self, nonce: str, url: RouteUrl) -> dict[str, str]:
        """What CONNECT says of who we are. Raises RemoteError."""
        found: dict[str, str] = {}
        if self.credentials:
            jwt, seed = _read_credentials(self.credentials)
            found = {"jwt": jwt, "sig": _signed(seed, nonce)[1]}
        elif self.nkey:
            found = dict(zip(("nkey", "sig"), _signed(self.nkey, nonce), strict=True))
        who = next((one for one in (url, *self.urls) if one.user), None)
        if who is not None:
            found |= {"user": who.user, **({"pass": who.password} if who.password else {"auth_token": who.user})}
        return found

    def shown(self) -> dict[str, Any]:
        """As /varz shows it."""
        deny = {"imports": list(self.deny_imports), "exports": list(self.deny_exports)}
        denied = {name: subjects for name, subjects in deny.items() if subjects}
        timeout = dict(self.tls).get("tls-timeout", TLS_OPTIONS["tls-timeout"].default) if self.tls is not None else 0
        return {
            "local_account": self.account, **({"tls_timeout": timeout / SECOND} if timeout else {}),
            "urls": [url.address for url in self.urls], **({"deny": denied} if denied else {}),
        }  # fmt: skip


@dataclass(slots=True)
class Servers:
    """Of one hub: those of the options, and those that it tells of, in turn."""

    remote: Remote
    urls: list[HubUrl] = field(default_factory=list)
    last: HubUrl | None = None

    def __post_init__(self) -> None:
        self.urls = list(self.remote.urls)
        if not self.remote.in_order:
            random.shuffle(self.urls)

    def next_url(self) -> HubUrl:
        if self.last is not None and len(self.urls) > 1 and self.last == self.urls[0]:
            self.urls.append(self.urls.pop(0))
        self.last = self.urls[0]
        return self.last

    def learn(self, addresses: Sequence[str]) -> None:
        """What it says now is all that there is besides the options; those come last."""
        if self.remote.ignores_discovered or not addresses:
            return
        said = [hub_url(f"nats-leaf://{address}") for address in addresses[:MOST_URLS]]
        known = {(url.host, url.port) for url in self.remote.urls}
        found = [url for url in said if url is not None and (url.host, url.port) not in known]
        self.urls = [*dict.fromkeys(found), *self.remote.urls]

    def host_of(self, url: RouteUrl) -> str:
        """That a certificate is to be for: of one that others tell of, which is an address, the first name."""
        names = (one.host for one in self.remote.urls if not is_address(one.host))
        return next(names, url.host) if is_address(url.host) else url.host


def read(settings: Mapping[str, Any], content: Mapping[str, Any]) -> list[Remote]:
    """`content`: of the block leafnodes of a configuration file."""
    account = settings["leaf-remote-account"] or GLOBAL_ACCOUNT
    dial_ns = settings["leaf-dial-timeout"]
    how: dict[str, Any] = {"dial_ns": dial_ns}
    if settings["leaf-remotes"]:
        how |= {"compression": mode_of(settings, "leaf-"), "thresholds_ns": thresholds_of(settings, "leaf-")}
    found = []
    for text in settings["leaf-remotes"]:
        if (url := hub_url(text)) is not None:
            found.append(Remote((url,), account, settings["leaf-remote-credentials"], **how, **_websocket({}, [text])))
    found += [_of_row(row, dial_ns) for row in content.get("remotes", ())]
    return list(dict.fromkeys(found))[:MOST]


def _websocket(row: Mapping[str, Any], urls: Sequence[str]) -> dict[str, Any]:
    """Of URLs that are all of one kind."""
    if not by_websocket(urls[0]):
        return {}
    asked = HubWebsocket(bool(row.get("ws_compression")), not row.get("ws_no_masking"))
    # Encrypted without a word of how.
    is_encrypted = "tls" not in row and any(text.lower().startswith("wss:") for text in urls)
    return {"websocket": asked, **({"tls": ()} if is_encrypted else {})}


def _of_row(row: Mapping[str, Any], dial_ns: int) -> Remote:
    """As conf_remotes.py writes it."""
    tls = row.get("tls")
    urls = (hub_url(text) for text in row["urls"])
    found = Remote(
        tuple(url for url in urls if url is not None), row.get("account") or GLOBAL_ACCOUNT,
        row.get("credentials", ""), row.get("nkey", ""), tuple(row.get("deny_imports", ())),
        tuple(row.get("deny_exports", ())), bool(row.get("no_randomize")), bool(row.get("ignore_discovered_servers")),
        row.get("first_info_ns") or FIRST_INFO_NS, row.get("dial_ns") or dial_ns,
        row.get("compression", AUTO), tuple(row.get("thresholds_ns", THRESHOLDS_NS)),
        tls=None if tls is None else tuple(sorted((name, _frozen(value)) for name, value in tls.items())),
    )  # fmt: skip
    return replace(found, **_websocket(row, row["urls"]))


def _frozen(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _read_credentials(path: str) -> tuple[str, str]:
    try:
        found = CREDENTIALS.findall(named_files.read(path))
    except OSError as error:
        raise RemoteError(f"{path}: {error.strerror}") from None
    if len(found) < 2:
        raise RemoteError(f"{path}: these are no credentials")
    return found[0].decode(), found[1].decode()


def _signed(seed: str, nonce: str) -> tuple[str, str]:
    """The public key, and its signature."""
    try:
        public, signature = nats_nkeys.sign(seed, nonce.encode())
    except ValueError as error:
        raise RemoteError(str(error)) from None
    return public, base64.urlsafe_b64encode(signature).decode().rstrip("=")
