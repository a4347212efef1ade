"""Made-up events of a web shop and of its cold stores: the same for the same seed, except for their times."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

BAD: Final = (b'{"id": "torn', b"\xff\xfe\x00 not text", b"[1, 2")
STORES: Final = ("aalborg", "brno", "cork", "delft", "evora")
GOODS: Final = {"tea": 4.5, "coffee": 7.9, "cocoa": 5.2, "mate": 6.1, "sugar": 1.2}


@dataclass(frozen=True)
class Batch:
    """Bodies in the order of publication: `distinct` events, `bad` messages that are no events, and duplicates."""

    bodies: list[bytes]
    distinct: int
    bad: int

    @property
    def duplicates(self) -> int:
        return len(self.bodies) - self.distinct - self.bad


def orders(seed: int, count: int, now: float) -> Batch:
    """Makes orders. A few customers order often; most orders reach the broker within 100 ms, some take seconds."""
    chance = random.Random(seed)

    def one(number: int) -> dict[str, object]:
        item = chance.choice(sorted(GOODS))
        pieces = 1 + min(int(chance.expovariate(0.7)), 20)
        return {
            "id": f"order-{seed}-{number}",
            "time": now - chance.lognormvariate(-3, 1.2),
            "user": f"customer-{min(int(chance.paretovariate(1.1)), 40)}",
            "item": item,
            "pieces": pieces,
            "price": round(pieces * GOODS[item], 2),
        }

    return _batch(chance, [one(number) for number in range(count)])


def readings(seed: int, count: int, now: float) -> Batch:
    chance = random.Random(seed)

    def one(number: int) -> dict[str, object]:
        return {
            "id": f"reading-{seed}-{number}",
            # Milliseconds, as sensors often send.
            "time": round((now - chance.uniform(0.2, 2.0)) * 1000),
            "source": f"{chance.choice(STORES)}/{chance.randrange(4)}",
            "celsius": round(chance.gauss(4.0, 0.8), 2),
        }

    return _batch(chance, [one(number) for number in range(count)])


def _batch(chance: random.Random, events: list[dict[str, object]]) -> Batch:
    """Publishes one event in 20 a second time, and adds a message that is no event after one in 100."""

    def bodies() -> Iterator[bytes]:
        for event in events:
            body = json.dumps(event).encode()
            yield body
            if chance.random() < 0.05:
                yield body
            if chance.random() < 0.01:
                yield chance.choice(BAD)
        yield BAD[0]

    found = list(bodies())
    return Batch(found, len(events), sum(body in BAD for body in found))
