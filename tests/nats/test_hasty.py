"""Encrypted clients that go before all that they sent is carried out."""

from __future__ import annotations

from mq_shards.acceptor.engine import COMMAND, INPUT, Engine

from tests.nats.engine_client import Client, opened


def kinds(engine: Engine) -> list[int]:
    engine.turn(1)
    return [upcall.kind for upcall in engine.upcalls()]


def test_what_was_sent_before_the_end_counts_though_the_socket_breaks_meanwhile() -> None:
    with opened() as engine:
        listener, hasty = Client(engine), Client(engine)
        listener.say(b"SUB a 1\r\n")
        listener.turns_until_pong()
        engine.filter(hasty.conn)
        engine.hear_out(hasty.conn)
        hasty.say(b"in cipher")
        assert kinds(engine) == [INPUT]
        engine.feed(hasty.conn, b"CONNECT {}\r\n" + b"PUB a 1\r\nx\r\n" * 3)
        assert kinds(engine) == [COMMAND]  # it waits for its judgement
        engine.end_input(hasty.conn)
        assert kinds(engine) == [INPUT]  # which tells of the end
        engine.feed(hasty.conn, b"")
        hasty.socket.close()
        engine.turn(1)
        engine.resume(hasty.conn)
        for _ in range(3):
            listener.turn()
        assert listener.hear().count(b"MSG a 1 1\r\nx\r\n") == 3
        assert engine.remote(hasty.conn) == "", "it is closed"
