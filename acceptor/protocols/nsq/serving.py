"""NSQ's rare commands, IDENTIFY and SUB, and the connections' filters; AUTH is authorizing.py's.

The codec, nsq.c, does the other commands. It hands over a command when everything before it on the connection has been
answered, and takes no more input of the connection until the command is done:

    IDENTIFY '\n' body      AUTH '\n' body      SUB topic channel
    PUB topic, MPUB topic, DPUB topic ms      asks whether the client may publish: "authorize" is the answer, then the
                                              codec parses the command again

Errors, their texts and the order of the checks are those of nsqd 1.3. Every error of these commands ends the
connection.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import orjson
from mq_shards.acceptor import engine
from mq_shards.acceptor.access.rights import PUBLISH
from mq_shards.acceptor.engine import Answer, Engine, WorkerRequest
from mq_shards.acceptor.protocol import Broker, Settings
from mq_shards.acceptor.protocols.go_quote import quoted
from mq_shards.acceptor.protocols.nsq import options as nsq_options
from mq_shards.acceptor.protocols.nsq.authorizing import Authorizing
from mq_shards.acceptor.protocols.nsq.client import ERROR, OK, RESPONSE, Client, frame
from mq_shards.acceptor.protocols.nsq.identify import (
    TEXT_CHARACTERS,
    ClientError,
    Upgrade,
    default_terms,
    negotiate,
    parse,
)
from mq_shards.acceptor.protocols.nsq.producers import Producers
from mq_shards.acceptor.upgrade import Upgrades
from mq_shards.csrc._core import ffi, lib
from mq_shards.ringbuf.time_units import SECOND_NS

if TYPE_CHECKING:
    # Imported only when needed: most brokers use none of them.
    from mq_shards.acceptor.filters.tls import TlsFactory


EPHEMERAL: Final = nsq_options.EPHEMERAL.encode()
HIDDEN: Final = tuple(name.encode() for name in nsq_options.HIDDEN)
INIT, SUBSCRIBED = 0, 3  # nsqd's numbers of a client's states
DESCRIPTION_BYTES: Final[int] = lib.DESCRIPTION_MAX_BYTES

# The codec's options by the nsqd options that they are set from.
ENGINE_OPTIONS: Final = {
    "max-msg-size": "max-msg-size",
    "max-body-size": "max-body-size",
    "max-rdy-count": "max-rdy-count",
    "max-req-timeout": "max-req-timeout-ns",
    "msg-timeout": "msg-timeout-ns",
    "client-timeout": "client-timeout-ns",
}

FAILURES: Final = {
    engine.NO_SPACE: "no space left",
    engine.TOO_MANY: "too many topics",
    engine.FAILED: "internal error",
}
NEVER_NS: Final = (1 << 63) - 1

log = logging.getLogger(__name__)


class NsqServing(Authorizing):
    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        broker: Broker,
        *,
        now_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Raises ValueError when the certificates that `settings` name cannot be used."""
        self._make_tls = _tls_factory(settings)  # first, as it may raise
        super().__init__(engine, settings, broker, now_ns=now_ns)
        self._wall_ns = wall_ns
        self._upgrades = Upgrades(engine, self._shaken, self._handshake_failed, now_ns)
        Producers(engine, self._number, self._described, broker.calls)
        for option, name in ENGINE_OPTIONS.items():
            engine.set(f"nsq.{name}", settings[option])
        engine.set("nsq.tls-required", int(nsq_options.is_tls_required(settings)))

    def reload(self, settings: Settings) -> None:
        """Reads the certificates again, for new connections. Raises ValueError when they cannot be used, with nothing
        changed."""
        self._make_tls = _tls_factory(settings)
        if self._auth is not None:
            from mq_shards.acceptor.protocols.nsq import tls as nsq_tls

            self._auth.trust(nsq_tls.client_context(settings))

    # --- upcalls ----------------------------------------------------------------------------------------------------

    def command(self, conn: int, command: bytes) -> None:
        client = self._clients.get(conn)
        if client is None:
            client = Client(self._wall_ns() // SECOND_NS, default_terms(self._settings))
            self._clients[conn] = client
        line, _, body = command.partition(b"\n")
        words = line.split(b" ")
        try:
            match words[0]:
                case b"IDENTIFY":
                    self._identify(conn, client, body)
                case b"AUTH":
                    self._authenticate(conn, client, words, body)
                case b"SUB":
                    self._subscribe(conn, client, words)
                case b"PUB" | b"MPUB" | b"DPUB":
                    self._publish(conn, client, words)
                case other:
                    raise ClientError("E_INVALID", f"invalid command {other.decode(errors='replace')}")
        except ClientError as error:
            self._refuse(conn, error)

    def answer(self, conn: int, answer: Answer) -> None:
        client = self._clients.get(conn)
        if client is None or client.subscribing is None:
            return
        topic, channel = client.subscribing
        client.subscribing = None
        if answer.status != engine.FAILED or client.asked_again:
            self._subscribed(conn, client, topic, channel, answer.status)
            return
        # The worker died, and what it may have done for the consumer with it: the next one is asked, when it is there.
        client.asked_again = True
        try:
            self._ask_to_subscribe(conn, client, topic, channel)
        except ClientError as error:
            self._refuse(conn, error)

    def input(self, conn: int, data: bytes) -> None:
        self._upgrades.input(conn, data)

    def output(self, conn: int, data: bytes) -> None:
        self._upgrades.output(conn, data)

    def closed(self, conn: int) -> None:
        client = self._clients.pop(conn, None)
        self._upgrades.closed(conn)
        if client is not None and client.asking is not None:
            client.asking.question.cancelled = True

    # --- time -------------------------------------------------------------------------------------------------------

    def wait_ns(self) -> int:
        return self._upgrades.wait_ns()

    def expire(self) -> None:
        self._upgrades.expire()

    # --- IDENTIFY ---------------------------------------------------------------------------------------------------

    def _identify(self, conn: int, client: Client, body: bytes) -> None:
        if client.subscribed:
            raise ClientError("E_INVALID", "cannot IDENTIFY in current state")
        request = parse(body)
        client.client_id = request.client_id[:TEXT_CHARACTERS]
        client.hostname = request.hostname[:TEXT_CHARACTERS]
        client.user_agent = request.user_agent[:TEXT_CHARACTERS]
        client.terms.change(request, self._settings)
        if client.sent_terms is None:
            client.sent_terms = replace(client.terms)
            self._engine.call(conn, "heartbeat-ns", client.terms.heartbeat_ns)
        if not request.feature_negotiation:
            self._done(conn, OK)
            return
        answer, upgrade = negotiate(
            request,
            client.terms,
            self._settings,
            has_tls=self._make_tls is not None,
            has_auth=self._auth is not None or self._is_guarded(conn),
        )
        if upgrade:
            self._upgrade(conn, client, answer, upgrade)
        else:
            self._done(conn, answer)

    def _upgrade(self, conn: int, client: Client, answer: bytes, upgrade: Upgrade) -> None:
        if conn in self._upgrades:
            raise ClientError("E_IDENTIFY_FAILED", "IDENTIFY failed already upgraded")
        self._upgrades.begin(conn)
        self._engine.send(conn, frame(RESPONSE, answer))
        client.upgrade = upgrade
        if upgrade.tls:
            assert self._make_tls is not None
            self._upgrades.shake_hands(conn, self._make_tls())
            return
        self._compress(conn, client, upgrade)
        self._engine.resume(conn)

    def _compress(self, conn: int, client: Client, upgrade: Upgrade) -> None:
        # Imported here because their libraries are seldom needed.
        if upgrade.snappy:
            from mq_shards.acceptor.filters.snappy import Snappy

            self._upgrades.add(conn, Snappy())
            client.snappy = True
            self._upgrades.say(conn, frame(RESPONSE, OK))
        if upgrade.deflate_level is not None:
            from mq_shards.acceptor.filters.deflate import Deflate

            self._upgrades.add(conn, Deflate(upgrade.deflate_level))
            client.deflate = True
            self._upgrades.say(conn, frame(RESPONSE, OK))

    def _shaken(self, conn: int) -> None:
        client = self._clients[conn]
        assert client.upgrade is not None
        self._engine.call(conn, "tls", 1)
        self._upgrades.say(conn, frame(RESPONSE, OK))
        self._compress(conn, client, client.upgrade)
        self._engine.resume(conn)

    def _handshake_failed(self, conn: int, alert: bytes, why: str) -> None:
        # The error follows the alert, for a client that does not speak TLS at all.
        error = frame(ERROR, f"E_IDENTIFY_FAILED IDENTIFY failed {why}".encode())
        self._engine.send(conn, alert + error)
        self._engine.close_connection(conn)

    # --- PUB, MPUB, DPUB ---------------------------------------------------------------------------------------------

    def _publish(self, conn: int, client: Client, words: list[bytes]) -> None:
        command = words[0].decode()
        topic = words[1]

        def allowed() -> None:
            is_free = self._auth is None and not self._is_guarded(conn)
            if is_free or (client.login is not None and client.login.user.may_all(PUBLISH)):
                self._engine.call(conn, "authorize-all")
                self._engine.resume(conn)
                return
            until_ns = client.authorizations.expires_ns if client.authorizations is not None else NEVER_NS
            self._engine.call(conn, "authorize", until_ns, topic)
            self._engine.resume(conn)

        self._when_allowed(conn, client, command, topic, b"", allowed)

    # --- SUB --------------------------------------------------------------------------------------------------------

    def _subscribe(self, conn: int, client: Client, words: list[bytes]) -> None:
        if client.subscribed:
            raise ClientError("E_INVALID", "cannot SUB in current state")
        if client.terms.heartbeat_ns == 0:
            raise ClientError("E_INVALID", "cannot SUB with heartbeats disabled")
        if len(words) < 3:
            raise ClientError("E_INVALID", "SUB insufficient number of parameters")
        topic, channel = words[1:3]
        if not engine.is_name(self._number, topic):
            raise ClientError("E_BAD_TOPIC", f"SUB topic name {quoted(topic)} is not valid")
        if not engine.is_name(self._number, channel) or channel in HIDDEN:
            raise ClientError("E_BAD_CHANNEL", f"SUB channel name {quoted(channel)} is not valid")
        self._when_allowed(
            conn, client, "SUB", topic, channel, lambda: self._ask_to_subscribe(conn, client, topic, channel)
        )

    def _ask_to_subscribe(self, conn: int, client: Client, topic: bytes, channel: bytes) -> None:
        number = self._engine.bind(topic)
        if number == 0:
            raise ClientError("E_SUB_FAILED", "SUB failed too many topics")
        terms = client.sent_terms or client.terms
        description = self._describe(conn, client)
        wanted = ffi.new(
            "struct subscribe *",
            {
                "timeout_ns": terms.msg_timeout_ns,
                "timeout_max_ns": self._settings["max-msg-timeout"],
                "sample_percent": terms.sample_rate,
                "max_consumers": self._settings["max-channel-consumers"],
                "name_bytes": len(channel),
                "flags": lib.SUBSCRIBE_EPHEMERAL if channel.endswith(EPHEMERAL) else 0,
                "description_bytes": len(description),
            },
        )
        client.subscribing = (topic, channel)
        worker = self._engine.worker_of_topic(number)
        request = bytes(ffi.buffer(wanted)) + channel + description
        if self._engine.request(worker, conn, WorkerRequest(lib.MSG_SUBSCRIBE, topic=number, body=request)) < 0:
            client.subscribing = None
            raise ClientError("E_SUB_FAILED", "SUB failed exiting")

    def _subscribed(self, conn: int, client: Client, topic: bytes, channel: bytes, status: int) -> None:
        if status == engine.OK:
            client.subscribed = True
            client.consumes = topic
            self._done(conn, OK)
            return
        if status == engine.FULL:
            limit = self._settings["max-channel-consumers"]
            why = f"consumers for {topic.decode()}:{channel.decode()} exceeds limit of {limit}"
        else:
            why = FAILURES.get(status, "for an unknown reason")
        self._refuse(conn, ClientError("E_SUB_FAILED", f"SUB failed {why}"))

    def _described(self, conn: int, opened_ns: int) -> dict[str, Any]:
        client = self._clients.get(conn)
        if client is None:  # it has sent no command that Python handles
            opened_s = (self._wall_ns() - (self._now_ns() - opened_ns)) // SECOND_NS
            client = Client(opened_s, default_terms(self._settings))
        state = SUBSCRIBED if client.subscribed else INIT
        return self._description(conn, client) | {"state": state}

    def _describe(self, conn: int, client: Client) -> bytes:
        """What nsqd's /stats shows of a consumer and does not change later, as JSON."""
        return shortened(self._description(conn, client), DESCRIPTION_BYTES)

    def _description(self, conn: int, client: Client) -> dict[str, Any]:
        remote = self._engine.remote(conn)
        host = remote.rpartition(":")[0].strip("[]")
        told: dict[str, Any] = {
            "client_id": host if client.client_id is None else client.client_id,
            "hostname": host if client.hostname is None else client.hostname,
            "version": "V2",
            "remote_address": remote,
            "state": SUBSCRIBED,
            "connect_ts": client.connected_s,
            "sample_rate": client.terms.sample_rate,
            "deflate": client.deflate,
            "snappy": client.snappy,
            "user_agent": client.user_agent,
        }
        if client.login is not None:
            told |= {"authed": True, "auth_identity": client.login.user.name, "auth_identity_url": ""}
        elif client.authorized and client.authorizations is not None:
            told["authed"] = True
            told["auth_identity"] = client.authorizations.identity
            told["auth_identity_url"] = client.authorizations.identity_url
        tls = self._upgrades.tls(conn)
        told |= {
            "tls": tls is not None,
            "tls_cipher_suite": tls.cipher if tls is not None else "",
            "tls_version": tls.version if tls is not None else "",
            "tls_negotiated_protocol": "",
            "tls_negotiated_protocol_is_mutual": tls is not None,
        }
        return told


def _tls_factory(settings: Settings) -> TlsFactory | None:
    if not settings["tls-cert"]:
        return None
    from mq_shards.acceptor.protocols.nsq import tls as nsq_tls

    return nsq_tls.factory(settings)


# --- bytes and words --------------------------------------------------------------------------------------------------


def shortened(told: dict[str, Any], limit: int) -> bytes:
    """JSON of at most `limit` bytes, in which texts are cut to the length that fits."""
    longest = TEXT_CHARACTERS
    while True:
        told = {key: value[:longest] if isinstance(value, str) else value for key, value in told.items()}
        data = orjson.dumps(told)
        if len(data) <= limit:
            return data
        longest //= 2


SERVING: Final = NsqServing
