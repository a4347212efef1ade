"""How a connection begins and ends, and what is handed to Python."""

from __future__ import annotations

import select
import socket
import threading

import pytest
from mq_shards.acceptor import engine
from mq_shards.acceptor.engine import WorkerRequest

from tests.acceptor.bench import FAILED, GONE, PUBLISH, SECOND, SHARDS
from tests.acceptor.nsq.bench import CATALOG, ERROR, ID, NSQ, RESPONSE, SUBSCRIBE, Bench, fails, pub, sized


def test_nothing_is_said_to_the_magic_and_its_bytes_may_come_one_by_one(bench: Bench) -> None:
    client = bench.client(greet=False)
    for byte in b"  V2":
        client.send(bytes([byte]))
    assert client.talk(b"NOP\n") == [] and not client.is_closed


@pytest.mark.parametrize("magic", [b"  V1", b"PUB ", b"\0\0\0\0", b"  V3NOP\n"])
def test_another_protocol_is_refused(bench: Bench, magic: bytes) -> None:
    fails(bench, bench.client(greet=False), magic, b"E_BAD_PROTOCOL")


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (b"\n", b"E_INVALID invalid command "),
        (b"\r\n", b"E_INVALID invalid command "),
        (b"nop\n", b"E_INVALID invalid command nop"),
        (b"NOPE\n", b"E_INVALID invalid command NOPE"),
        (b" NOP\n", b"E_INVALID invalid command "),
        (b"FOO\xff\0 bar\n", b"E_INVALID invalid command FOO\xff\0"),
        (b"X" * 16383 + b"\n", b"E_INVALID invalid command " + b"X" * 16383),
    ],
)
def test_an_unknown_command_ends_the_connection(bench: Bench, command: bytes, text: bytes) -> None:
    fails(bench, bench.client(), command, text)


def test_a_line_longer_than_nsqds_buffer_ends_the_connection_without_a_word(bench: Bench) -> None:
    client = bench.client()
    client.send(b"N" * 16383)
    assert not client.is_closed
    client.send(b"N")
    assert client.is_closed and client.raw() == b""


def test_a_carriage_return_before_the_end_and_parameters_too_many_do_not_matter(bench: Bench) -> None:
    client = bench.client()
    assert client.talk(b"NOP\r\nNOP a b  c\n") == []
    client.send(b"PUB t more\r\n" + sized(b"x"))
    assert bench.one().body == b"x"


def test_identify_auth_and_sub_are_handed_over_whole_and_the_rest_waits(bench: Bench) -> None:
    client = bench.client()
    client.send(b"IDENTIFY\r\n" + sized(b'{"a":1}')[:5])
    assert bench.commands() == []
    client.send(b'"a":1}' + b"AUTH\n" + sized(b"se\ncret") + b"SUB t c\r\nNOP\n")
    for expected in (b'IDENTIFY\n{"a":1}', b"AUTH\nse\ncret", b"SUB t c"):
        assert bench.commands() == [(client.number, expected)]
        bench.acceptor.resume(client.number)
        bench.turn()
    client.socket.close()
    bench.turn()
    assert [(u.kind, u.conn) for u in bench.take_upcalls()] == [(engine.CLOSED, client.number)]


def test_python_is_not_told_the_end_of_connections_that_it_never_heard_of(bench: Bench) -> None:
    client = bench.client()
    client.send(b"NOP\n")
    client.socket.close()
    bench.turn()
    assert bench.take_upcalls() == []


def test_a_subscription_ends_the_time_for_identify_auth_and_sub(bench: Bench) -> None:
    for data, name in ((b"SUB t c\n", b"SUB"), (b"IDENTIFY\n", b"IDENTIFY"), (b"AUTH\n", b"AUTH")):
        fails(bench, bench.consumer(), data, b"E_INVALID cannot %s in current state" % name)
        bench.take()


def test_who_has_no_heartbeats_cannot_subscribe(bench: Bench) -> None:
    client = bench.client()
    assert bench.acceptor.call(client.number, "heartbeat-ns", 0)
    fails(bench, client, b"SUB t c\n", b"E_INVALID cannot SUB with heartbeats disabled")


def test_what_python_says_of_a_connection_is_checked(bench: Bench) -> None:
    client = bench.client()
    with pytest.raises(ValueError):
        bench.acceptor.call(client.number, "tls", 2)
    with pytest.raises(ValueError):
        bench.acceptor.call(client.number, "colour", 1)
    assert not bench.acceptor.call(12345, "tls", 1)


