"""Names of topics up to the limit, and beyond: what is made of each of them is refused alike by every command."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from tests.beanstalk.wire import Wire as Beanstalk
from tests.nsq import wire as nsq
from tests.pulsar.record_admin import play
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import Wire, payload_of

MOST = 1024
INVALID = 17


def local_of(prefix: str, size: int = MOST) -> str:
    """The last part of a name of so many bytes; some characters have two."""
    return prefix + "é" * 10 + "n" * (size - len(prefix) - 20)


def test_a_topic_with_the_longest_name_is_as_any_other_and_is_kept(tmp_path: Path) -> None:
    local, other = local_of("kept"), local_of("", MOST - len("persistent://public/other/"))
    path = f"persistent/public/default/{quote(local)}"
    with running(data_dir=tmp_path) as server:
        assert play(server.http, ("PUT", "namespaces/public/other"))["status"] == 204
        for name in (local, f"persistent://public/other/{other}", f"non-persistent://public/other/{other[4:]}"):
            with Wire(server.port).connect() as wire:
                wire.producer(name)
                wire.subscribe(name)
                wire.flow(1)
                wire.send(b"one")
                assert payload_of(wire.message()) == b"one"
        server.kill()
    with running(data_dir=tmp_path) as server, Wire(server.port).connect() as wire:
        wire.subscribe(local)
        wire.flow(1)
        assert payload_of(wire.message()) == b"one"
        assert f"persistent://public/default/{local}" in play(server.http, ("GET", "persistent/public/default"))["json"]
        assert play(server.http, ("GET", f"{path}/stats"))["json"]["subscriptions"]["s"]["consumers"]
        assert f"persistent://public/other/{other}" in play(server.http, ("GET", "persistent/public/other"))["json"]


def test_one_byte_more_is_refused_by_every_command(server: PulsarServer, wire: Wire) -> None:
    long = local_of("long", MOST + 1)
    nearest = "persistent://public/functions/" + "n" * (MOST + 1 - len("persistent://public/functions/"))
    for name in (long, nearest):
        for command, answer, fields in (
            ("lookupTopic", "lookupTopicResponse", {}),
            ("partitionMetadata", "partitionMetadataResponse", {}),
            ("producer", "error", {"producer_id": 1}),
            ("subscribe", "error", {"subscription": "s", "subType": 1, "consumer_id": 1}),
            ("getSchema", "getSchemaResponse", {}),
        ):
            refused = wire.ask(command, answer, topic=name, **fields)
            error = refused.error_code if command == "getSchema" else refused.error
            assert error == INVALID, command
    for method, path in (("PUT", ""), ("DELETE", ""), ("GET", "/stats"), ("PUT", "/subscription/s")):
        said = play(server.http, (method, f"persistent/public/default/{quote(long)}{path}"))
        assert said["status"] == 412 and f"has {MOST + 1} bytes, {MOST} at most" in said["json"]["reason"], method


def test_partitions_have_longer_names_and_are_refused_with_their_topic(server: PulsarServer, wire: Wire) -> None:
    fits = local_of("parts", MOST - len("-partition-9"))
    path = f"persistent/public/default/{quote(fits)}/partitions"
    assert play(server.http, ("PUT", path, 11))["status"] == 412
    assert play(server.http, ("GET", path))["status"] == 404
    assert play(server.http, ("PUT", path, 10))["status"] == 204
    assert play(server.http, ("POST", path, 11))["status"] == 412
    assert wire.ask("partitionMetadata", "partitionMetadataResponse", topic=fits).partitions == 10
    wire.producer(f"{fits}-partition-9")


def test_a_namespace_that_makes_partitions_refuses_a_name_that_has_no_room_for_them(
    server: PulsarServer, wire: Wire
) -> None:
    namespace = "public/parts"
    assert play(server.http, ("PUT", f"namespaces/{namespace}"))["status"] == 204
    policy = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 2}
    assert play(server.http, ("POST", f"namespaces/{namespace}/autoTopicCreation", policy))["status"] == 204
    prefix = f"persistent://{namespace}/"
    for size, error in ((MOST - len("-partition-0"), 0), (MOST - len("-partition-0") + 1, INVALID)):
        name = prefix + "n" * (size - len(prefix))
        said = wire.ask("partitionMetadata", "partitionMetadataResponse", topic=name)
        assert (said.partitions, said.error) == (0 if error else 2, error)


def test_other_protocols_have_limits_of_their_own(server: PulsarServer) -> None:
    with Beanstalk(server.beanstalk_port) as client:
        assert client.ask(f"watch {'n' * 200}") == b"WATCHING 2"
        assert client.ask(f"watch {'n' * 201}") == b"BAD_FORMAT"
    with nsq.Wire(server.other_port) as client:
        client.send(b"PUB %s\n\x00\x00\x00\x01x" % (b"n" * 65))
        assert b"E_BAD_TOPIC" in client.frame().data
