"""Commands of the binary protocol that are refused, or could be: asked of a real broker by record_wire.py, of ours by
tests.

A step is a connection (a letter, made when it is first named), a command, and its fields, or a method and a path of the
REST API as in admin_scenes.py. Besides those of the protocol there are the commands

    message    a FLOW of one permit, and the message that comes: its id is "$0", "$1", ... in later fields
    publish    a SEND of a payload, and its receipt or error; `checksum`: it is wrong
    hears      the next frame of that name, of its own accord
    closed     whether the connection is

Each scene has topics of its own, and needs no other.
"""

from __future__ import annotations

from typing import Any, Final

Step = tuple[str, str, dict[str, Any]]

ROOT: Final = "persistent://public/default"
OLD: Final = "persistent://nobody/nowhere"  # a tenant and a cluster that are not there
AVRO: Final = '{"type":"record","name":"A","fields":[{"name":"a","type":"int"}]}'
AVRO_DEFAULT: Final = '{"type":"record","name":"A","fields":[{"name":"a","type":"int","default":"x"}]}'
AVRO_MORE: Final = (
    '{"type":"record","name":"A","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":null}]}'
)
AVRO_OTHER: Final = '{"type":"record","name":"A","fields":[{"name":"z","type":"string"}]}'
EARLIEST: Final = 1
SHARED_MODE, EXCLUSIVE_MODE, WAIT_MODE, FENCING_MODE = 0, 1, 2, 3
STICKY: Final = 1


def _topic(name: str) -> str:
    return name if "/" in name or not name else f"{ROOT}/{name}"


def _looked_up(name: str, on: str = "a") -> Step:
    """A real broker serves what somebody has looked up."""
    return on, "lookupTopic", {"topic": _topic(name)}


def _producer(name: str, on: str = "a", producer: int = 1, **fields: Any) -> Step:  # noqa: ANN401
    return on, "producer", {"topic": _topic(name), "producer_id": producer, **fields}


def _consumer(
    name: str, on: str = "a", consumer: int = 1, subscription: str = "s", kind: int = 0, **fields: Any,  # noqa: ANN401
) -> Step:  # fmt: skip
    asked = {"topic": _topic(name), "subscription": subscription, "subType": kind, "consumer_id": consumer}
    return on, "subscribe", asked | fields


def _schema(data: str, kind: int, name: str = "") -> dict[str, Any]:
    return {"name": name, "schema_data": data, "type": kind, "properties": []}


MAX_PERMITS: Final = (1 << 31) - 1
IN_ORDER: Final = {"keySharedMode": 0}
ANY_ORDER: Final = {"keySharedMode": 0, "allowOutOfOrderDelivery": True}


def _sticky(*ranges: tuple[int, int]) -> dict[str, Any]:
    return {"keySharedMode": STICKY, "hashRanges": [{"start": first, "end": last} for first, last in ranges]}


def _named(name: str) -> list[Step]:
    """Everything that names a topic, of one that cannot be or is not there."""
    return [
        _looked_up(name), ("a", "partitionMetadata", {"topic": _topic(name)}),
        ("a", "partitionMetadata", {"topic": _topic(name), "metadata_auto_creation_enabled": False}),
        _producer(name), _consumer(name), ("a", "getSchema", {"topic": _topic(name)}),
        ("a", "getOrCreateSchema", {"topic": _topic(name), "schema": _schema("", 1)}),
    ]  # fmt: skip


def _in(transaction: int, consumer: int, message: int, *, cumulative: bool = False) -> Step:
    """An acknowledgement."""
    asked = {"consumer_id": consumer, "ack_type": int(cumulative), "message_id": [f"${message}"]}
    return "a", "ack", asked | {"txnid_least_bits": f"%{transaction}", "txnid_most_bits": 0}


def _ended(transaction: int, action: int) -> Step:
    """Committed (0) or aborted."""
    return "a", "endTxn", {"txnid_least_bits": f"%{transaction}", "txnid_most_bits": 0, "txn_action": action}


def _prepared(name: str, count: int = 1) -> list[Step]:
    """A topic with a producer and some messages, on a connection of its own."""
    sent: list[Step] = [("p", "publish", {"payload": f"m{i}", "sequence": i}) for i in range(count)]
    return [_looked_up(name, "p"), _producer(name, "p"), *sent]


