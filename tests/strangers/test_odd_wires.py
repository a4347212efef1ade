"""Odd commands through TLS, compression and websockets, cut anywhere, by clients that leave in every way there is: no
process ends of it, nothing is left of them, and all are served afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Final

import pytest

from tests.nsq.certificates import make
from tests.strangers import odd_wires
from tests.strangers.odd_commands import Odd, OddChannel, OddJobs, OddPulsar, OddSubscriber
from tests.strangers.odd_wires import Begin
from tests.strangers.test_odd_commands import play
from tests.test_toy_protocol import added


class Cut:
    is_cut = True

    def end(self: Any) -> None:
        odd_wires.end(self.socket, self.wire, self.draw)


class CutJobs(Cut, OddJobs): ...


class EncryptedJobs(CutJobs):
    at = "beanstalks"
    begin: ClassVar[Begin] = staticmethod(odd_wires.encrypted)


class CutChannel(Cut, OddChannel): ...


class FilteredChannel(CutChannel):
    begin: ClassVar[Begin] = staticmethod(odd_wires.nsq)

    def hello(self) -> bytes:
        return b""


class CutSubscriber(Cut, OddSubscriber): ...


class EncryptedSubscriber(CutSubscriber):
    begin: ClassVar[Begin] = staticmethod(odd_wires.nats_encrypted)


class WebsocketSubscriber(CutSubscriber):
    at = "nats-ws"
    begin: ClassVar[Begin] = staticmethod(odd_wires.websocket)


class CutPulsar(Cut, OddPulsar): ...


class EncryptedPulsar(CutPulsar):
    begin: ClassVar[Begin] = staticmethod(odd_wires.encrypted)


KINDS: Final[tuple[type[Odd[Any]], ...]] = (
    CutJobs, EncryptedJobs, CutChannel, FilteredChannel, FilteredChannel, CutSubscriber, EncryptedSubscriber,
    WebsocketSubscriber, WebsocketSubscriber, CutPulsar, EncryptedPulsar,
)  # fmt: skip
SCHEMES: Final = ("beanstalks", "nats-ws")
# What each of them is told now and then in a long test.
HEARD: Final = (
    "beanstalks RESERVED", "beanstalk RESERVED", "nsq message", "nats-ws MSG", "nats MSG", "pulsar message",
)  # fmt: skip


def certified(folder: Path) -> tuple[str, ...]:
    folder.mkdir()
    pair = make(folder).server
    return f"tls.cert={pair.cert}", f"tls.key={pair.key}", "nats.allow-non-tls=true"


def test_all_are_served_afterwards(tmp_path: Path) -> None:
    assert play(tmp_path / "data", range(8), kinds=KINDS, schemes=SCHEMES, more=certified(tmp_path / "keys"))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_with_sanitizers(tmp_path: Path) -> None:
    more, env = certified(tmp_path / "keys"), added().environment
    heard = play(tmp_path / "data", range(1000, 1200), kinds=KINDS, schemes=SCHEMES, more=more, env=env)
    assert not [what for what in HEARD if not heard[what]], heard


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_while_processes_are_killed(tmp_path: Path) -> None:
    more = certified(tmp_path / "keys")
    heard = play(tmp_path / "data", range(2000, 2200), kinds=KINDS, schemes=SCHEMES, more=more, kills=True)
    assert not [what for what in HEARD if not heard[what]], heard
