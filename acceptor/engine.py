"""The Python interface to csrc/acceptor/calls.h, which describes each call.

engine = Engine(index=0, workers=2, shards=64, board_fd=board, wake_fd=wake)
engine.peer(0, requests, replies, worker_wake)
engine.listen(sock.detach(), protocol_number("echo"))
while True:
    engine.run()
    for upcall in engine.upcalls():
        ...
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from mq_shards.csrc._core import ffi, lib

# The protocol of a connection that has no client: see Engine.local.
LOCAL: Final = 0
FOREVER: Final = -1
TAKEN_BYTES: Final = 64 << 10  # of input in one call
PAUSE_NS: Final = 2_000_000

COMMAND: Final[int] = lib.UPCALL_COMMAND
ANSWER: Final[int] = lib.UPCALL_ANSWER
CLOSED: Final[int] = lib.UPCALL_CLOSED
CONTROL: Final[int] = lib.UPCALL_CONTROL
BROKEN: Final[int] = lib.UPCALL_BROKEN
INPUT: Final[int] = lib.UPCALL_INPUT
OUTPUT: Final[int] = lib.UPCALL_OUTPUT
CLOSING: Final[int] = lib.UPCALL_CLOSING
POKED: Final[int] = lib.UPCALL_POKED
CANNOT_ACCEPT: Final[int] = lib.UPCALL_CANNOT_ACCEPT
GAVE_WAY: Final[int] = lib.UPCALL_GAVE_WAY

OK: Final[int] = lib.STATUS_OK
NONE: Final[int] = lib.STATUS_NONE
NOT_FOUND: Final[int] = lib.STATUS_NOT_FOUND
NO_SPACE: Final[int] = lib.STATUS_NO_SPACE
FAILED: Final[int] = lib.STATUS_FAILED
FULL: Final[int] = lib.STATUS_FULL
EARLY: Final[int] = lib.STATUS_EARLY
TOO_MANY: Final[int] = lib.STATUS_TOO_MANY

WAITS: Final[dict[str, int]] = {
    "worker": lib.WAITS_WORKER,
    "acceptor": lib.WAITS_ACCEPTOR,
    "client": lib.WAITS_CLIENT,
    "room": lib.WAITS_ROOM,
    "segment": lib.WAITS_SEGMENT,
}
_room: Final = ffi.new_allocator(should_clear_after_alloc=False)  # for much that is written over at once


class EngineError(OSError):
    """A system call of the engine has failed."""


class WorkerRequest(NamedTuple):
    """A request that Python makes of a worker. What a field means depends on the kind: see csrc/ringbuf/message.h."""

    kind: int
    topic: int = 0
    id: int = 0
    pri: int = 0
    delay_ns: int = 0
    ttr_ns: int = 0
    flags: int = 0
    body: bytes = b""


class Answer(NamedTuple):
    """A worker's reply to a request that Python made."""

    kind: int
    status: int
    slot: int
    id: int
    body: bytes
    seq: int = 0
    incarnation: int = 0  # or time_ns, depending on the kind: see struct message
    flags: int = 0
    pri: int = 0  # or another member of that union, depending on the kind


class Upcall(NamedTuple):
    """`line` is set in a COMMAND (in a form that its codec defines), an INPUT (bytes from the socket) and an OUTPUT
    (bytes that the codec wrote); `answer` in an ANSWER. In a BROKEN `conn` is the worker's number."""

    kind: int
    conn: int
    protocol: int
    line: bytes
    answer: Answer | None


class Totals(NamedTuple):
    """The board's figures, summed over all processes; the protocols' counters are in Engine.counters."""

    total_connections: int
    connections: int
    gave_way: int
    urgent: int
    ready: int
    reserved: int
    delayed: int
    buried: int
    topics: int
    timeouts: int
    total_jobs: int
    published: int
    oldest_segment: int
    current_segment: int
    records_written: int
    records_migrated: int
    unreadable: int
    draining: bool


class Durations(NamedTuple):
    """A histogram of what a worker has measured since it was started: each count is of durations up to the bucket's end
    and above the end of the bucket before. The last bucket has no end."""

    ends_s: tuple[float, ...]
    counts: tuple[int, ...]
    sum_s: float


