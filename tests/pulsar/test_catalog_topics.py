"""Topics, watchers and subscriptions, as the catalog has them when acceptors ask."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, cast

import pytest
from mq_shards.acceptor.protocols.pulsar.names import topic_name
from mq_shards.gateway.catalog import Topic as Figures
from mq_shards.gateway.pulsar import policies as policies_module
from mq_shards.gateway.pulsar import watches
from mq_shards.gateway.pulsar.catalog import Topic, topic_record
from mq_shards.gateway.pulsar.clients import Connected
from mq_shards.gateway.pulsar.core import EARLIEST, NoTopicError
from mq_shards.gateway.pulsar.listing import topics_hash
from mq_shards.gateway.pulsar.refusals import RefusedError, unavailable
from mq_shards.gateway.pulsar.retention import Retention
from mq_shards.gateway.pulsar.upkeep import Upkeep

from tests.pulsar.control_side import Run, Side, T


def test_a_topic_is_made_when_a_client_opens_it_unless_it_may_not(run: Run) -> None:
    async def test(side: Side) -> None:
        assert await side.ask("partitions", topic=T + "a", create=True) == {"partitions": 0, "exists": False}
        missing = await side.ask("open", topic=T + "a", create=False)
        assert missing["error"] == "TopicNotFound"
        opened = await side.ask("open", topic=T + "a", create=True)
        assert opened["schema"] is False
        assert opened["policies"]["max_unacked_per_consumer"] == 50_000
        assert side.core.topics == {"a"}
        assert await side.ask("open", topic=T + "a", create=False) == opened
        assert (await side.ask("partitions", topic=T + "a", create=False))["exists"]
        for bad in ("persistent://nobody/default/a", "persistent://public/nothing/a"):
            assert (await side.ask("open", topic=bad, create=True))["error"] == "ServiceNotReady"
            assert (await side.ask("partitions", topic=bad, create=True))["error"] == "TopicNotFound"
        for bad in ("public/default/a/", "persistent://public/a", "other://public/default/a", T, T + "x" * 1025):
            assert (await side.ask("open", topic=bad, create=True))["error"] == "InvalidTopicName"

    run(test)


def test_a_partition_is_there_with_its_topic_and_one_beyond_is_not(run: Run) -> None:
    async def test(side: Side) -> None:
        await side.control.create_new(topic_name(T + "p"), 3)
        assert await side.ask("partitions", topic=T + "p", create=False) == {"partitions": 3, "exists": True}
        assert side.core.topics == {f"p-partition-{i}" for i in range(3)}
        assert "policies" in await side.ask("open", topic=T + "p-partition-2", create=False)
        assert (await side.ask("open", topic=T + "p-partition-3", create=True))["error"] == "TopicNotFound"
        await side.control.delete(topic_name(T + "p-partition-1"), force=False)
        assert (await side.ask("open", topic=T + "p-partition-1", create=False))["error"] == "TopicNotFound"
        assert "policies" in await side.ask("open", topic=T + "p-partition-1", create=True)
        assert sorted(side.core.topics) == [f"p-partition-{i}" for i in range(3)]
        await side.control.grow(topic_name(T + "p"), 4)
        assert "policies" in await side.ask("open", topic=T + "p-partition-3", create=False)
        assert "policies" in await side.ask("open", topic=T + "alone-partition-7", create=True), "no topic's partition"

    run(test)


def test_partitions_that_are_added_are_there_when_all_subscriptions_are(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who publishes to one before would do so for nobody."""

    async def test(side: Side) -> None:
        name = topic_name(T + "p")
        await side.control.create_new(name, 1)
        side.core.begun += [("p-partition-0", one, EARLIEST) for one in ("a", "b")]
        begin, left = side.core.begin_subscription, iter(range(3))

        async def dies(topic: str, subscription: str, start: int, at: int = 0) -> None:
            if next(left, None) is None:
                raise unavailable("a worker died")
            await begin(topic, subscription, start, at)

        monkeypatch.setattr(side.core, "begin_subscription", dies)
        with pytest.raises(RefusedError):
            await side.control.grow(name, 4)
        assert (await side.ask("partitions", topic=T + "p", create=False))["partitions"] == 1
        monkeypatch.setattr(side.core, "begin_subscription", begin)
        await side.control.grow(name, 4)
        assert (await side.ask("partitions", topic=T + "p", create=False))["partitions"] == 4
        made = {(f"p-partition-{i}", one, EARLIEST) for i in range(4) for one in ("a", "b")}
        assert set(side.core.begun) == made

    run(test)


