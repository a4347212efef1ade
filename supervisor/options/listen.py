"""The addresses of --listen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from mq_shards.acceptor.access.users_file import NAME
from mq_shards.acceptor.option_kinds import OptionsError, shown
from mq_shards.acceptor.protocols.table import PROTOCOLS
from mq_shards.gateway.services import SERVICES
from mq_shards.supervisor.options.schemes import OTHER_SCHEMES, SECURE, spoken


class Scheme(Protocol):
    @property
    def port(self) -> int: ...

    @property
    def example(self) -> str: ...


# The schemes of --listen, in the order of --help: the acceptors' protocols, then the gateway's services.
SCHEMES: Final[Mapping[str, Scheme]] = {**PROTOCOLS, **SERVICES}
EVERY_SCHEME: Final[Mapping[str, Scheme]] = {**SCHEMES, **OTHER_SCHEMES}
LOOPBACK: Final = "127.0.0.1"

MAX_UNIX_PATH_BYTES: Final = 107  # sun_path, see unix(7)
MAX_LISTENS: Final = 16  # MAX_LISTENERS in csrc/acceptor/bounds.h
WILDCARDS: Final = ("", "0.0.0.0", "::")


class Listen(NamedTuple):
    """Where to listen: a host and a port, the path of a unix socket, or a socket from the service manager."""

    protocol: str
    host: str  # "": all addresses of this host
    port: int
    path: str = ""
    inherited: str | None = None  # name of a systemd socket; "": the first that is left; None: it is none
    user: str = ""  # the user of clients that do not log in; "": none
    both: bool = False  # dual-stack: one socket for all IPv6 and IPv4 addresses
    cert: str = ""  # file of the certificate to show instead of that of the section [tls]; "": that
    key: str = ""

    @property
    def address(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        if self.inherited is not None:
            return f"systemd:{self.inherited}" if self.inherited else "systemd"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def host_name(self) -> str | bytes:
        """The host for getaddrinfo: as bytes, since for a str Python would load its encoder of host names."""
        return self.host.encode() if self.host.isascii() else self.host

    @property
    def by_gateway(self) -> bool:
        return self.spoken in SERVICES

    @property
    def spoken(self) -> str:
        """The protocol or service that is spoken there."""
        return spoken(self.protocol)

    @property
    def early(self) -> bool:
        """Whether clients may connect before they are served: they wait then."""
        return not self.by_gateway and PROTOCOLS[self.spoken].listens_early

    @property
    def single(self) -> bool:
        """Whether one process alone serves it: the gateway, or the first acceptor."""
        return self.by_gateway or PROTOCOLS[self.spoken].single

    def is_served_by(self, role: str, index: int) -> bool:
        """Whether the gateway, or the acceptor of that index, serves it."""
        if role == "gateway" or self.by_gateway:
            return role == "gateway" and self.by_gateway
        return index == 0 or not self.single

    @property
    def hands_over(self) -> bool:
        """Whether acceptors hand some of its connections to the gateway."""
        return self.spoken in PROTOCOLS and PROTOCOLS[self.spoken].hands_over

    @property
    def comes_by_others(self) -> bool:
        """Whether the other acceptors hand its connections to the first one."""
        return self.spoken in PROTOCOLS and PROTOCOLS[self.spoken].comes_by_others

    @property
    def meshed(self) -> bool:
        """Whether its clients talk to clients of other acceptors."""
        return self.spoken in PROTOCOLS and PROTOCOLS[self.spoken].meshed

    @property
    def has_lame_duck(self) -> bool:
        """Whether its clients can be sent to another server of a cluster."""
        return self.spoken in PROTOCOLS and PROTOCOLS[self.spoken].has_lame_duck

    @property
    def example(self) -> str:
        """A shell command that tries it from this host, over TCP."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(self.host, self.host)
        address = Listen(self.protocol, host, self.port).address
        return EVERY_SCHEME[self.protocol].example.format(host=host, port=self.port, address=address)

    def __str__(self) -> str:
        return f"{self.protocol}://{self.address}" + (f"?user={self.user}" if self.user else "")


# What is listened on if nothing is said.
USUAL: Final = tuple(
    Listen(name, LOOPBACK, scheme.port)
    for name, scheme in SCHEMES.items()
    if name not in PROTOCOLS or PROTOCOLS[name].usual
)


