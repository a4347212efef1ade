"""gnsq as the tests use it: its greenlets in a thread with a hub of its own, nothing patched."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from tests.nsq import snappy_stream  # noqa: F401  before gnsq, which looks for it when it is imported

import gevent  # isort: skip
import gnsq
from gevent.event import Event
from gnsq.errors import NSQException, NSQRequeueMessage

from tests.nsq.clients import (
    PLAIN,
    SECONDS,
    ClientLibrary,
    Consumer,
    Features,
    Looping,
    Producer,
    PublishError,
    address_of,
)
from tests.nsq.servers import HOST, NsqServer

FLUSH_MS = 25


def connection_options(features: Features) -> dict[str, Any]:
    options: dict[str, Any] = {"heartbeat_interval": features.heartbeat_seconds, "output_buffer_timeout": FLUSH_MS}
    if features.tls is not None:
        files = {"ca_certs": str(features.tls.authority)}
        if features.show is not None:
            files |= {"certfile": str(features.show.cert), "keyfile": str(features.show.key)}
        options |= {"tls_v1": True, "tls_options": {"cert_reqs": ssl.CERT_REQUIRED, **files}}
    if features.compression:
        options[features.compression] = True
    if features.secret:
        options["auth_secret"] = features.secret.encode()
    return options


class OnGevent(Looping):
    def _loop(self) -> None:
        self._hub = gevent.get_hub()
        self._ended = Event()
        # The hub of a thread ends when it has nothing to wait for, unless others may wake it.
        keep_alive = gevent.spawn(self._wait)
        try:
            self._open()
            self._ready.set()
            keep_alive.get()
            self._close()
        finally:
            self._hub.destroy(destroy_loop=True)

    def _wait(self) -> None:
        while not self._ended.wait(0.5):
            pass

    def _end(self) -> None:
        self._post(self._ended.set)

    def _post(self, action: Callable[[], None]) -> None:
        self._hub.loop.run_callback_threadsafe(gevent.spawn, action)

    def _open(self) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError


class GnsqConsumer(OnGevent, Consumer):
    consumer: gnsq.Consumer

    def _open(self) -> None:
        wanted = self.subscription
        self.consumer = gnsq.Consumer(
            wanted.topic,
            wanted.channel,
            nsqd_tcp_addresses=wanted.addresses,
            lookupd_http_addresses=list(wanted.lookupd_http),
            lookupd_poll_interval=1,
            message_handler=self._on_message,
            max_tries=wanted.max_tries,
            max_in_flight=wanted.max_in_flight,
            max_backoff_duration=wanted.max_backoff_seconds,
            **connection_options(wanted.features),
            **wanted.options,
        )
        self.consumer.on_response.connect(self._on_response)
        self.consumer.on_giving_up.connect(self._on_giving_up)
        self.consumer.on_error.connect(self._on_error)
        self.consumer.start(block=False)

    def _on_message(self, _: object, message: gnsq.Message) -> None:
        verdict = self._handle(message, message.timestamp)
        if verdict is None:
            message.enable_async()
        elif not verdict:
            raise NSQRequeueMessage

    def _on_response(self, _: object, response: bytes) -> None:
        self.heartbeats += response == b"_heartbeat_"

    def _on_giving_up(self, _: object, message: gnsq.Message) -> None:
        self.given_up.append(message.body)

    def _on_error(self, _: object, error: Exception) -> None:
        self.errors.append(repr(error))

    def _close(self) -> None:
        self.consumer.close()


class PatientProducer(gnsq.Producer):  # type: ignore[misc]
    """gnsq's own takes the OK that follows TLS and compression for that of a publish, and fails."""

    def handle_response(self, conn: object, response: bytes) -> None:
        if conn in self._response_queues:
            super().handle_response(conn, response)


class GnsqProducer(OnGevent, Producer):
    producer: gnsq.Producer

    def __init__(self, server: NsqServer, features: Features = PLAIN) -> None:
        super().__init__()
        self.address = address_of(server)
        self.features = features

    def _open(self) -> None:
        options = connection_options(self.features)
        self.producer = PatientProducer([self.address], max_backoff_duration=0.1, **options)
        self.producer.start()

    def _close(self) -> None:
        self.producer.close()

    def publish(self, topic: str, body: bytes) -> None:
        self._answered(lambda: self.producer.publish(topic, body))

    def publish_many(self, topic: str, bodies: Sequence[bytes]) -> None:
        self._answered(lambda: self.producer.multipublish(topic, list(bodies)))

    def publish_deferred(self, topic: str, delay_ms: int, body: bytes) -> None:
        self._answered(lambda: self.producer.publish(topic, body, defer=delay_ms))

    def _answered(self, command: Callable[[], object]) -> None:
        answer: Future[object] = Future()

        def ask() -> None:
            try:
                answer.set_result(command())
            except NSQException as error:
                answer.set_exception(PublishError(repr(error)))

        self._post(ask)
        assert answer.result(SECONDS) == b"OK"


GNSQ = ClientLibrary("gnsq", GnsqConsumer, GnsqProducer)


def http_client(server: NsqServer) -> gnsq.NsqdHTTPClient:
    return gnsq.NsqdHTTPClient(HOST, server.http_port)
