"""Whatever is asked of the HTTP services: no process ends of it, no answer says that it was our fault, and all are
served afterwards."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from tests.strangers.odd_commands import KINDS, Odd
from tests.strangers.odd_requests import KINDS as REQUESTS
from tests.strangers.test_odd_commands import play
from tests.strangers.test_odd_wires import Cut

# Beside clients of the other protocols, so that there is something to ask for. Each second one sends in pieces.
ALL: Final[tuple[type[Odd[Any]], ...]] = (
    *KINDS, *REQUESTS, *REQUESTS, *(type(f"Cut{kind.__name__}", (Cut, kind), {}) for kind in REQUESTS),
)  # fmt: skip
SERVICES: Final = tuple(kind.at for kind in REQUESTS)


def asked(data: Path, seeds: range, *, kills: bool = False) -> Counter[str]:
    heard = play(data, seeds, kinds=ALL, schemes=["nats-http"], kills=kills)
    # nsqd answers a chunk that it cannot read by 500.
    faults = {what: count for what, count in heard.items() if what.endswith(" 500") and not what.startswith("nsq-http")}
    assert not faults
    return heard


def test_all_are_served_afterwards(tmp_path: Path) -> None:
    heard = asked(tmp_path / "data", range(8))
    assert any(heard[f"{service} 200"] for service in SERVICES), heard


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_for_longer(tmp_path: Path) -> None:
    heard = asked(tmp_path / "data", range(3000, 3300))
    assert not [service for service in SERVICES if not heard[f"{service} 200"]], heard


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_while_processes_are_killed(tmp_path: Path) -> None:
    asked(tmp_path / "data", range(4000, 4200), kills=True)
