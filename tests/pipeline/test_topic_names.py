"""Whatever NATS's and Pulsar's clients call a topic, it is read under that name, as text, and is no other topic's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

import orjson
import pyarrow as pa
import pytest
from mq_shards.pipeline.client import Address, Client
from mq_shards.pipeline.encode import Encoder, Section
from mq_shards.pipeline.offsets import Offset
from mq_shards.pipeline.publish import Batch, publish
from mq_shards.pipeline.staging import Stage
from mq_shards.pipeline.topics import Key

from tests.nats.wire import Wire as NatsWire
from tests.nsq import api
from tests.nsq.servers import HOST
from tests.pipeline.broker import Broker, broker_in
from tests.pipeline.serving import Gateway
from tests.pipeline.stream_driver import Checkpoint, run
from tests.pulsar.wire import Wire as PulsarWire
from tests.servers import free_port

# By how the name is shown.
OF_NATS = {
    "b.żółw": "b.żółw".encode(), "b.a,b": b"b.a,b", "b.日本": "b.日本".encode(), 'b."<&>\'': b"b.\"<&>'",
    "b.caf\\xe9": b"b.caf\xe9", "b.café": "b.café".encode(), "b.\\x5cxe9": b"b.\\xe9", "b.\\": b"b.\\",
    "b.\\xff\\xfe": b"b.\xff\xfe", "b.\x1b[31m": b"b.\x1b[31m", "b." + "=" * 198: b"b." + b"=" * 198,
}  # fmt: skip
OF_PULSAR = ("persistent://public/default/mit Leerzeichen, Ü", "#$%! ~")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """With a message in each topic."""
    nats, pulsar = free_port(), free_port()
    listen = f"--listen=pulsar://{HOST}:{pulsar}", f"--listen=nats://{HOST}:{nats}", "--set=nats.topics=b.>"
    with broker_in(tmp_path_factory.mktemp("broker") / "data", *listen) as broker:
        wire = NatsWire(nats)
        wire.send(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB _INBOX.1 1\r\n')
        for name in OF_NATS.values():
            wire.send(b"PUB %b _INBOX.1 1\r\nx\r\n" % name)
        while wire.heard.data.count(b'"seq":0') < len(OF_NATS):  # they are kept
            assert not wire.heard.closed
            wire.receive()
        wire.socket.close()
        with PulsarWire(pulsar) as client:
            client.connect()
            for number, topic in enumerate(OF_PULSAR, 1):
                client.producer(topic, number)
                client.send(b"x", number)
                client.expect("send_receipt")
        yield broker


def names() -> set[str]:
    return {*OF_NATS, *(name.removeprefix("persistent://public/default/") for name in OF_PULSAR)}


def test_each_is_read_under_its_own_name_and_by_it(broker: Broker) -> None:
    checkpoint = Checkpoint()
    assert run(checkpoint, brokers=broker.address, subscription="all") == sorted((name, 0) for name in names())
    assert run(checkpoint, brokers=broker.address, subscription="all") == []
    said = broker.get("/v1/readers/all")
    assert said["topics"] == dict.fromkeys(names(), 1) and said["unread"] == dict.fromkeys(names(), 0)
    for name in names():
        assert run(Checkpoint(), brokers=broker.address, topic=orjson.dumps([name]).decode()) == [(name, 0)]


def test_one_that_is_nobodys_is_not_found_whatever_it_is_called(broker: Broker) -> None:
    for name in ("日", "b.caf\\xc3\\xa9", "\\xe9", "b.cafÃ©"):
        query = quote(name)
        assert api.call(broker.http_port, "GET", f"/v1/offsets?topic={query}&timestamp_ns=0").status == 404
        assert api.call(broker.http_port, "DELETE", f"/v1/topics/{query}").status == 404
        body = json.dumps({"ranges": [[name, 0, 9]]}).encode()
        assert api.call(broker.http_port, "POST", "/v1/records", body).status == 200
    assert {topic["topic"] for topic in broker.get(f"/v1/topics?prefix={quote('b.ż')}")["topics"]} == {"b.żółw"}


def section(topic: str) -> Section:
    encoder = Encoder()
    (found,) = [*encoder.add(topic, pa.array([b"x"])), *encoder.finish()]
    return found


def test_what_is_read_is_written_under_that_name_and_can_be_erased(broker: Broker) -> None:
    address = Address.parse(broker.address)
    for number, topic in enumerate(("neu: żółw, 日本", "b.new,one", "b.n\\xe9w", "b.n\\x5cxe9w", "\\xff" * 1024)):
        with Client(address, 30) as client:
            stage = Stage(client, "names")
            stage.add(section(topic))
            publish(Batch("w", number), [address], [stage.finish()], 30)
        assert run(Checkpoint(), brokers=broker.address, topic=orjson.dumps([topic]).decode()) == [(topic, 0)]
        assert api.call(broker.http_port, "DELETE", f"/v1/topics/{quote(topic, safe='')}").json["erased"] == 1
        assert topic in {erased["topic"] for erased in broker.get("/v1/erased")["erased"]}
    no_text = section("caf?").data.replace(b"?", b"\xe9")
    for data in (no_text, *(section(topic).data for topic in ("no\nline", "é\\xe9", "\x85", "\\xff" * 1025))):
        reply = api.call(broker.http_port, "POST", "/v1/publish", data)
        assert (reply.status, "a topic's name" in reply.json["error"]) == (400, True)


def test_a_topic_that_is_no_text_is_deleted_as_it_is_erased_and_no_other(broker: Broker) -> None:
    """`b.g\\xe9` is how two bytes are shown, and eight letters, which are shown otherwise."""
    assert api.call(broker.http_port, "POST", "/v1/publish", section("b.g\\xe9").data).status == 200
    assert api.call(broker.http_port, "POST", "/v1/publish", section("b.g\\x5cxe9").data).status == 200
    assert api.call(broker.http_port, "DELETE", "/v1/topics/b.g%5Cxe9").json["erased"] == 1
    live = {found["name"] for found in broker.get("/v1/find?search=b.g")["rows"]}
    assert live == {"b.g\\x5cxe9"}


def test_a_checkpoint_with_letters_for_bytes_goes_on(gateway: Gateway) -> None:
    """As it was written when brokers gave names so."""
    for _ in range(3):
        gateway.topic("żółw").add(b"x")
    checkpoint = Checkpoint()
    run(checkpoint, brokers=gateway.address)
    assert checkpoint.last["version"] == 3
    old = json.dumps({**checkpoint.last, "version": 2}).replace(
        json.dumps("żółw"), json.dumps("żółw".encode().decode("latin-1"))
    )
    gateway.topic("żółw").add(b"x")
    gateway.topic("Ã©").add(b"x")
    later = Checkpoint([old], done=1)
    assert run(later, brokers=gateway.address) == [("Ã©", 0), ("żółw", 3)]
    assert run(later, brokers=gateway.address) == []
    assert Offset.decode(Offset({Key("b", "Ã©"): 1}).encode(), {}).seqs == {Key("b", "Ã©"): 1}
