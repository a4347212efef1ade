"""AUTH: asks an auth server (auth-http-address) what a client may do.

Threads ask the server by HTTP, so that an acceptor's loop never waits for it; they poke the loop, which then fetches
the answers. The request, the accepted answers and the meaning of permissions are those of nsqd 1.3.
"""

from __future__ import annotations

import base64
import http.client
import logging
import queue
import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import SplitResult, quote_plus, unquote, urljoin, urlsplit

from mq_shards.acceptor.protocols import go_json
from mq_shards.acceptor.protocols.go_json import DecodeError, int64, items, text
from mq_shards.ringbuf.time_units import SECOND_NS

THREADS: Final = 16
# Questions that wait for a thread; further ones fail at once, as if the server had not answered.
MAX_WAITING: Final = 4096
MAX_ANSWER_BYTES: Final = 1 << 20
MAX_HOPS: Final = 10  # redirections
# A longer time counts as this, which is practically for ever and cannot overflow.
MAX_TTL_S: Final = 10 * 365 * 24 * 3600
ACCEPT: Final = "application/vnd.nsq; version=1.0"
REDIRECTIONS: Final = (301, 302, 303, 307, 308)

log = logging.getLogger(__name__)


class AuthError(Exception):
    """Why there is no answer. The text is for the log, not for clients."""


class RefusedError(AuthError):
    """A server answered, and does not let the client in."""


# --- permissions ------------------------------------------------------------------------------------------------------