class Loop(NamedTuple):
    """What an acceptor or a worker does with its time: see struct loop_figures in csrc/ringbuf/board.h."""

    busy_s: float
    long_turns: int
    waits: dict[str, int]  # how often something had to wait, by what it waited for


class Engine:
    """The C half of an acceptor. To be used by one thread only."""

    def __init__(self, index: int, workers: int, shards: int, board_fd: int, wake_fd: int) -> None:
        """`board_fd` may be closed afterwards, `wake_fd` must stay open. Raises EngineError."""
        self.workers: Final = workers
        self.shards: Final = shards
        self._acceptor: Any = lib.acceptor_new(lib.table_protocols(), index, workers, shards, board_fd, wake_fd)
        if self._acceptor == ffi.NULL:
            raise _error("cannot set up the acceptor")
        self._open = threading.Lock()  # held by a thread that pokes, so that close() does not free under it
        self._upcall: Any = ffi.new("struct upcall *")
        self._paused_ns = 0
        self._totals: Any = ffi.new("struct broker_totals *")
        self._message: Final[Any] = ffi.new("struct message *")
        self._name: Any = ffi.new("char[]", lib.TOPIC_NAME_BYTES)

    def close(self) -> None:
        """Closes all connections. Nothing but `poke` may be called afterwards."""
        with self._open:
            lib.acceptor_free(self._acceptor)
            self._acceptor = ffi.NULL

    def set(self, option: str, value: int) -> None:
        if lib.acceptor_set(self._acceptor, option.encode(), value) != 0:
            raise ValueError(f"{option} = {value}: no such option, or out of range")

    # --- workers and sockets ----------------------------------------------------------------------------------------

    def peer(self, worker: int, out_fd: int, in_fd: int, wake_fd: int) -> None:
        if lib.acceptor_peer(self._acceptor, worker, out_fd, in_fd, wake_fd) != 0:
            raise _error(f"cannot attach worker {worker}")

    def peer_gone(self, worker: int) -> None:
        lib.acceptor_peer_gone(self._acceptor, worker)

    def mesh(self, other: int, out_fd: int, in_fd: int, wake_fd: int) -> None:
        """Attaches another acceptor."""
        if lib.acceptor_mesh(self._acceptor, other, out_fd, in_fd, wake_fd) != 0:
            raise _error(f"cannot attach acceptor {other}")

    def mesh_gone(self, other: int) -> None:
        lib.acceptor_mesh_gone(self._acceptor, other)

    def listen(self, fd: int, protocol: int, *, filtered: bool = False) -> int:
        """Owns `fd` from then on. Returns the listener's number."""
        listener = int(lib.acceptor_listen(self._acceptor, fd, protocol, filtered))
        if listener < 0:
            raise _error("cannot listen")
        return listener

    def listener(self, conn: int) -> int:
        """The listener that accepted the connection; 0 if none did."""
        return int(lib.acceptor_listener(self._acceptor, conn))

    def stop_listening(self, protocol: int = 0) -> None:
        """Stops listening for that protocol; 0: for all."""
        lib.acceptor_stop_listening(self._acceptor, protocol)

    def adopt(self, fd: int, protocol: int, received: bytes = b"", listener: int = 0) -> int:
        """Serves a connected socket and owns it from then on. `received` was already read from it, and `listener`
        accepted it. Returns the connection's number."""
        conn = int(lib.acceptor_adopt(self._acceptor, fd, protocol))
        if conn == 0:
            raise _error("cannot adopt a socket")
        lib.acceptor_receive(self._acceptor, conn, listener, received, len(received))
        return conn

    def socket_of(self, conn: int) -> tuple[int, bytes] | None:
        """The socket's descriptor and the unused input of a connection whose command Python has. None when it is closed
        or has unsent output. What a filter keeps, such as the state of TLS, does not come with it."""
        data, count = ffi.new("uint8_t **"), ffi.new("size_t *")
        fd = int(lib.acceptor_socket(self._acceptor, conn, data, count))
        return None if fd < 0 else (fd, bytes(ffi.buffer(data[0], count[0])) if count[0] else b"")

    def forget(self, conn: int) -> None:
        """Another process has taken over the socket: closes it here without shutting it down."""
        lib.acceptor_forget(self._acceptor, conn)

    def take_input(self, conn: int) -> bytes:
        """Removes and returns the unused input of a connection whose command Python has."""
        parts = []
        room = ffi.new("uint8_t[]", TAKEN_BYTES)
        while count := int(lib.acceptor_take(self._acceptor, conn, room, TAKEN_BYTES)):
            parts.append(bytes(ffi.buffer(room, count)))
        return b"".join(parts)

    def give_input(self, conn: int, received: bytes) -> None:
        """Puts input ahead of all other input of the connection."""
        lib.acceptor_receive(self._acceptor, conn, self.listener(conn), received, len(received))

    def control(self, fd: int) -> None:
        if lib.acceptor_control(self._acceptor, fd) != 0:
            raise _error("cannot watch the control socket")

    def quiesce(self) -> None:
        """Takes no more input of clients, but still of other servers."""
        lib.acceptor_quiesce(self._acceptor)

    def servers(self) -> int:
        """How many connections to other servers there are."""
        return int(lib.acceptor_servers(self._acceptor))

    def part(self, conn: int) -> None:
        """Closes our side, when all output has left. What the other side sends until it closes, too, counts."""
        lib.acceptor_part(self._acceptor, conn)

    def say_quiet(self) -> None:
        """Tells other acceptors that no more input is taken from anybody."""
        lib.acceptor_say_quiet(self._acceptor)

    def others_are_quiet(self) -> bool:
        """Whether all other acceptors have said so."""
        return bool(lib.acceptor_others_are_quiet(self._acceptor))

    def busy(self) -> int:
        return int(lib.acceptor_busy(self._acceptor))

    # --- turns ------------------------------------------------------------------------------------------------------

    def turn(self, now_ns: int = 0) -> int:
        """Runs a turn at `now_ns` on the monotonic clock; 0: at the time of the last turn."""
        if now_ns:
            lib.acceptor_set_now(self._acceptor, now_ns)
        return int(lib.acceptor_turn(self._acceptor))

    def run(self, max_wait_ns: int = FOREVER) -> int:
        return int(lib.acceptor_run(self._acceptor, max_wait_ns))

    def pause(self) -> None:
        """To be called often amid long work (pauses.py): lets connections go on for a turn every 2 ms. All that Python
        has to do for them waits."""
        if time.monotonic_ns() - self._paused_ns >= PAUSE_NS:
            lib.acceptor_pause(self._acceptor)
            self._paused_ns = time.monotonic_ns()

    def fileno(self) -> int:
        """A descriptor that is readable when `poll` is due, for a process with its own event loop instead of `run`."""
        return int(lib.acceptor_fd(self._acceptor))

    def poll(self) -> int:
        return int(lib.acceptor_poll(self._acceptor))

    def poke(self) -> None:
        """Makes `run` return with a POKED. The only method that another thread may call. A thread that still checks a
        password or dials when the acceptor ends does so after close(): then nothing happens."""
        with self._open:
            if self._acceptor != ffi.NULL:
                lib.acceptor_poke(self._acceptor)

    def upcalls(self) -> Iterator[Upcall]:
        # cffi makes an int of an integer field by itself, and bytes of a slice in half of the time that bytes() takes.
        upcall = self._upcall
        while lib.acceptor_upcall(self._acceptor, upcall):
            data = ffi.buffer(upcall.bytes, upcall.bytes_count)[:]
            kind = upcall.kind
            answer = None
            if kind == ANSWER:
                message = upcall.answer
                answer = Answer(
                    message.kind, message.status, message.slot, message.id, data,
                    message.seq, message.incarnation, message.flags, message.pri,
                )  # fmt: skip
                data = b""
            yield Upcall(kind, upcall.conn, upcall.protocol, data, answer)

    # --- for a connection whose command Python has ------------------------------------------------------------------

    def request(self, worker: int, conn: int, request: WorkerRequest) -> int:
        """Sends a request to a worker. Returns the slot that the ANSWER will have, or -1 if none will come because the
        connection is closed or has too many requests under way."""
        m = self._message
        m.kind, m.topic, m.id, m.pri, m.delay_ns, m.ttr_ns, m.flags, body = request
        return int(lib.acceptor_request(self._acceptor, worker, conn, m, body, len(body)))

    def reply(self, conn: int, data: bytes) -> None:
        lib.acceptor_reply(self._acceptor, conn, data, len(data))

    def share(self, data: bytes) -> object:
        """Stores bytes once that are sent to several connections. Kept until unshare()."""
        shared = lib.acceptor_share(self._acceptor, data, len(data))
        if shared == ffi.NULL:
            raise MemoryError
        return shared

    def reply_shared(self, conn: int, shared: Sequence[object]) -> None:
        """Replies with shared bytes; `shared` is an array of `struct shared_bytes *`."""
        lib.acceptor_reply_shared(self._acceptor, conn, shared, len(shared))

    def unshare(self, shared: object) -> None:
        lib.acceptor_unshare(self._acceptor, shared)

    def resume(self, conn: int) -> None:
        lib.acceptor_resume(self._acceptor, conn)

    def close_connection(self, conn: int) -> None:
        lib.acceptor_close(self._acceptor, conn)

    def call(self, conn: int, what: str, value: int = 0, data: bytes = b"") -> int:
        """Calls the connection's codec with a setting or a question: see each codec's `call` in
        csrc/acceptor/protocols/. 0 when the connection is closed. ValueError when the call is unknown or a number is
        out of range."""
        result = lib.acceptor_call(self._acceptor, conn, what.encode(), value, data, len(data), ffi.NULL, 0)
        return _called(what, value, int(result))

    def configure(self, protocol: int, what: str, value: int = 0, data: bytes = b"") -> int:
        """Gives a protocol's codec a setting that is not about one connection. ValueError when it is unknown."""
        result = lib.acceptor_configure(self._acceptor, protocol, what.encode(), value, data, len(data))
        return _called(what, value, int(result))

    def call_for_list(self, conn: int, what: str, value: int = 0) -> list[int]:
        """Does the same as call(), for a question whose answer is a list."""
        count = self.call(conn, what, value)
        numbers = ffi.new("uint32_t[]", max(count, 1))
        lib.acceptor_call(self._acceptor, conn, what.encode(), value, b"", 0, numbers, count)
        found: list[int] = ffi.unpack(numbers, count)
        return found

    def ask(self, protocol: int, what: str, value: int = 0, data: bytes = b"", *, most: int = 64 << 10) -> bytes:
        """Asks a protocol's codec about all its connections; the answer has at most `most` bytes. ValueError when the
        question is unknown."""
        room = ffi.new("uint8_t[]", most)
        count = int(lib.acceptor_ask(self._acceptor, protocol, what.encode(), value, data, len(data), room, most))
        return bytes(ffi.buffer(room, _called(what, value, count)))

    def refused(self, protocol: int) -> int:
        """How often clients asked for what they have no right to, as far as the codec decides that itself."""
        return int(lib.acceptor_refused(self._acceptor, protocol))

    def tell_published(self, topic: bytes, body: bytes) -> None:
        """Tells live subscribers here of a message that was published to a topic elsewhere in the broker."""
        lib.acceptor_tell_published(self._acceptor, topic, len(topic), body, len(body))

    def topic_name(self, topic: int) -> bytes:
        count = lib.acceptor_topic_name(self._acceptor, topic, self._name)
        return bytes(ffi.buffer(self._name, count))

    def topic_names(self, topics: Sequence[int]) -> list[bytes]:
        out = _room("char[]", len(topics) * (lib.TOPIC_NAME_BYTES + 1))
        count = lib.acceptor_topic_names(self._acceptor, topics, len(topics), out)
        return bytes(ffi.buffer(out, count)).split(b"\n")[:-1]

    def shard_of_name(self, name: bytes) -> int:
        return int(lib.acceptor_shard_of_name(self._acceptor, name, len(name)))

    def worker_of_topic(self, topic: int) -> int:
        return int(lib.acceptor_worker_of_topic(self._acceptor, topic))

    def worker_of_name(self, name: bytes) -> int:
        return self.shard_of_name(name) % self.workers

    def worker_of_id(self, id: int) -> int:
        return id % self.shards % self.workers

    def bind(self, topic: bytes) -> int:
        """Binds a topic for good and returns its number; 0 when the limit is reached."""
        return int(lib.acceptor_bind(self._acceptor, topic, len(topic)))

    # --- filters ----------------------------------------------------------------------------------------------------

    def filter(self, conn: int) -> None:
        """From now on bytes from the socket come as INPUT, and the codec's output as OUTPUT."""
        lib.acceptor_filter(self._acceptor, conn)

    def feed(self, conn: int, data: bytes, *, more: bool = False) -> None:
        """Answers an INPUT with what it became, perhaps b"". There is no other INPUT until this is called. With `more`
        the next INPUT is empty, and comes when the codec has used this one and other connections have had their
        turn."""
        lib.acceptor_feed(self._acceptor, conn, data, len(data), more)

    def hear_out(self, conn: int) -> None:
        """From now on commands that Python has are answered even after the client has hung up, which an empty INPUT
        tells."""
        lib.acceptor_hear_out(self._acceptor, conn)

    def end_input(self, conn: int) -> None:
        """The client sends nothing after what feed() was given: this counts as hanging up."""
        lib.acceptor_end_input(self._acceptor, conn)

    def is_filtered(self, conn: int) -> bool:
        return bool(lib.acceptor_is_filtered(self._acceptor, conn))

    def websocket(self, conn: int, frame_bytes: int, flags: int) -> bool:
        """Makes a connection a websocket; `flags` is of enum websocket_flag. False when that cannot be."""
        return bool(lib.acceptor_websocket(self._acceptor, conn, frame_bytes, flags))

    def websocket_ended(self, conn: int, payload: bytes) -> None:
        """The closing frame of a client has come whose frames are Python's. Ours, with that payload, is handed over
        when all that came before has been answered."""
        lib.acceptor_websocket_ended(self._acceptor, conn, payload, len(payload))

    def compress(self, conn: int, level: int) -> bool:
        """From now on output is compressed at that level (enum s2_level), and input is taken as compressed. A later
        call changes the level. False when that cannot be, or the connection is closed."""
        return bool(lib.acceptor_compress(self._acceptor, conn, level))

    def send(self, conn: int, data: bytes) -> None:
        """Sends bytes to the socket of a filtered connection as they are."""
        lib.acceptor_send(self._acceptor, conn, data, len(data))

    def remote(self, conn: int) -> str:
        """The client's address, as 127.0.0.1:40960 or [::1]:40960; empty when the connection is closed."""
        count = lib.acceptor_remote(self._acceptor, conn, self._name, lib.TOPIC_NAME_BYTES)
        return bytes(ffi.buffer(self._name, count)).decode()

    # --- requests without a client -----------------------------------------------------------------------------------

    def local(self) -> int:
        """Makes a connection without a socket, on which Python can make requests. EngineError at the limit."""
        conn = int(lib.acceptor_local(self._acceptor))
        if conn == 0:
            raise _error("cannot make a local connection")
        return conn

    def take_ids(self, topic: int, count: int) -> int:
        """Takes `count` ids for messages of a topic. Returns the first; each next one is `shards` higher."""
        return int(lib.acceptor_take_ids(self._acceptor, topic, count))

    # --- figures ----------------------------------------------------------------------------------------------------

    def count(self, protocol: int, counter: str) -> None:
        """Adds one to a counter of a protocol. ValueError when it has no such counter."""
        if not lib.acceptor_count(self._acceptor, protocol, counter.encode()):
            raise ValueError(f"{counter}: protocol {protocol} counts no such thing")

    def counters(self, protocol: int) -> dict[str, int]:
        """A protocol's counters, each summed over all acceptors, in the codec's order."""
        found: dict[str, int] = {}
        total = ffi.new("uint64_t *")
        while name := lib.acceptor_counter(self._acceptor, protocol, len(found), total):
            found[ffi.string(name).decode()] = int(total[0])
        return found

    def totals(self) -> Totals:
        totals = self._totals
        lib.acceptor_totals(self._acceptor, totals)
        names = set(Totals._fields) - {"draining"}
        return Totals(draining=bool(totals.draining), **{n: int(getattr(totals, n)) for n in names})

    def worker_totals(self, worker: int) -> Totals:
        """The totals of a single worker; its counters restart from 0 with the worker."""
        totals = ffi.new("struct broker_totals *")
        lib.acceptor_worker_totals(self._acceptor, worker, totals)
        names = set(Totals._fields) - {"draining"}
        return Totals(draining=bool(totals.draining), **{n: int(getattr(totals, n)) for n in names})

    def loop(self, index: int, *, of_worker: bool) -> Loop:
        figures = ffi.new("struct loop_figures *")
        lib.acceptor_loop(self._acceptor, of_worker, index, figures)
        waits = {what: int(figures.stalls[number]) for what, number in WAITS.items()}
        return Loop(int(figures.busy_ns) / 1e9, int(figures.long_turns), waits)

    def durations(self, worker: int, what: str) -> Durations:
        """The durations of one kind, "turn", "publish" or "sync": see csrc/ringbuf/board.h."""
        counts, sum_ns = ffi.new("uint64_t[]", lib.HISTOGRAM_BUCKETS), ffi.new("uint64_t *")
        lib.acceptor_durations(self._acceptor, worker, getattr(lib, f"DURATION_{what.upper()}"), counts, sum_ns)
        ends_s = tuple((1 << lib.HISTOGRAM_FIRST_SHIFT + bucket) / 1e9 for bucket in range(len(counts) - 1))
        return Durations(ends_s, tuple(map(int, counts)), int(sum_ns[0]) / 1e9)

    def trim(self) -> None:
        """Returns to the system the memory that the whole process has allocated and does not use."""
        lib.acceptor_trim(self._acceptor)

    def login_attempts(self) -> Any:  # noqa: ANN401
        """The struct login_attempts that all processes share; must not be used after close()."""
        return lib.acceptor_logins(self._acceptor)

    def records_written(self) -> int:
        """Records that all workers have written to their logs; each count restarts with its worker."""
        lib.acceptor_totals(self._acceptor, self._totals)
        return int(self._totals.records_written)

    def draining(self) -> bool:
        """Whether the broker drains: it takes no new messages."""
        lib.acceptor_totals(self._acceptor, self._totals)
        return bool(self._totals.draining)

    def buffered_bytes(self) -> int:
        """Bytes that all connections hold in incomplete commands and unsent replies."""
        return int(lib.acceptor_buffered_bytes(self._acceptor))

    def catalog_versions(self) -> tuple[int, ...]:
        """For each worker a number that rises when a topic or a subscription is made or deleted there, or a tube whose
        name is in a namespace comes or goes. It restarts with the worker."""
        versions = ffi.new("uint64_t[]", self.workers)
        lib.acceptor_catalog_versions(self._acceptor, versions)
        return tuple(int(version) for version in versions)

    def names_versions(self) -> tuple[int, ...]:
        """As catalog_versions(), but they also rise when a tube joins the catalog or leaves it."""
        versions = ffi.new("uint64_t[]", self.workers)
        lib.acceptor_names_versions(self._acceptor, versions)
        return tuple(int(version) for version in versions)


def _error(what: str) -> EngineError:
    return EngineError(ffi.errno, f"{what}: {os.strerror(ffi.errno)}")


def _called(what: str, value: int, result: int) -> int:
    if result < 0:
        raise ValueError(f"{what} = {value}: the connection's protocol has no such thing, or out of range")
    return result


def protocol_number(name: str) -> int:
    """The number of a wire protocol by its name. ValueError when there is no such protocol."""
    number = int(lib.table_protocol(name.encode()))
    if number == 0:
        raise ValueError(f"{name}: there is no codec of that name")
    return number


def protocol_names() -> dict[int, str]:
    """The wire protocols by number."""
    found: dict[int, str] = {}
    while name := lib.table_name(len(found) + 1):
        found[len(found) + 1] = ffi.string(name).decode()
    return found


def is_name(protocol: int, name: bytes) -> bool:
    """Whether this is a valid topic name in that protocol."""
    return bool(lib.table_is_name(protocol, name, len(name)))