def test_of_a_topic_that_is_a_partition_by_its_name_alone_nothing_is_kept_when_it_was_deleted(run: Run) -> None:
    """As clients of other protocols make."""

    async def test(side: Side) -> None:
        name = topic_name(T + "none-partition-7")
        side.core.topics.add(name.core)
        await side.control.delete(name, force=False)
        assert not side.store.catalog.namespaces["public/default"].deleted_partitions
        await side.control.create_new(name, 0)
        assert str(name) in side.store.catalog.namespaces["public/default"].topics

    run(test)


def test_a_namespace_says_how_topics_are_made(run: Run) -> None:
    async def test(side: Side) -> None:
        override = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 2}
        await side.control.set_policies("public/default", {"autoTopicCreationOverride": override})
        told = side.calls.told.pop()
        assert (told[0], told[1]["namespace"]) == ("pulsar.policies", "public/default")
        assert (await side.ask("partitions", topic=T + "new", create=False))["error"] == "TopicNotFound"
        asked = [side.ask("partitions", topic=T + "new", create=True) for _ in range(3)]
        assert await asyncio.gather(*asked) == [{"partitions": 2, "exists": True}] * 3
        override["allowAutoTopicCreation"] = False
        await side.control.set_policies("public/default", {"autoTopicCreationOverride": override})
        assert (await side.ask("open", topic=T + "other", create=True))["error"] == "TopicNotFound"
        side.core.topics.add("of-another-protocol")
        assert "policies" in await side.ask("open", topic=T + "of-another-protocol", create=False)

    run(test)


def test_topics_are_listed_by_pattern_and_not_again_when_they_are_known(run: Run) -> None:
    async def test(side: Side) -> None:
        await side.control.create_new(topic_name(T + "one"), 2)
        await side.control.create_new(topic_name(T + "two"), 0)
        side.core.topics.add("tube")
        names = [T + "one-partition-0", T + "one-partition-1", T + "tube", T + "two"]
        found = await side.ask("topics", namespace="public/default")
        assert (found["topics"], found["changed"], found["filtered"]) == (names, True, False)
        assert found["hash"] == await topics_hash(names)
        again = await side.ask("topics", namespace="public/default", hash=found["hash"])
        assert (again["topics"], again["changed"]) == ([], False)
        some = await side.ask("topics", namespace="public/default", pattern=T + "(one|tw.)")
        assert some["topics"] == [*names[:2], T + "two"]
        assert (await side.ask("topics", namespace="public/default", pattern="(("))["error"] == "MetadataError"
        assert (await side.ask("topics", namespace="public/nothing"))["topics"] == []

    run(test)


def test_a_watcher_is_told_of_what_matches_and_of_nothing_else(run: Run) -> None:
    async def test(side: Side) -> None:
        await side.control.create_new(topic_name(T + "log-a"), 0)
        found = await side.ask("watch", watcher=7, namespace="public/default", pattern=T + "log-.*")
        assert found == {"topics": [T + "log-a"], "hash": await topics_hash([T + "log-a"])}
        await side.control.create_new(topic_name(T + "log-b"), 0)
        await side.control.create_new(topic_name(T + "other"), 0)
        await side.control.delete(topic_name(T + "log-a"), force=False)
        told = side.calls.told  # at once, or one after the other where that took long
        while not any(said["deleted"] for _, said in told):
            await asyncio.sleep(0.01)
        assert {(what, said["watcher"]) for what, said in told} == {("pulsar.watched", 7)}
        assert [one for _, said in told for one in said["new"]] == [T + "log-b"]
        assert [one for _, said in told for one in said["deleted"]] == [T + "log-a"]
        assert told[-1][1]["hash"] == await topics_hash([T + "log-b"])
        await side.ask("unwatch", watcher=7)
        before = len(told)
        await side.control.create_new(topic_name(T + "log-c"), 0)
        await asyncio.sleep(0.1)
        assert len(told) == before

    run(test)


