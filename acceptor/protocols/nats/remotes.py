"""The configured hubs, to which this server connects as a leaf node: from options and a configuration file.

    read(settings, content)      all of them
    servers.next_url()           the hub's server to try next
    remote.proves(nonce, url)    the credentials for CONNECT

Owns no connection and sends nothing.
"""

from __future__ import annotations

import base64
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mq_shards.acceptor import named_files
from mq_shards.acceptor.host_names import is_address
from mq_shards.acceptor.option_kinds import SECOND
from mq_shards.acceptor.protocols.nats import (
    nkeys as nats_nkeys,
)
from mq_shards.acceptor.protocols.nats.route_compression import AUTO, THRESHOLDS_NS, mode_of, thresholds_of
from mq_shards.acceptor.protocols.nats.server_url import RouteUrl, server_url
from mq_shards.acceptor.protocols.nats.tls_options import OPTIONS as TLS_OPTIONS
from mq_shards.acceptor.protocols.nats.tls_options import with_defaults
from mq_shards.acceptor.protocols.nats.who import GLOBAL_ACCOUNT

if TYPE_CHECKING:
    import ssl

DEFAULT_PORT: Final = 7422
MOST: Final = 64  # NATS_HUBS, csrc/acceptor/protocols/nats/nats_others.h
MOST_URLS: Final = 256  # that one hub may tell of
FIRST_INFO_NS: Final = SECOND
WEBSOCKETS: Final = ("ws", "wss")
# The format of a credentials file: a JWT and its seed, each between two lines of dashes.
CREDENTIALS: Final = re.compile(rb"-{3,}[^\n]*-{3,}\r?\n([\w\-.=]+)\r?\n-{3,}[^\n]*-{3,}")


class RemoteError(Exception):
    """Why a remote's credentials cannot be used."""


class HubUrl(RouteUrl):
    """Where a hub accepts leaf nodes, and the user and password to send; a user without a password is a token."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"nats-leaf://{self.address}"

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def hub_url(text: str) -> HubUrl | None:
    """Parses nats-leaf://[USER[:PASSWORD]@]HOST[:PORT], or ws:// or wss:// with an optional path; None if malformed.

    >>> hub_url("nats-leaf://u:p@hub")
    HubUrl(host='hub', port=7422, user='u', password='p', path='')
    """
    scheme, url = server_url(text, DEFAULT_PORT)
    return HubUrl(*url) if url is not None and scheme else None


def by_websocket(text: str) -> bool:
    return text.partition(":")[0].lower() in WEBSOCKETS


class HubWebsocket(NamedTuple):
    """Options of a hub that is reached by websocket."""

    compresses: bool = False
    masks: bool = True


class HubTls(NamedTuple):
    """How connections to a hub are encrypted."""

    context: ssl.SSLContext
    timeout_ns: int
    pinned: frozenset[str]
    is_first: bool  # the handshake comes before INFO


class Remote(NamedTuple):
    """A configured hub, and the account here that is connected to it."""

    urls: tuple[HubUrl, ...]
    account: str = GLOBAL_ACCOUNT
    credentials: str = ""  # a file
    nkey: str = ""  # a seed
    deny_imports: tuple[str, ...] = ()
    deny_exports: tuple[str, ...] = ()
    in_order: bool = False  # URLs are tried in the configured order
    ignores_discovered: bool = False
    first_info_ns: int = FIRST_INFO_NS
    dial_ns: int = SECOND
    compression: str = AUTO  # route_compression.py
    thresholds_ns: tuple[int, ...] = THRESHOLDS_NS
    websocket: HubWebsocket | None = None
    tls: tuple[tuple[str, Any], ...] | None = None  # options without a prefix; None: TLS only if the hub requires it

    def encryption(self) -> HubTls:
        """Makes the TLS context. Raises ValueError, with a message of one line."""
        from mq_shards.acceptor.protocols.nats.tls import client_context

        said = with_defaults(dict(self.tls or ()))
        context = client_context(said, "", verify=not said.get("insecure"))
        pinned = frozenset(pin.lower() for pin in said["tls-pinned-certs"])
        return HubTls(context, said["tls-timeout"], pinned, is_first=bool(said["tls-handshake-first"]))

    def proves(self, nonce: str, url: RouteUrl) -> dict[str, str]:
        """The credentials for CONNECT. Raises RemoteError."""
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
        """The row of /varz."""
        deny = {"imports": list(self.deny_imports), "exports": list(self.deny_exports)}
        denied = {name: subjects for name, subjects in deny.items() if subjects}
        timeout = dict(self.tls).get("tls-timeout", TLS_OPTIONS["tls-timeout"].default) if self.tls is not None else 0
        return {
            "local_account": self.account, **({"tls_timeout": timeout / SECOND} if timeout else {}),
            "urls": [url.address for url in self.urls], **({"deny": denied} if denied else {}),
        }  # fmt: skip


@dataclass(slots=True)
class Servers:
    """The servers of one hub, configured ones and those that it tells of, which are tried in turn."""

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
        """Replaces the URLs that the hub told of before; configured ones come after them."""
        if self.remote.ignores_discovered or not addresses:
            return
        said = [hub_url(f"nats-leaf://{address}") for address in addresses[:MOST_URLS]]
        known = {(url.host, url.port) for url in self.remote.urls}
        found = [url for url in said if url is not None and (url.host, url.port) not in known]
        self.urls = [*dict.fromkeys(found), *self.remote.urls]

    def host_of(self, url: RouteUrl) -> str:
        """The host that the certificate must name: that of the URL; for an IP address, the first configured name."""
        names = (one.host for one in self.remote.urls if not is_address(one.host))
        return next(names, url.host) if is_address(url.host) else url.host


def read(settings: Mapping[str, Any], content: Mapping[str, Any]) -> list[Remote]:
    """Returns all configured hubs. `content`: what the block leafnodes of a configuration file says."""
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
    """The websocket fields of a Remote whose URLs are all of one kind."""
    if not by_websocket(urls[0]):
        return {}
    asked = HubWebsocket(bool(row.get("ws_compression")), not row.get("ws_no_masking"))
    # wss without TLS options: encrypted with the defaults.
    is_encrypted = "tls" not in row and any(text.lower().startswith("wss:") for text in urls)
    return {"websocket": asked, **({"tls": ()} if is_encrypted else {})}


def _of_row(row: Mapping[str, Any], dial_ns: int) -> Remote:
    """Makes a Remote of a row that conf_remotes.py has made."""
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
    return found._replace(**_websocket(row, row["urls"]))


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
    """Returns the public key and the signature of the nonce. Raises RemoteError."""
    try:
        public, signature = nats_nkeys.sign(seed, nonce.encode())
    except ValueError as error:
        raise RemoteError(str(error)) from None
    return public, base64.urlsafe_b64encode(signature).decode().rstrip("=")
