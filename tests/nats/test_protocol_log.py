"""What clients say and hear is in the log where `trace` is set, as a nats-server writes it, and passwords are not."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from typing import Final

import pytest
from mq_shards.acceptor.protocols.nats.logged import without_secrets

from tests.nats.conftest import KINDS
from tests.nats.servers import NatsServer, running
from tests.nats.wire import Wire
from tests.servers import wait_until

LINE: Final = re.compile(r"\[TRC\] 127\.0\.0\.1:[0-9]+ - cid:[0-9]+ - (.*)")
HELLO: Final = b'CONNECT {"verbose":false,"headers":true,"name":"n","user":"u","pass":"secret","auth_token":"secret"}'
SAID: Final = (
    HELLO + b"\r\n", b"SUB foo  1\r\nSUB a.* q 2\r\n", b"PUB foo 3\r\nabc\r\n", b"PUB foo re 0\r\n\r\n",
    b"HPUB a.b 17 30\r\nNATS/1.0\r\na:b\r\n\r\n\x000123456789ab\r\n", b"UNSUB 2 1\r\nUNSUB 1\r\nSUB a.. 3\r\n",
    b"PUB mapped 0\r\n\r\n",
)  # fmt: skip
EXPECTED: Final = """\
<<- [CONNECT {"verbose":false,"headers":true,"name":"n","user":"u","pass":"[REDACTED]","auth_token":"[REDACTED]"}]
<<- [SUB foo  1]
<<- [SUB a.* q 2]
<<- [PUB foo 3]
<<- MSG_PAYLOAD: ["abc"]
->> [MSG foo 1 3]
->> MSG_PAYLOAD: ["abc"]
<<- [PUB foo re 0]
->> [MSG foo 1 re 0]
<<- [HPUB a.b 17 30]
<<- MSG_PAYLOAD: ["NATS/1.0\\r\\na:b\\r\\n\\r\\n\\x0001..."]
->> [HMSG a.b 2 17 30]
->> MSG_PAYLOAD: ["NATS/1.0\\r\\na:b\\r\\n\\r\\n\\x0001..."]
<<- [UNSUB 2 1]
<-> [DELSUB 2]
<<- [UNSUB 1]
<-> [DELSUB 1]
<<- [SUB a.. 3]
->> [-ERR Invalid Subject]
<<- [PUB mapped 0]
<<- [MAPPING mapped -> to]
""".splitlines()


def serve(kind: int, path: Path, *lines: str) -> list[str]:
    conf = path / "nats.conf"
    conf.write_text("\n".join(("mappings: { mapped: to }", *lines, "")))
    return ["-c" if kind == 0 else "--nats-config", str(conf)]


def logged(server: NatsServer) -> list[str]:
    """Without barriers, and without what a client is called."""
    found = [line[1].replace('"n" - "$G/user:u" - ', "") for line in LINE.finditer(server.said())]
    return [line for line in found if not line.endswith(("[PING]", "[PONG]"))]


def play(server: NatsServer, *said: bytes) -> None:
    client = Wire(server.port)
    for one in said:
        client.send(one)
        client.barrier()
    client.close()


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_client_says_and_hears_is_logged_but_no_secret(kind: int, tmp_path: Path) -> None:
    with running(kind, arguments=serve(kind, tmp_path, "trace: true", "max_traced_msg_len: 20")) as server:
        play(server, *SAID)
        wait_until(lambda: EXPECTED[-1] in logged(server), "all is written")
        assert logged(server) == EXPECTED
        assert '- "n" - "$G/user:u" - ->> [PONG]' in server.said() and "secret" not in server.said()


@pytest.mark.parametrize("kind", KINDS[:2])
def test_of_messages_it_may_be_only_the_headers(kind: int, tmp_path: Path) -> None:
    with running(kind, arguments=serve(kind, tmp_path, "trace_headers: true")) as server:
        play(server, SAID[0], SAID[2], SAID[4])
        wait_until(lambda: "<<- [HPUB a.b 17 30]" in logged(server), "all is written")
        payloads = [line for line in logged(server) if "MSG_PAYLOAD" in line]
        assert payloads == ['<<- MSG_PAYLOAD: ["NATS/1.0\\r\\na:b"]']


@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_reload_turns_it_on_and_off_for_clients_that_are_there(kind: int, tmp_path: Path) -> None:
    with running(kind, arguments=serve(kind, tmp_path)) as server:
        client = Wire(server.port)
        client.barrier()

        def is_logged(token: str) -> bool:
            client.send(b"PUB %s 0\r\n\r\n" % token.encode())
            client.barrier()
            time.sleep(0.02)  # what is asked again and again may come
            return f"<<- [PUB {token} 0]" in logged(server)

        assert not is_logged("before")
        serve(kind, tmp_path, "trace: true")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: is_logged("on"), "it is on")
        serve(kind, tmp_path)
        server.process.send_signal(signal.SIGHUP)
        tokens = iter(range(1000))
        wait_until(lambda: not is_logged(f"t{next(tokens)}"), "it is off")
        client.close()


def test_who_says_much_waits_until_it_is_written() -> None:
    """Nothing is left out, and others need not wait for all of it."""
    with running(1, ["nats.trace=true"]) as server:
        much, other = Wire(server.port), Wire(server.port)
        much.send(b'CONNECT {"verbose":false}\r\nSUB a 1\r\n' + (b"PUB a 250\r\n" + b"x" * 250 + b"\r\n") * 8000)
        other.barrier()
        assert server.said().count("<<- [PUB a 250]") < 8000, "it was answered before all is written"
        much.barrier()
        wait_until(lambda: server.said().count("<<- [PING]") == 2, "all is written", pause=0.03)
        much.close()
        other.close()
        said = server.said()
    assert [said.count(what) for what in ("<<- [PUB a", "<<- MSG_P", "->> [MSG a", "->> MSG_P", "left out")] == [
        8000, 8000, 8000, 8000, 0,
    ]  # fmt: skip


def test_more_than_can_be_written_is_left_out_and_said() -> None:
    """A message for 2,000 subscriptions is logged 2,000 times."""
    with running(1, ["nats.trace=true"]) as server, (server.directory / "stderr").open("rb") as later:
        client = Wire(server.port)
        client.send(b'CONNECT {"verbose":false}\r\n' + b"".join(b"SUB a %d\r\n" % n for n in range(2000)))
        client.barrier()
        client.send(b"PUB a 10000\r\n" + bytes(10_000) + b"\r\n")
        client.barrier()

        def is_said() -> bool:
            client.send(b"PUB b 0\r\n\r\n")
            client.barrier()
            return b"lines of what clients said and heard are left out" in later.read()

        wait_until(is_said, "it is said with a later line")
        client.close()
        said = server.said()
    (line,) = (line for line in said.splitlines() if "lines of what clients said" in line)
    left_out = re.findall(r"([0-9]+) lines of what clients said", line)
    assert said.count("->> MSG_PAYLOAD") < 1000 < int(left_out[0])


def test_secrets_are_found_wherever_they_are() -> None:
    for before, after in {
        b'CONNECT {"pass": "a", "x":1}': b'CONNECT {"pass": "[REDACTED]", "x":1}',
        b'{"password":"a","sig":"b","proxy_sig":"c","nkey":"d"}':
            b'{"password":"[REDACTED]","sig":"[REDACTED]","proxy_sig":"[REDACTED]","nkey":"[REDACTED]"}',
        b"pass=a,auth_token : b": b"pass=[REDACTED],auth_token : [REDACTED]",
        b'{"pass":""}': b'{"pass":"[REDACTED]"}',
        b'{"designation":"x","jwt":"j"}': b'{"designation":"x","jwt":"j"}',
    }.items():  # fmt: skip
        assert without_secrets(before) == after


def test_looking_for_secrets_takes_no_longer_for_lines_made_for_that() -> None:
    """In 64 KiB of them, each beginning of a key could be searched to the end."""
    for part in (b"pass", b"auth_token", b"sig ", b"nkey\t", b'"', b" ", b"pass "):
        line = part * (65536 // len(part))
        began = time.process_time()
        without_secrets(line)
        assert time.process_time() - began < 0.5, part
