"""What users may is read anew while they are connected."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import greenstalk
import nats
import pulsar
import pytest
from mq_shards.acceptor.access.hashes import token_hash

from tests import servers
from tests.access.broker import BOSS, CLERK, HOST, SHOP, TIMEOUT_S, Guarded, guarded, wire_auth
from tests.nsq import frames
from tests.nsq.wire import Wire

POORER = replace(SHOP, rights={"publish": ["other"], "consume": []})


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Guarded]:
    with guarded(tmp_path, (BOSS, SHOP, CLERK)) as one:
        yield one


def is_refused(client: greenstalk.Client) -> bool:
    try:
        client.put(b"4")
    except greenstalk.UnknownCommandError:
        return True
    return False


def test_open_connections_may_no_more_than_their_users_may_now(broker: Guarded) -> None:
    ports = broker.ports
    jobs = greenstalk.Client((HOST, ports["beanstalk shop"]), use="orders")
    jobs.put(b"1")
    watching = greenstalk.Client((HOST, ports["beanstalk shop"]), watch="mail")
    publisher, consumer = Wire(ports["nsq"]), Wire(ports["nsq"])
    for wire in (publisher, consumer):
        wire.identify()
        wire.ask(wire_auth(SHOP.token))
    publisher.publish("orders", b"2")
    consumer.subscribe("mail", "c", 1)
    client = pulsar.Client(
        f"pulsar://{HOST}:{ports['pulsar']}", authentication=pulsar.AuthenticationToken(SHOP.token),
        operation_timeout_seconds=5, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"),
    )  # fmt: skip
    producer = client.create_producer("orders", send_timeout_millis=3000)
    producer.send(b"3")

    broker.rewrite(BOSS, POORER, CLERK)

    # It is read; each process hears of it when it comes to that.
    servers.wait_until(lambda: is_refused(jobs), "beanstalkd's put is refused")
    jobs.use("other")
    jobs.put(b"5")
    with pytest.raises((greenstalk.Error, OSError, EOFError)):
        watching.reserve(1)
    found = [frames.OK]
    while found[-1] == frames.OK:
        found.append(publisher.ask(frames.pub("orders", b"6")))
    assert found[-1] == frames.error('E_UNAUTHORIZED AUTH failed for PUB on "orders" ""')
    assert publisher.is_closed()
    assert consumer.frame().data.startswith(b"E_UNAUTHORIZED")
    assert consumer.is_closed()
    with pytest.raises(pulsar.PulsarException):
        while True:
            producer.send(b"7")
    client.close()
    jobs.close()
    servers.wait_until(lambda: broker.act(SHOP, do="publish", topic="orders", body="8") == 403, "and over HTTP")
    assert broker.act(BOSS, do="publish", topic="orders", body="9") == 200


def test_a_user_who_is_gone_is_cut_off_and_others_are_not(broker: Guarded) -> None:
    async def play() -> None:
        url = f"nats://{HOST}:{broker.ports['nats']}"
        ended = asyncio.Event()

        async def closed() -> None:
            ended.set()

        gone = await nats.connect(url, token=SHOP.token, allow_reconnect=False, closed_cb=closed)
        stays = await nats.connect(url, user=CLERK.name, password=CLERK.password)
        await stays.subscribe("orders")
        await gone.publish("orders", b"before")
        await gone.flush()
        await asyncio.to_thread(broker.rewrite, BOSS, CLERK)
        await asyncio.wait_for(ended.wait(), TIMEOUT_S)
        await stays.flush(TIMEOUT_S)
        assert stays.is_connected and stays.last_error is None
        await stays.close()

    with Wire(broker.ports["nsq"]) as wire, contextlib.closing(socket.socket()) as jobs:
        wire.identify()
        wire.ask(wire_auth(SHOP.token))
        jobs.connect((HOST, broker.ports["beanstalk shop"]))
        jobs.settimeout(TIMEOUT_S)
        jobs.sendall(b"use orders\r\n")
        assert jobs.recv(100)
        asyncio.run(play())
        assert wire.frame().data.startswith(b"E_UNAUTHORIZED")
        assert jobs.recv(100) == b""
    servers.wait_until(lambda: comes_in_vain(broker), "nobody comes by the listener of one who is gone")


def comes_in_vain(broker: Guarded) -> bool:
    try:
        with greenstalk.Client((HOST, broker.ports["beanstalk shop"])) as late:
            late.use("orders")
    except greenstalk.UnknownCommandError:
        return True
    return False


def test_a_token_that_is_taken_away_ends_what_it_began(broker: Guarded) -> None:
    with Wire(broker.ports["nsq"]) as by_token, Wire(broker.ports["nsq"]) as by_password:
        for wire, secret in ((by_token, SHOP.token), (by_password, f"{SHOP.name}:{SHOP.password}")):
            wire.identify()
            assert b"permission_count" in wire.ask(wire_auth(secret)).data
            wire.publish("orders", b"x")
        text = broker.users.read_text()
        broker.users.write_text(text.replace(token_hash(SHOP.token), token_hash("another")))
        before = broker.server.said().count("options read anew")
        broker.server.process.send_signal(1)
        servers.wait_until(lambda: broker.server.said().count("options read anew") > before, "it has been read")
        assert by_token.frame().data.startswith(b"E_UNAUTHORIZED")
        by_password.publish("orders", b"y")


def test_a_file_that_is_wrong_changes_nothing(broker: Guarded) -> None:
    broker.users.write_text('[users.shop]\npassword = "as it is"\n')
    before = broker.server.said().count("cannot reload")
    broker.server.process.send_signal(1)
    servers.wait_until(lambda: broker.server.said().count("cannot reload") > before, "it is refused")
    assert f"{broker.users}:2: password is not hashed" in broker.server.said()
    assert broker.request("GET", "/v1/topics", token=SHOP.token)[0] == 200