def test_a_pattern_is_no_larger_than_it_looks_and_all_of_them_have_a_limit(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a few characters RE2 makes megabytes, and takes a second to do so."""

    async def test(side: Side) -> None:
        for what in ({"do": "topics"}, {"do": "watch", "watcher": 1}):
            name = str(what.pop("do"))
            for huge in (r".*[\pL\pN]{1,400}b", r"(?:\pL{1,10}){1,40}b"):
                assert "error" in await side.ask(name, namespace="public/default", pattern=huge, **what)
        many = "|".join(f"persistent://public/default/orders-{i}.*" for i in range(20))
        assert "error" not in await side.ask("topics", namespace="public/default", pattern=many)
        monkeypatch.setattr(watches, "MAX_WATCHED_SIZE", 3 * watches.Matcher(T + "log-1.*").size)
        wanted = {"namespace": "public/default", "pattern": T + "log-1.*"}
        for _ in range(2):
            answers = [await side.ask("watch", watcher=number, **wanted) for number in range(4)]
            assert ["error" in one for one in answers] == [False, False, False, True]
            for number in range(4):
                await side.ask("unwatch", watcher=number)

    run(test)


def test_what_the_groups_of_a_pattern_match_is_not_looked_for() -> None:
    """It takes hundreds of times as long as to say whether all of it matches; and each name is compared."""
    matches = watches.Matcher(T + r"(\w*)" * 190)
    found = matches._compiled.fullmatch("public/default/orders")
    assert found is not None and found.groups() == ()
    assert matches(T + "orders") and not matches(T + "or-ders")


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        (T + "a.c", ["a.c", "abc"]),
        (T + r"\Qa.c\E", ["a.c"]),
        (rf"\Q{T}a.c\E", ["a.c"]),  # what Java's Pattern.quote makes of a name
        (rf"(^{T}abc$)", ["abc"]),
        (rf"\Qnon-{T}abc\E", ["abc"]),
        (f"x{T}abc", []),
        (T + "abc://x", ["abc"]),
    ],
)
def test_what_lies_before_the_domain_of_a_pattern_is_part_of_it(pattern: str, matched: list[str]) -> None:
    """As at a 4.0.7."""
    matches = watches.Matcher(pattern)
    assert [name for name in ("a.c", "abc") if matches(T + name)] == matched


def test_a_topic_with_clients_is_deleted_only_by_force(run: Run) -> None:
    async def test(side: Side) -> None:
        name = topic_name(T + "used")
        await side.control.create_new(name, 0)
        side.clients.connected[str(name)] = Connected(producers=[{"id": 1}])
        await side.core.begin_subscription(name.core, "s", 0)
        side.core.consumers = 2
        with pytest.raises(RefusedError, match="3 connected"):
            await side.control.delete(name, force=False)
        assert side.core.topics
        await side.control.delete(name, force=True)
        assert not side.core.topics
        assert not side.clients.connected

    run(test)


def test_a_namespace_that_goes_keeps_no_other_from_being_looked_after(run: Run) -> None:
    async def test(side: Side) -> None:
        for name in ("public/a", "public/b"):
            await side.store.commit({"do": "namespace", "name": name, "policies": {}})
            topic = Topic(2, policies={"message_ttl_in_seconds": 1})
            await side.store.commit(topic_record(name, f"persistent://{name}/t", topic))
        asked: list[str] = []
        figures = side.core.figures

        async def goes(topic: str) -> Figures | None:
            asked.append(topic)
            if len(asked) == 1:
                side.store.change({"do": "no-namespace", "name": "public/a"})
            return await figures(topic) and None

        side.core.figures = goes  # type: ignore[method-assign]
        upkeep = Upkeep(side.control, cast(Any, None), 60.0, lambda: 0.0)
        upkeep._retention._keeping = set()
        await upkeep.round()
        assert {name[:21] for name in asked} == {"persistent://public/a", "persistent://public/b"}

    run(test)


def test_a_transaction_takes_no_more_names_than_the_log_can_hold(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mq_shards.gateway.pulsar.transactions.MAX_PART_BYTES", 1 << 20)

    async def test(side: Side) -> None:
        await side.store.commit({"do": "transaction", "id": 1, "timeout_ms": 1000, "opened_ms": 0})
        for name in ("x" * 256, "a\nb", "__retention"):
            refused = await side.ask("txn-add", id=1, subscriptions=[[T + "t", name]])
            assert refused["error"] == "NotAllowedError"
        answers = [
            await side.ask("txn-add", id=1, subscriptions=[[T + "t", f"{i}-{j}-".ljust(250, "x")] for j in range(500)])
            for i in range(10)
        ]
        assert answers[:7] == [{}] * 7
        assert answers[8]["error"] == answers[9]["error"] == "NotAllowedError"

    run(test)


@pytest.mark.parametrize("name", ["__retention", "__compaction", "a\nb", "x" * 256])
def test_nothing_is_made_or_kept_for_a_subscription_with_a_name_that_it_cannot_have(run: Run, name: str) -> None:
    async def test(side: Side) -> None:
        consumer = {"action": "consume", "subscription": name, "durable": True, "properties": {"a": "b"}}
        for asked in ({"initial": name}, consumer):
            refused = await side.ask("open", topic=T + "t", create=True, **asked)
            assert refused["error"] == "NotAllowedError"
        assert not side.core.topics and not side.store.catalog.subscription_bytes

    run(test)


def test_an_initial_subscription_is_made_where_it_begins_and_never_moved(run: Run) -> None:
    async def test(side: Side) -> None:
        await asyncio.gather(*(side.ask("open", topic=T + "t", create=True, initial="s") for _ in range(2)))
        assert side.core.begun == [("t", "s", EARLIEST)] * 2, "of which the second changes nothing"

    run(test)


def test_of_two_initial_subscriptions_at_one_moment_one_has_the_last_place(run: Run) -> None:
    """Also by the policy of the topic alone."""

    async def test(side: Side) -> None:
        topic = Topic(0, policies={"max_subscriptions_per_topic": 1})
        await side.store.commit(topic_record("public/default", T + "t", topic))
        asked = [side.ask("open", topic=T + "t", create=True, initial=name) for name in ("a", "b")]
        first, second = await asyncio.gather(*asked)
        assert "error" not in first
        assert (second["error"], second["reason"]) == (
            "NotAllowedError", f"Exceed the maximum number of subscriptions of the topic: {T}t"
        )  # fmt: skip
        assert side.core.begun == [("t", "a", EARLIEST)]
        topic = Topic(0, policies={"autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": False}})
        await side.store.commit(topic_record("public/default", T + "t", topic))
        refused = await side.ask("open", topic=T + "t", create=True, initial="c")
        assert refused["error"] == "NotAllowedError"
        assert "auto subscription creation" in refused["reason"]

    run(test)


def test_a_place_is_kept_until_the_subscription_is_made_however_long_that_takes(run: Run) -> None:
    async def test(side: Side) -> None:
        topic = Topic(0, policies={"max_subscriptions_per_topic": 1})
        await side.store.commit(topic_record("public/default", T + "t", topic))
        name = side.control.name(T + "t")

        async def ask(subscription: str) -> None:
            told = policies_module.told(side.control.policies_of(name))
            await side.control.admission.check_subscription(name, subscription, told, durable=True)

        await ask("a")
        await asyncio.sleep(0.4)
        with pytest.raises(RefusedError, match="maximum number"):
            await ask("b")
        await side.ask("made", topic=T + "t", subscription="a")
        await ask("b")
        side.control.admission.was_made(name, "b")
        # What is made while a topic is looked at counts, though it is not being made any more.
        answer, figures = asyncio.Event(), side.core.figures

        async def late(of: str) -> Figures | None:
            found = await figures(of)
            await answer.wait()
            return found

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(side.core, "figures", late)
            waits = asyncio.create_task(ask("c"))
            await asyncio.sleep(0)
        await ask("d")
        side.control.admission.was_made(name, "d")
        answer.set()
        with pytest.raises(RefusedError, match="maximum number"):
            await waits

    run(test)


@pytest.mark.parametrize("fails", [False, True])
def test_an_initial_subscription_that_was_made_or_not_holds_no_place(
    run: Run, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    async def test(side: Side) -> None:
        topic = Topic(0, policies={"max_subscriptions_per_topic": 1})
        await side.store.commit(topic_record("public/default", T + "t", topic))

        async def broken(*_: object) -> None:
            raise NoTopicError

        with monkeypatch.context() as patched:
            if fails:
                patched.setattr(side.core, "begin_subscription", broken)
            with contextlib.suppress(NoTopicError):
                await side.ask("open", topic=T + "t", create=True, initial="a")
        side.core.begun.clear()
        assert "error" not in await side.ask("open", topic=T + "t", create=True, initial="b"), "a is not there"

    run(test)


def test_what_is_retained_goes_by_policy_alone(run: Run) -> None:
    async def test(side: Side) -> None:
        core, asked = cast(Any, side.core), list[str]()

        async def keep_no_more(topic: str) -> None:
            asked.append(topic)

        core.keeping, core.keep_no_more = {"t"}, keep_no_more
        policy = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        for policies, gone in (({"retention_policies": policy}, []), ({}, ["t"])):
            await side.store.commit({"do": "namespace", "name": "public/default", "policies": policies})
            retention = Retention(side.control)
            await retention.begin()  # and nothing is heard of any topic
            await retention.end()
            assert asked == gone

    run(test)
