"""Wrong logins wait, by address; whoever else logs in does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mq_shards.acceptor.access.attempts import MAX_WAIT_S, Attempts, key_of
from mq_shards.csrc._core import ffi, lib

FREE = lib.LOGIN_FREE
LONGEST_S = lib.LOGIN_LONGEST_MS / 1000
FORGOTTEN_S = lib.LOGIN_FORGOTTEN_MS / 1000
SECOND = 1_000_000_000


def table() -> Any:  # noqa: ANN401
    made = ffi.new("struct login_attempts *")
    lib.login_attempts_format(made, 7)
    return made


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> int:
        return int(self.now * SECOND)


@dataclass
class Guess:
    """Guesses one after the other, each when the one before was answered."""

    clock: Clock = field(default_factory=Clock)

    def run(self, attempts: Attempts, address: str, count: int) -> float:
        begin = self.clock.now
        for _ in range(count):
            wait_s = attempts.begin(address)
            assert wait_s is not None
            self.clock.now += wait_s
            attempts.end(address, right=False)
        return self.clock.now - begin


def test_who_guesses_waits_longer_each_time() -> None:
    guess = Guess()
    attempts = Attempts(table(), guess.clock)
    assert guess.run(attempts, "10.0.0.1:1", FREE) == 0
    first = guess.run(attempts, "10.0.0.1:2", 1)
    assert 0 < first < guess.run(attempts, "10.0.0.1:3", 1)
    assert guess.run(attempts, "10.0.0.1:4", 100) > 90 * LONGEST_S
    assert guess.run(attempts, "10.0.0.2:1", FREE) == 0, "another address"


def test_a_thousand_at_once_are_no_faster_whichever_processes_they_come_by() -> None:
    shared = table()
    processes = [Attempts(shared, Clock()) for _ in range(3)]
    waits = [processes[n % 3].begin("10.0.0.1:1") for n in range(1000)]
    seen = [wait for wait in waits if wait is not None]
    assert max(seen) <= MAX_WAIT_S
    assert len(seen) < FREE + 2 * MAX_WAIT_S / LONGEST_S


def test_what_is_remembered_has_a_limit_and_an_end() -> None:
    clock = Clock()
    attempts = Attempts(table(), clock)
    for _ in range(2 * FREE):
        attempts.failed("10.9.9.9:1")
    for n in range(2 * lib.LOGIN_SOURCES):
        clock.now += 0.001
        attempts.failed(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}:1")
        if n % 64 == 0:
            assert attempts.begin("10.9.9.9:1") != 0, "who goes on is remembered"
    clock.now += FORGOTTEN_S + 1
    assert attempts.begin("10.9.9.9:1") == 0


def test_who_was_right_has_not_been_wrong() -> None:
    """And of somebody who was forgotten meanwhile nobody else has the good."""
    attempts = Attempts(table(), Clock())
    for _ in range(3 * FREE):
        assert attempts.begin("10.0.0.1:1") == 0
        attempts.end("10.0.0.1:1", right=True)
    attempts.end("10.0.0.2:1", right=True)
    attempts.end("10.0.0.1:1", right=True)
    waits = [attempts.begin("10.0.0.1:1") for _ in range(FREE + 1)]
    assert waits[:-1] == [0] * FREE and waits[-1] == lib.LOGIN_FIRST_MS / 1000


def test_a_network_of_one_customer_is_one_address() -> None:
    assert key_of("[2001:db8:1:2:3:4:5:6]:999") == key_of("2001:db8:1:2::9")
    assert key_of("[2001:db8:1:3::1]:1") != key_of("[2001:db8:1:2::1]:1")
    assert key_of("[::ffff:10.0.0.1]:1") == key_of("10.0.0.1:2") == "10.0.0.1"
    assert key_of("") == ""
