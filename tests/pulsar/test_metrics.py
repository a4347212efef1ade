"""/metrics on Pulsar's HTTP address: topics and subscriptions under the names that a real broker has for them."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
import urllib.request
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Final, cast

from mq_shards.gateway.catalog import Topic as Figures
from mq_shards.gateway.pulsar.clients import Clients, Connected
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.http_broker_stats import HttpBrokerStats
from mq_shards.gateway.pulsar.metrics import Kept, PulsarMetrics
from mq_shards.gateway.pulsar.refusals import not_found
from mq_shards.gateway.pulsar.requests import Call
from mq_shards.gateway.pulsar.stats import Stats
from mq_shards.gateway.pulsar.transactions import Coordinator
from mq_shards.gateway.shared import Shared

from tests.pulsar.control_side import SmallClients
from tests.pulsar.servers import PulsarServer, running, stopped
from tests.pulsar.wire import Wire, entry_of, metadata
from tests.servers import wait_until

EARLIEST: Final = "earliestMsgPublishTimeInBacklog"


def test_metrics_have_a_real_brokers_names_with_what_is_so(server: PulsarServer, topic: str) -> None:
    def scraped() -> dict[str, float]:
        """By name and labels; those of this topic, and of its namespace."""
        with urllib.request.urlopen(f"http://{server.http}/metrics/", timeout=10) as answer:
            text = answer.read().decode()
        rows = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("pulsar_"))
        return {name.replace(full, "T"): float(value) for name, value in rows.items()}

    full = f"persistent://public/default/{topic}"
    mine = '{cluster="standalone",namespace="public/default",topic="T"}'
    sub = mine.replace(",topic", ',subscription="s",topic')
    with Wire(server.port).connect() as wire:
        wire.producer(topic)
        wire.subscribe(topic, "s", 1)
        for i in range(6):
            wire.send(b"123", sequence=i)
            wire.expect("send_receipt")
        wire.flow(4)
        wire.ack(wire.messages(4)[0].body.message_id)
        found = scraped()
        expected = {
            f"pulsar_in_messages_total{mine}": 6, f"pulsar_producers_count{mine}": 1,
            f"pulsar_consumers_count{mine}": 1, f"pulsar_subscriptions_count{mine}": 1,
            f"pulsar_msg_backlog{mine}": 5, f"pulsar_subscription_back_log{sub}": 5,
            f"pulsar_subscription_unacked_messages{sub}": 3, f"pulsar_subscription_consumers_count{sub}": 1,
            f"pulsar_subscription_delayed{sub}": 0, f"pulsar_out_messages_total{sub}": 4,
            f"pulsar_storage_size{mine}": found.get(f"pulsar_in_bytes_total{mine}"),
            f"pulsar_storage_logical_size{mine}": found.get(f"pulsar_in_bytes_total{mine}"),
            f"pulsar_out_bytes_total{sub}": round(4 / 6 * found.get(f"pulsar_in_bytes_total{mine}", 0)),
            f"pulsar_storage_backlog_quota_limit{mine}": -1, f"pulsar_storage_backlog_quota_limit_time{mine}": -1,
            f"pulsar_storage_offloaded_size{mine}": 0, f"pulsar_storage_write_rate{mine}": 0,
        }  # fmt: skip
        assert {name: found.get(name) for name in expected} == expected
        of_all = '{cluster="standalone",namespace="public/default"}'
        assert found[f"pulsar_topics_count{of_all}"] >= 1
        assert found['pulsar_broker_topics_count{cluster="standalone"}'] >= 1

        def is_counted() -> bool:
            wire.send(b"123", sequence=6)
            found = scraped()
            of_all = 'pulsar_broker_rate_in{cluster="standalone"}'
            return min(found[f"pulsar_rate_in{mine}"], found[f"pulsar_storage_write_rate{mine}"], found[of_all]) > 0

        wait_until(is_counted, "there is a rate")


def test_transactions_are_counted_by_how_they_ended() -> None:
    def scraped(server: PulsarServer) -> list[float]:
        with urllib.request.urlopen(f"http://{server.http}/metrics/", timeout=10) as answer:
            text = answer.read().decode()
        of = '{cluster="standalone",coordinator_id="0"}'
        rows = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("pulsar_txn_"))
        names = ("active_count", "created_total", "committed_total", "aborted_total", "timeout_total")
        return [float(rows[f"pulsar_txn_{name}{of}"]) for name in names]

    def begin(wire: Wire, timeout_ms: int) -> int:
        return int(wire.ask("newTxn", "newTxnResponse", txn_ttl_seconds=timeout_ms, tc_id=0).txnid_least_bits)

    with running() as server, Wire(server.port).connect() as wire:
        assert scraped(server) == [0] * 5
        committed, aborted, _stays = (begin(wire, 60_000) for _ in range(3))
        begin(wire, 1)
        for id, action in ((committed, 0), (aborted, 1)):
            wire.ask("endTxn", "endTxnResponse", txnid_least_bits=id, txnid_most_bits=0, txn_action=action)
        wait_until(lambda: scraped(server) == [1, 4, 1, 2, 1], "all that is over is counted")


def test_who_scrapes_at_the_same_time_gets_the_same_answer(server: PulsarServer, wire: Wire, topic: str) -> None:
    """Eight scrapers cost what one costs. The figures of processes are others in each answer that is made."""
    wire.subscribe(topic)
    with urllib.request.urlopen(f"http://{server.http}/metrics/", timeout=60) as answer:  # what it needs is loaded
        assert topic in answer.read().decode()
    connections = [http.client.HTTPConnection(server.http, timeout=60) for _ in range(8)]
    with stopped(server.pid_of("mq-gateway")):
        for connection in connections:
            connection.request("GET", "/metrics/")
    answers = {connection.getresponse().read() for connection in connections}
    for connection in connections:
        connection.close()
    assert len(answers) <= 2


def test_what_is_shared_is_done_once_for_all_who_ask_meanwhile_and_anew_for_the_next() -> None:
    async def test() -> None:
        shared: Shared[int] = Shared()
        begun: list[int] = []
        goes_on = asyncio.Event()

        async def make() -> int:
            begun.append(len(begun))
            await goes_on.wait()
            if len(begun) == 3:
                raise ValueError
            return len(begun)

        def ask(what: object = None) -> asyncio.Task[int]:
            return asyncio.create_task(shared.get(what, make))

        leaves, stays, other = ask(), ask(), ask("other")
        await asyncio.sleep(0)
        leaves.cancel()
        await asyncio.sleep(0)
        goes_on.set()
        assert await stays == 2 and await other == 2 and begun == [0, 1], "it goes on for who stays"
        failing = [ask(), ask()]
        found = await asyncio.gather(*failing, return_exceptions=True)
        assert [type(one) for one in found] == [ValueError] * 2 and begun == [0, 1, 2]
        assert await ask() == 4

    asyncio.run(test())


class _Gone:
    """Stats of topics that have gone meanwhile."""

    async def clients(self, names: Sequence[object]) -> dict[str, Connected]:
        return {str(name): Connected() for name in names}

    async def topic(self, name: object, *, connected: Connected) -> dict[str, Any]:
        raise not_found(f"{name}")


def test_figures_of_very_many_topics_hold_up_no_other_request() -> None:
    """What is done with each topic is done in another thread than the event loop's."""
    topics = [Figures(f"t{n}", 0, 1, 1, 1, 0) for n in range(20_000)]

    async def all_topics() -> list[Figures]:
        return topics

    async def test() -> None:
        coordinator = SimpleNamespace(open={}, counts={})

        async def kept(names: Sequence[object]) -> list[Kept]:
            return [Kept(None, -1, -1) for _ in names]

        metrics = PulsarMetrics(cast(Clients, SmallClients()), cast(Coordinator, coordinator), 10, kept)
        stats = HttpBrokerStats(cast(Control, None), cast(Stats, _Gone()), all_topics, 10)
        of_all = stats.routes["/admin/v2/broker-stats/topics"]["GET"]
        for asked in (metrics.families(topics), of_all(cast(Call, None))):
            of_loop, of_all_threads = time.thread_time(), time.process_time()
            await asked
            assert time.thread_time() - of_loop < (time.process_time() - of_all_threads) / 3

    asyncio.run(test())


