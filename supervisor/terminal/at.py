"""Parses the address of a broker, and connects the client that speaks its protocol."""

from __future__ import annotations

import os
import re
import ssl
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from mq_shards.supervisor.terminal.client import (
    At,
    CannotError,
    Client,
    ClientError,
    Proof,
    RefusedError,
    reason,
)

USUAL: Final = "http://127.0.0.1:4180"
ENVIRONMENT: Final = "MQ_SHARDS_AT"
TOKEN: Final = "MQ_SHARDS_TOKEN"
HTTP_PORT: Final = 4180
# Encrypted schemes: the plain scheme inside, and the usual port. NSQ and NATS begin TLS within their protocols.
ENCRYPTED: Final = {
    "https": ("http", 4180), "nsq-https": ("nsq-http", 4152), "beanstalks": ("beanstalk", 11301),
    "pulsar+ssl": ("pulsar", 6651), "nsq+tls": ("nsq", 4150), "tls": ("nats", 4222), "nats+tls": ("nats", 4222),
}  # fmt: skip
# By scheme: the usual port, and module and class of the client; the module is loaded when needed.
CLIENTS: Final = {
    "http": (HTTP_PORT, "http", "Http"),
    "nsq-http": (4151, "http", "NsqHttp"),
    "beanstalk": (11300, "beanstalk", "Beanstalk"),
    "nsq": (4150, "nsq", "Nsq"),
    "nats": (4222, "nats", "Nats"),
    "pulsar": (6650, "pulsar", "Pulsar"),
}


def usual() -> str:
    return os.environ.get(ENVIRONMENT, USUAL)


def parse(text: str) -> At:
    """Reads an address; an unknown scheme is left to connect() to refuse. Raises ClientError."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        scheme, rest = "http", text
    if rest.startswith("unix:"):
        return At(scheme, "", 0, rest.removeprefix("unix:"))
    try:
        parts = urlsplit(f"//{rest}")
        port = parts.port
    except ValueError:
        raise ClientError(f"{text!r} is not SCHEME://HOST:PORT") from None
    host = parts.hostname or ""
    if not re.fullmatch(r"[\w.:%-]+", host) or parts.path.strip("/") or parts.query or parts.username:
        raise ClientError(f"{text!r} is not SCHEME://HOST:PORT")
    usual_port = ENCRYPTED[scheme][1] if scheme in ENCRYPTED else CLIENTS.get(scheme, (0,))[0]
    return At(scheme, host, port if port is not None else usual_port)


def proof(token_file: str | None, user: str | None, password_file: str | None) -> Proof | None:
    """The credentials in the options or the environment; None: there are none. Raises ClientError."""
    if user is not None or password_file is not None:
        if user is None or password_file is None or token_file is not None:
            raise ClientError("it is --user and --password-file, or --token-file")
        return Proof(user=user, password=_first_line(password_file))
    token = os.environ.get(TOKEN, "") if token_file is None else _first_line(token_file)
    return Proof(token=token) if token else None


def _first_line(path: str) -> str:
    try:
        with Path(path).open() as file:
            return file.readline().strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(f"cannot read {path}: {reason(error) if isinstance(error, OSError) else 'no text'}") from None


def secured(
    at: At, ca: str | None, *, insecure: bool, cert: str | None = None, key: str | None = None, who: Proof | None = None
) -> At:
    """Adds credentials and, for an encrypted scheme, TLS. `ca`: file of trusted certificates; `insecure`: trusts any;
    `cert` and `key`: our own; `who`: our credentials. Raises ClientError."""
    at = replace(at, proof=who)
    if at.scheme not in ENCRYPTED:
        return at
    try:
        tls = ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise ClientError(f"{ca} cannot be used: {reason(error)}") from None
    # From Python 3.13 on this refuses authorities that other clients take, such as one that does not say what it may.
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if cert is not None:
        try:
            tls.load_cert_chain(cert, key)
        except OSError as error:
            raise ClientError(f"{cert} cannot be used: {reason(error)}") from None
    if insecure:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return replace(at, tls=tls, has_certificate=cert is not None)


def plain(scheme: str) -> str:
    """The scheme of the protocol inside an encrypted one; any other as it is."""
    return ENCRYPTED[scheme][0] if scheme in ENCRYPTED else scheme


def connect(at: At) -> Client:
    """Returns a connected client for the scheme. Raises ClientError."""
    scheme = plain(at.scheme) if at.tls is not None else at.scheme
    if scheme not in CLIENTS:
        raise ClientError(f"{at.scheme}:// is not spoken here: it is one of {', '.join((*CLIENTS, *ENCRYPTED))}")
    _, module, name = CLIENTS[scheme]
    client: Client = getattr(import_module(f"mq_shards.supervisor.terminal.{module}"), name)(at)
    return client


def elsewhere(at: At, error: CannotError) -> Client:
    """A client of the usual http:// or https:// address on the same host, for what a protocol cannot do. Raises
    ClientError."""
    if at.scheme in ("http", "https"):
        raise error
    # What has been encrypted so far, the login most of all, stays so.
    other = replace(at, scheme="http" if at.tls is None else "https", port=HTTP_PORT, path="")
    if not at.host:
        raise ClientError(f"{error}; name the broker's {other.scheme}:// address")
    try:
        client = connect(other)
        client.overview()
    except RefusedError as refused:
        raise ClientError(f"{error}, and {other} refuses: {refused}") from None
    except ClientError as failed:
        raise ClientError(f"{error}; name the broker's {other.scheme}:// address ({failed})") from None
    return client
