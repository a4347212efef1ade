"""What an acceptor knows of policies when what it was told may have been lost: it asks for all of it anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import orjson
from mq_shards.acceptor.protocols.pulsar.catalog import OWN_AT_ONCE, Catalog
from mq_shards.acceptor.protocols.pulsar.names import topic_name
from mq_shards.ringbuf.calls import Reply, Status


class Gateway:
    """What is asked of it, and who waits for each answer. absent_ns: it is there."""

    absent_ns = 0

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self._heard: list[Callable[[Reply], None]] = []
        self.lost: Callable[[], None] = lambda: None

    def hear(self, what: str, hearer: Callable[[bytes], None]) -> None:
        self.tell = hearer

    def on_lost(self, hearer: Callable[[], None]) -> None:
        self.lost = hearer

    def ask(self, what: str, body: bytes, heard: Callable[[Reply], None], **_: object) -> None:
        assert what == "pulsar.policies"
        self.asked.append(orjson.loads(body))
        self._heard.append(heard)

    def answer(self, found: object, status: Status = Status.OK) -> None:
        self._heard.pop(0)(Reply(status, orjson.dumps(found)))


def knowing(gateway: Gateway, *namespaces: str, used: Sequence[str] = ()) -> Catalog:
    """`used`: topics, as the core names them."""
    catalog = Catalog(cast(Any, gateway), lambda: None, lambda: used)
    for namespace in namespaces:
        catalog.learn(namespace, {"group": None})
    return catalog


def limit(catalog: Catalog, topic: str) -> object:
    return catalog.policies(topic_name(topic)).get("group")


def test_all_that_is_known_is_asked_for_one_after_the_other() -> None:
    gateway, changed = Gateway(), []
    catalog = knowing(gateway, "a/one", "a/two", "a/gone")
    catalog.learn("a/two", {"group": None}, "persistent://a/two/t", {"group": ["own", 1, 0]})
    catalog.on_policies.append(changed.append)
    gateway.lost()
    assert gateway.asked == [{"namespace": "a/two", "topics": ["persistent://a/two/t"]}], "and no more at once"
    gateway.answer({"policies": {"group": ["g", 50, 0]}, "topics": {"persistent://a/two/t": {}}})
    assert gateway.asked[1:] == [{"namespace": "a/one", "topics": []}]
    gateway.answer({"policies": {"group": ["g", 50, 0]}, "topics": {}})
    gateway.answer({"policies": None, "topics": {}})
    assert limit(catalog, "persistent://a/one/t") == limit(catalog, "persistent://a/two/t") == ["g", 50, 0]
    assert limit(catalog, "persistent://a/gone/t") is None
    assert changed == ["a/two", "a/two", "a/one"]
    assert len(gateway.asked) == 3


def test_topics_with_policies_of_their_own_are_asked_for_in_pieces() -> None:
    gateway = Gateway()
    catalog = knowing(gateway, "a/one")
    topics = [f"persistent://a/one/t{i}" for i in range(OWN_AT_ONCE + 1)]
    for topic in topics:
        catalog.learn("a/one", {"group": None}, topic, {"group": ["own", 1, 0]})
    gateway.lost()
    gateway.answer({"policies": {}, "topics": {}})
    assert [asked["topics"] for asked in gateway.asked] == [topics[:OWN_AT_ONCE], topics[OWN_AT_ONCE:]]


def test_topics_that_are_used_are_asked_for_though_nothing_of_their_own_is_known() -> None:
    gateway = Gateway()
    used = ["plain", "many-partition-0", "many-partition-1", "persistent://a/one/t"]
    catalog = knowing(gateway, "public/default", "a/one", used=used)
    gateway.lost()
    root, own = "persistent://public/default", {"group": ["own", 1, 0]}
    gateway.answer({"policies": {}, "topics": {f"{root}/plain": {}, f"{root}/many": own}})
    gateway.answer({"policies": {}, "topics": {"persistent://a/one/t": own}})
    assert gateway.asked == [
        {"namespace": "public/default", "topics": [f"{root}/plain", f"{root}/many"]},
        {"namespace": "a/one", "topics": ["persistent://a/one/t"]},
    ]
    for topic, its in (("plain", None), ("many-partition-1", own["group"])):
        assert limit(catalog, f"{root}/{topic}") == its
    assert limit(catalog, "persistent://a/one/t") == own["group"]


def test_a_gateway_that_goes_is_asked_again_when_it_is_back() -> None:
    gateway = Gateway()
    catalog = knowing(gateway, "a/one", "a/two")
    gateway.lost()
    gateway.answer({}, Status.UNAVAILABLE)
    assert len(gateway.asked) == 1
    gateway.lost()
    gateway.answer({"policies": {"group": ["g", 1, 0]}, "topics": {}})
    gateway.lost()  # once more, while an answer is under way
    gateway.answer({"policies": {"group": ["g", 2, 0]}, "topics": {}})
    for _ in range(2):
        gateway.answer({"policies": {"group": ["g", 3, 0]}, "topics": {}})
    assert limit(catalog, "persistent://a/one/t") == limit(catalog, "persistent://a/two/t") == ["g", 3, 0]
    assert [asked["namespace"] for asked in gateway.asked[1:]] == ["a/one", "a/two", "a/one", "a/two"]