def test_stats_are_true(server: PulsarServer, topic: str) -> None:
    def stats(flags: str = "") -> dict[str, Any]:
        path = f"http://{server.http}/admin/v2/persistent/public/default/{topic}/stats{flags}"
        with urllib.request.urlopen(path, timeout=10) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found

    with Wire(server.port).connect() as wire:
        wire.producer(topic)
        wire.subscribe(topic, "shared", 1)
        wire.subscribe(topic, "exclusive", 0, 2)
        assert stats("?getEarliestTimeInBacklog=true")["subscriptions"]["shared"][EARLIEST] == -1, "there is none"
        for i in range(6):
            wire.send(b"123", sequence=i, publish_time=1000 + i)
            wire.expect("send_receipt")
        wire.flow(4)
        wire.flow(5, 2)
        wire.ack(wire.messages(4)[0].body.message_id)
        wire.messages(5, 2)
        found = stats("?getEarliestTimeInBacklog=true")
        shared, exclusive = found["subscriptions"]["shared"], found["subscriptions"]["exclusive"]
        names = ("type", "msgBacklog", "unackedMessages", "msgOutCounter", EARLIEST)
        assert [shared[name] for name in names] == ["Shared", 5, 3, 4, 1001]
        assert [exclusive[name] for name in names] == ["Exclusive", 6, 0, 5, 1000]
        assert (shared["consumers"][0]["unackedMessages"], exclusive["consumers"][0]["unackedMessages"]) == (3, 0)
        assert (shared["consumers"][0]["availablePermits"], exclusive["consumers"][0]["availablePermits"]) == (0, 0)
        entry = len(entry_of(metadata(sequence_id=1, publish_time=1001), b"123"))
        assert (found["msgInCounter"], found["msgOutCounter"], found["storageSize"]) == (6, 9, 6 * entry)
        assert found["earliestMsgPublishTimeInBacklogs"] == 1000
        assert stats()["earliestMsgPublishTimeInBacklogs"] == 0, "only who asks has them read"
        wire.flow(2)

        def has_rate() -> bool:
            return bool(stats()["subscriptions"]["shared"]["msgRateOut"] > 0)

        wait_until(has_rate, "what goes out makes a rate")
