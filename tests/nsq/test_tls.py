"""TLS: negotiated by IDENTIFY, demanded by the server, with and without certificates of clients."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from tests.nsq import frames
from tests.nsq.certificates import Certificates, Pair
from tests.nsq.frames import ERROR, OK, Frame
from tests.nsq.servers import NsqServer, running
from tests.nsq.wire import Wire, consumer
from tests.servers import Shape


def start(shape: Shape, options: dict[str, str], **more: str) -> AbstractContextManager[NsqServer]:
    return running(shape, {**options, **{name.replace("_", "-"): value for name, value in more.items()}})


@pytest.fixture(scope="module")
def requiring_tls(shape: Shape, tls_options: dict[str, str]) -> Iterator[NsqServer]:
    """And no less than version 1.3."""
    with start(shape, tls_options, tls_required="true", tls_min_version="tls1.3") as server:
        yield server


@pytest.fixture(scope="module")
def requiring_certificate(shape: Shape, tls_options: dict[str, str]) -> Iterator[NsqServer]:
    with start(shape, tls_options, tls_client_auth_policy="require") as server:
        yield server


@pytest.fixture(scope="module")
def verifying_certificate(shape: Shape, tls_options: dict[str, str]) -> Iterator[NsqServer]:
    with start(shape, tls_options, tls_client_auth_policy="require-verify", tls_required="tcp-https") as server:
        yield server


def connect(server: NsqServer, context: ssl.SSLContext, **fields: object) -> Wire:
    wire = Wire(server)
    try:
        assert wire.identify(tls_v1=True, **fields)["tls_v1"] is True
        wire.start_tls(context)
        assert wire.frame() == OK
    except BaseException:
        wire.close()
        raise
    return wire


def is_refused(server: NsqServer, context: ssl.SSLContext) -> bool:
    """The handshake fails, or with version 1.3, where the client's half may seem to succeed, no OK follows it."""
    try:
        connect(server, context).close()
    except (ssl.SSLError, ConnectionError):
        return True
    return False


class TestNegotiated:
    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
    def test_all_goes_on_inside(
        self, tls_server: NsqServer, certificates: Certificates, topic: str, version: ssl.TLSVersion
    ) -> None:
        context = certificates.context(most=version)
        with connect(tls_server, context, output_buffer_timeout=25) as wire, Wire(tls_server) as plain:
            assert isinstance(wire.socket, ssl.SSLSocket)
            assert wire.socket.version() == {"TLSv1_2": "TLSv1.2", "TLSv1_3": "TLSv1.3"}[version.name]
            wire.publish(topic, b"from inside")
            plain.publish(topic, b"from outside")
            wire.subscribe(topic, "ch", rdy=5)
            messages = wire.messages(2)
            assert [message.body for message in messages] == [b"from inside", b"from outside"]
            wire.fin(*messages)
            assert wire.is_not_in_flight(messages[1])
            wire.fails("STOP\n", "E_INVALID invalid command STOP")

    def test_large_messages_and_many(self, tls_server: NsqServer, certificates: Certificates, topic: str) -> None:
        with connect(tls_server, certificates.context(), output_buffer_timeout=25) as wire:
            large = [bytes([n]) * (1024 * 1024) for n in range(4)]
            small = [b"%d" % n for n in range(2000)]
            wire.publish_many(topic, large)
            wire.publish_many(topic, small)
            wire.subscribe(topic, "ch", rdy=2500)
            messages = wire.messages(2004)
            assert [message.body for message in messages] == large + small
            wire.fin(*messages)
            assert wire.is_not_in_flight(messages[-1])

    def test_bytes_one_by_one(self, tls_server: NsqServer, certificates: Certificates, topic: str) -> None:
        """Each in a TLS record of its own."""
        with connect(tls_server, certificates.context()) as wire:
            for byte in frames.pub(topic, b"x") + b"NOP\n" + frames.sub(topic, "ch"):
                wire.send(bytes([byte]))
            assert wire.frames(2) == [OK, OK]

    def test_a_client_may_stay_outside(self, tls_server: NsqServer, topic: str) -> None:
        with Wire(tls_server) as wire:
            assert wire.identify()["tls_v1"] is False
            wire.publish(topic, b"x")
        with Wire(tls_server) as wire:
            assert wire.ask(frames.identify(tls_v1=True)) == OK, "nothing was negotiated"
            wire.publish(topic, b"y")
        with consumer(tls_server, topic, rdy=2) as reader:
            assert [message.body for message in reader.messages(2)] == [b"x", b"y"]

    def test_a_client_certificate_is_not_asked_for(
        self, tls_server: NsqServer, certificates: Certificates, topic: str
    ) -> None:
        with connect(tls_server, certificates.context(certificates.stranger)) as wire:
            wire.publish(topic, b"x")

    def test_what_is_no_handshake_ends_the_connection(self, tls_server: NsqServer, topic: str) -> None:
        with Wire(tls_server) as wire:
            assert wire.identify(tls_v1=True)["tls_v1"] is True
            wire.send(frames.pub(topic, b"in the clear") * 10)
            until = time.monotonic() + 60
            while wire.receive(until):
                pass
            assert OK.data not in wire.buffer
        with consumer(tls_server, topic, rdy=2) as reader:
            assert reader.is_quiet()

    def test_a_client_that_leaves_in_the_handshake_hurts_nobody(
        self, tls_server: NsqServer, certificates: Certificates, topic: str
    ) -> None:
        for sent in (b"", b"\x16\x03\x01\x02\x00\x01", b"\x16"):
            with Wire(tls_server) as wire:
                wire.identify(tls_v1=True)
                wire.send(sent)
        with connect(tls_server, certificates.context()) as wire:
            wire.publish(topic, b"x")

    def test_without_a_certificate_a_server_has_none(self, server: NsqServer, topic: str) -> None:
        with Wire(server) as wire:
            assert wire.identify(tls_v1=True)["tls_v1"] is False
            wire.publish(topic, b"in the clear")