def test_without_tls_nothing_but_identify_is_allowed_when_it_is_required(bench: Bench) -> None:
    bench.acceptor.set("nsq.tls-required", 1)
    for data in (b"NOP\n", b"SUB t c\n", b"FIN " + ID + b"\n", b"XX y\n"):
        text = b"E_INVALID cannot %s in current state (TLS required)" % data.split(b" ")[0].strip()
        fails(bench, bench.client(), data, text)
    client = bench.client()
    client.send(b"IDENTIFY\n" + sized(b"{}"))
    assert bench.commands() == [(client.number, b"IDENTIFY\n{}")]
    bench.acceptor.call(client.number, "tls", 1)
    bench.acceptor.resume(client.number)
    assert client.talk(b"NOP\n") == [] and not client.is_closed


def test_a_client_that_hangs_up_is_answered_what_it_asked(bench: Bench) -> None:
    client = bench.client()
    client.send(pub(b"t", b"x"))
    client.socket.shutdown(socket.SHUT_WR)
    bench.turn()
    assert not client.is_closed
    bench.answer(0, bench.one())
    assert client.frames() == [(RESPONSE, b"OK")] and client.is_closed


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"PUB t\n\0\0", b"E_BAD_MESSAGE PUB failed to read message body size"),
        (b"PUB t\n\0\0\0\2a", b"E_BAD_MESSAGE PUB failed to read message body"),
        (b"DPUB t 1\n", b"E_BAD_MESSAGE DPUB failed to read message body size"),
        (b"MPUB t\n\0", b"E_BAD_BODY MPUB failed to read body size"),
        (b"MPUB t\n\0\0\1\0\0\0", b"E_BAD_BODY MPUB failed to read message count"),
        (
            b"MPUB t\n\0\0\1\0\0\0\0\2" + sized(b"a") + b"\0\0",
            b"E_BAD_MESSAGE MPUB failed to read message(1) body size",
        ),
        (b"MPUB t\n\0\0\1\0\0\0\0\2" + sized(b"a") + b"\0\0\0\5b", b"E_BAD_MESSAGE MPUB failed to read message body"),
        (b"IDENTIFY\n\0\0\0\5{", b"E_BAD_BODY IDENTIFY failed to read body"),
        (b"AUTH\n\0\0", b"E_BAD_BODY AUTH failed to read body size"),
    ],
)
def test_half_a_command_at_the_end_is_an_error(bench: Bench, data: bytes, text: bytes) -> None:
    client = bench.client()
    client.send(data)
    client.socket.shutdown(socket.SHUT_WR)
    bench.turn()
    assert client.frames() == [(ERROR, text)] and client.is_closed


def test_half_a_line_at_the_end_is_none(bench: Bench) -> None:
    client = bench.client()
    client.send(b"PUB t")
    client.socket.shutdown(socket.SHUT_WR)
    bench.turn()
    assert client.is_closed and client.raw() == b""


def test_the_clients_address_is_as_nsqd_writes_it(bench: Bench) -> None:
    client = bench.client(tcp=True)
    assert bench.acceptor.remote(client.number) == f"127.0.0.1:{client.socket.getsockname()[1]}"
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listening:
        ours = socket.create_connection(listening.getsockname()[:2])
        theirs, _ = listening.accept()
    conn = bench.acceptor.adopt(theirs.detach(), NSQ)
    assert bench.acceptor.remote(conn) == f"[::1]:{ours.getsockname()[1]}"
    ours.close()
    bench.turn()
    assert bench.acceptor.remote(conn) == ""


