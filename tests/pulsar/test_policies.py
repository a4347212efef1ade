"""Policies of namespaces and topics beside what a real 4.0.7 said of them, and what they do."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest
from mq_shards.acceptor.protocols.pulsar.names import topic_name
from mq_shards.acceptor.protocols.pulsar.rates import Rate

from tests.pulsar.policy_scenes import scenes
from tests.pulsar.record_roles import POLICY_TRANSCRIPTS, play, request
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.test_roles import settings, unlike
from tests.pulsar.wire import Frame, Wire, batch_of, entry_of, metadata, payload_of, send_frame
from tests.servers import wait_until

FAST: Final = 10_000_000  # in a second
BOARD_RATES: Final = 65_536  # csrc/ringbuf/board.h
RECORDED: Final[dict[str, list[dict[str, Any]]]] = json.loads(POLICY_TRANSCRIPTS.read_text())


_numbers = itertools.count()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarServer]:
    with running(acceptors=2, settings=settings(tmp_path_factory.mktemp("keys"))) as server:
        yield server


def test_policies_are_answered_and_obeyed_as_by_a_real_broker(guarded: PulsarServer) -> None:
    wrong = []
    for name, steps in scenes():
        for step, theirs in zip(steps, RECORDED[name], strict=True):
            assert json.loads(json.dumps(step)) == theirs["step"], "record anew: python -m tests.pulsar.record_roles"
            ours = play(guarded.http, guarded.port, step)
            wrong += [f"{name}: {step[:3]}: {one}" for one in unlike(theirs, ours, step)]
    assert not wrong, "\n".join(wrong)


# --- what takes effect with time ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def quick() -> Iterator[PulsarServer]:
    with running(settings=["pulsar.policies-interval=50ms"]) as server:
        yield server


@pytest.fixture
def namespace(quick: PulsarServer) -> str:
    name = f"public/n{next(_numbers)}"
    assert request(quick.http, "", "", "PUT", f"namespaces/{name}")["status"] == 204
    return name


def post(server: PulsarServer, path: str, body: object = None) -> None:
    assert request(server.http, "", "", "POST", path, body)["status"] == 204


def backlog(server: PulsarServer, topic: str, subscription: str = "s") -> int:
    stats = request(server.http, "", "", "GET", f"persistent/{topic}/stats")["json"]
    return int(stats["subscriptions"][subscription]["msgBacklog"])


def test_messages_expire_for_who_has_not_finished_them_and_come_to_no_one_twice(
    quick: PulsarServer, namespace: str
) -> None:
    topic = f"{namespace}/t"
    with Wire(quick.port).connect() as wire:
        wire.producer(f"persistent://{topic}")
        wire.subscribe(f"persistent://{topic}", "s", 1)
        wire.subscribe(f"persistent://{topic}", "unread", 1, 2)
        wire.flow(10)
        for i in range(3):
            wire.send(b"old", sequence=i)
        ids = [frame.body.message_id for frame in wire.messages(3)]
        wire.ack(ids[1])
        post(quick, f"namespaces/{namespace}/messageTTL", 1)
        wait_until(lambda: backlog(quick, topic) == backlog(quick, topic, "unread") == 0, "they have expired")
        wire.send(b"new", sequence=3)
        assert payload_of(wire.message()) == b"new", "and nothing before it comes again"
        wire.flow(10, 2)
        assert payload_of(wire.message(2)) == b"new"
        assert not wire.pending("close_consumer")


@pytest.mark.parametrize(("policy", "error"), [("producer_request_hold", 7), ("producer_exception", 8)])
def test_producers_of_a_topic_over_its_quota_wait_until_it_is_not(
    quick: PulsarServer, namespace: str, policy: str, error: int
) -> None:
    topic = f"{namespace}/t"
    with Wire(quick.port).connect() as wire:
        wire.producer(f"persistent://{topic}")
        wire.subscribe(f"persistent://{topic}", "s", 1)
        post(quick, f"persistent/{topic}/backlogQuota", {"limitSize": 4000, "policy": policy})
        for i in range(5):
            wire.send(b"x" * 1000, sequence=i)
        assert wire.expect("close_producer").producer_id == 1
        refused = wire.ask("producer", "error", topic=f"persistent://{topic}", producer_id=2)
        assert refused.error == error
        assert refused.message == "Cannot create producer on topic with backlog quota exceeded"
        wire.flow(5)
        wire.ack(*(frame.body.message_id for frame in wire.messages(5)))

        def comes() -> bool:
            wire.requests += 1
            number = wire.requests
            wire.say("producer", request_id=number, topic=f"persistent://{topic}", producer_id=3)
            return wire.until(lambda f: getattr(f.body, "request_id", None) == number).name == "producer_success"

        wait_until(comes, "there is room again")


def test_a_quota_of_age_without_an_age_takes_nothing(quick: PulsarServer, namespace: str) -> None:
    kept, goes = f"{namespace}/kept", f"{namespace}/goes"
    quota = {"limitSize": 10, "policy": "consumer_backlog_eviction"}
    with Wire(quick.port).connect() as wire:
        for number, topic in enumerate((kept, goes), 1):
            wire.producer(f"persistent://{topic}", number)
            wire.subscribe(f"persistent://{topic}", "s", consumer=number)
        wire.send(b"x" * 100, 1)
        wire.expect("send_receipt")
        post(quick, f"persistent/{kept}/backlogQuota?backlogQuotaType=message_age", quota)
        post(quick, f"persistent/{goes}/backlogQuota", quota)
        for sequence in range(2):  # when the second is gone, both topics have been looked at
            wire.send(b"x" * 100, 2, sequence)
            wire.expect("send_receipt")
            wait_until(lambda: backlog(quick, goes) == 0, "it is gone")
        assert backlog(quick, kept) == 1


def test_the_oldest_of_a_backlog_goes_where_that_is_the_policy(quick: PulsarServer, namespace: str) -> None:
    topic = f"{namespace}/t"
    with Wire(quick.port).connect() as wire:
        wire.producer(f"persistent://{topic}")
        wire.subscribe(f"persistent://{topic}", "s", 1)
        for i in range(20):
            wire.send(b"%d" % i + b"x" * 1000, sequence=i)
        quota = {"limitSize": 10500, "policy": "consumer_backlog_eviction"}
        post(quick, f"namespaces/{namespace}/backlogQuota", quota)
        wait_until(lambda: backlog(quick, topic) <= 10, "the oldest are gone")
        left = backlog(quick, topic)
        wire.flow(100)
        frames = wire.messages(left)
        assert [payload_of(frame).rstrip(b"x") for frame in frames] == [b"%d" % i for i in range(20 - left, 20)]


def test_what_nobody_uses_is_deleted_where_that_is_the_policy(quick: PulsarServer, namespace: str) -> None:
    with Wire(quick.port).connect() as wire:
        for name in ("used", "read", "idle"):
            assert request(quick.http, "", "", "PUT", f"persistent/{namespace}/{name}")["status"] == 204
        wire.producer(f"persistent://{namespace}/used")
        assert request(quick.http, "", "", "PUT", f"persistent/{namespace}/read/subscription/s")["status"] == 204
        policy = {
            "inactiveTopicDeleteMode": "delete_when_no_subscriptions", "maxInactiveDurationSeconds": 1,
            "deleteWhileInactive": True,
        }  # fmt: skip
        post(quick, f"namespaces/{namespace}/inactiveTopicPolicies", policy)

        def there() -> list[str]:
            found: list[str] = request(quick.http, "", "", "GET", f"persistent/{namespace}")["json"]
            return [name.rpartition("/")[2] for name in found]

        wait_until(lambda: there() == ["read", "used"], "the idle one is gone")


# --- what producers and consumers feel at once ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [1, 3])
def test_a_shared_consumer_gets_no_more_than_it_may_leave_unacknowledged_until_half_is(
    quick: PulsarServer, namespace: str, kind: int
) -> None:
    """Also when it gives more permits meanwhile. Stats say so."""
    topic = f"persistent://{namespace}/t"
    post(quick, f"namespaces/{namespace}/maxUnackedMessagesPerConsumer", 4)

    def blocked(consumer: int) -> bool:
        stats = wire.ask("consumerStats", "consumerStatsResponse", consumer_id=consumer)
        of = request(quick.http, "", "", "GET", f"persistent/{namespace}/t/stats")["json"]["subscriptions"]
        (told,) = of[{1: "s", 2: "one"}[consumer]]["consumers"]
        assert (stats.blockedConsumerOnUnackedMsgs, stats.unackedMessages) == (
            told["blockedConsumerOnUnackedMsgs"], told["unackedMessages"],
        )  # fmt: skip
        return bool(stats.blockedConsumerOnUnackedMsgs)

    with Wire(quick.port).connect() as wire:
        wire.producer(topic)
        wire.subscribe(topic, "s", kind)
        wire.subscribe(topic, "one", 0, 2)
        for i in range(8):
            wire.send(b"%d" % i, sequence=i)
        wire.flow(3)
        wire.flow(100, 2)
        ids = [frame.body.message_id for frame in wire.messages(3)]
        assert not blocked(1)
        wire.flow(100)
        ids.append(wire.message().body.message_id)
        assert [payload_of(frame) for frame in wire.messages(8, 2)] == [b"%d" % i for i in range(8)]
        assert blocked(1) and not blocked(2)
        wire.ack(ids[0])
        wire.flow(1)
        wire.quiet()
        assert not wire.pending("message") and blocked(1)
        wire.ack(ids[1])
        assert [payload_of(frame) for frame in wire.messages(2)] == [b"4", b"5"]
        assert blocked(1)
        wire.ack(*ids[2:])
        assert [payload_of(frame) for frame in wire.messages(2)] == [b"6", b"7"]


@pytest.mark.parametrize("kind", [1, 3])
def test_what_may_be_unacknowledged_is_counted_in_messages_of_batches(
    quick: PulsarServer, namespace: str, kind: int
) -> None:
    """Those acknowledged one by one are not; who wants some again gets it, and what goes with its consumer counts for
    the next one."""
    topic = f"persistent://{namespace}/t"
    post(quick, f"namespaces/{namespace}/maxUnackedMessagesPerConsumer", 10)

    def seen(wire: Wire) -> tuple[list[int], int, bool]:
        """The entries that came, how many messages are not acknowledged, and whether no more will come."""
        for _ in range(2):  # the first answer comes with what was sent because of what was asked before
            stats = wire.ask("consumerStats", "consumerStatsResponse", consumer_id=1)
        came = [frame.body.message_id.entryId for frame in wire.pending("message")]
        wire.frames = [frame for frame in wire.frames if frame.name != "message"]
        of = request(quick.http, "", "", "GET", f"persistent/{namespace}/t/stats")["json"]["subscriptions"]["s"]
        (one,) = of["consumers"]
        assert {of["unackedMessages"], one["unackedMessages"]} == {stats.unackedMessages}
        assert one["blockedConsumerOnUnackedMsgs"] == stats.blockedConsumerOnUnackedMsgs
        return came, stats.unackedMessages, stats.blockedConsumerOnUnackedMsgs

    def left(entry: int, count: int) -> dict[str, Any]:
        """An acknowledgement of all but the last `count` of 4."""
        return ids[entry] | {"ack_set": [0b1111 & ~(0b1111 >> count)], "batch_size": 4}

    with Wire(quick.port).connect() as wire:
        wire.producer(topic)
        wire.subscribe(topic, "s", kind)
        ids = []
        for i in range(6):
            entry = entry_of(metadata(sequence_id=i, num_messages_in_batch=4), batch_of(*[b"x"] * 4))
            wire.raw(send_frame(1, i, entry, num_messages=4))
            receipt = wire.expect("send_receipt").message_id
            ids.append({"ledgerId": receipt.ledgerId, "entryId": receipt.entryId})
        wire.flow(100)
        assert seen(wire) == ([0, 1, 2], 12, True)
        wire.ack(left(0, 2))
        assert seen(wire) == ([], 10, True)
        wire.ack(left(0, 2))
        assert seen(wire) == ([], 10, True), "they were acknowledged before"
        wire.ack(ids[0])
        assert seen(wire) == ([], 8, True)
        wire.ack(left(1, 1))
        assert seen(wire) == ([3, 4], 5 + 8, True), "5 of them are half: it goes on"
        wire.say("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=[ids[3]])
        assert seen(wire) == ([3], 13, True)
        wire.say("redeliverUnacknowledgedMessages", consumer_id=1)
        came, count, blocked = seen(wire)
        assert (1 in came[:2], 10 <= count < 14, blocked) == (True, True, True)
    with Wire(quick.port).connect() as wire:
        wire.subscribe(topic, "s", kind)
        wire.flow(100)
        came, count, blocked = seen(wire)
        assert (1 in came, count, blocked) == (True, 1 + 4 * (len(came) - 1), True)
        assert 10 <= count < 14


def test_what_is_delayed_comes_at_once_where_delays_are_off_and_too_long_ones_are_refused(
    quick: PulsarServer, namespace: str
) -> None:
    topic = f"persistent://{namespace}/t"
    later = 1 << 42
    with Wire(quick.port).connect() as wire:
        wire.producer(topic)
        wire.subscribe(topic, "s", 1)
        wire.flow(10)

        def obeyed(active: bool, most: int, seen: str) -> None:
            """A producer that is there hears of it, though not at once."""
            body = {"active": active, "tickTime": 1000, "maxDeliveryDelayInMillis": most}
            post(quick, f"namespaces/{namespace}/delayedDelivery", body)

            def so() -> bool:
                wire.send(b"x", deliver_at_time=later)
                return wire.until(lambda frame: frame.name in ("send_receipt", "send_error")).name == seen

            wait_until(so, f"there is a {seen}")

        obeyed(True, 5000, "send_error")
        wire.send(b"x", sequence=7, deliver_at_time=later)
        refused = wire.expect("send_error")
        assert (refused.error, refused.sequence_id) == (22, 7)
        assert refused.message == "Exceeds max allowed delivery delay of 5000 milliseconds"
        obeyed(False, 0, "send_receipt")
        assert payload_of(wire.message()) == b"x"


def test_a_subscription_gets_no_more_than_it_may_leave_unacknowledged_until_half_is(
    quick: PulsarServer, namespace: str
) -> None:
    """Whoever of its consumers has it; an Exclusive one is let be."""
    topic = f"persistent://{namespace}/t"
    post(quick, f"namespaces/{namespace}/maxUnackedMessagesPerSubscription", 4)
    with Wire(quick.port).connect() as wire:
        wire.producer(topic)
        for consumer in (1, 2):
            wire.subscribe(topic, "s", 1, consumer)
            wire.subscribe(topic, "keys", 3, consumer + 2)
        wire.subscribe(topic, "one", 0, 5)
        for consumer in range(1, 6):
            wire.flow(100, consumer)
        for i in range(8):
            wire.send(b"%d" % i, sequence=i)
        assert [payload_of(frame) for frame in wire.messages(8, 5)] == [b"%d" % i for i in range(8)]
        wire.quiet()

        def came(consumers: tuple[int, int]) -> list[Frame]:
            found = [frame for frame in wire.pending("message") if frame.body.consumer_id in consumers]
            return sorted(found, key=lambda frame: int(frame.body.message_id.entryId))

        assert [len(came(of)) for of in ((1, 2), (3, 4))] == [4, 4]
        stats = request(quick.http, "", "", "GET", f"persistent/{namespace}/t/stats")["json"]["subscriptions"]
        blocked = {name: stats[name]["blockedSubscriptionOnUnackedMsgs"] for name in stats}
        assert blocked == {"s": True, "keys": True, "one": False}
        first, second, third, *_ = came((1, 2))
        again = third.body
        wire.say("redeliverUnacknowledgedMessages", consumer_id=again.consumer_id, message_ids=[again.message_id])
        wait_until(lambda: wire.quiet() or len(came((1, 2))) == 5, "what came before may come again")
        for one in (first, second):
            wire.ack(one.body.message_id, consumer=one.body.consumer_id)
            wire.quiet()
            assert len(came((1, 2))) == 5, "half of them are left"
        wire.ack(third.body.message_id, consumer=again.consumer_id)
        wait_until(lambda: wire.quiet() or len(came((1, 2))) == 8, "less than half of them are left: it goes on")
        assert len(came((3, 4))) == 4


PUBLISH: Final = "publishRate", "publishThrottlingRateIn"
DISPATCH: Final = "dispatchRate", "dispatchThrottlingRateIn"
OF_SUBSCRIPTION: Final = "subscriptionDispatchRate", "dispatchThrottlingRateIn"


def rate(kind: tuple[str, str], messages: int, count: int = -1) -> dict[str, int]:
    return {f"{kind[1]}Msg": messages, f"{kind[1]}Byte": count, "ratePeriodInSecond": 1}


@pytest.mark.parametrize("body", [rate(PUBLISH, 50), rate(PUBLISH, -1, 50 * 1100)])
def test_nobody_publishes_faster_than_a_topic_may_be(quick: PulsarServer, namespace: str, body: dict[str, int]) -> None:
    """All its producers together."""
    topic, free = f"persistent://{namespace}/t", f"persistent://{namespace}/free"
    assert request(quick.http, "", "", "PUT", f"persistent/{namespace}/t")["status"] == 204
    post(quick, f"persistent/{namespace}/t/publishRate", body)
    with Wire(quick.port).connect() as one, Wire(quick.port).connect() as two, Wire(quick.port).connect() as other:
        for wire, name in ((one, topic), (two, topic), (other, free)):
            wire.producer(name)
        begin = time.monotonic()
        for i in range(60):
            for wire in (one, two, other):
                wire.send(b"x" * 1000, sequence=i)
        for _ in range(60):
            other.expect("send_receipt")
        for wire in (one, two):
            assert [wire.expect("send_receipt").sequence_id for _ in range(60)] == list(range(60))
        took_s = time.monotonic() - begin
        assert took_s >= 1.2, "120 at 50 a second, 50 of them at once"
        # And as fast as it likes, when it may again.
        assert request(quick.http, "", "", "DELETE", f"persistent/{namespace}/t/publishRate")["status"] == 204
        post(quick, f"namespaces/{namespace}/publishRate", rate(PUBLISH, 1_000_000))
        for i in range(60, 1060):
            one.send(b"x", sequence=i)
        for _ in range(1000):
            one.expect("send_receipt")


@pytest.mark.parametrize(
    ("kind", "body"),
    [(DISPATCH, rate(DISPATCH, 50)), (OF_SUBSCRIPTION, rate(DISPATCH, 50)), (DISPATCH, rate(DISPATCH, 0, 50 * 1046))],
)
def test_nobody_is_sent_more_than_a_topic_or_subscription_may_be(
    quick: PulsarServer, namespace: str, kind: tuple[str, str], body: dict[str, int]
) -> None:
    topic = f"persistent://{namespace}/t"
    post(quick, f"namespaces/{namespace}/{kind[0]}", body)
    with Wire(quick.port).connect() as wire:
        wire.producer(topic)
        for consumer in (1, 2):
            wire.subscribe(topic, "s", 1, consumer)
            wire.flow(1000, consumer)
        for i in range(130):
            wire.send(b"x" * 1000, sequence=i)
        begin = time.monotonic()
        frames = [wire.until(lambda frame: frame.name == "message") for _ in range(130)]
        assert time.monotonic() - begin >= 1.2, "50 at once, and 80 at 50 a second"
        assert len({frame.body.message_id.entryId for frame in frames}) == 130
        # Whoever comes next, and when there is no rate any more all that was asked for.
        assert request(quick.http, "", "", "DELETE", f"namespaces/{namespace}/{kind[0]}")["status"] == 204
        for i in range(1000):
            wire.send(b"y", sequence=130 + i)
        begin = time.monotonic()
        for _ in range(1000):
            wire.until(lambda frame: frame.name == "message")
        assert time.monotonic() - begin < 10


@pytest.fixture(scope="module")
def four() -> Iterator[PulsarServer]:
    with running(acceptors=4, settings=["pulsar.policies-interval=50ms"]) as server:
        yield server


def test_a_publish_rate_is_that_of_all_acceptors_together(four: PulsarServer) -> None:
    topic = "public/default/published"
    assert request(four.http, "", "", "PUT", f"persistent/{topic}")["status"] == 204
    post(four, f"persistent/{topic}/publishRate", rate(PUBLISH, 50))
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(four.port).connect()) for _ in range(16)]
        for wire in wires:
            wire.producer(f"persistent://{topic}")
        begin = time.monotonic()
        for i in range(8):
            for wire in wires:
                wire.send(b"x", sequence=i)
        for wire in wires:
            assert [wire.expect("send_receipt").sequence_id for _ in range(8)] == list(range(8))
        assert time.monotonic() - begin >= 1.2, "128 at 50 a second, 50 of them at once, and of each acceptor one more"


def test_a_dispatch_rate_is_that_of_all_acceptors_together(four: PulsarServer) -> None:
    topic = "persistent://public/default/dispatched"
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(four.port).connect()) for _ in range(8)]
        wires[0].producer(topic)
        for i in range(40):
            wires[0].send(b"x", sequence=i)
        for _ in range(40):
            wires[0].expect("send_receipt")
        post(four, "persistent/public/default/dispatched/dispatchRate", rate(DISPATCH, 100))
        begin = time.monotonic()
        for number, wire in enumerate(wires):
            wire.subscribe(topic, f"s{number}", 0, initialPosition=1)
            wire.flow(1000)
        for wire in wires:
            wire.messages(40)
        assert time.monotonic() - begin >= 1.2, "320 at 100 a second, 100 of them at once, and a little more"


@pytest.mark.parametrize("then", [1_000_000, None], ids=["raised", "removed"])
def test_who_waits_for_a_rate_goes_on_when_it_is_another(quick: PulsarServer, namespace: str, then: int | None) -> None:
    """What was taken would be allowed in an hour."""
    topic, path = f"persistent://{namespace}/t", f"persistent/{namespace}/t"
    assert request(quick.http, "", "", "PUT", path)["status"] == 204
    with Wire(quick.port).connect() as wire, Wire(quick.port).connect() as consumer:
        wire.producer(topic)
        consumer.subscribe(topic)
        for kind in (PUBLISH, DISPATCH):
            post(quick, f"{path}/{kind[0]}", rate(kind, -1, 1))
        wire.quiet()
        consumer.flow(10)
        for i in range(3):
            wire.send(b"x" * 4000, sequence=i)
        wire.expect("send_receipt")
        consumer.message()
        consumer.quiet()
        for kind, other in ((PUBLISH, wire), (DISPATCH, consumer)):
            if then is None:
                assert request(quick.http, "", "", "DELETE", f"{path}/{kind[0]}")["status"] == 204
            else:
                post(quick, f"{path}/{kind[0]}", rate(kind, -1, then))
            for _ in range(2):
                other.until(lambda frame: frame.name in ("send_receipt", "message"))


@pytest.mark.long
def test_readers_of_any_names_use_no_rate_up(quick: PulsarServer, namespace: str) -> None:
    """More than an acceptor may have at one time, one after the other."""
    topic = f"persistent://{namespace}/t"
    post(quick, f"namespaces/{namespace}/subscriptionDispatchRate", rate(DISPATCH, 50))
    with Wire(quick.port).connect() as wire, Wire(quick.port).connect() as consumer:
        wire.producer(topic)
        for i in range(170):
            for j in range(100):
                wire.requests += 1
                name = f"reader-{i}-{j}"
                wire.say(
                    "subscribe", request_id=wire.requests, topic=topic, subscription=name, subType=0,
                    consumer_id=j + 2, durable=False,
                )  # fmt: skip
            for _ in range(100):
                wire.expect("success")
            for j in range(100):
                wire.ask("close_consumer", consumer_id=j + 2)
        consumer.subscribe(topic, "one")
        consumer.flow(1000)
        begin = time.monotonic()
        for i in range(130):
            wire.send(b"x", sequence=i)
        consumer.messages(130)
        assert time.monotonic() - begin >= 1.2


def test_one_subscription_may_have_a_rate_of_its_own(quick: PulsarServer, namespace: str) -> None:
    topic, path = f"persistent://{namespace}/t", f"persistent/{namespace}/t"
    ten = {**rate(DISPATCH, 10), "ratePeriodInSecond": 3600}  # the rest would come in hours
    with Wire(quick.port).connect() as wire:
        wire.producer(topic)
        for consumer, name in ((1, "slow"), (2, "free")):
            wire.subscribe(topic, name, 0, consumer)
        post(quick, f"{path}/slow/dispatchRate", ten)
        found = request(quick.http, "", "", "GET", f"{path}/slow/dispatchRate")["json"]
        assert found == {**ten, "relativeToPublishRate": False}
        with Wire(quick.port).connect() as other:
            other.producer(topic + "-new")  # the gateway's answer about it comes behind what it says of the rate
        for consumer in (1, 2):
            wire.flow(100, consumer)
        for i in range(30):
            wire.send(b"x", sequence=i)
        wire.messages(30, 2)
        wire.messages(10, 1)
        wire.quiet()
        assert len(wire.pending("message")) < 20
        assert request(quick.http, "", "", "DELETE", f"{path}/slow/dispatchRate")["status"] == 204
        wire.messages(20, 1)


def test_a_rate_that_takes_the_place_of_another_on_the_board_begins_with_nothing_used_up(
    quick: PulsarServer, namespace: str
) -> None:
    """What came at a fast one has been allowed at once, so that its place is free; but its times are not long ago by
    the longer period."""

    def place(topic: str, messages: int, seconds: int) -> int:
        of = (topic_name(topic).core, "dispatch")
        return int(Rate(of, messages, 0, seconds).fields()["key"]) % BOARD_RATES

    first = f"persistent://{namespace}/first"
    taken = place(first, FAST, 1)
    second = next(name for i in itertools.count() if place(name := f"persistent://{namespace}/{i}", 10, 3600) == taken)
    with Wire(quick.port).connect() as wire:
        for number, (topic, messages, seconds) in enumerate([(first, FAST, 1), (second, 10, 3600)], 1):
            path = topic.replace("://", "/")
            assert request(quick.http, "", "", "PUT", path)["status"] == 204
            post(quick, f"{path}/dispatchRate", {**rate(DISPATCH, messages), "ratePeriodInSecond": seconds})
            wire.producer(topic, number)
            wire.subscribe(topic, consumer=number)
            wire.flow(100, number)
            for i in range(10 * number):
                wire.send(b"x", number, sequence=i)
            assert len(wire.messages(10, number)) == 10
        wire.quiet()
        assert not wire.pending("message")


def test_who_subscribes_too_often_is_refused(quick: PulsarServer, namespace: str) -> None:
    topic = f"persistent://{namespace}/t"
    body = {"subscribeThrottlingRatePerConsumer": 1, "ratePeriodInSecond": 3600}
    post(quick, f"namespaces/{namespace}/subscribeRate", body)
    with Wire(quick.port).connect() as wire:
        wire.subscribe(topic, "s", 1)
        wire.subscribe(topic, "s", 1, 2)
        wire.ask("close_consumer", consumer_id=1)
        refused = wire.ask("subscribe", "error", topic=topic, subscription="s", subType=1, consumer_id=1)
        assert (refused.error, refused.message) == (22, "Subscribe limited by subscribe rate limit per consumer.")


def test_who_has_unsubscribed_holds_no_place(quick: PulsarServer, namespace: str) -> None:
    topic = f"persistent://{namespace}/t"
    post(quick, f"namespaces/{namespace}/maxSubscriptionsPerTopic", 1)
    with Wire(quick.port).connect() as wire:
        for subscription in ("a", "b", "c"):
            wire.subscribe(topic, subscription, 1)
            refused = wire.ask("subscribe", "error", topic=topic, subscription="d", subType=1, consumer_id=2)
            assert refused.error == 22
            wire.ask("unsubscribe", consumer_id=1)
            wire.subscribe(topic, subscription + "x", 1)
            wire.ask("unsubscribe", consumer_id=1)


def test_a_topics_own_policies_are_its_own(quick: PulsarServer, namespace: str) -> None:
    """And not those of its namespace: a producer of another topic does not feel them."""
    mine, other = f"persistent://{namespace}/mine", f"persistent://{namespace}/other"
    with Wire(quick.port).connect() as wire:
        wire.producer(mine, 1)
        wire.producer(other, 2)
        body = {"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": 5000}
        post(quick, f"persistent/{namespace}/mine/delayedDelivery", body)
        wire.producer(mine, 3)
        wire.producer(other, 4)
        for producer, name in ((3, "send_error"), (4, "send_receipt"), (2, "send_receipt")):
            wire.send(b"x", producer, deliver_at_time=1 << 42)
            said = wire.until(lambda frame: frame.name in ("send_receipt", "send_error"))
            assert (said.name, said.body.producer_id) == (name, producer)
        assert request(quick.http, "", "", "DELETE", f"persistent/{namespace}/mine/delayedDelivery")["status"] == 204
        wire.producer(mine, 5)
        wire.send(b"x", 5, deliver_at_time=1 << 42)
        assert wire.until(lambda frame: frame.name in ("send_receipt", "send_error")).name == "send_receipt"
