"""The source, the sink and the jobs speak with brokers over https, and believe only whom they are told to."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mq_shards.pipeline.client import Address, BrokerError, Client, check_brokers
from mq_shards.pipeline.command import main
from mq_shards.pipeline.encode import Section
from mq_shards.pipeline.options import OptionError, ReadOptions, connection_of
from mq_shards.pipeline.publish import Batch, publish
from mq_shards.pipeline.staging import Stage
from mq_shards.pipeline.write_options import WriteOptions

from tests.nsq.certificates import Certificates
from tests.pipeline.stream_driver import Checkpoint, run
from tests.reader.broker import section
from tests.supervisor.test_secure import Secure, free_port, secure

HTTP = free_port()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    with secure(tmp_path_factory.mktemp("secure"), f"--listen=http://127.0.0.1:{HTTP}") as one:
        yield one


def at(broker: Secure, host: str = "localhost") -> dict[str, str]:
    return {"brokers": f"https://{host}:{broker.https}", "tlsCa": str(broker.made.authority)}


def write(connection: dict[str, str], topic: str, *bodies: bytes) -> None:
    """As a task and the driver of a batch do."""
    options = WriteOptions.parse(connection, streaming=False)
    (address,) = options.brokers
    with Client(address, 5) as client:
        stage = Stage(client, "test")
        for body in bodies:
            stage.add(Section(topic, 1, section(topic, body)))
        staged = stage.finish()
    publish(Batch(f"writer-{topic}", 0), options.brokers, [staged], 5)


def test_what_is_written_over_https_is_read_over_https(broker: Secure) -> None:
    write(at(broker), "orders", *(b"%d" % n for n in range(100)))
    assert run(Checkpoint(), **at(broker), topic="orders") == [("orders", seq) for seq in range(100)]


def test_large_messages_come_whole(broker: Secure) -> None:
    write(at(broker), "large", *(bytes([n]) * 700_000 for n in range(3)))
    assert run(Checkpoint(), **at(broker), topic="large") == [("large", seq) for seq in range(3)]


def test_a_stranger_is_not_believed_and_that_is_said_at_once(broker: Secure) -> None:
    began = time.monotonic()
    for connection, said in (
        ({"brokers": f"https://localhost:{broker.https}"}, "its certificate is not believed"),
        (at(broker, "localhost") | {"tlsCa": str(broker.made.stranger.cert)}, "its certificate is not believed"),
        (at(broker) | {"tlsCa": __file__}, f"tlsCa {__file__}"),
        (at(broker) | {"tlsCert": __file__}, f"tlsCert {__file__}"),
    ):
        (address,) = connection_of(connection)
        with Client(address, 60) as client, pytest.raises(BrokerError, match=said):
            client.listing()
    assert time.monotonic() - began < 30, "trying again would not help"


def test_a_broker_may_want_a_certificate(tmp_path: Path, broker: Secure) -> None:
    made: Certificates = broker.made
    with secure(tmp_path, f"--set=tls.client-ca={made.authority}") as strict:
        connection = {"brokers": f"https://localhost:{strict.https}", "tlsCa": str(strict.made.authority)}
        (address,) = connection_of(connection)
        with Client(address, 0.1) as client, pytest.raises(BrokerError):
            client.listing()
        shown = connection | {"tlsCert": str(made.client.cert), "tlsKey": str(made.client.key)}
        write(shown, "t", b"1", b"2")
        assert run(Checkpoint(), **shown, topic="t") == [("t", 0), ("t", 1)]


@pytest.mark.parametrize(
    ("scheme", "port", "said"),
    [
        ("https", "http", "it does not speak TLS there: http://{at}"),
        ("http", "https", "it speaks only TLS there: https://{at}"),
        ("http", "beanstalk", "it does not speak HTTP there: 'UNKNOWN_COMMAND'"),
    ],
)
def test_a_job_at_a_port_of_another_kind_says_what_to_name(broker: Secure, scheme: str, port: str, said: str) -> None:
    at = f"127.0.0.1:{ {'http': HTTP, 'https': broker.https, 'beanstalk': broker.server.port}[port] }"
    began = time.monotonic()
    with pytest.raises(BrokerError, match=re.escape(said.format(at=at))):
        check_brokers(connection_of({"brokers": f"{scheme}://{at}"}))
    assert time.monotonic() - began < 8, "not only when the broker has lost its patience with who says nothing"


def test_jobs_take_the_same(broker: Secure, capsys: pytest.CaptureFixture[str]) -> None:
    found = at(broker)
    assert main(["--brokers", found["brokers"], "--ca", found["tlsCa"], "readers"]) == 0
    assert main(["readers", "--brokers", found["brokers"]]) == 1
    assert "its certificate is not believed" in capsys.readouterr().err


def test_addresses_say_how_they_are_spoken_to() -> None:
    assert str(Address.parse("https://a")) == "a:4181"
    assert Address.parse("https://a/").tls is not None
    assert Address.parse("http://a:80").tls is None
    assert str(Address.parse("https://[::1]:7")) == "[::1]:7"
    for wrong in ("ftp://a:1", "https://", "https://a:b"):
        with pytest.raises(ValueError, match=r"neither|is not host:port"):
            Address.parse(wrong)
    with pytest.raises(OptionError, match="tlsCert is wanted with it"):
        ReadOptions.parse({"topic": "t", "brokers": "https://a", "tlsKey": "k"}, streaming=False)
