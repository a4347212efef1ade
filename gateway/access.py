"""Which user makes an HTTP request, and what the user may do: the gateway's part of acceptor/access/.

    access.gate(server, ...)                     from now on the server serves only users
    check(request, READ, "orders")               raises HttpError if the user may not

Owns the sessions of browsers, which a browser proves by its cookie alone. Counts what was refused, and logs wrong
logins.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import socket
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final

import orjson
from mq_shards.acceptor.access import rights
from mq_shards.acceptor.access.access import NOBODY, REFUSED, SAID_BYTES
from mq_shards.acceptor.access.attempts import Attempts
from mq_shards.acceptor.access.logins import Logins, Said
from mq_shards.acceptor.access.rights import RIGHTS, Login, User, Users
from mq_shards.acceptor.engine import FOREVER
from mq_shards.acceptor.remarks import Remarks
from mq_shards.gateway.calls import AcceptorCalls
from mq_shards.gateway.http_answers import Answer, HttpError, json_answer
from mq_shards.gateway.http_bodies import Bodies
from mq_shards.gateway.http_server import HttpServer, Request

COUNTS_NS: Final = 1_000_000_000  # for an acceptor to say what it has refused; one that hangs is left out
MAX_SESSIONS: Final = 1024
SESSION_S: Final = 12 * 3600.0
SAFE: Final = ("GET", "HEAD")
MAX_LOGIN_BYTES: Final = 4096

log = logging.getLogger(__name__)

_WHO: Final = "who are you? A login is needed"
_UNKNOWN: Final = json_answer(
    {"error": _WHO, "message": _WHO, "reason": _WHO}, 401, {"WWW-Authenticate": 'Bearer realm="mq-shards"'}
)


@dataclass(slots=True)
class _Session:
    login: Login
    until_s: float


class HttpAccess:
    """To be made while the event loop runs."""

    def __init__(
        self, calls: AcceptorCalls, broker_id: str, attempts: Attempts, now_s: Callable[[], float] = time.monotonic
    ) -> None:  # fmt: skip
        self._loop = loop = asyncio.get_running_loop()
        self.on = False
        self.users = Users()
        self._calls = calls
        self._now_s = now_s
        self.cookie: Final = f"mq-shards-{broker_id[:16]}"  # a browser sends all cookies of a host to each broker there
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        self._logins = Logins(lambda: self.users, self._poke, loop.call_later, attempts)
        self._refused_logins: Counter[str] = Counter()
        self._refused_actions: Counter[str] = Counter()
        self._remarks = Remarks(log)
        self._unsaid: asyncio.TimerHandle | None = None  # when the number of lines left out is logged

    def _poke(self) -> None:
        """Called on any thread."""
        self._loop.call_soon_threadsafe(self._logins.settle)

    def learn(self, content: bytes) -> None:
        self.users = rights.decode(content)
        self.on = True

    def close(self) -> None:
        self._logins.close()
        if self._unsaid is not None:
            self._unsaid.cancel()

    # --- requests ---------------------------------------------------------------------------------------------------

    def gate(
        self, server: HttpServer, scheme: str, *open_paths: str, cookies: bool = False,
        others: Callable[[], bool] | None = None,
    ) -> None:  # fmt: skip
        """Guards a server: only users are served, except on `open_paths`; a path that ends in a / also stands for all
        below it. `others`: the server itself refuses unknown clients; returns whether it knows other clients than
        users."""

        beginnings = tuple(one for one in open_paths if len(one) > 1 and one.endswith("/"))
        for counts in (self._refused_logins, self._refused_actions):
            counts[scheme] += 0  # it has a rate from the first one on

        async def admit(request: Request) -> Answer | None:
            request.scheme = scheme
            if not self.on or request.listened.is_open:
                return None
            request.access = self
            request.login = await self._login_of(request, cookies=cookies, others=others is not None and others())
            if others is not None:
                return None
            path = request.target.partition("?")[0]
            is_open = path in open_paths or path.startswith(beginnings)
            return None if request.login is not None or is_open else _UNKNOWN

        server.gate = admit
        server.shaken_off = self._shaken_off

    async def _login_of(self, request: Request, *, cookies: bool, others: bool) -> Login | None:
        header = request.headers.get("authorization", "")
        said = Said.of_authorization(header) if header else None
        if said is not None:
            concerns = not others or self.users.concerns(said.user, said.token)
            return await self.prove(request, said) if concerns else None
        found = self._of_session(request) if cookies else None
        users = self.users
        return found or users.of_certificate(request.certificate_names) or users.of_listener(request.listened.user)

    async def prove(self, request: Request, said: Said) -> Login | None:
        proven: asyncio.Future[Login | None] = asyncio.get_running_loop().create_future()

        def done(login: Login | None) -> None:
            if not proven.done():
                proven.set_result(login)

        self._logins.prove(said, request.peer, done)
        with request.unproven():
            login = await proven
        request.proven(right=login is not None)
        if login is None:
            self._count_refused(request, said.user)
        return login

    async def refuse(self, request: Request) -> None:
        """A server that knows other clients than users does not know this one: counts and logs its login, if it has
        made one, and waits until that may be answered."""
        header = request.headers.get("authorization", "")
        said = Said.of_authorization(header) if header else None
        if said is None or (request.is_guarded and self.users.concerns(said.user, said.token)):
            return  # prove() has refused it
        self._count_refused(request, said.user)
        due = asyncio.Event()
        self._logins.refuse(request.peer, due.set)
        request.proven(right=False)
        with request.unproven():
            await due.wait()

    def _count_refused(self, request: Request, who: str) -> None:
        self._refused_logins[request.scheme] += 1
        said = f"{request.peer}: {request.scheme}: a login was refused ({who[:SAID_BYTES] or NOBODY})"
        self._remarks.say(logging.INFO, request.peer, said)
        self._wait_for_unsaid()

    def _shaken_off(self, sock: socket.socket, why: str) -> None:
        host, port = ("@", 0) if sock.family == socket.AF_UNIX else sock.getpeername()[:2]
        self._remarks.of_client(f"{host}:{port}", f"the TLS handshake failed: {why}")
        self._wait_for_unsaid()

    def _wait_for_unsaid(self) -> None:
        wait_ns = self._remarks.wait_ns()
        if self._unsaid is None and wait_ns < FOREVER:
            self._unsaid = self._loop.call_later(wait_ns / 1e9, self._say_unsaid)

    def _say_unsaid(self) -> None:
        self._unsaid = None
        self._remarks.expire()
        self._wait_for_unsaid()

    def refused(self, request: Request) -> None:
        self._refused_actions[request.scheme] += 1

    async def counts(self) -> dict[str, tuple[Mapping[str, int], Mapping[str, int]]]:
        """By process: how many logins and how many actions were refused, each by protocol."""
        counts: dict[str, tuple[Mapping[str, int], Mapping[str, int]]] = {
            "mq-gateway": (dict(self._refused_logins), dict(self._refused_actions))
        }
        for acceptor, reply in enumerate(await self._calls.ask_all(REFUSED, timeout_ns=COUNTS_NS, again=True)):
            if reply.ok:
                found = orjson.loads(reply.body)
                counts[f"mq-acceptor-{acceptor}"] = found["logins"], found["actions"]
        return counts

    # --- sessions ---------------------------------------------------------------------------------------------------

    def begin_session(self, login: Login) -> str:
        """Begins a session. Returns the secret for its cookie."""
        secret = secrets.token_urlsafe(32)
        self._sessions[_digest(secret)] = _Session(login, self._now_s() + SESSION_S)
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return secret

    def end_session(self, request: Request) -> None:
        self._sessions.pop(_digest(self._cookie_of(request)), None)

    def _of_session(self, request: Request) -> Login | None:
        secret = self._cookie_of(request)
        session = self._sessions.get(_digest(secret)) if secret else None
        if session is None:
            return None
        login = self.users.again(session.login)
        if login is None or session.until_s < self._now_s():
            del self._sessions[_digest(secret)]
            return None
        headers = request.headers
        is_own_page = "origin" in headers or headers.get("sec-fetch-site") == "same-origin"
        if request.method not in SAFE and not is_own_page:  # browsers.py has checked where it comes from
            return None
        session.login = login
        return login

    def _cookie_of(self, request: Request) -> str:
        try:
            found = SimpleCookie(request.headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return ""
        return "" if found is None else found.value


class HttpLogin:
    """POST /v1/login and /v1/logout, for browsers; GET /v1/login tells which user the client is."""

    def __init__(self, access: HttpAccess, bodies: Bodies) -> None:
        self._access = access
        self._bodies = bodies
        self.routes: Final[dict[str, dict[str, Callable[[Request, dict[str, str]], Awaitable[Answer]]]]] = {
            "/v1/login": {"GET": self._who, "POST": self._login},
            "/v1/logout": {"POST": self._logout},
        }

    async def _who(self, request: Request, fields: dict[str, str]) -> Answer:
        user = None if request.login is None else request.login.user
        return json_answer(
            {"users": request.is_guarded, "user": None if user is None else user.name, "may": granted(request)},
            headers={"Cache-Control": "no-store"},
        )

    async def _login(self, request: Request, fields: dict[str, str]) -> Answer:
        if not request.is_guarded:
            raise HttpError(400, "there are no users")
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HttpError(415, "Content-Type has to be application/json")
        async with self._bodies.read_whole(request, MAX_LOGIN_BYTES) as body:
            try:
                found = orjson.loads(body)
            except ValueError:
                raise HttpError(400, "the body is not JSON") from None
        names = ("user", "password", "token")
        if not isinstance(found, dict) or not all(isinstance(found.get(name, ""), str) for name in names):
            raise HttpError(400, 'say {"user": ..., "password": ...} or {"token": ...}')
        said = Said(*(found.get(name, "") for name in names))
        login = await self._access.prove(request, said)
        if login is None:
            raise HttpError(401, "that is not right")
        secure = "; Secure" if request.is_encrypted else ""
        cookie = f"{self._access.cookie}={self._access.begin_session(login)}; Path=/; HttpOnly; SameSite=Strict{secure}"
        return json_answer({"user": login.user.name}, headers={"Set-Cookie": cookie, "Cache-Control": "no-store"})

    async def _logout(self, request: Request, fields: dict[str, str]) -> Answer:
        self._access.end_session(request)
        gone = f"{self._access.cookie}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"
        return json_answer({}, headers={"Set-Cookie": gone})


# --- what a request may -----------------------------------------------------------------------------------------------


def user_of(request: Request) -> User | None:
    return None if request.login is None else request.login.user


def may(request: Request, right: str, topic: str) -> bool:
    """Whether the user of a request has that right. On an open server everybody has."""
    user = user_of(request)
    return not request.is_guarded or (user is not None and user.may(right, topic))


def check(request: Request, right: str, topic: str) -> None:
    """Raises HttpError if the user does not have that right."""
    if not may(request, right, topic):
        raise forbidden(request, f"{right} {topic}")


def may_all(request: Request, right: str) -> bool:
    """Whether the user of a request has a right to every topic, which is needed for what concerns the whole broker."""
    user = user_of(request)
    return not request.is_guarded or (user is not None and user.may_all(right))


def check_all(request: Request, right: str) -> None:
    """Raises HttpError if the user does not have that right to every topic."""
    if not may_all(request, right):
        raise forbidden(request, f"{right} everything")


def forbidden(request: Request, what: str) -> HttpError:
    user = user_of(request)
    return forbidden_because(request, f"{'nobody' if user is None else user.name} may not {what:.200}")


def forbidden_because(request: Request, why: str) -> HttpError:
    assert isinstance(request.access, HttpAccess)
    request.access.refused(request)
    return HttpError(403, why)


def owner_of(request: Request) -> str:
    """The owner of what a request makes; "" without users."""
    user = user_of(request)
    return "" if user is None else user.name


def check_owner(request: Request, owner: str, what: str) -> None:
    """Raises HttpError unless the user is the owner, or manages everything. What has no owner is open to all."""
    user = user_of(request)
    if request.is_guarded and owner and user is not None and user.name != owner and not user.may_all(rights.MANAGE):
        raise forbidden(request, f"change {what}, which is another's")


def granted(request: Request, topic: str | None = None) -> dict[str, Any]:
    """By right: whether the user has it to `topic`; without a topic, the patterns of all topics it covers."""
    user = user_of(request)
    if topic is not None:
        return {right: may(request, right, topic) for right in RIGHTS}
    if not request.is_guarded:
        return {right: [rights.ALL] for right in RIGHTS}
    return {right: [] if user is None else list(user.patterns(right)) for right in RIGHTS}


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()
