"""A writer, what is staged and a reader belong to who made them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mq_shards.pipeline.client import Address, BrokerError, Client
from mq_shards.pipeline.command import main
from mq_shards.pipeline.encode import Section
from mq_shards.pipeline.publish import Batch, publish
from mq_shards.pipeline.staging import Stage
from mq_shards.pipeline.write_options import WriteOptions

from tests.access.broker import BOSS, HOST, Guarded, Person, guarded
from tests.pipeline.stream_driver import Checkpoint, run
from tests.reader.broker import section

OWNER = Person("owner", {"publish": ["orders"], "read": ["orders"]})
STRANGER = Person("stranger", {"publish": ["orders", "mail"], "read": ["orders"]})


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("owned"), (BOSS, OWNER, STRANGER)) as one:
        yield one


def put(broker: Guarded, person: Person, writer: str, batch: int, *topics: str) -> tuple[int, Any]:
    """Stages a message to each topic, and publishes them."""
    data = b"".join(section(topic, b"one") for topic in topics)
    name = f"{writer}-{batch}"
    if data:
        assert broker.request("POST", f"/v1/staged/{name}?at=0", data, token=person.token)[0] == 200
    staged = [{"name": name, "bytes": len(data)}] if data else []
    said = json.dumps({"batch": batch, "staged": staged}).encode()
    return broker.request("PUT", f"/v1/writers/{writer}", said, token=person.token)


def test_a_stranger_cannot_make_an_owners_batch_vanish(broker: Guarded) -> None:
    assert put(broker, OWNER, "w", 1, "orders")[1]["state"] == "published"
    assert put(broker, STRANGER, "w", 1_000_000, "orders")[0] == 403
    assert put(broker, STRANGER, "w", 1_000_000)[0] == 403
    status, found = put(broker, OWNER, "w", 2, "orders")
    assert (status, found["state"], found["batch"], found["messages"]) == (200, "published", 2, 1)
    assert broker.request("DELETE", "/v1/writers/w", token=STRANGER.token)[0] == 403
    assert broker.request("DELETE", "/v1/writers/w", token=BOSS.token)[0] == 200, "who manages everything may"


def test_what_one_has_staged_nobody_else_can_name(broker: Guarded) -> None:
    data = section("orders", b"mine")
    assert broker.request("POST", "/v1/staged/s?at=0", data, token=OWNER.token)[1] == {"bytes": len(data)}
    assert broker.request("DELETE", "/v1/staged/s", token=STRANGER.token)[0] == 404
    other = section("orders", b"another's")
    assert broker.request("POST", "/v1/staged/s?at=0", other, token=STRANGER.token)[1] == {"bytes": len(other)}
    said = json.dumps({"batch": 1, "staged": [{"name": "s", "bytes": len(data)}]}).encode()
    assert broker.request("PUT", "/v1/writers/thief", said, token=STRANGER.token)[0] == 409
    assert broker.request("PUT", "/v1/writers/owners", said, token=OWNER.token)[1]["messages"] == 1


def test_a_batch_goes_where_its_user_may_publish_only(broker: Guarded) -> None:
    status, found = put(broker, OWNER, "far", 1, "orders", "mail")
    assert status == 403 and "owner may not publish mail" in found["error"]
    assert broker.request("GET", "/v1/writers/far", token=OWNER.token)[0] == 404, "nothing is decided"
    body = section("mail", b"x")
    assert broker.request("POST", "/v1/publish", body, token=OWNER.token)[0] == 403
    assert broker.request("POST", "/v1/publish", body, token=STRANGER.token)[0] == 200


def test_a_reader_is_its_users(broker: Guarded) -> None:
    def read(person: Person, seq: int, topic: str = "orders") -> int:
        said = json.dumps({topic: seq}).encode()
        return broker.request("PUT", "/v1/readers/r?owner=q&begin=1", said, token=person.token)[0]

    assert read(OWNER, 0) == 200
    assert read(STRANGER, 1 << 40) == 403
    assert read(OWNER, 1) == 200
    assert read(OWNER, 0, "mail") == 403, "it may not read that"
    assert broker.request("DELETE", "/v1/readers/r", token=STRANGER.token)[0] == 403
    assert broker.request("DELETE", "/v1/readers/r", token=OWNER.token)[0] == 200


def test_nobody_takes_over_a_reader_whose_file_is_damaged(broker: Guarded) -> None:
    said = b'{"orders": 0}'
    assert broker.request("PUT", "/v1/readers/torn", said, token=OWNER.token)[0] == 200
    (broker.users.parent / "data" / "readers" / "torn.json").write_text("{")
    assert broker.request("PUT", "/v1/readers/torn", said, token=STRANGER.token)[0] == 403
    assert broker.request("DELETE", "/v1/readers/torn", token=STRANGER.token)[0] == 403
    assert broker.request("PUT", "/v1/readers/torn", said, token=BOSS.token)[0] == 200
    assert broker.request("DELETE", "/v1/readers/torn", token=BOSS.token)[0] == 200


def options(broker: Guarded, **more: str) -> dict[str, str]:
    return {"brokers": f"{HOST}:{broker.ports['http']}", **more}


def write(connection: dict[str, str], topic: str, *bodies: bytes) -> None:
    """As a task and the driver of a batch do."""
    found = WriteOptions.parse(connection, streaming=False)
    (address,) = found.brokers
    with Client(address, 5) as client:
        stage = Stage(client, "test")
        for body in bodies:
            stage.add(Section(topic, 1, section(topic, body)))
        staged = stage.finish()
    publish(Batch(f"writer-{topic}", 0), found.brokers, [staged], 5)


def test_the_source_and_the_sink_say_who_they_are(
    broker: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(BOSS.token + "\n")
    write(options(broker, token=BOSS.token), "spark", b"1", b"2")
    expected = [("spark", 0), ("spark", 1)]
    assert run(Checkpoint(), **options(broker, tokenFile=str(file)), topic="spark") == expected
    monkeypatch.setenv("MQ_SHARDS_TOKEN", BOSS.token)
    assert run(Checkpoint(), **options(broker), topic="spark") == expected
    monkeypatch.delenv("MQ_SHARDS_TOKEN")
    with pytest.raises(BrokerError, match="401"):
        write(options(broker), "spark", b"3")
    with pytest.raises(BrokerError, match="403"):
        write(options(broker, token=OWNER.token), "spark", b"3")


def test_no_token_is_in_what_is_printed_of_options_and_errors(broker: Guarded) -> None:
    (address,) = WriteOptions.parse(options(broker, token=BOSS.token), streaming=False).brokers
    assert address.token == BOSS.token
    assert BOSS.token not in repr(address) + str(address)
    with Client(Address(HOST, 9, token=BOSS.token), 0.01) as client, pytest.raises(BrokerError) as error:
        client.identify()
    assert BOSS.token not in str(error.value)


def test_the_jobs_take_a_file_with_the_token(
    broker: Guarded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_text(BOSS.token)
    where = ["readers", "--brokers", f"{HOST}:{broker.ports['http']}"]
    assert main([*where, "--token-file", str(file)]) == 0
    assert main(where) == 1
    assert "A login is needed" in capsys.readouterr().err
