"""pynsq as the tests use it."""

from __future__ import annotations

import asyncio
import functools
import ssl
import types
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from tests.nsq import snappy_stream  # noqa: F401  before pynsq, which looks for it when it is imported

import nsq  # isort: skip
import nsq.deflate_socket
import nsq.snappy_socket

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
from tests.nsq.servers import NsqServer

FLUSH_MS = 25

# For half a compressed block it raises OSError with a number alone, which since Python 3.3 is no BlockingIOError, and
# which tornado takes for a lost connection.
nsq.deflate_socket.socket = nsq.snappy_socket.socket = types.SimpleNamespace(error=BlockingIOError)


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
        options["auth_secret"] = features.secret
    return options


class OnAsyncio(Looping):
    _asyncio: asyncio.AbstractEventLoop
    _ended: asyncio.Event

    def _loop(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._asyncio = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._open()
        self._ready.set()
        await self._ended.wait()
        self._close()

    def _end(self) -> None:
        self._post(self._ended.set)

    def _post(self, action: Callable[[], None]) -> None:
        self._asyncio.call_soon_threadsafe(action)

    def _open(self) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError


class PynsqReader(nsq.Reader):  # type: ignore[misc]
    """Tells the consumer what only a subclass is told."""

    def __init__(self, consumer: PynsqConsumer, **options: Any) -> None:  # noqa: ANN401
        self.consumer = consumer
        super().__init__(**options)

    def heartbeat(self, conn: object) -> None:
        self.consumer.heartbeats += 1

    def giving_up(self, message: nsq.Message) -> None:
        self.consumer.given_up.append(message.body)

    def _on_connection_error(self, conn: object, error: Exception, **more: Any) -> None:  # noqa: ANN401
        self.consumer.errors.append(str(error))

    def _on_connection_close(self, conn: object, **more: Any) -> None:  # noqa: ANN401
        self.consumer.closed += 1
        super()._on_connection_close(conn, **more)


class PynsqConsumer(OnAsyncio, Consumer):
    reader: PynsqReader

    def _open(self) -> None:
        wanted = self.subscription
        self.reader = PynsqReader(
            self,
            topic=wanted.topic,
            channel=wanted.channel,
            message_handler=self._on_message,
            nsqd_tcp_addresses=wanted.addresses,
            lookupd_http_addresses=list(wanted.lookupd_http),
            lookupd_poll_interval=1,
            max_tries=wanted.max_tries,
            max_in_flight=wanted.max_in_flight,
            max_backoff_duration=wanted.max_backoff_seconds,
            requeue_delay=0,
            **connection_options(wanted.features),
            **wanted.options,
        )

    def _on_message(self, message: nsq.Message) -> bool | None:
        verdict = self._handle(message, message.timestamp)
        if verdict is None:
            message.enable_async()
        return verdict

    def _close(self) -> None:
        self.reader.close()


class PynsqProducer(OnAsyncio, Producer):
    writer: nsq.Writer

    def __init__(self, server: NsqServer, features: Features = PLAIN, *, reconnect_seconds: float = 0.05) -> None:
        super().__init__()
        self.address = address_of(server)
        self.features = features
        self.reconnect_seconds = reconnect_seconds

    def _open(self) -> None:
        options = connection_options(self.features)
        self.writer = nsq.Writer([self.address], reconnect_interval=self.reconnect_seconds, **options)

    def _close(self) -> None:
        for conn in list(self.writer.conns.values()):
            conn.close()

    def is_connected(self) -> bool:
        return any(conn.connected() for conn in list(self.writer.conns.values()))

    def publish(self, topic: str, body: bytes) -> None:
        self._answered(lambda answer: self.writer.pub(topic, body, callback=answer))

    def publish_many(self, topic: str, bodies: Sequence[bytes]) -> None:
        self._answered(lambda answer: self.writer.mpub(topic, list(bodies), callback=answer))

    def publish_deferred(self, topic: str, delay_ms: int, body: bytes) -> None:
        self._answered(lambda answer: self.writer.dpub(topic, delay_ms, body, callback=answer))

    def _answered(self, command: Callable[[Callable[..., None]], object]) -> None:
        answer: Future[object] = Future()

        def done(_: object, data: object) -> None:
            if not answer.done():
                answer.set_result(data)

        self._post(lambda: self._when_connected(lambda: command(done)))
        data = answer.result(SECONDS)
        if data != b"OK":
            raise PublishError(str(data))

    def _when_connected(self, command: Callable[[], object]) -> None:
        """A Writer refuses what comes before it is connected for the first time."""
        if self.writer.conns:
            command()
        else:
            self._asyncio.call_later(0.01, self._when_connected, command)


PYNSQ = ClientLibrary("pynsq", PynsqConsumer, PynsqProducer)


class PynsqCrowd(OnAsyncio):
    """Many readers of one channel in one loop, each ready for one message; what they get they keep."""

    def __init__(self, server: NsqServer, topic: str, readers: int) -> None:
        super().__init__()
        self.held: list[list[nsq.Message]] = [[] for _ in range(readers)]
        self.errors: list[str] = []
        self.address = address_of(server)
        self.topic = topic

    def _open(self) -> None:
        self.readers = [
            nsq.Reader(
                self.topic, "ch", message_handler=functools.partial(self._keep, held), nsqd_tcp_addresses=[self.address]
            )
            for held in self.held
        ]

    @staticmethod
    def _keep(held: list[nsq.Message], message: nsq.Message) -> None:
        message.enable_async()
        held.append(message)

    def finish_all(self) -> None:
        def act() -> None:
            for held in self.held:
                for message in held:
                    message.finish()

        self._post(act)

    def _close(self) -> None:
        for reader in self.readers:
            reader.close()