def test_a_local_connection_asks_as_much_as_it_likes_and_is_answered_in_any_order(duo: Bench) -> None:
    conn = duo.acceptor.local()
    assert duo.acceptor.busy() == 0
    like = WorkerRequest(PUBLISH, topic=0, pri=2, delay_ns=3, ttr_ns=4, flags=2)
    slots = [duo.acceptor.request(i % 2, conn, like._replace(id=i, body=b"%d" % i)) for i in range(256)]
    assert len(set(slots)) == 256 and duo.acceptor.request(0, conn, WorkerRequest(PUBLISH)) == -1
    assert duo.acceptor.busy() == 1
    duo.turn()
    requests = duo.take(0)
    assert [(r.id, r.pri, r.delay_ns, r.ttr_ns, r.flags) for r in requests] == [
        (i, 2, 3, 4, 2) for i in range(0, 256, 2)
    ]
    for request in reversed(requests):
        duo.worker[0].answer(request, id=request.id + 1000, body=request.body)
    duo.turn()
    answers = [u.answer for u in duo.take_upcalls() if u.kind == engine.ANSWER and u.conn == conn and u.answer]
    assert {answer.slot: answer.id for answer in answers} == {slots[i]: i + 1000 for i in range(0, 256, 2)}
    duo.acceptor.peer_gone(1)
    failed = {u.answer.slot for u in duo.acceptor.upcalls() if u.answer and u.answer.status == FAILED}
    assert failed == {slots[i] for i in range(1, 256, 2)}
    later = duo.acceptor.request(1, conn, WorkerRequest(CATALOG, body=b"t"))
    duo.worker[1].attach()
    duo.turn()
    request = duo.one(1)
    assert request.kind == CATALOG
    duo.answer(1, request)
    assert [u.answer.slot for u in duo.take_upcalls() if u.answer] == [later]
    duo.acceptor.reply(conn, b"nobody reads this")
    duo.acceptor.resume(conn)
    duo.turn()
    assert duo.acceptor.request(0, conn, WorkerRequest(SUBSCRIBE)) == -1
    duo.acceptor.close_connection(conn)
    duo.turn()
    assert duo.acceptor.request(0, conn, WorkerRequest(PUBLISH)) == -1 and duo.take_upcalls() == []
    assert GONE in [r.kind for r in duo.take(0)]


def test_ids_are_taken_in_runs_of_the_topics_shard(bench: Bench) -> None:
    topic = bench.acceptor.bind(b"t")
    first, second = bench.acceptor.take_ids(topic, 10), bench.acceptor.take_ids(topic, 1)
    assert second == first + 10 * SHARDS
    assert first % SHARDS == bench.acceptor.shard_of_name(b"t")
    assert bench.acceptor.take_ids(999, 1) == 0


def test_an_event_loop_of_another_kind_is_told_when_a_turn_is_due(bench: Bench) -> None:
    acceptor = bench.acceptor
    conn = acceptor.local()
    waiting = select.poll()
    waiting.register(acceptor.fileno(), select.POLLIN)

    def until_due() -> int:
        assert waiting.poll(5000), "nobody woke us"
        return acceptor.poll()

    while waiting.poll(0):
        acceptor.poll()
    assert acceptor.poll() == 0 and not waiting.poll(0), "there is nothing to do"
    for _ in range(50):
        slot = acceptor.request(0, conn, WorkerRequest(CATALOG))
        until_due()
        timer = threading.Timer(0.001, bench.worker[0].answer, [bench.one()])
        timer.start()
        while until_due() == 0:
            pass
        assert [u.answer.slot for u in acceptor.upcalls() if u.answer] == [slot]
        timer.join()
        while waiting.poll(0):
            acceptor.poll()


def test_another_thread_can_make_run_come_back(bench: Bench) -> None:
    for _ in range(3):
        timer = threading.Timer(0.02, bench.acceptor.poke)
        timer.start()
        assert bench.acceptor.run(5 * SECOND) == 1
        assert [u.kind for u in bench.acceptor.upcalls()] == [engine.POKED]
        timer.join()
    bench.acceptor.poke()
    bench.acceptor.poke()
    bench.turn()
    assert [u.kind for u in bench.take_upcalls()] == [engine.POKED]


def test_a_thread_that_is_late_pokes_an_acceptor_that_has_ended(bench: Bench) -> None:
    poked = threading.Event()
    ended = threading.Event()

    def check_a_password() -> None:
        while not ended.is_set():
            bench.acceptor.poke()
            poked.set()
        bench.acceptor.poke()

    thread = threading.Thread(target=check_a_password)
    thread.start()
    assert poked.wait(5)
    bench.acceptor.close()
    ended.set()
    thread.join()


@pytest.mark.parametrize("option", ["max-msg-size", "max-body-size"])
def test_options_are_checked(bench: Bench, option: str) -> None:
    bench.acceptor.set(f"nsq.{option}", 1 << 30)
    for value in (0, (1 << 30) + 1):
        with pytest.raises(ValueError):
            bench.acceptor.set(f"nsq.{option}", value)
    with pytest.raises(ValueError):
        bench.acceptor.set("nsq.max-colour", 1)