# Syntax that Go's regexp refuses or reads differently than Python's `re`: back references, lookaround, possessive
# quantifiers, {,n}, [[:alpha:]]. An answer with such a pattern is refused as a whole.
FOREIGN: Final = re.compile(r"(?:\\.|[^\\])*?(?:\\[1-9Z]|\(\?(?:[=!>(#]|<[=!]|P=)|[*+?}]\+|\{,|\[\[:)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Authorization:
    topic: re.Pattern[str]
    channels: tuple[re.Pattern[str], ...]
    permissions: frozenset[str]

    def allows(self, topic: str, channel: str) -> bool:
        """Whether it allows to subscribe to the channel; without a channel: to publish to the topic."""
        if ("subscribe" if channel else "publish") not in self.permissions:
            return False
        return bool(self.topic.search(topic)) and any(pattern.search(channel) for pattern in self.channels)


@dataclass(frozen=True, slots=True)
class Authorizations:
    """What one client may do until `expires_ns`."""

    identity: str
    identity_url: str
    entries: tuple[Authorization, ...]
    expires_ns: int  # monotonic

    def allows(self, topic: str, channel: str = "") -> bool:
        return any(entry.allows(topic, channel) for entry in self.entries)

    def expired(self, now_ns: int) -> bool:
        return self.expires_ns < now_ns


READ_ENTRY: Final[dict[str, go_json.Reader[Any]]] = {
    "topic": text,
    "channels": items(text, ""),
    "permissions": items(text, ""),
}


def _read_entry(value: object) -> dict[str, Any]:
    return go_json.fields(value, READ_ENTRY)


READ_ANSWER: Final[dict[str, go_json.Reader[Any]]] = {
    "ttl": int64,
    "authorizations": items(_read_entry, {}),
    "identity": text,
    "identity_url": text,
}


def read_answer(body: bytes, now_ns: int) -> Authorizations:
    """Raises AuthError."""
    try:
        answer = go_json.fields(go_json.loads(body), READ_ANSWER)
    except DecodeError as error:
        raise AuthError(f"the answer cannot be read: {error}") from None
    entries = tuple(_entry(found) for found in answer.get("authorizations", []))
    ttl_s = answer.get("ttl", 0)
    if ttl_s <= 0:
        raise AuthError(f"invalid TTL {ttl_s} (must be >0)")
    expires_ns = now_ns + min(ttl_s, MAX_TTL_S) * SECOND_NS
    return Authorizations(answer.get("identity", ""), answer.get("identity_url", ""), entries, expires_ns)


def _entry(found: dict[str, Any]) -> Authorization:
    permissions = frozenset(found.get("permissions", []))
    for permission in sorted(permissions - {"subscribe", "publish"}):
        raise AuthError(f"unknown permission {permission!r}")
    channels = tuple(_compile("channel", pattern) for pattern in found.get("channels", []))
    return Authorization(_compile("topic", found.get("topic", "")), channels, permissions)


def _compile(what: str, pattern: str) -> re.Pattern[str]:
    try:
        if FOREIGN.match(pattern):
            raise AuthError(f"unable to compile {what} {pattern!r}: it has what is not the same in Go and here")
        return re.compile(pattern, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise AuthError(f"unable to compile {what} {pattern!r}: {error}") from None


# --- asking -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Question:
    """A question about the client of a connection. `remote_ip` has no port."""

    conn: int
    remote_ip: str
    secret: bytes
    tls: bool
    common_name: str
    cancelled: bool = field(default=False, init=False)


Outcome: TypeAlias = Authorizations | AuthError


class AuthClient:
    """Asks one of several servers, chosen at random, and if that fails the others.

    client = AuthClient(["127.0.0.1:4181"], poke=engine.poke, ...)
    question = Question(conn, "10.0.0.1", b"secret", tls=False, common_name="")
    client.ask(question)
    # ... later, when poked:
    for question, outcome in client.outcomes(): ...
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        connect_timeout_ns: int,
        request_timeout_ns: int,
        context: ssl.SSLContext,
        poke: Callable[[], None],
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`poke` is called on one of this object's threads, never after close()."""
        self._addresses: Final = tuple(addresses)
        self._connect_timeout_s: Final = connect_timeout_ns / SECOND_NS
        self._request_timeout_s: Final = request_timeout_ns / SECOND_NS
        self._context = context
        self._poke: Final = poke
        self._now_ns: Final = now_ns
        self._questions: queue.Queue[Question] = queue.Queue(MAX_WAITING)
        self._outcomes: queue.SimpleQueue[tuple[Question, Outcome]] = queue.SimpleQueue()
        self._threads = 0
        self._lock = threading.Lock()  # protects _closed
        self._closed = False

    def trust(self, context: ssl.SSLContext) -> None:
        """Uses this context for the questions from now on."""
        self._context = context

    def ask(self, question: Question) -> None:
        try:
            self._questions.put_nowait(question)
        except queue.Full:
            self._done(question, AuthError(f"{MAX_WAITING} questions wait already"))
            return
        if self._threads < THREADS:
            self._threads += 1
            # A daemon: it does no harm if the process ends in the middle of a request.
            threading.Thread(target=self._work, name=f"auth-{self._threads}", daemon=True).start()

    def outcomes(self) -> Iterator[tuple[Question, Outcome]]:
        """Takes the outcomes that are there now, except those of cancelled questions."""
        while True:
            try:
                question, outcome = self._outcomes.get_nowait()
            except queue.Empty:
                return
            if not question.cancelled:
                yield question, outcome

    def close(self) -> None:
        with self._lock:
            self._closed = True

    def _work(self) -> None:
        while True:
            question = self._questions.get()
            if not question.cancelled:
                self._done(question, self._ask_any(question))

    def _done(self, question: Question, outcome: Outcome) -> None:
        self._outcomes.put((question, outcome))
        with self._lock:
            if not self._closed:
                self._poke()

    def _ask_any(self, question: Question) -> Outcome:
        first = random.randrange(len(self._addresses))
        failures: list[str] = []
        kind = AuthError
        for address in self._addresses[first:] + self._addresses[:first]:
            try:
                return read_answer(self._get(endpoint(address), query_of(question)), self._now_ns())
            except (AuthError, OSError, http.client.HTTPException, ValueError) as error:
                failures.append(f"{address}: {error or type(error).__name__}")
                kind = RefusedError if isinstance(error, RefusedError) else kind
            except Exception:
                log.exception("cannot ask %s", address)
                failures.append(f"{address}: an unexpected error")
        return kind("; ".join(failures))

    # --- HTTP -------------------------------------------------------------------------------------------------------

    def _get(self, url: str, query: str) -> bytes:
        """The body of a good answer. The time of one request covers all redirections. Raises AuthError, OSError,
        HTTPException."""
        until = time.monotonic() + self._request_timeout_s
        for _ in range(MAX_HOPS):
            status, reason, location, body = self._get_once(url, query, until)
            if status == http.client.OK:
                return body
            if status in REDIRECTIONS and location:
                url, query = urljoin(url, location), ""
            elif status == http.client.FORBIDDEN and not url.startswith("https"):
                url = https_url(url, body)
            else:
                kind = RefusedError if 400 <= status < 500 else AuthError
                raise kind(f"got response {status} {reason} {body[:200]!r}")
        raise AuthError(f"{MAX_HOPS} redirections")

    def _get_once(self, url: str, query: str, until: float) -> tuple[int, str, str, bytes]:
        """Sends one request. Returns status, reason, Location and body."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            raise AuthError(f"neither http nor https: {parts.scheme}://{parts.netloc}")
        is_https = parts.scheme == "https"
        port = parts.port or (443 if is_https else 80)
        timeout_s = min(self._connect_timeout_s, left(until))
        with socket.create_connection((parts.hostname, port), timeout=timeout_s) as plain, ended_at(plain, until):
            plain.settimeout(left(until))
            connection = http.client.HTTPConnection(parts.hostname, port)
            connection.sock = self._context.wrap_socket(plain, server_hostname=parts.hostname) if is_https else plain
            with closing(connection):
                target = "?".join(filter(None, (parts.path or "/", parts.query, query)))
                connection.request("GET", target, headers=headers(parts))
                response = connection.getresponse()
                body = response.read(MAX_ANSWER_BYTES + 1)
                if len(body) > MAX_ANSWER_BYTES:
                    raise AuthError(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
                return response.status, response.reason, response.getheader("Location", ""), body


def endpoint(address: str) -> str:
    return address if "://" in address else f"http://{address}/auth"


def query_of(question: Question) -> str:
    return (
        f"common_name={quote_plus(question.common_name)}&remote_ip={quote_plus(question.remote_ip)}"
        f"&secret={quote_plus(question.secret)}&tls={'true' if question.tls else 'false'}"
    )


def headers(url: SplitResult) -> dict[str, str]:
    found = {"Accept": ACCEPT, "Host": url.netloc.rpartition("@")[2]}
    if url.username is not None:
        login = f"{unquote(url.username)}:{unquote(url.password or '')}"
        found["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
    return found


def https_url(url: str, body: bytes) -> str:
    """The https URL that a server names in a 403 when it speaks only https. Raises RefusedError if it names none."""
    try:
        port = go_json.fields(go_json.loads(body), {"https_port": int64}).get("https_port", 0)
    except DecodeError as error:
        raise RefusedError(f"got response 403: {error}") from None
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return parts._replace(scheme="https", netloc=f"{host}:{port}").geturl()


def left(until: float) -> float:
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("timed out")
    return seconds


@contextmanager
def ended_at(sock: socket.socket, until: float) -> Iterator[None]:
    """Shuts `sock` down at that time, even if its peer keeps sending slowly. Raises TimeoutError."""
    # The same connection by another descriptor, since TLS takes over that of `sock`.
    with sock.dup() as same:

        def end() -> None:
            with suppress(OSError):
                same.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(left(until), end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            left(until)