def parse_listen(text: str, where: str = "--listen") -> Listen:
    """Reads SCHEME://HOST[:PORT] (IPv6 in brackets, no host for all), SCHEME://unix:PATH or SCHEME://systemd[:NAME]."""
    scheme_text, separator, address = text.partition("://")
    scheme = scheme_text.lower()
    address, question, query = address.partition("?")
    said = dict(part.partition("=")[::2] for part in query.split("&")) if question else {}
    both = "both" in said
    user, cert, key = (said.get(name, "") for name in ("user", "cert", "key"))
    takes_files = scheme in SECURE
    if not _is_said_well(said, query, takes_files=takes_files):
        more = ", ?cert=FILE&key=FILE" if takes_files else ""
        raise OptionsError(f'{where}: behind "{address}" stands ?user=NAME, ?both{more} or nothing, not "?{query}"')
    match = re.fullmatch(r"(\[[^\[\]]+\]|[^:/\[\]\s]*)(?::([0-9]+))?/?", address)
    special = address.partition(":")[0] if address.startswith(("unix:", "systemd")) else ""
    if not separator or not address or (match is None and not special) or address == "/":
        raise OptionsError(f"{where}: {shown(text)} is not SCHEME://HOST:PORT (IPv6: SCHEME://[ADDRESS]:PORT)")
    if scheme not in EVERY_SCHEME:
        there_are = ", ".join(EVERY_SCHEME)
        raise OptionsError(f'{where}: "{scheme}" is not a protocol of this version (it has: {there_are})')
    if special and both:
        raise OptionsError(f"{where}: ?both stands behind 0.0.0.0 or [::], not behind {address}")
    if special == "unix":
        path_ = _unix_path(where, text, address.partition(":")[2])
        return Listen(scheme, "", 0, path=path_, user=user, cert=cert, key=key)
    if special == "systemd":
        return Listen(scheme, "", 0, inherited=address.partition(":")[2], user=user, cert=cert, key=key)
    assert match is not None
    host, port_text = match[1].strip("[]"), match[2]
    if both and host not in WILDCARDS:
        raise OptionsError(f"{where}: ?both stands behind 0.0.0.0 or [::], not behind {address}")
    port = EVERY_SCHEME[scheme].port if port_text is None else int(port_text)
    if port > 65535:
        raise OptionsError(f'{where}: port {port} of "{text}" is not between 0 and 65535')
    listen = Listen(scheme, host, port, user=user, cert=cert, key=key)
    return on_both(listen) if both else listen


def _is_said_well(said: Mapping[str, str], query: str, *, takes_files: bool) -> bool:
    """Whether the query of an address is valid: known names, each once, and each with a possible value."""
    known = {"both", "user", "cert", "key"} if takes_files else {"both", "user"}
    return (
        said.keys() <= known
        and len(said) == len(query.split("&") if said else ())
        and ("both" not in said or "both" in query.split("&"))
        and ("user" not in said or re.fullmatch(NAME, said["user"]) is not None)
        and bool(said.get("cert")) == bool(said.get("key")) == ("cert" in said) == ("key" in said)
    )


def on_both(listen: Listen) -> Listen:
    """Listens as servers in Go do: a wildcard host stands for all IPv4 and all IPv6 addresses."""
    return listen._replace(host=listen.host or "0.0.0.0", both=True) if listen.host in WILDCARDS else listen


def _unix_path(where: str, text: str, path_: str) -> str:
    if not path_.startswith("/") or not path_.isprintable() or len(path_.encode()) > MAX_UNIX_PATH_BYTES:
        raise OptionsError(
            f"{where}: {shown(text)} is not SCHEME://unix:/PATH, absolute and of {MAX_UNIX_PATH_BYTES} bytes at most"
        )
    return path_


def parse_listens(where: str, value: object) -> tuple[Listen, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(text, str) for text in value):
        raise OptionsError(f"{where}: {shown(value)} is not a list of SCHEME://HOST:PORT")
    if len(value) > MAX_LISTENS:
        raise OptionsError(f"{where}: {len(value)} addresses, at most {MAX_LISTENS} are possible")
    listens = tuple(parse_listen(text, where) for text in value)
    for place, listen in enumerate(listens):
        # Port 0 may be given twice: it becomes a different port each time.
        if listen.port and any((listen.host, listen.port) == (other.host, other.port) for other in listens[:place]):
            raise OptionsError(f"{where}: {listen.host} port {listen.port} is given twice")
        if listen.path and any(listen.path == other.path for other in listens[:place]):
            raise OptionsError(f"{where}: {listen.path} is given twice")
    return listens
