"""Clients of all protocols that say what is well-formed, in any order, about the same few names and numbers, without
waiting for answers."""

from __future__ import annotations

import contextlib
import random
import re
import select
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections import Counter
from typing import Any, ClassVar, Final, Generic, TypeVar

from mq_shards.acceptor.protocols.pulsar.messages import Message, decode, encode

from tests.pulsar.wire import batch_of, entry_of, metadata, send_frame
from tests.strangers.odd_wires import Begin, CutError, Plain, Wire, plain, send

TOPICS: Final = ("a", "b", "w.x")  # of all protocols: nats.topics has them too
NEAR: Final = 30  # how many of the last ids that were heard are named again
MAX: Final = (1 << 64) - 1

Id = TypeVar("Id")


def sized(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


class Odd(ABC, Generic[Id]):
    """A client; `at` is the name of its port. An Id is how it names a message."""

    at: ClassVar[str]
    begin: ClassVar[Begin] = staticmethod(plain)
    is_cut = False  # into pieces

    def __init__(self, port: int, draw: random.Random, heard: Counter[str]) -> None:
        self.draw, self.heard = draw, heard
        self.ids: list[Id] = []
        self.buffer = b""
        self.is_closed = False
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.wire: Wire = Plain()
        try:
            self.wire, self.buffer = type(self).begin(self.socket, draw)
        except CutError:
            self.is_closed = True
        self.say(self.hello())

    def hello(self) -> bytes:
        return b""

    @abstractmethod
    def command(self) -> bytes: ...

    @abstractmethod
    def take(self) -> None:
        """What has come, from the buffer."""

    def say(self, data: bytes) -> None:
        if self.is_closed:
            return
        try:
            said = self.wire.encode(data)
            if self.is_cut:
                send(self.socket, said, self.draw)
            else:
                self.socket.sendall(said)
        except (ConnectionError, CutError):
            self.is_closed = True

    def hear(self, wait_s: float) -> None:
        poll = select.poll()  # select() takes no descriptor above 1,023
        poll.register(self.socket, select.POLLIN)
        while not self.is_closed and poll.poll(wait_s * 1000):
            data = b""
            with contextlib.suppress(ConnectionError, TimeoutError):
                data = self.socket.recv(1 << 18)
            self.is_closed = not data
            self.buffer += self.wire.decode(data)
            self.take()

    def end(self) -> None:
        self.socket.close()

    def body(self) -> bytes:
        return b"x" * self.draw.choice([0, 1, 10, 1000])

    def near(self, otherwise: Id) -> Id:
        return self.draw.choice(self.ids[-NEAR:]) if self.ids and self.draw.random() < 0.9 else otherwise


class Lines(Odd[int]):
    def take(self) -> None:
        *lines, self.buffer = self.buffer.split(b"\r\n")
        for line in lines:
            self.line(line)

    def line(self, line: bytes) -> None:
        if word := re.match(rb"[A-Z+-]+", line):
            self.heard[f"{self.at} {word[0].decode()}"] += 1


class OddJobs(Lines):
    at = "beanstalk"
    ABOUT_ID = (
        "reserve-job {}", "delete {}", "delete {}", "release {} 0 0", "release {} 0 1", "bury {} 5", "touch {}",
        "kick-job {}", "peek {}", "stats-job {}",
    )  # fmt: skip
    ABOUT_TUBE = (
        "use {}",
        "use {}",
        "watch {}",
        "watch {}",
        "ignore {}",
        "stats-tube {}",
        "pause-tube {} 0",
        "pause-tube {} 1",
    )
    OTHERS = (
        "reserve", "reserve-with-timeout 0", "reserve-with-timeout 0", "reserve-with-timeout 1", "kick 3", "peek-ready",
        "peek-delayed", "peek-buried", "stats", "list-tubes", "list-tube-used", "list-tubes-watched",
    )  # fmt: skip

    def line(self, line: bytes) -> None:
        super().line(line)
        if found := re.match(rb"(?:INSERTED|RESERVED|FOUND) (\d+)", line):
            self.ids.append(int(found[1]))

    def command(self) -> bytes:
        kind = self.draw.randrange(10)
        if kind < 3:
            body = self.body()
            return b"put %d %d 1 %d\r\n%s\r\n" % (self.draw.choice([0, 1024]), self.draw.randrange(2), len(body), body)
        if kind < 6:
            said = self.draw.choice(self.ABOUT_ID).format(self.near(self.draw.randrange(1 << 20)))
        elif kind < 8:
            said = self.draw.choice(self.ABOUT_TUBE).format(self.draw.choice((*TOPICS, f"t{self.draw.randrange(20)}")))
        else:
            said = self.draw.choice(self.OTHERS)
        return said.encode() + b"\r\n"


class OddChannel(Odd[bytes]):
    at = "nsq"
    joined = False

    def hello(self) -> bytes:
        return b"  V2"

    def take(self) -> None:
        while len(self.buffer) >= 8 and len(self.buffer) >= 4 + int.from_bytes(self.buffer[:4], "big"):
            end = 4 + int.from_bytes(self.buffer[:4], "big")
            frame, self.buffer = self.buffer[4:end], self.buffer[end:]
            if frame[3] == 2:
                self.ids.append(frame[14:30])
            self.heard["nsq message" if frame[3] == 2 else f"nsq {frame[4:].split(b' ')[0].decode()}"] += 1

    def command(self) -> bytes:
        draw = self.draw
        topic, body = draw.choice((*TOPICS, "e#ephemeral")).encode(), self.body() + b"."
        if not self.joined and draw.random() < 0.2:
            self.joined = True
            return b"SUB %s %s\n" % (topic, draw.choice([b"s1", b"s2", b"x#ephemeral"]))
        kind = draw.randrange(10)
        if kind < 2:
            return b"PUB %s\n%s" % (topic, sized(body))
        if kind == 2:
            return b"DPUB %s %d\n%s" % (topic, draw.choice([0, 10, 500]), sized(body))
        if kind == 3:
            many = draw.choice([1, 5, 50])
            return b"MPUB %s\n%s" % (topic, sized(struct.pack(">I", many) + sized(body) * many))
        if not self.joined:
            return b"NOP\n"
        if kind == 4:
            return b"CLS\n" if draw.random() < 0.1 else b"RDY %d\n" % draw.choice([0, 1, 10, 2500])
        about = draw.choice([b"FIN %s\n", b"FIN %s\n", b"REQ %s 0\n", b"REQ %s 300\n", b"TOUCH %s\n"])
        return about % self.near(b"%016x" % draw.randrange(1 << 20))


class OddSubscriber(Lines):
    at = "nats"
    HEADERS = b"NATS/1.0\r\nA: b\r\n\r\n"

    def hello(self) -> bytes:
        return b'CONNECT {"verbose":%s,"headers":true,"no_responders":true}\r\n' % self.draw.choice([b"true", b"false"])

    def line(self, line: bytes) -> None:
        super().line(line)
        if line == b"PING":
            self.say(b"PONG\r\n")

    def published(self, verb: bytes, to: bytes) -> bytes:
        """With headers or without."""
        body = self.body()
        if self.draw.random() < 0.7:
            return b"%s %s %d\r\n%s\r\n" % (verb, to, len(body), body)
        sizes = b"%d %d" % (len(self.HEADERS), len(self.HEADERS) + len(body))
        return b"H%s %s %s\r\n%s%s\r\n" % (verb.lstrip(b"RL"), to, sizes, self.HEADERS, body)

    def subject(self) -> bytes:
        return self.draw.choice((*TOPICS, "c", "_INBOX.1")).encode()

    def pattern(self) -> bytes:
        return self.draw.choice([self.subject(), b">", b"*", b"w.*", b"w.>"])

    def command(self) -> bytes:
        draw, sid = self.draw, self.draw.randrange(6)
        kind = draw.randrange(10)
        if kind < 5:
            return self.published(b"PUB", self.subject() + draw.choice([b"", b"", b" _INBOX.1"]))
        if kind < 7:
            return b"SUB %s %s%d\r\n" % (self.pattern(), draw.choice([b"", b"q "]), sid)
        return draw.choice([b"UNSUB %d\r\n" % sid, b"UNSUB %d %d\r\n" % (sid, draw.randrange(4)), b"PING\r\n"])


class OddRoute(OddSubscriber):
    """Another server of the cluster. Some have a name that comes again."""

    at = "nats-route"
    LETTER, OF_ACCOUNT = b"R", b"$G "

    def hello(self) -> bytes:
        name = (
            b"R%d" % self.draw.randrange(3) if self.draw.random() < 0.4 else b"X%d" % self.draw.randrange(1 << 30)
        ).ljust(56, b"A")
        rest = b'"headers":true,"cluster":"c"}\r\n'
        return b'CONNECT {"echo":true,"verbose":false,"pedantic":false,"tls_required":false,"name":"%s",%s' % (
            name,
            rest,
        ) + b'INFO {"server_id":"%s","version":"2.15.2","host":"127.0.0.1","port":4,"max_payload":1048576,%s' % (
            name,
            rest,
        )

    def command(self) -> bytes:
        draw, account = self.draw, self.OF_ACCOUNT
        kind = draw.randrange(10)
        if kind < 4:
            groups = draw.choice([b"", b"", b" | q", b" + _INBOX.1 q"])
            return self.published(self.LETTER + b"MSG", account + self.subject() + groups)
        if kind < 9:
            sign, group = draw.choice([(b"+", b""), (b"+", b" q 2"), (b"-", b""), (b"-", b" q")])
            return b"%sS%s %s%s%s\r\n" % (self.LETTER, sign, account, self.pattern(), group)
        return draw.choice([b"PING\r\n", b"PONG\r\n", b"INFO {}\r\n"])


class OddLeaf(OddRoute):
    at = "nats-leaf"
    LETTER, OF_ACCOUNT = b"L", b""

    def hello(self) -> bytes:
        name = b"leaf%d" % self.draw.randrange(1 << 30)
        said = b'CONNECT {"version":"2.15.2","name":"%s","cluster":"%s","headers":true,"remote_account":"$G"}\r\n'
        return said % (name, name)


class OddPulsar(Odd[dict[str, int]]):
    at = "pulsar"
    KINDS: Final = {"s1": 1, "s2": 3, "s3": 2, "s4": 0}  # of its subscriptions, mostly
    SAID: Final = {
        "send": 14, "flow": 10, "ack": 10, "subscribe": 8, "producer": 5, "seek": 4, "closes": 6, "again": 3,
        "unsubscribe": 2, "transaction": 6, "asks": 8,
    }  # fmt: skip
    transactions: list[dict[str, int]]

    def hello(self) -> bytes:
        self.requests = 0
        self.opening: dict[int, int] = {}
        self.producers: set[int] = set()
        self.transactions = []
        return encode("connect", client_version="odd", protocol_version=self.draw.choice([21, 21, 12, 6]))

    def take(self) -> None:
        while len(self.buffer) >= 4 and len(self.buffer) >= 4 + int.from_bytes(self.buffer[:4], "big"):
            end = 4 + int.from_bytes(self.buffer[:4], "big")
            frame, self.buffer = self.buffer[4:end], self.buffer[end:]
            command = decode(frame[4 : 4 + int.from_bytes(frame[:4], "big")])
            if command is not None:
                self.heard[f"pulsar {command[0]}"] += 1
                self.hears(*command)

    def hears(self, name: str, body: Message) -> None:
        if name in ("message", "send_receipt"):
            self.ids.append({"ledgerId": body.message_id.ledgerId, "entryId": body.message_id.entryId})
        elif name == "producer_success":
            self.producers.add(self.opening.get(body.request_id, 0))
        elif name == "close_producer":
            self.producers.discard(body.producer_id)
        elif name == "newTxnResponse":
            self.transactions.append(
                {"txnid_least_bits": body.txnid_least_bits, "txnid_most_bits": body.txnid_most_bits}
            )
        elif name == "ping":
            self.say(encode("pong"))

    def topic(self) -> str:
        others = ("persistent://public/default/p-partition-0", "non-persistent://public/default/n")
        return self.draw.choice((*TOPICS, *TOPICS, *others))

    def some_id(self) -> dict[str, Any]:
        draw = self.draw
        odd = draw.choice([{"ledgerId": 0, "entryId": draw.randrange(50)}, {"ledgerId": MAX, "entryId": MAX}])
        parts = draw.choice([
            {}, {}, {}, {"batch_index": draw.randrange(5), "batch_size": 5},
            {"ack_set": [draw.getrandbits(64) - (1 << 63) for _ in range(draw.choice([1, 2, 17]))], "batch_size": 10},
        ])  # fmt: skip
        return {**self.near(odd), **parts}

    def some_transaction(self, chance: float) -> dict[str, int]:
        return self.draw.choice(self.transactions[-6:]) if self.transactions and self.draw.random() < chance else {}

    def command(self) -> bytes:
        draw = self.draw
        self.requests += draw.random() < 0.8  # or else the number is used again
        what = draw.choices(list(self.SAID), list(self.SAID.values()))[0]
        numbers = {"consumer_id": draw.randrange(4), "request_id": self.requests}
        if what == "send":
            return self.sent()
        if what == "producer":
            return self.opened()
        if what == "subscribe":
            return self.subscribed(numbers)
        if what == "flow":
            return encode(
                "flow", consumer_id=draw.randrange(4), messagePermits=draw.choice([1, 2, 10, 1000, 0, 1 << 31])
            )
        if what == "ack":
            kind = draw.choice([0, 0, 1])
            ids = [self.some_id() for _ in range(1 if kind else draw.choice([1, 2, 10]))]
            return encode("ack", **numbers, ack_type=kind, message_id=ids, **self.some_transaction(0.2))
        if what == "seek":
            to = {"message_publish_time": draw.choice([0, time.time_ns() // 1_000_000, 1 << 62])}
            return encode("seek", **numbers, **(to if draw.random() < 0.4 else {"message_id": self.some_id()}))
        if what == "again":
            ids = [self.some_id() for _ in range(draw.choice([0, 1, 5]))]
            return encode("redeliverUnacknowledgedMessages", consumer_id=draw.randrange(4), message_ids=ids)
        if what == "unsubscribe":
            return encode("unsubscribe", **numbers, force=draw.random() < 0.3)
        if what == "transaction":
            return self.transacted()
        if what == "closes":
            return self.closed(numbers)
        return self.asked(numbers)

    def sent(self) -> bytes:
        if not self.producers:
            return self.opened()
        draw, producer = self.draw, self.draw.choice(sorted(self.producers))
        said = b""
        for _ in range(draw.choice([1, 1, 3, 20])):
            sequence, count = draw.randrange(1 << draw.choice([3, 20])), draw.choice([0, 0, 1, 5, 100])
            about: dict[str, Any] = self.some_transaction(0.2)
            head: dict[str, Any] = dict(about)
            if draw.random() < 0.3:
                head["partition_key"] = draw.choice("abcdefgh")
            if draw.random() < 0.1:
                head["deliver_at_time"] = time.time_ns() // 1_000_000 + draw.choice([-100, 50, 500])
            if draw.random() < 0.1:
                head["compression"] = draw.randrange(5)
            if draw.random() < 0.05:
                head |= {
                    "num_chunks_from_msg": 2,
                    "chunk_id": draw.randrange(2),
                    "uuid": "u",
                    "total_chunk_msg_size": 10,
                }
            if count:
                head["num_messages_in_batch"] = count
            payload = batch_of(*[b"y"] * (count + (draw.random() < 0.1))) if count else self.body()
            entry = entry_of(
                metadata(sequence_id=sequence, **head), payload, checksum=None if draw.random() < 0.98 else 1
            )
            said += send_frame(producer, sequence, entry, **({"num_messages": count} if count else {}), **about)
        return said

    def opened(self) -> bytes:
        draw = self.draw
        about: dict[str, Any] = {}
        if draw.random() < 0.5:
            about = {"producer_name": draw.choice(["n1", "n2"]), "user_provided_producer_name": True}
        if draw.random() < 0.1:
            about["producer_access_mode"] = draw.randrange(4)
        self.opening[self.requests] = producer = draw.randrange(3)
        return encode("producer", topic=self.topic(), producer_id=producer, request_id=self.requests, **about)

    def subscribed(self, numbers: dict[str, int]) -> bytes:
        draw, name = self.draw, self.draw.choice(list(self.KINDS))
        kind = self.KINDS[name] if draw.random() < 0.9 else draw.randrange(4)
        about: dict[str, Any] = {"subscription": name, "subType": kind, "initialPosition": draw.randrange(2)}
        if draw.random() < 0.1:
            about["durable"] = False
        if draw.random() < 0.2:
            about["start_message_id"] = self.some_id()
        if draw.random() < 0.1:
            about["read_compacted"] = True
        if draw.random() < 0.2:
            about["priority_level"] = draw.randrange(3)
        if kind == 3 and draw.random() < 0.3:
            first = draw.randrange(60000)
            about["keySharedMeta"] = {
                "keySharedMode": 1,
                "hashRanges": [{"start": first, "end": first + draw.randrange(5000)}],
            }
        return encode("subscribe", topic=self.topic(), **numbers, **about)

    def transacted(self) -> bytes:
        draw, about = self.draw, self.some_transaction(0.9)
        request = {"request_id": self.requests, **about}
        if not about:
            return encode("newTxn", request_id=self.requests, txn_ttl_seconds=draw.choice([1000, 60000]), tc_id=0)
        kind = draw.randrange(4)
        if kind == 0:
            return encode("addPartitionToTxn", partitions=[self.topic()], **request)
        if kind == 1:
            subscription = {"topic": self.topic(), "subscription": draw.choice(list(self.KINDS))}
            return encode("addSubscriptionToTxn", subscription=[subscription], **request)
        if kind == 2:
            return encode("tcClientConnectRequest", request_id=self.requests, tc_id=draw.choice([0, 0, 1]))
        return encode("endTxn", txn_action=draw.randrange(2), **request)

    def closed(self, numbers: dict[str, int]) -> bytes:
        if self.producers and self.draw.random() < 0.4:
            producer = self.draw.choice(sorted(self.producers))
            self.producers.discard(producer)
            return encode("close_producer", producer_id=producer, request_id=self.requests)
        return encode("close_consumer", **numbers)

    def asked(self, numbers: dict[str, int]) -> bytes:
        kind, request = self.draw.randrange(8), {"request_id": self.requests}
        if kind < 2:
            return encode(("getLastMessageId", "consumerStats")[kind], **numbers)
        if kind < 5:
            return encode(("lookupTopic", "partitionMetadata", "getSchema")[kind - 2], topic=self.topic(), **request)
        where = {"namespace": "public/default", "topics_pattern": "persistent://public/default/.*"}
        if kind == 5:
            return encode("getTopicsOfNamespace", **request, **where)
        watcher = self.draw.randrange(3)
        if kind == 6:
            return encode("watchTopicList", watcher_id=watcher, **request, **where)
        return encode("watchTopicListClose", watcher_id=watcher, **request)


# Routes and leaf nodes are seldom, as they hand on all that others publish.
KINDS: Final[tuple[type[Odd[Any]], ...]] = (
    OddPulsar, OddPulsar, OddPulsar, OddJobs, OddJobs, OddChannel, OddChannel, OddSubscriber, OddSubscriber,
    OddRoute, OddLeaf,
)  # fmt: skip