SCENES: Final[dict[str, list[Step]]] = {
    "no name": _named(""),
    "a bad name": _named("persistent://public"),
    "a name of two parts": _named("public/t"),
    "a bad domain": _named("lasting://public/default/t"),
    "a name that ends early": _named("persistent://public/default/"),
    "a name with a space": _named("persistent://public/default/a b"),
    "a name of a space": _named("persistent://public/default/ "),
    "a tenant that is not there": _named("persistent://nobody/default/t"),
    "a namespace that is not there": _named("persistent://public/nothing/t"),
    "a partition beyond the last": [
        ("a", "PUT", {"path": "persistent/public/default/beyond/partitions", "body": 2}),
        *_named("beyond-partition-2"), *_named("beyond-partition-1"),
        ("a", "getSchema", {"topic": _topic("beyond")}),
    ],
    "topics that nobody makes": [
        ("a", "POST", {"path": "namespaces/public/default/autoTopicCreation",
                       "body": {"allowAutoTopicCreation": False}}),
        *_named("unmade"),
        ("a", "DELETE", {"path": "namespaces/public/default/autoTopicCreation"}),
        _consumer("unmade", force_topic_creation=False),
    ],
    "producers of one name": [
        _looked_up("named"), _producer("named", producer_name="n"), _producer("named", "b", producer_name="n"),
        _producer("named", producer=2, producer_name="n"), _producer("named", producer=1, producer_name="other"),
        ("a", "close_producer", {"producer_id": 1}), ("a", "close_producer", {"producer_id": 1}),
        _producer("named", "b", producer_name="n"),
    ],
    "an exclusive producer": [
        _looked_up("alone"), _producer("alone", producer_access_mode=EXCLUSIVE_MODE),
        _producer("alone", "b", producer_access_mode=EXCLUSIVE_MODE), _producer("alone", "b"),
        _producer("alone", "b", producer=2, producer_access_mode=EXCLUSIVE_MODE, topic_epoch=0),
        _producer("alone", producer=2),
        _producer("alone", "b", producer_access_mode=FENCING_MODE),
        _producer("alone", "c", producer_access_mode=EXCLUSIVE_MODE, topic_epoch=0),
    ],
    "an exclusive producer beside a shared one": [
        _looked_up("beside"), _producer("beside"), _producer("beside", "b", producer_access_mode=EXCLUSIVE_MODE),
        _producer("beside", "b", producer_access_mode=FENCING_MODE),
        ("a", "publish", {"payload": "m"}),
    ],
    "one that waits": [
        _looked_up("waits"), _producer("waits", producer_access_mode=EXCLUSIVE_MODE),
        _producer("waits", "b", producer_access_mode=WAIT_MODE), _producer("waits", "c"),
        _producer("waits", "c", producer_access_mode=FENCING_MODE), ("b", "hears", {"frame": "error"}),
    ],
    "one that was fenced off and waits": [
        _looked_up("back"), _producer("back", producer_access_mode=EXCLUSIVE_MODE),
        _producer("back", "b", producer_access_mode=FENCING_MODE),
        _producer("back", producer=2, producer_access_mode=WAIT_MODE, topic_epoch=0),
        _producer("back", "c", producer_access_mode=WAIT_MODE, topic_epoch=0),
        _looked_up("left"), _producer("left", producer=3, producer_access_mode=EXCLUSIVE_MODE),
        _producer("left", "d", producer_access_mode=FENCING_MODE), ("d", "close_producer", {"producer_id": 1}),
        _producer("left", producer=4, producer_access_mode=WAIT_MODE, topic_epoch=0),
    ],
    "an older epoch": [
        _looked_up("epoch"), _producer("epoch", producer_access_mode=EXCLUSIVE_MODE),
        ("a", "close_producer", {"producer_id": 1}), _producer("epoch", producer_access_mode=EXCLUSIVE_MODE),
        ("a", "close_producer", {"producer_id": 1}),
        _producer("epoch", producer_access_mode=EXCLUSIVE_MODE, topic_epoch=0),
        _producer("epoch", "b", producer=2, producer_access_mode=FENCING_MODE, topic_epoch=0),
    ],
    "a checksum that is wrong": [
        _looked_up("sum"), _producer("sum"), ("a", "publish", {"payload": "m", "checksum": 7}),
        ("a", "publish", {"payload": "m"}),
    ],
    "permits": [
        _looked_up("permits"), _consumer("permits"),
        ("b", "flow", {"consumer_id": 1, "messagePermits": MAX_PERMITS + 1}),
        ("a", "flow", {"consumer_id": 1, "messagePermits": MAX_PERMITS}), ("a", "lookupTopic", {"topic": "t"}),
        ("a", "flow", {"consumer_id": 1, "messagePermits": MAX_PERMITS + 1}), ("a", "closed", {}),
    ],
    "a producer that is not there": [_looked_up("nobody"), ("a", "send", {"payload": "m"}), ("a", "closed", {})],
    "an initial subscription": [
        _looked_up("initial"), _producer("initial", initial_subscription_name="first"),
        _producer("initial", producer=2, initial_subscription_name="first"), _consumer("initial", subscription="first"),
    ],
    "schemas": [
        _looked_up("schemas"), ("a", "getSchema", {"topic": _topic("schemas")}),
        _consumer("schemas", consumer=9, subscription="early"),
        _producer("schemas", schema=_schema(AVRO, 4, "A")), _producer("schemas", producer=2, schema=_schema("", 1)),
        _producer("schemas", producer=3, schema=_schema(AVRO_OTHER, 4, "A")),
        _producer("schemas", producer=4, schema=_schema("no schema", 4, "A")),
        _producer("schemas", producer=5), _consumer("schemas", schema=_schema("", 1)),
        _consumer("schemas", schema=_schema(AVRO_OTHER, 4, "A")),
        ("a", "getOrCreateSchema", {"topic": _topic("schemas"), "schema": _schema("", 1)}),
        ("a", "getOrCreateSchema", {"topic": _topic("schemas"), "schema": _schema(AVRO, 4, "A")}),
        ("a", "getSchema", {"topic": _topic("schemas"), "schema_version": "\0\0\0\0\0\0\0\7"}),
        ("a", "getSchema", {"topic": _topic("schemas")}),
        ("a", "getSchema", {"topic": _topic("schemas"), "schema_version": "abc"}),
    ],
    "schemas of no type": [
        _looked_up("bytes"), _producer("bytes", schema=_schema("", 0)),
        ("a", "getSchema", {"topic": _topic("bytes")}),
        _producer("bytes", producer=2, schema=_schema(AVRO, 4, "A")),
        _producer("bytes", producer=3, schema=_schema("", 0)),
        _consumer("bytes", schema=_schema("", 0)), ("a", "getSchema", {"topic": _topic("bytes")}),
        ("a", "getOrCreateSchema", {"topic": _topic("bytes"), "schema": _schema("", 0)}),
        _looked_up("typed"), _producer("typed", producer=4, schema=_schema(AVRO, 4, "A")),
        _producer("typed", producer=5, schema=_schema("", 0)), _producer("typed", producer=6),
        _consumer("typed", consumer=4, schema=_schema("", 0)), _consumer("typed", consumer=5, schema=_schema("", 21)),
        ("a", "getOrCreateSchema", {"topic": _topic("typed"), "schema": _schema("", 0)}),
        _looked_up("read"), _consumer("read", consumer=6, schema=_schema("", 0)),
        ("a", "getSchema", {"topic": _topic("read")}),
    ],
    "schemas of messages in protobuf": [
        _looked_up("proto"), _producer("proto", schema=_schema(AVRO, 3, "A")),
        _producer("proto", producer=2, schema=_schema(AVRO_OTHER, 3, "A")),
        _producer("proto", producer=3, schema=_schema("no schema", 3, "A")),
        _producer("proto", producer=4, schema=_schema(AVRO_DEFAULT, 3, "A")),
        _producer("proto", producer=5, schema=_schema(AVRO, 4, "A")),
        _consumer("proto", schema=_schema(AVRO_MORE, 3, "A")), ("a", "getSchema", {"topic": _topic("proto")}),
    ],
    "schemas of consumers of what has none": [
        _looked_up("plain"), _producer("plain"), _consumer("plain", schema=_schema("", 1)),
        _consumer("plain", consumer=2, schema=_schema(AVRO, 4, "A")),
        _looked_up("heard"), _consumer("heard", consumer=3),
        _consumer("heard", consumer=4, subscription="t", schema=_schema("", 1)),
        _producer("heard", producer=2, schema=_schema("", 1)),
        _consumer("heard", consumer=5, subscription="t", schema=_schema(AVRO, 2, "A")),
        _looked_up("was"), _producer("was", producer=3, schema=_schema(AVRO, 4, "A")),
        ("a", "DELETE", {"path": "schemas/public/default/was/schema"}),
        _consumer("was", consumer=6, schema=_schema(AVRO, 4, "A")),
    ],
    "schemas that are deleted": [
        ("a", "PUT", {"path": "persistent/public/default/deleted/partitions", "body": 2}),
        _looked_up("deleted-partition-0"),
        ("a", "GET", {"path": "schemas/public/default/deleted/schemas"}),
        _producer("deleted-partition-0", schema=_schema(AVRO, 4, "A")),
        ("a", "getSchema", {"topic": _topic("deleted")}), ("a", "getSchema", {"topic": _topic("deleted-partition-1")}),
        ("a", "DELETE", {"path": "schemas/public/default/deleted/schema"}),
        ("a", "getSchema", {"topic": _topic("deleted")}),
        ("a", "getSchema", {"topic": _topic("deleted"), "schema_version": "\0\0\0\0\0\0\0\0"}),
        ("a", "getSchema", {"topic": _topic("deleted"), "schema_version": "\0\0\0\0\0\0\0\1"}),
        ("a", "GET", {"path": "schemas/public/default/deleted/schema"}),
        ("a", "GET", {"path": "schemas/public/default/deleted/schema/0"}),
        ("a", "GET", {"path": "schemas/public/default/deleted/schemas"}),
        _producer("deleted-partition-0", producer=2, schema=_schema(AVRO_OTHER, 4, "A")),
        ("a", "getSchema", {"topic": _topic("deleted")}),
        ("a", "getSchema", {"topic": _topic("deleted"), "schema_version": "\0\0\0\0\0\0\0\0"}),
    ],
    "schemas that are none": [
        _looked_up("first"), _consumer("first", kind=1, schema=_schema("no schema", 4, "A")),
        ("a", "getSchema", {"topic": _topic("first")}),
        _consumer("first", kind=1, consumer=2, schema=_schema(AVRO, 4, "A")),
        _producer("first", schema=_schema(AVRO, 4, "A")),
        _consumer("first", kind=1, consumer=3, schema=_schema("xyz", 5)),
        _looked_up("words"), _producer("words", producer=2, schema=_schema("xyz", 1)),
        _producer("words", producer=3, schema=_schema("", 21)),
        _consumer("words", consumer=4, schema=_schema("xyz", 1)), ("a", "getSchema", {"topic": _topic("words")}),
    ],
    "a schema that is not there": [
        ("a", "DELETE", {"path": "schemas/public/default/absent/schema"}), _looked_up("absent"),
        ("a", "getSchema", {"topic": _topic("absent")}),
        ("a", "GET", {"path": "schemas/public/default/absent/schema"}),
        ("a", "DELETE", {"path": "schemas/public/default/absent/schema"}),
        _producer("absent", schema=_schema(AVRO, 4, "A")), ("a", "getSchema", {"topic": _topic("absent")}),
        ("a", "DELETE", {"path": "schemas/public/default/absent/schema?force=true"}),
        ("a", "getSchema", {"topic": _topic("absent")}),
        ("a", "DELETE", {"path": "schemas/public/default/absent/schema?force=true"}),
        ("a", "getSchema", {"topic": _topic("absent")}),
        ("a", "getOrCreateSchema", {"topic": _topic("absent"), "schema": _schema(AVRO, 4, "A")}),
    ],
    "defaults of another type": [
        _looked_up("defaults"), _producer("defaults", schema=_schema(AVRO_DEFAULT, 4, "A")),
        _producer("defaults", producer=2, schema=_schema(AVRO, 4, "A")),
        _producer("defaults", producer=3, schema=_schema(AVRO_DEFAULT, 4, "A")),
        _consumer("defaults", schema=_schema(AVRO, 4, "A")),
        _consumer("defaults", consumer=2, subscription="t", schema=_schema(AVRO_DEFAULT, 4, "A")),
        ("a", "getOrCreateSchema", {"topic": _topic("defaults"), "schema": _schema(AVRO, 4, "A")}),
        ("a", "POST", {"path": "schemas/public/default/defaults/schema",
                       "body": {"type": "AVRO", "schema": AVRO, "properties": {}}}),
        ("a", "POST", {"path": "schemas/public/default/defaults/compatibility",
                       "body": {"type": "AVRO", "schema": AVRO, "properties": {}}}),
        ("a", "POST", {"path": "schemas/public/default/defaults/version",
                       "body": {"type": "AVRO", "schema": AVRO_DEFAULT, "properties": {}}}),
        ("a", "POST", {"path": "schemas/public/default/defaults/version",
                       "body": {"type": "STRING", "schema": "", "properties": {}}}),
        _producer("defaults", producer=4, schema=_schema("", 1)),
        _looked_up("fine"), _producer("fine", producer=5, schema=_schema(AVRO, 4, "A")),
        _producer("fine", producer=6, schema=_schema(AVRO_MORE, 4, "A")),
        _producer("fine", producer=7, schema=_schema(AVRO_MORE, 2, "A")),
        ("a", "POST", {"path": "schemas/public/default/fine/version",
                       "body": {"type": "AVRO", "schema": AVRO_MORE, "properties": {}}}),
    ],
    "a listener that nobody has": [
        ("a", "lookupTopic", {"topic": _topic("listener"), "advertised_listener_name": "outside"}),
        ("a", "lookupTopic", {"topic": _topic("listener"), "advertised_listener_name": ""}),
        ("a", "partitionMetadata", {"topic": _topic("listener")}),
    ],
    "the name of a partitioned topic": [
        ("a", "PUT", {"path": "persistent/public/default/whole/partitions", "body": 2}),
        ("a", "partitionMetadata", {"topic": _topic("whole")}), _looked_up("whole"),
        _producer("whole"), ("a", "publish", {"payload": "m"}), _consumer("whole", initialPosition=EARLIEST),
        ("a", "message", {"consumer_id": 1}),
    ],
    "an exclusive consumer": [
        _looked_up("one"), _consumer("one"), _consumer("one"), _consumer("one", "b"), _consumer("one", consumer=2),
        _consumer("one", "b", 3, kind=1), _consumer("one", "b", 4, kind=2), _consumer("one", "b", 5, kind=3),
        ("a", "close_consumer", {"consumer_id": 1}), ("a", "close_consumer", {"consumer_id": 1}),
        _consumer("one", "b", 6, kind=1), _consumer("one", consumer=3), _consumer("one", consumer=4, kind=2),
    ],
    "failover and shared": [
        _looked_up("types"), _consumer("types", kind=2), _consumer("types", "b"), _consumer("types", "b", 2, kind=1),
        _consumer("types", "b", 3, kind=3), _consumer("types", subscription="k", consumer=2, kind=3),
        _consumer("types", "b", 4, "k"), _consumer("types", "b", 5, "k", 1), _consumer("types", "b", 6, "k", 2),
    ],
    "names of subscriptions": [
        _looked_up("subs"), _consumer("subs", subscription=""),
        _consumer("subs", consumer=2, kind=1, read_compacted=True),
        _consumer("subs", consumer=3, kind=3, read_compacted=True),
        _consumer("subs", consumer=4, kind=2, read_compacted=True),
        _consumer("subs", consumer=5, subscription="brief", durable=False),
        _consumer("subs", "b", 1, "brief", durable=False), _consumer("subs", "b", 2, "brief"),
        _consumer("subs", "b", 3, durable=False), _consumer("subs", "b", 4, "gone"),
        ("b", "close_consumer", {"consumer_id": 4}), _consumer("subs", "b", 5, "gone", durable=False),
    ],
    "a topic that must be there": [
        _looked_up("lacking"), _consumer("lacking", force_topic_creation=False),
        _consumer("lacking", consumer=2, force_topic_creation=False, durable=False),
    ],
    "keys": [
        _looked_up("keys"), _consumer("keys", kind=3, keySharedMeta=_sticky()),
        _consumer("keys", consumer=2, kind=3, keySharedMeta=_sticky((5, 3))),
        _consumer("keys", consumer=5, kind=3, keySharedMeta=_sticky((0, 10), (5, 20))),
        _consumer("keys", consumer=6, subscription="t", kind=3, keySharedMeta=_sticky((0, 100)), consumer_name="first"),
        _consumer("keys", "b", 1, "t", 3, keySharedMeta=_sticky((100, 200)), consumer_name="second"),
        _consumer("keys", "b", 2, "t", 3, keySharedMeta=_sticky((50, 60)), consumer_name="second"),
        _consumer("keys", "b", 3, "t", 3), _consumer("keys", "b", 4, "t", 3, keySharedMeta=_sticky((101, 200))),
    ],
    "the order of keys": [
        _looked_up("orders"), _consumer("orders", kind=3, keySharedMeta=IN_ORDER),
        _consumer("orders", "b", 1, kind=3, keySharedMeta=ANY_ORDER), _consumer("orders", "b", 2, kind=3),
        _consumer("orders", "b", 3, kind=3, keySharedMeta=_sticky((0, 9)) | {"allowOutOfOrderDelivery": True}),
        _consumer("orders", subscription="t", consumer=2, kind=3, keySharedMeta=ANY_ORDER),
        _consumer("orders", "b", 4, "t", 3, keySharedMeta=IN_ORDER), _consumer("orders", "b", 5, "t", 1),
        _consumer("orders", "b", 6, "t", 3, keySharedMeta=ANY_ORDER),
        _consumer("orders", subscription="u", consumer=3, kind=3, keySharedMeta=_sticky((0, 9))),
        _consumer("orders", "b", 7, "u", 3, keySharedMeta=_sticky((5, 6)) | {"allowOutOfOrderDelivery": True}),
        ("a", "close_consumer", {"consumer_id": 2}), ("b", "close_consumer", {"consumer_id": 6}),
        _consumer("orders", "b", 8, "t", 3, keySharedMeta=IN_ORDER),
    ],
    "a range that begins before the first": [
        _looked_up("before"), _consumer("before", kind=3, keySharedMeta=_sticky((-1, 3))),
    ],
    "a range that ends behind the last": [
        _looked_up("behind"), _consumer("behind", kind=3, keySharedMeta=_sticky((0, 70000))),
    ],
    "unsubscribing": [
        _looked_up("leaving"), ("a", "unsubscribe", {"consumer_id": 1}), _consumer("leaving", kind=1),
        _consumer("leaving", "b", kind=1), ("a", "unsubscribe", {"consumer_id": 1}),
        ("a", "unsubscribe", {"consumer_id": 1, "force": True}), ("b", "hears", {"frame": "close_consumer"}),
        ("a", "unsubscribe", {"consumer_id": 1}),
        _consumer("leaving", kind=2), _consumer("leaving", "b", kind=2), ("b", "unsubscribe", {"consumer_id": 1}),
        _consumer("leaving", subscription="brief", consumer=2, durable=False),
        ("a", "unsubscribe", {"consumer_id": 2}),
    ],
    "seeking": [
        *_prepared("seeking"), _looked_up("seeking"), ("a", "seek", {"consumer_id": 1, "message_publish_time": 0}),
        _consumer("seeking"), ("a", "seek", {"consumer_id": 1}),
        ("a", "seek", {"consumer_id": 1, "message_id": {"ledgerId": 1 << 62, "entryId": 0}}),
        _consumer("seeking"), ("a", "seek", {"consumer_id": 7, "message_publish_time": 0}),
    ],
    "the last message": [
        _looked_up("last"), ("a", "getLastMessageId", {"consumer_id": 1}), _consumer("last"),
        ("a", "getLastMessageId", {"consumer_id": 1}), ("a", "getLastMessageId", {"consumer_id": 2}),
    ],
    "figures of a consumer": [
        _looked_up("figures"), _consumer("figures"), ("a", "consumerStats", {"consumer_id": 1}),
        ("a", "consumerStats", {"consumer_id": 5}), ("a", "closed", {}),
    ],
    "acknowledging": [
        *_prepared("acked", 3), _looked_up("acked"), _consumer("acked", initialPosition=EARLIEST),
        ("a", "message", {"consumer_id": 1}),
        ("a", "ack", {"consumer_id": 1, "ack_type": 0, "message_id": ["$0"]}),
        ("a", "ack", {"consumer_id": 1, "ack_type": 0, "message_id": ["$0"]}),
        ("a", "ack", {"consumer_id": 1, "ack_type": 1, "message_id": ["$0", "$0"]}),
        ("a", "ack", {"consumer_id": 1, "ack_type": 1, "message_id": [{"ledgerId": 1 << 61, "entryId": 1}]}),
        ("a", "ack", {"consumer_id": 1, "ack_type": 0, "message_id": []}),
        _consumer("acked", "b", subscription="t", kind=1, initialPosition=EARLIEST),
        ("b", "message", {"consumer_id": 1}), ("b", "ack", {"consumer_id": 1, "ack_type": 1, "message_id": ["$1"]}),
    ],
    "a topic that has ended": [
        *_prepared("ended"), ("p", "POST", {"path": "persistent/public/default/ended/terminate"}),
        _producer("ended", producer=2), _producer("ended", "a", producer_access_mode=EXCLUSIVE_MODE),
        _consumer("ended", "b"), ("b", "flow", {"consumer_id": 1, "messagePermits": 10}),
        ("b", "hears", {"frame": "reachedEndOfTopic"}),
    ],
    "where one that is not durable begins": [
        *_prepared("begins", 2), _looked_up("begins"),
        _consumer("begins", durable=False, initialPosition=EARLIEST), ("a", "message", {"consumer_id": 1}),
        _consumer("begins", consumer=2, subscription="latest", durable=False, initialPosition=EARLIEST,
                  start_message_id={"ledgerId": (1 << 63) - 1, "entryId": (1 << 63) - 1}),
        ("a", "message", {"consumer_id": 2}),
    ],
    "topics of a namespace": [
        ("a", "getTopicsOfNamespace", {"namespace": "public/nothing", "mode": 0}),
        ("a", "watchTopicList", {"namespace": "public/nothing", "watcher_id": 1, "topics_pattern": ".*"}),
        ("a", "watchTopicListClose", {"watcher_id": 7}),
    ],
    "a namespace that is none": [("a", "getTopicsOfNamespace", {"namespace": "public", "mode": 0})],
    "no namespace": [("a", "getTopicsOfNamespace", {"namespace": "", "mode": 0})],
    "a watched namespace that is none": [
        ("a", "watchTopicList", {"namespace": "public", "watcher_id": 2, "topics_pattern": ".*"}),
    ],
    "a pattern that cannot be": [
        *(
            ("a", "getTopicsOfNamespace", {"namespace": "public/default", "mode": 0, "topics_pattern": pattern})
            for pattern in ("a(", r"\Qpersistent://a\E", "(non-persistent://a)", ".*://a", "http://a", "://a")
        ),
    ],
    "a watched pattern of another domain": [
        ("a", "watchTopicList", {"namespace": "public/default", "watcher_id": 1,
                                 "topics_pattern": "lasting://public/default/.*"}),
    ],
    "a watched pattern that cannot be": [
        ("a", "watchTopicList", {"namespace": "public/default", "watcher_id": 1, "topics_pattern": "a("}),
    ],
    "topics of a namespace that is not there": [
        *(("a", "getTopicsOfNamespace", {"namespace": "public/nothing", "mode": mode}) for mode in (0, 1, 2)),
    ],
    "namespaces that cannot be": [
        *(_looked_up(name) for name in (
            "persistent://pub lic/default/t", "persistent://public//t", "persistent:///default/t",
            "persistent://public/default//t", "persistent://public/standalone//t",
            "persistent://public/standalone/n s/t",
            "persistent://public/standalone/ns/", "persistent://public/standalone/ns/ ", "public/standalone/ns/t",
            "persistent://a b/c/ ", "lasting://public/standalone/ns/t",
        )),
    ],
    "a namespace of four parts": [("a", "getTopicsOfNamespace", {"namespace": "a/b/c/d", "mode": 0})],
    "a cluster's topic": [
        *_named(f"{OLD}/named/t"),
        ("a", "publish", {"payload": "m"}),
        _consumer(f"{OLD}/named/t", consumer=2, subscription="t", initialPosition=EARLIEST),
        ("a", "message", {"consumer_id": 2}),
        ("a", "ack", {"consumer_id": 2, "ack_type": 0, "message_id": ["$0"]}),
        ("a", "getLastMessageId", {"consumer_id": 2}),
        ("a", "seek", {"consumer_id": 2, "message_id": {"ledgerId": 0, "entryId": 0}}),
        ("a", "unsubscribe", {"consumer_id": 1}),
        ("a", "GET", {"path": "/admin/persistent/nobody/nowhere/named/t/stats"}),
    ],
    "a cluster's topic with a slash": _named(f"{OLD}/slashed/t/u"),
    "a cluster's topic of a tenant": _named("persistent://public/nowhere/ns/t"),
    "a topic in what could be a namespace of a default cluster": _named("persistent://public/default/cluster/t"),
    "a cluster's topic that is not persistent": _named("non-persistent://nobody/nowhere/lone/t"),
    "a topic of several clusters whose namespace is not there": _named("persistent://nobody/global/ns/t"),
    "a topic of several clusters": [
        ("a", "PUT", {"path": "/admin/namespaces/public/global/several"}),
        _looked_up("persistent://public/global/several/t"),
        ("a", "partitionMetadata", {"topic": "persistent://public/global/several/t"}),
        ("a", "POST", {"path": "/admin/namespaces/public/global/several/replication", "body": ["standalone"]}),
        *_named("persistent://public/global/several/t"),
    ],
    "partitions of a cluster's topic": [
        ("a", "PUT", {"path": "/admin/persistent/nobody/nowhere/parts/p/partitions", "body": 2}),
        _looked_up(f"{OLD}/parts/p"), ("a", "partitionMetadata", {"topic": f"{OLD}/parts/p"}),
        *_named(f"{OLD}/parts/p-partition-1"),
        ("a", "getTopicsOfNamespace", {"namespace": "nobody/nowhere/parts", "mode": 0}),
        ("a", "DELETE", {"path": "/admin/persistent/nobody/nowhere/parts/p/partitions?force=true"}),
        ("a", "getTopicsOfNamespace", {"namespace": "nobody/nowhere/parts", "mode": 0}),
    ],
    "topics of a cluster's namespace": [
        *(("a", "getTopicsOfNamespace", {"namespace": "nobody/nowhere/list", "mode": mode}) for mode in (0, 1, 2)),
        ("w", "watchTopicList", {"namespace": "nobody/nowhere/list", "watcher_id": 1,
                                 "topics_pattern": "persistent://nobody/nowhere/list/[a-z].*"}),
        _looked_up(f"{OLD}/list/a"), _producer(f"{OLD}/list/a"), ("w", "hears", {"frame": "watchTopicUpdate"}),
        _looked_up(f"{OLD}/list/b/c"), _producer(f"{OLD}/list/b/c", producer=2),
        ("w", "hears", {"frame": "watchTopicUpdate"}),
        _producer("non-persistent://nobody/nowhere/list/n", producer=3),
        *(("a", "getTopicsOfNamespace", {"namespace": "nobody/nowhere/list", "mode": mode}) for mode in (0, 1)),
        ("a", "getTopicsOfNamespace", {"namespace": "nobody/nowhere/list", "mode": 0,
                                       "topics_pattern": "persistent://nobody/nowhere/list/b.*"}),
        ("a", "getTopicsOfNamespace", {"namespace": "nobody/nowhere", "mode": 0}),
        ("a", "close_producer", {"producer_id": 1}),
        ("a", "DELETE", {"path": "/admin/persistent/nobody/nowhere/list/a"}),
        ("w", "hears", {"frame": "watchTopicUpdate"}),
        ("a", "getTopicsOfNamespace", {"namespace": "nobody/nowhere/list", "mode": 0}),
    ],
    "schemas of a cluster's topic": [
        _looked_up(f"{OLD}/schemas/t"), _producer(f"{OLD}/schemas/t", schema=_schema(AVRO, 4)),
        ("a", "getSchema", {"topic": f"{OLD}/schemas/t"}),
        ("a", "getOrCreateSchema", {"topic": f"{OLD}/schemas/t", "schema": _schema(AVRO_MORE, 4)}),
        ("a", "getOrCreateSchema", {"topic": f"{OLD}/schemas/t", "schema": _schema(AVRO_OTHER, 4)}),
        _producer(f"{OLD}/schemas/t", producer=2, schema=_schema(AVRO_OTHER, 4)),
        ("a", "getSchema", {"topic": f"{OLD}/schemas/t"}),
        _looked_up(f"{OLD}/schemas/t/u"), _producer(f"{OLD}/schemas/t/u", producer=3, schema=_schema(AVRO, 4)),
        ("a", "getSchema", {"topic": f"{OLD}/schemas/t/u"}),
    ],
    "a cluster's namespace that makes no topics": [
        ("a", "PUT", {"path": "/admin/namespaces/public/standalone/unmade"}),
        ("a", "POST", {"path": "/admin/namespaces/public/standalone/unmade/autoTopicCreation",
                       "body": {"allowAutoTopicCreation": False}}),
        *_named("persistent://public/standalone/unmade/t"),
        ("a", "PUT", {"path": "/admin/persistent/public/standalone/unmade/t"}),
        ("a", "POST", {"path": "/admin/namespaces/public/standalone/unmade/maxProducersPerTopic", "body": 1}),
        *_named("persistent://public/standalone/unmade/t"),
        _producer("persistent://public/standalone/unmade/t", producer=2),
    ],
    "a transaction with a cluster's topic": [
        _looked_up("persistent://pulsar/system/transaction_coordinator_assign-partition-0"),
        ("a", "tcClientConnectRequest", {"tc_id": 0}), *_prepared(f"{OLD}/txn/t", 1),
        _looked_up(f"{OLD}/txn/t"), _consumer(f"{OLD}/txn/t", initialPosition=EARLIEST),
        ("a", "message", {"consumer_id": 1}), ("a", "newTxn", {"tc_id": 0, "txn_ttl_seconds": 600_000}),
        ("a", "addPartitionToTxn", {"txnid_least_bits": "%0", "txnid_most_bits": 0, "partitions": [f"{OLD}/txn/t"]}),
        ("a", "addSubscriptionToTxn", {"txnid_least_bits": "%0", "txnid_most_bits": 0,
                                       "subscription": [{"topic": f"{OLD}/txn/t", "subscription": "s"}]}),
        _in(0, 1, 0),
        _ended(0, 0),
    ],
    "transactions that are not there": [
        ("a", "partitionMetadata", {"topic": "persistent://pulsar/system/transaction_coordinator_assign"}),
        _looked_up("persistent://pulsar/system/transaction_coordinator_assign-partition-0"),
        ("a", "tcClientConnectRequest", {"tc_id": 0}),
        ("a", "addPartitionToTxn", {"txnid_least_bits": 12345, "txnid_most_bits": 0, "partitions": [_topic("x")]}),
        ("a", "addPartitionToTxn", {"txnid_least_bits": 12345, "txnid_most_bits": 99, "partitions": [_topic("x")]}),
        ("a", "addSubscriptionToTxn", {"txnid_least_bits": 12345, "txnid_most_bits": 0,
                                       "subscription": [{"topic": _topic("x"), "subscription": "s"}]}),
        ("a", "addSubscriptionToTxn", {"txnid_least_bits": 12345, "txnid_most_bits": 99,
                                       "subscription": [{"topic": _topic("x"), "subscription": "s"}]}),
        ("a", "endTxn", {"txnid_least_bits": 12345, "txnid_most_bits": 0, "txn_action": 0}),
        ("a", "endTxn", {"txnid_least_bits": 12345, "txnid_most_bits": 0, "txn_action": 1}),
        ("a", "endTxn", {"txnid_least_bits": 12345, "txnid_most_bits": 99, "txn_action": 0}),
    ],
    "transactions": [
        _looked_up("persistent://pulsar/system/transaction_coordinator_assign-partition-0"),
        ("a", "tcClientConnectRequest", {"tc_id": 0}),
        *_prepared("txn", 3), _looked_up("txn"), _consumer("txn", initialPosition=EARLIEST, kind=1),
        _consumer("txn", consumer=2, subscription="x", initialPosition=EARLIEST),
        ("a", "message", {"consumer_id": 1}), ("a", "message", {"consumer_id": 1}),
        ("a", "message", {"consumer_id": 2}), ("a", "newTxn", {"tc_id": 0, "txn_ttl_seconds": 600_000}),
        ("a", "newTxn", {"tc_id": 0, "txn_ttl_seconds": 600_000}),
        ("a", "addSubscriptionToTxn", {"txnid_least_bits": "%0", "txnid_most_bits": 0,
                                       "subscription": [{"topic": _topic("txn"), "subscription": "s"}]}),
        _in(0, 1, 0),
        _in(1, 1, 0),
        _in(0, 1, 0),
        _in(0, 1, 1, cumulative=True),
        _in(0, 2, 2, cumulative=True),
        _in(1, 2, 2, cumulative=True),
        ("a", "ack", {"consumer_id": 1, "ack_type": 0, "message_id": ["$1"]}),
        _in(1, 1, 1),
        ("a", "endTxn", {"txnid_least_bits": "%0", "txnid_most_bits": 0, "txn_action": 0}),
        ("a", "endTxn", {"txnid_least_bits": "%0", "txnid_most_bits": 0, "txn_action": 1}),
        ("a", "addSubscriptionToTxn", {"txnid_least_bits": "%0", "txnid_most_bits": 0,
                                       "subscription": [{"topic": _topic("txn"), "subscription": "s"}]}),
        ("a", "endTxn", {"txnid_least_bits": "%1", "txnid_most_bits": 0, "txn_action": 1}),
        ("a", "endTxn", {"txnid_least_bits": "%1", "txnid_most_bits": 0, "txn_action": 0}),
        ("a", "addPartitionToTxn", {"txnid_least_bits": "%1", "txnid_most_bits": 0, "partitions": [_topic("txn")]}),
    ],
    "messages that several transactions acknowledge": [
        _looked_up("persistent://pulsar/system/transaction_coordinator_assign-partition-0"),
        ("a", "tcClientConnectRequest", {"tc_id": 0}),
        *_prepared("several-acks", 9), _looked_up("several-acks"), _consumer("several-acks", initialPosition=EARLIEST),
        *[("a", "message", {"consumer_id": 1})] * 9, *[("a", "newTxn", {"tc_id": 0, "txn_ttl_seconds": 600_000})] * 3,
        *[("a", "addSubscriptionToTxn", {"txnid_least_bits": f"%{i}", "txnid_most_bits": 0,
                                         "subscription": [{"topic": _topic("several-acks"), "subscription": "s"}]})
          for i in range(3)],
        _in(0, 1, 4, cumulative=True),
        _in(1, 1, 2), _in(2, 1, 2), _in(0, 1, 1), _in(1, 1, 6, cumulative=True),
        _in(0, 1, 5, cumulative=True), _in(1, 1, 5), _in(2, 1, 5), _in(2, 1, 3),
        _ended(2, 1),
        _ended(0, 0),
        _in(1, 1, 4), _in(1, 1, 4, cumulative=True), _in(1, 1, 6, cumulative=True), _in(1, 1, 7),
        _ended(1, 0),
    ],
}  # fmt: skip