class TestRequired:
    @pytest.mark.parametrize(
        "command", ["PUB t\n", "MPUB t\n", "DPUB t 1\n", "SUB t c\n", "RDY 1\n", "FIN x\n", "REQ x 0\n", "TOUCH x\n",
                    "CLS\n", "NOP\n", "AUTH\n", "FOO\n"],
    )  # fmt: skip
    def test_nothing_but_identify_goes_without(self, requiring_tls: NsqServer, command: str) -> None:
        text = f"E_INVALID cannot {command.split()[0]} in current state (TLS required)"
        with Wire(requiring_tls) as wire:
            wire.fails(command, text)
        with Wire(requiring_tls) as wire:
            assert wire.identify()["tls_v1"] is False
            wire.fails(command, text)

    def test_inside_all_goes(self, requiring_tls: NsqServer, certificates: Certificates, topic: str) -> None:
        with connect(requiring_tls, certificates.context(), output_buffer_timeout=25) as wire:
            wire.publish(topic, b"x")
            wire.subscribe(topic, "ch", rdy=1)
            assert wire.message().body == b"x"

    def test_an_older_version_is_refused(self, requiring_tls: NsqServer, certificates: Certificates) -> None:
        assert is_refused(requiring_tls, certificates.context(most=ssl.TLSVersion.TLSv1_2))
        assert not is_refused(requiring_tls, certificates.context(most=ssl.TLSVersion.TLSv1_3))


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.mark.parametrize("version", VERSIONS)
class TestClientCertificates:
    def test_require_takes_any(
        self, requiring_certificate: NsqServer, certificates: Certificates, topic: str, version: ssl.TLSVersion
    ) -> None:
        assert is_refused(requiring_certificate, certificates.context(most=version))
        for pair in (certificates.client, certificates.stranger):
            with connect(requiring_certificate, certificates.context(pair, most=version)) as wire:
                wire.publish(topic, b"x")

    def test_require_verify_takes_those_of_its_authority(
        self, verifying_certificate: NsqServer, certificates: Certificates, topic: str, version: ssl.TLSVersion
    ) -> None:
        refused: tuple[Pair | None, ...] = (None, certificates.stranger)
        for pair in refused:
            assert is_refused(verifying_certificate, certificates.context(pair, most=version))
        with connect(verifying_certificate, certificates.context(certificates.client, most=version)) as wire:
            wire.publish(topic, b"x")

    def test_either_policy_makes_tls_required(
        self, requiring_certificate: NsqServer, verifying_certificate: NsqServer, version: ssl.TLSVersion
    ) -> None:
        for server in (requiring_certificate, verifying_certificate):
            with Wire(server) as wire:
                assert wire.ask("PUB t\n") == Frame(ERROR, b"E_INVALID cannot PUB in current state (TLS required)")
                assert wire.is_closed()
