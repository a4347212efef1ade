"""What a process has taken for requests goes back to the system when they are over."""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass

from mq_shards.gateway.idle_memory import MOST_LOOKS, WORTH_BYTES, IdleMemory

from tests.nsq.process_memory import anonymous_bytes
from tests.servers import SINGLE, free_port, running, wait_until

MIB = 1 << 20


@dataclass
class Process:
    used: int  # bytes
    kept: int = 0  # for nobody
    tries: int = 0

    def own_bytes(self) -> int:
        return self.used + self.kept

    def trim(self) -> None:
        self.tries += 1
        self.kept = 0


def memory_of(process: Process) -> IdleMemory:
    return IdleMemory(process.own_bytes, process.trim)


def test_what_is_kept_for_nobody_is_given_back() -> None:
    process = Process(20 * MIB)
    memory = memory_of(process)
    for _ in range(5):
        process.kept = 100 * MIB
        memory.look()
        assert process.kept == 0


def test_a_little_is_left() -> None:
    process = Process(20 * MIB)
    memory = memory_of(process)
    process.kept = WORTH_BYTES - 1
    memory.look()
    assert process.tries == 0


def test_where_it_is_in_use_it_is_tried_seldom() -> None:
    process = Process(20 * MIB)
    memory = memory_of(process)
    process.used = 200 * MIB
    for _ in range(100 * MOST_LOOKS):
        memory.look()
    assert 100 <= process.tries <= 110


def test_what_comes_back_after_that_is_given_back_at_the_next_look() -> None:
    process = Process(20 * MIB)
    memory = memory_of(process)
    process.used = 200 * MIB
    for _ in range(100):
        memory.look()
    process.used, process.kept = 30 * MIB, 100 * MIB
    memory.look()
    assert process.kept == 0
    process.kept = 100 * MIB
    memory.look()
    assert process.kept == 0


def test_what_is_let_go_of_without_a_trace_is_given_back_in_the_end() -> None:
    process = Process(20 * MIB)
    memory = memory_of(process)
    process.used = 200 * MIB
    for _ in range(100):
        memory.look()
    process.used, process.kept = 20 * MIB, 180 * MIB
    for _ in range(MOST_LOOKS):
        memory.look()
    assert process.kept == 0


def test_a_gateway_gives_back_what_a_flood_of_bodies_took() -> None:
    port = free_port()
    target = b"PUT /admin/v2/persistent/public/default/none/properties HTTP/1.1\r\nHost: x\r\n"
    body = b'{"a":"' + b"x" * (900 << 10) + b'"}'

    def ask(client: socket.socket) -> None:
        client.sendall(target + b"Content-Length: %d\r\n\r\n" % len(body) + body[:-1])

    def is_answered(client: socket.socket) -> None:
        client.sendall(body[-1:])
        assert client.recv(4096).startswith(b"HTTP/1.1 404 ")

    with running(SINGLE, options=["--listen", f"pulsar-http://127.0.0.1:{port}"]) as server:

        def connected() -> socket.socket:
            return socket.create_connection(("127.0.0.1", port), timeout=60)

        with connected() as first:
            ask(first)
            is_answered(first)
        gateway = server.pid_of("mq-gateway")
        before = anonymous_bytes(gateway)
        clients = [connected() for _ in range(100)]
        for client in clients:
            ask(client)
        for client in clients:
            is_answered(client)
            client.close()
        wait_until(lambda: anonymous_bytes(gateway) - before < 16 * MIB, "it has given it back", 20)


def test_a_process_without_a_descriptor_to_look_with_goes_on() -> None:
    def own_bytes() -> int:
        if not there_are:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return process.own_bytes()

    process, there_are = Process(20 * MIB), [True]
    memory = IdleMemory(own_bytes, process.trim)
    process.kept = 100 * MIB
    there_are.clear()
    memory.look()
    assert process.tries == 0
    there_are.append(True)
    memory.look()
    assert process.kept == 0
