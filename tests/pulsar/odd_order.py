"""Commands that no client sends in this order, several in a packet: random scripts over few ids, names and topics."""

from __future__ import annotations

import itertools
import random
from typing import Any, Final

from mq_shards.acceptor.protocols.pulsar.messages import encode

from tests.pulsar.wire import MAX, Wire, entry_of, metadata, send_frame

EARLIEST: Final = {"ledgerId": MAX, "entryId": MAX}
LATEST: Final = {"ledgerId": MAX >> 1, "entryId": MAX >> 1}
WAIT_S: Final = (0.001, 0.003, 0.02)  # between two packets: what was answered until then is heard


class Script:
    def __init__(self, port: int, seed: int) -> None:
        self._port, self._draw = port, random.Random(seed)
        self._requests, self._sequences = itertools.count(1), itertools.count()
        self._topics = [f"persistent://public/default/odd-{seed}-{n}" for n in range(2)]
        self._topics.append(f"non-persistent://public/default/odd-{seed}")
        self._places: list[dict[str, int]] = [{"ledgerId": 1, "entryId": 0}, EARLIEST, LATEST]
        self._wires = [Wire(port).connect() for _ in range(2)]
        begun = self._wires[0].ask("newTxn", "newTxnResponse", tc_id=0, txn_ttl_seconds=5000)
        self._txn = {"txnid_least_bits": begun.txnid_least_bits, "txnid_most_bits": begun.txnid_most_bits}

    def play(self) -> None:
        for _ in range(self._draw.randrange(5, 25)):
            self._exchange(self._draw.randrange(len(self._wires)))
        for wire in self._wires:
            wire.socket.close()

    def _exchange(self, number: int) -> None:
        wire = self._wires[number]
        wire.socket.settimeout(self._draw.choice(WAIT_S))
        try:
            wire.raw(b"".join(self._command() for _ in range(self._draw.randrange(1, 9))))
            while (frame := wire.receive()) is not None:
                if frame.name in ("message", "send_receipt"):
                    place = frame.body.message_id
                    self._places.append({"ledgerId": place.ledgerId, "entryId": place.entryId})
        except TimeoutError:
            return
        except OSError:
            pass
        wire.socket.close()  # some orders are answered so
        self._wires[number] = Wire(self._port).connect()

    def _command(self) -> bytes:
        draw = self._draw
        name = draw.choice(
            ["subscribe", "subscribe", "subscribe", "close_consumer", "close_consumer", "unsubscribe", "seek", "seek",
             "flow", "ack", "redeliver", "getLastMessageId", "producer", "producer", "close_producer", "send",
             "addPartitionToTxn", "addSubscriptionToTxn", "endTxn", "lookupTopic"]
        )  # fmt: skip
        if name == "send":
            txn, sequence = self._in_txn(), next(self._sequences)
            entry = entry_of(metadata(sequence_id=sequence, **txn), b"x")
            return send_frame(draw.randrange(1, 3), sequence, entry, **txn)
        if name == "flow":
            return encode("flow", consumer_id=draw.randrange(1, 3), messagePermits=draw.randrange(1, 5))
        if name == "redeliver":
            ids = draw.choice([[], [draw.choice(self._places)]])
            return encode("redeliverUnacknowledgedMessages", consumer_id=draw.randrange(1, 3), message_ids=ids)
        return encode(name, request_id=next(self._requests), **self._fields(name))

    def _in_txn(self) -> dict[str, int]:
        return self._txn if self._draw.random() < 0.3 else {}

    def _fields(self, name: str) -> dict[str, Any]:
        draw, topic, place = self._draw, self._draw.choice(self._topics), self._draw.choice(self._places)
        subscription, number = draw.choice("st"), draw.randrange(1, 3)
        match name:
            case "subscribe":
                begins = {"start_message_id": place} if draw.random() < 0.3 else {}
                return {
                    "topic": topic, "subscription": subscription, "subType": draw.randrange(4), "consumer_id": number,
                    "durable": draw.random() < 0.7, "initialPosition": draw.randrange(2), **begins,
                }  # fmt: skip
            case "unsubscribe":
                return {"consumer_id": number, "force": draw.random() < 0.3}
            case "seek":
                by_time = {"message_publish_time": draw.choice([0, 1 << 50])}
                return {"consumer_id": number, **draw.choice([by_time, {"message_id": place}])}
            case "ack":
                return {"consumer_id": number, "ack_type": draw.randrange(2), "message_id": [place], **self._in_txn()}
            case "producer":
                named = {"producer_name": draw.choice("ab")} if draw.random() < 0.6 else {}
                mode = draw.choice([0, 0, 1, 2, 3])
                return {"topic": topic, "producer_id": number, "producer_access_mode": mode, **named}
            case "close_producer":
                return {"producer_id": number}
            case "addPartitionToTxn":
                return {"partitions": [topic], **self._txn}
            case "addSubscriptionToTxn":
                return {"subscription": [{"topic": topic, "subscription": subscription}], **self._txn}
            case "endTxn":
                return {"txn_action": draw.randrange(2), **self._txn}
            case "lookupTopic":
                return {"topic": topic}
        return {"consumer_id": number}
