"""JetStream that other servers of a cluster have: clients here come to it as those of a real server without it do."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import nats
import pytest
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.js.errors import NoStreamResponseError, ServiceUnavailableError

from tests.nats.clusters import NEW_REAL, OLD_REAL, OURS, OURS_3, Member, configured, meshed, mixtures
from tests.nats.operators import OPERATOR, SYSTEM, A, conf, resolver
from tests.nats.route_wire import INFO, RouteWire
from tests.nats.test_cluster_accounts import CLUSTER, let_in
from tests.nats.wire import Wire
from tests.servers import wait_until

CONF = """
host: 127.0.0.1
port: $PORT
server_name: %s
cluster { name: xyz, listen: "127.0.0.1:$ROUTE_PORT", routes: [%s] }
%s
"""
STORE = 'jetstream { store_dir: "%s", max_mem: 16M, max_file: 64M }\n'
ACCOUNTS = """
no_auth_user: a
system_account: SYS
accounts {
    A { users: [{user: a, password: a}], jetstream: enabled }
    SYS { users: [{user: s, password: s}] }
}
"""


# What a stream or a consumer wants is known elsewhere a moment after its answer, which comes over another route.
NOBODY_YET = (NoRespondersError, NoStreamResponseError, ServiceUnavailableError)
Answer = TypeVar("Answer")


async def until(ask: Callable[[], Awaitable[Answer]], not_yet: tuple[type[Exception], ...] = NOBODY_YET) -> Answer:
    while True:
        try:
            return await ask()
        except not_yet:
            await asyncio.sleep(0.1)


async def use(url: str) -> None:
    """Streams, consumers that pull and that are pushed to, messages by number, keys and values."""
    client = await nats.connect(url)
    stream, early = client.jetstream(timeout=30), client.jetstream(timeout=2)
    # They have to choose who leads them.
    await until(lambda: early.add_stream(name="orders", subjects=["orders.*"]), (NatsError, TimeoutError))
    for number in range(20):
        ack = await until(lambda number=number: stream.publish(f"orders.{number}", b"%d" % number))
        assert ack.seq == number + 1
    puller = await stream.pull_subscribe("orders.*", durable="puller")
    for number, message in enumerate(await until(lambda: puller.fetch(10, timeout=30))):
        assert message.subject == f"orders.{number}"
        await until(lambda message=message: message.ack_sync(timeout=30))
    about = await puller.consumer_info()
    assert (about.delivered.consumer_seq, about.ack_floor.consumer_seq, about.num_pending) == (10, 10, 10)
    assert (await stream.get_msg("orders", 3)).data == b"2"
    pushed = await stream.subscribe("orders.*", ordered_consumer=True)
    for number in range(20):
        message = await pushed.next_msg(timeout=30)
        assert (message.subject, message.data) == (f"orders.{number}", b"%d" % number)
    values = await stream.create_key_value(bucket="values")
    await until(lambda: values.put("key", b"value"))
    assert (await until(lambda: values.get("key"))).value == b"value"
    assert await stream.delete_stream("orders")
    await client.close()


def play(kinds: Sequence[str], more: str) -> None:
    directory = Path(tempfile.mkdtemp(prefix="nats-cluster-"))
    members = [Member(kind, directory) for kind in kinds]
    try:
        for member in members:
            routes = ", ".join(f'"{other.route_url}"' for other in members if other is not member)
            has_store = member is not members[-1]
            store = STORE % (directory / f"store-{member.port}") if has_store else ""
            member.conf = CONF % (f"server-{member.port}", routes, store + more)
            member.start()
        for member in members:
            member.wait()
        meshed(members)
        asyncio.run(asyncio.wait_for(use(members[-1].url), 120))
    finally:
        for member in members:
            member.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL, NEW_REAL, OURS_3), (OLD_REAL, OLD_REAL, OURS)))
def test_clients_of_a_server_without_it_use_that_of_others(kinds: tuple[str, ...]) -> None:
    play(kinds, "")


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL, NEW_REAL, OURS)))
def test_so_do_those_of_an_account_whose_file_says_so(kinds: tuple[str, ...]) -> None:
    play(kinds, ACCOUNTS)


@pytest.mark.parametrize("kind", [OURS_3])
def test_so_do_those_of_an_account_that_is_fetched(kind: str) -> None:
    there = {
        SYSTEM.public: OPERATOR.account(SYSTEM),
        A.public: OPERATOR.account(A, {"mem_storage": -1, "disk_storage": -1}),
    }
    with resolver(there) as (url, _), configured(kind, conf(CLUSTER, f"URL({url})", {})) as member:
        wire = RouteWire.joined(member.route_port, {**INFO, "jetstream": True})
        wire.send(b"RS+ %s $JS.API.>\r\n" % SYSTEM.public.encode())
        wire.barrier()
        client = let_in(member.port, "u")

        def is_asked() -> bool:
            client.send(b"PUB $JS.API.INFO inbox 0\r\n\r\n")
            client.barrier()
            return any(said.startswith(b"HMSG %s $JS.API.INFO " % SYSTEM.public.encode()) for said in wire.barrier())

        wait_until(is_asked, "a request comes to the server that has it")
        client.close()
        wire.close()


CYCLE = """
host: 127.0.0.1
port: $PORT
no_auth_user: a
system_account: SYS
cluster { name: xyz, listen: "127.0.0.1:$ROUTE_PORT" }
accounts {
    A { users: [{user: a, password: a}], jetstream: enabled, exports: [{service: ">"}] }
    SYS { users: [{user: s, password: s}], imports: [{service: {account: A, subject: ">"}}] }
}
"""


def test_a_server_that_has_it_ends_nobody_who_could_only_come_to_it_in_a_cycle() -> None:
    with configured(OURS, CYCLE) as member:
        client = Wire(member.port)
        client.send(b'CONNECT {"verbose":false,"protocol":1}\r\n')
        client.barrier()
        client.heard.data, client.asked = b"", 0
        reached = {"connect_urls": ["127.0.0.1:1"]}  # of which clients are told
        wire = RouteWire.joined(member.route_port, {**INFO, "jetstream": True, **reached})
        while b"INFO " not in client.heard.data and not client.heard.closed:
            client.receive()
        wire.barrier()
        assert not client.heard.closed and not wire.closed
        client.close()
        wire.close()
