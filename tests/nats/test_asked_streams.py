"""A service and a stream of the same subject: what others ask of the service is no message of the stream."""

from __future__ import annotations

from tests.nats.conftest import server_of
from tests.nats.servers import NatsServer
from tests.nats.test_imports import ask, asked, client, settled

server = server_of("asked_stream.conf")


def test_what_is_asked_of_a_service_and_its_answer_are_not_imported_as_a_stream(server: NatsServer) -> None:
    service = client(server, "service", b"SUB > 1\r\n")
    other, asker = client(server, "other", b"SUB > 1\r\n"), client(server, "asker", b"SUB > 1\r\n")
    asker.send(ask(b"s.a") + ask(b"s.moved"))
    assert b" s.a " not in settled(asker).replace(b"MSG s.a 1 in.1 1\r\n", b"")
    [(reply, _)] = asked(service, b"s.a")
    service.send(b"PUB %s 4\r\nback\r\nPUB s.b 3\r\nown\r\n" % reply)
    settled(service)
    assert settled(asker) == b"MSG in.1 1 4\r\nback\r\nMSG heard.s.b 1 3\r\nown\r\nPONG\r\n"
    assert settled(other) == b"MSG s.b 1 3\r\nown\r\nPONG\r\n"
