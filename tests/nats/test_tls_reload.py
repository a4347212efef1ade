"""A certificate that cannot be used any more when it is read anew: all goes on as before, and nobody unencrypted."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mq_shards.acceptor import engine as engines
from mq_shards.acceptor.engine import Engine, protocol_number
from mq_shards.acceptor.protocol import Broker, Protocol
from mq_shards.acceptor.protocols.nats.nats_leaf import NatsLeaf
from mq_shards.acceptor.protocols.nats.serving import NatsServing
from mq_shards.csrc._core import lib
from mq_shards.supervisor.options.options import parse

from tests.nsq import certificates


@pytest.fixture
def engine() -> Iterator[Engine]:
    board, wake = os.memfd_create("board"), os.eventfd(0, os.EFD_NONBLOCK)
    assert lib.board_format(board)
    engine = Engine(0, 1, 1, board, wake)
    os.close(board)
    yield engine
    engine.close()
    os.close(wake)


def greeting(engine: Engine, protocol: Protocol) -> dict[str, Any]:
    """INFO, as who comes has it."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    engine.adopt(theirs.detach(), protocol_number(protocol.name))
    for _ in range(4):
        engine.turn(1)
        for upcall in engine.upcalls():
            if upcall.kind == engines.COMMAND:
                protocol.command(upcall.conn, upcall.line)
    with ours:
        found: dict[str, Any] = json.loads(ours.recv(1 << 16).partition(b" ")[2])
    return found


@pytest.mark.parametrize("name", ["nats", "nats-leaf"])
def test_who_comes_is_encrypted_still(engine: Engine, name: str, tmp_path: Path) -> None:
    made = certificates.make(tmp_path)
    cert, key = tmp_path / "shown.pem", tmp_path / "shown.key"
    shutil.copy(made.server.cert, cert)
    shutil.copy(made.server.key, key)
    prefix = "nats.leaf-" if name == "nats-leaf" else "nats."
    sets = [f"--set={prefix}tls-cert-file={cert}", f"--set={prefix}tls-key-file={key}"]
    settings = NatsServing.settings_of(parse(["--memory", *sets]).settings)
    nats = NatsServing(engine, settings, Broker("0" * 16, 0))
    leaf = NatsLeaf(engine, settings, Broker("0" * 16, 0))
    leaf.meet({"nats": nats})
    leaf.listening("127.0.0.1", 7422)
    one: Protocol = leaf if name == "nats-leaf" else nats
    assert greeting(engine, one)["tls_required"]
    key.write_text("half of it")
    with pytest.raises(ValueError, match="tls-key-file"):
        one.reload(settings)
    assert greeting(engine, one)["tls_required"]
