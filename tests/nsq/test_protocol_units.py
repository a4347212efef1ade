"""The Python half of NSQ's protocol in parts: the words, and what depends on time or needs a defect.

Where a connection is needed it is a real one, of a real engine; the whole is in the tests that talk to a broker.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import ssl
import string
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mq_shards.acceptor import engine
from mq_shards.acceptor.engine import Engine, is_name, protocol_number
from mq_shards.acceptor.process import AcceptorProcess, sooner
from mq_shards.acceptor.protocol import Broker
from mq_shards.acceptor.protocols import go_json
from mq_shards.acceptor.protocols.go_json import DecodeError
from mq_shards.acceptor.protocols.go_quote import quoted
from mq_shards.acceptor.protocols.nsq import options as nsq_options
from mq_shards.acceptor.protocols.nsq import tls as nsq_tls
from mq_shards.acceptor.protocols.nsq.identify import FIELDS, ClientError, parse
from mq_shards.acceptor.protocols.nsq.serving import NsqServing, shortened
from mq_shards.csrc._core import lib
from mq_shards.ringbuf.control import Control
from mq_shards.supervisor.options.options import default_settings

from tests.nsq import frames
from tests.nsq.certificates import Certificates, Pair
from tests.nsq.frames import HEARTBEAT, OK, RESPONSE, Frame, take_frame
from tests.nsq.streams import Deflate
from tests.nsq.wire import MAGIC, Wire

SECOND = 1_000_000_000

Settings = dict[str, Any]


@pytest.fixture
def settings() -> Settings:
    return dict(default_settings()["nsq"])


@pytest.fixture
def tls_settings(settings: Settings, tls_options: dict[str, str]) -> Settings:
    return settings | tls_options


# --- words ------------------------------------------------------------------------------------------------------------


READERS = {"name": go_json.text, "on": go_json.flag, "small": go_json.int32, "large": go_json.int64}


class TestGoJson:
    def read(self, body: bytes) -> dict[str, Any]:
        """In both ways."""
        results: list[dict[str, Any] | None] = []
        for known in (lambda: body, lambda: go_json.members(body, READERS)):
            try:
                results.append(go_json.fields(go_json.loads(known()), READERS))
            except DecodeError:
                results.append(None)
        found, same = results
        assert found == same
        if found is None:
            raise DecodeError
        return found

    @pytest.mark.parametrize(
        ("body", "found"),
        [
            (b"{}", {}),
            (b"null", {}),
            (b' {"name" : "x"}\r\n', {"name": "x"}),
            (b'{"NAME": "x", "Small": -1}', {"name": "x", "small": -1}),
            ('{"\u017fmall": 1}'.encode(), {"small": 1}),  # a long s
            (b'{"name": "x", "Name": "y"}', {"name": "y"}),
            (b'{"name": "x", "Name": null}', {"name": "x"}),
            (b'{"name": null, "on": null, "small": null}', {}),
            (b'{"name": "x", "a": ' + b'{"b": ' * 1000 + b"1" + b"}" * 1000 + b"}", {"name": "x"}),
            (b'{"other": {"name": 5}, "name ": 1}', {}),
            (b'{"large": 9223372036854775807, "small": -2147483648}', {"large": (1 << 63) - 1, "small": -(1 << 31)}),
            (b'{"large": -0}', {"large": 0}),
            (b'{"name": "\xff\xfe"}', {"name": "\ufffd\ufffd"}),
            (rb'{"name": "\u00fc\ud83d\ude00"}', {"name": "ü😀"}),
            (b'{"on": true}', {"on": True}),
            (rb'{"n\u0061m\u0045": "x", "n\u0001me": 1, "n\ame": 1}'.replace(b"\\a", b"\\/"), {"name": "x"}),
            (b'{"x": [{}, [], {"name": 1}, -0.5e+3, "\\n\\"]}"], "on": false, "name\\u0000": 1}', {"on": False}),
            (b'{"": 1, "' + b"name" * 100 + b'": 1, "name": ""}', {"name": ""}),
        ],
    )
    def test_what_is_read(self, body: bytes, found: dict[str, Any]) -> None:
        assert self.read(body) == found

    @pytest.mark.parametrize(
        "body",
        [
            b"", b" ", b"[]", b"1", b'"x"', b"true", b"{", b"{}{}", b"{'name': 1}", b'{"name"}', b'{"name": "x",}',
            b'{"name": 1}', b'{"name": ["x"]}', b'{"on": 1}', b'{"on": "true"}', b'{"small": true}', b'{"small": "1"}',
            b'{"small": 1.0}', b'{"small": 1e2}', b'{"small": 2147483648}', b'{"large": 9223372036854775808}',
            b'{"large": -9223372036854775809}', b'{"large": NaN}', b'{"name": "\n"}', b'{"small": 01}', b'{"x": +1}',
            b'\xef\xbb\xbf{}', b'{"x": ' + b"[" * 100_000, b"{\0}", b"// \n{}", b'{"x": "\\u12g4"}', b'{"x": "\\x"}',
            b'{"x": [1,]}', b'{"x": [1 2]}', b'{"x": [}}', b'{"x": {"y"}}', b'{"x": tru}', b'{"x": -}', b'{"x": 1.}',
            b'{"x": 1e}', b'{"x": "\t"}', b'{"x": "', b'{"x": "\\', b'{"x": "\\u12', b'{"x":', b'{"x"', b"{,}", b"[",
        ],
        ids=lambda body: repr(body[:40]),
    )  # fmt: skip
    def test_what_is_not(self, body: bytes) -> None:
        with pytest.raises(DecodeError):
            self.read(body)


JSON_PARTS = st.sampled_from(
    [b"{", b"}", b"[", b"]", b",", b":", b" ", b'"name"', b'"on"', b'"x"', b'"', b"\\", b"\\u0061", b"1", b"-", b"0",
     b".5", b"e3", b"true", b"null", b"\xff", b"\n"]
)  # fmt: skip
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda one: (
        st.lists(one, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "NAME", "on", "small", "x", ""]), one, max_size=4)
    ),
)


@hypothesis.settings(max_examples=300, deadline=None)
@given(JSON_VALUES, st.lists(st.tuples(st.integers(0, 200), JSON_PARTS), max_size=2))
def test_known_members_alone_read_as_the_whole_text(value: object, changes: list[tuple[int, bytes]]) -> None:
    body = json.dumps(value).encode()
    for at, part in changes:
        body = body[:at] + part + body[at + at % 3 :]
    with contextlib.suppress(DecodeError):
        TestGoJson().read(body)


@pytest.mark.parametrize("key", [b"k%d", b"\\u0063lient_%d", b"client_%d"])
def test_of_what_is_not_known_nothing_is_left(key: bytes) -> None:
    unknown = b",".join(b'"' + key % n + b'":{"client_id":%d}' % n for n in range(10_000))
    left = go_json.members(b"{" + unknown + b',"client_id":"x","hostname":[' + b"1," * 9999 + b"1]}", FIELDS)
    assert left == b'{"client_id":"x","hostname":[]}'


def test_what_is_not_known_may_be_as_deep_as_for_go() -> None:
    for depth in (9999, 10_000):
        body = b'{"x":' + b"[" * depth + b"]" * depth + b"}"
        if depth < 10_000:
            assert go_json.members(body, FIELDS) == b"{}"
        else:
            with pytest.raises(DecodeError):
                go_json.members(body, FIELDS)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (b"", '""'),
        (b'a"b\\', r'"a\"b\\"'),
        (b"\a\b\f\n\r\t\v", r'"\a\b\f\n\r\t\v"'),
        (b"\0\x1b\x7f", r'"\x00\x1b\x7f"'),
        ("zoë 話題 😀".encode(), '"zoë 話題 😀"'),
        (b"\xff\xe2\x82a\xc0\x80", r'"\xff\xe2\x82a\xc0\x80"'),
        ("\u00a0\u200b\u0085\ufeff\U000e0001".encode(), r'"\u00a0\u200b\u0085\ufeff\U000e0001"'),
        ("\ufffd".encode(), '"\ufffd"'),
    ],
)
def test_text_is_quoted_as_go_quotes_it(text: bytes, shown: str) -> None:
    assert quoted(text) == shown


NAME_CHARACTERS = string.ascii_letters + string.digits + "._-"


@given(st.text(NAME_CHARACTERS, min_size=1, max_size=70), st.booleans())
def test_names_are_valid_up_to_their_length(name: str, ephemeral: bool) -> None:
    name += "#ephemeral" if ephemeral else ""
    assert is_name(protocol_number("nsq"), name.encode()) == (len(name) <= 64)
    assert not is_name(protocol_number("nsq"), name.encode()[:20] + b"\n")


@given(
    st.dictionaries(
        st.text(max_size=10), st.one_of(st.text(max_size=3000), st.booleans(), st.integers(0, 9)), max_size=5
    )
)
def test_a_description_fits_its_room_and_stays_json(told: dict[str, Any]) -> None:
    told = {f"{number}{key}": value for number, (key, value) in enumerate(told.items())}
    with contextlib.suppress(UnicodeEncodeError):
        data = shortened(told, 400)
        assert len(data) <= 400
        for key, value in json.loads(data).items():
            assert value == told[key] or (isinstance(value, str) and told[key].startswith(value))


def test_the_sooner_of_two_waits() -> None:
    assert sooner(engine.FOREVER, engine.FOREVER) == engine.FOREVER
    assert sooner(engine.FOREVER, 5) == sooner(5, engine.FOREVER) == sooner(5, 7) == 5
    assert sooner(engine.FOREVER, 0) == 0


# --- options ----------------------------------------------------------------------------------------------------------


class TestTlsOptions:
    def fails(self, settings: Settings, **changed: str) -> str:
        with pytest.raises(ValueError, match=r"nsq\.tls-") as caught:
            nsq_tls.check({**settings, **{name.replace("_", "-"): value for name, value in changed.items()}})
        (line,) = str(caught.value).splitlines()
        return line

    def test_good_ones_pass(self, settings: Settings, tls_settings: Settings) -> None:
        nsq_tls.check(settings)
        assert nsq_tls.factory(settings) is None
        assert not nsq_options.is_tls_required(settings)
        nsq_tls.check(tls_settings)
        assert nsq_tls.factory(tls_settings) is not None
        assert not nsq_options.is_tls_required(tls_settings)
        for changed in ({"tls-client-auth-policy": "require-verify"}, {"tls-required": "tcp-https"}):
            nsq_tls.check(tls_settings | changed)
            assert nsq_options.is_tls_required(tls_settings | changed)

    def test_words_that_mean_nothing(self, tls_settings: Settings) -> None:
        assert '"maybe" is none of' in self.fails(tls_settings, tls_client_auth_policy="maybe")
        assert '"perhaps" is none of' in self.fails(tls_settings, tls_required="perhaps")
        assert '"ssl3" is none of tls1.0, ' in self.fails(tls_settings, tls_min_version="ssl3")

    def test_one_needs_the_other(self, settings: Settings, certificates: Certificates) -> None:
        cert, key = str(certificates.server.cert), str(certificates.server.key)
        assert "nsq.tls-key must be too" in self.fails(settings, tls_cert=cert)
        assert "nsq.tls-cert must be too" in self.fails(settings, tls_key=key)
        assert "needs nsq.tls-cert" in self.fails(settings, tls_required="true")
        assert "needs nsq.tls-cert" in self.fails(settings, tls_client_auth_policy="require")

    def test_files(self, tls_settings: Settings, certificates: Certificates, tmp_path: Path) -> None:
        text = tmp_path / "text"
        text.write_text("nothing")
        missing = str(tmp_path / "missing")
        for name in ("tls_cert", "tls_key", "tls_root_ca_file"):
            option = "nsq." + name.replace("_", "-")
            line = self.fails(tls_settings, **{name: missing})
            assert line == f"{option}: {missing}: No such file or directory"
            line = self.fails(tls_settings, **{name: str(text)})
            assert option in line
            assert str(text) in line
        assert "values mismatch" in self.fails(tls_settings, tls_key=str(certificates.client.key))

    def test_a_key_with_a_password_is_refused_and_nobody_is_asked(
        self, tls_settings: Settings, certificates: Certificates, tmp_path: Path
    ) -> None:
        from cryptography.hazmat.primitives import serialization

        key = serialization.load_pem_private_key(certificates.server.key.read_bytes(), None)
        locked = Pair(certificates.server.cert, tmp_path / "locked")
        locked.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"password"),
            )
        )
        assert "nsq.tls-key" in self.fails(tls_settings, tls_key=str(locked.key))

    def test_require_without_its_library_is_told(self, tls_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(__import__("sys").modules, "OpenSSL.SSL", None)
        assert "needs the Python package pyOpenSSL" in self.fails(tls_settings, tls_client_auth_policy="require")


# --- an engine whose clock the test has -------------------------------------------------------------------------------


class Acceptor:
    """An acceptor without workers, turned by hand."""

    def __init__(self, settings: Settings) -> None:
        self.now_ns = 1000 * SECOND
        board = os.memfd_create("board")
        assert lib.board_format(board)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self.engine = Engine(0, 1, 8, board, self._wake)
        os.close(board)
        self.nsq = NsqServing(self.engine, settings, Broker("0" * 16, 0), now_ns=lambda: self.now_ns)

    def close(self) -> None:
        self.nsq.close()
        self.engine.close()
        os.close(self._wake)

    def connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.engine.adopt(theirs.detach(), protocol_number("nsq"))
        return ours

    def turns(self) -> None:
        for _ in range(8):
            self.engine.turn(self.now_ns)
            self.nsq.expire()
            for upcall in self.engine.upcalls():
                if upcall.kind == engine.COMMAND:
                    self.nsq.command(upcall.conn, upcall.line)
                elif upcall.kind == engine.INPUT:
                    self.nsq.input(upcall.conn, upcall.line)
                elif upcall.kind == engine.OUTPUT:
                    self.nsq.output(upcall.conn, upcall.line)
                elif upcall.kind == engine.CLOSED:
                    self.nsq.closed(upcall.conn)

    def exchange(self, sock: socket.socket, data: bytes) -> bytes:
        sock.sendall(data)
        return self.receive(sock)

    def receive(self, sock: socket.socket) -> bytes:
        found = b""
        self.turns()
        with contextlib.suppress(BlockingIOError):
            while part := sock.recv(1 << 20):
                found += part
        return found

    def is_closed(self, sock: socket.socket) -> bool:
        self.turns()
        try:
            return sock.recv(1) == b""
        except BlockingIOError:
            return False


@pytest.fixture
def acceptor(tls_settings: Settings) -> Iterator[Acceptor]:
    acceptor = Acceptor(tls_settings)
    yield acceptor
    acceptor.close()


def frames_in(data: bytes) -> list[Frame]:
    rest, found = bytearray(data), []
    while (frame := take_frame(rest)) is not None:
        found.append(frame)
    assert not rest
    return found


def ask_for_tls(acceptor: Acceptor, **fields: object) -> socket.socket:
    sock = acceptor.connect()
    asked = frames.identify(feature_negotiation=True, tls_v1=True, **fields)
    (answer,) = frames_in(acceptor.exchange(sock, MAGIC + asked))
    assert json.loads(answer.data)["tls_v1"] is True
    return sock


class TlsClient:
    def __init__(self, acceptor: Acceptor, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._acceptor, self._socket = acceptor, sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    def shake_hands(self) -> None:
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.pass_on()
        self.pass_on()

    def pass_on(self) -> None:
        self._incoming.write(self._acceptor.exchange(self._socket, self._outgoing.read()))

    def read(self) -> bytes:
        found = b""
        with contextlib.suppress(ssl.SSLWantReadError):
            while part := self.tls.read(1 << 20):
                found += part
        return found


class TestHandshake:
    def test_it_has_five_seconds(self, acceptor: Acceptor) -> None:
        assert acceptor.nsq.wait_ns() == engine.FOREVER
        first = ask_for_tls(acceptor, heartbeat_interval=60_000)
        acceptor.now_ns += 2 * SECOND
        second = ask_for_tls(acceptor, heartbeat_interval=60_000)
        assert acceptor.nsq.wait_ns() == 3 * SECOND
        acceptor.now_ns += 3 * SECOND - 1
        assert not acceptor.is_closed(first)
        acceptor.now_ns += 1
        assert frames_in(acceptor.receive(first)) == [frames.error("E_IDENTIFY_FAILED IDENTIFY failed i/o timeout")]
        assert acceptor.is_closed(first)
        assert not acceptor.is_closed(second)
        assert acceptor.nsq.wait_ns() == 2 * SECOND
        second.close()
        acceptor.turns()
        assert acceptor.nsq.wait_ns() == engine.FOREVER

    def test_once_done_it_has_no_end(self, acceptor: Acceptor, certificates: Certificates) -> None:
        sock = ask_for_tls(acceptor, heartbeat_interval=60_000)
        client = TlsClient(acceptor, sock, certificates.context())
        client.shake_hands()
        assert frames_in(client.read()) == [OK]
        assert acceptor.nsq.wait_ns() == engine.FOREVER
        acceptor.now_ns += 6 * SECOND
        assert not acceptor.is_closed(sock)

    def test_there_is_no_heartbeat_meanwhile_and_then_inside(
        self, acceptor: Acceptor, certificates: Certificates
    ) -> None:
        sock = ask_for_tls(acceptor, heartbeat_interval=3000, deflate=True)
        acceptor.turns()
        acceptor.now_ns += 3 * SECOND + 1
        assert acceptor.receive(sock) == b""
        client = TlsClient(acceptor, sock, certificates.context())
        client.shake_hands()
        data, deflate = client.read(), Deflate()
        assert frames_in(data[:10]) == [OK]
        assert frames_in(deflate.decode(data[10:])) == [OK]
        acceptor.now_ns += 3 * SECOND
        client.pass_on()
        assert frames_in(deflate.decode(client.read())) == [Frame(RESPONSE, HEARTBEAT)]

    def test_what_is_no_tls_is_told_so(self, acceptor: Acceptor) -> None:
        sock = ask_for_tls(acceptor)
        data = acceptor.exchange(sock, b"PUB in the clear\n")
        assert b"E_IDENTIFY_FAILED IDENTIFY failed tls: " in data
        assert acceptor.is_closed(sock)
        assert acceptor.nsq.wait_ns() == engine.FOREVER

    def test_a_second_upgrade_is_refused(self, acceptor: Acceptor, certificates: Certificates) -> None:
        sock = ask_for_tls(acceptor)
        client = TlsClient(acceptor, sock, certificates.context())
        client.shake_hands()
        assert frames_in(client.read()) == [OK]
        client.tls.write(frames.identify(feature_negotiation=True, tls_v1=True))
        client.pass_on()
        assert frames_in(client.read()) == [frames.error("E_IDENTIFY_FAILED IDENTIFY failed already upgraded")]
        assert acceptor.is_closed(sock)


def test_a_client_that_says_goodbye_in_tls_is_served_and_then_closed(
    acceptor: Acceptor, certificates: Certificates
) -> None:
    sock = ask_for_tls(acceptor)
    client = TlsClient(acceptor, sock, certificates.context())
    client.shake_hands()
    assert frames_in(client.read()) == [OK]
    client.tls.write(frames.identify())
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    client.pass_on()
    assert frames_in(client.read()) == [OK]
    assert acceptor.is_closed(sock)


def test_the_first_identify_decides_about_heartbeats(acceptor: Acceptor) -> None:
    sock = acceptor.connect()
    data = MAGIC + frames.identify(heartbeat_interval=1000) + frames.identify(heartbeat_interval=60_000)
    assert frames_in(acceptor.exchange(sock, data)) == [OK, OK]
    acceptor.now_ns += SECOND + 1
    assert frames_in(acceptor.receive(sock)) == [Frame(RESPONSE, HEARTBEAT)]


# --- the process ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def serving(settings: Settings) -> Iterator[int]:
    """An acceptor's whole process, as a thread; its port."""
    control, theirs = Control.pair()
    board = os.memfd_create("board")
    assert lib.board_format(board)
    wake = os.eventfd(0, os.EFD_NONBLOCK)
    start = {
        "index": 0, "workers": 1, "acceptors": 1, "shards": 8, "instance": "0" * 16, "started_wall_ns": 0,
        "gateway": False, "settings": {**default_settings(), "nsq": settings},
    }  # fmt: skip
    process = AcceptorProcess(theirs, start, board, wake)
    thread = threading.Thread(target=process.run)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        control.send(
            {"do": "listen", "protocol": "nsq", "secure": False, "host": "127.0.0.1", "port": 0, "backlog": 8},
            [listener.fileno()],
        )
        control.send({"do": "go"})
        thread.start()
        assert control.receive(10) == ({"did": "ready"}, [])
        try:
            yield listener.getsockname()[1]
        finally:
            control.send({"do": "stop"})
            assert control.receive(10) == ({"did": "stopped"}, [])
            thread.join(10)
            os.close(board)
            os.close(wake)


@pytest.mark.parametrize("where", ["_identify", "input", "output"])
def test_a_defect_costs_one_connection_and_no_other(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    bad: set[int] = set()
    identify = NsqServing._identify
    works = getattr(NsqServing, where)

    def notice(self: NsqServing, conn: int, client: object, body: bytes) -> None:
        if b"bad" in body:
            bad.add(conn)
        identify(self, conn, client, body)  # type: ignore[arg-type]

    def fails(self: NsqServing, conn: int, *rest: object) -> None:
        if conn in bad or (where == "_identify" and b"bad" in bytes(rest[-1])):  # type: ignore[call-overload]
            raise RuntimeError("a defect")
        works(self, conn, *rest)

    monkeypatch.setattr(NsqServing, "_identify", notice)
    monkeypatch.setattr(NsqServing, where, fails)
    with serving(settings) as port, Wire(port) as before, Wire(port) as failing:
        before.identify(deflate=True)
        before.start_deflate()
        assert before.frame() == OK
        failing.send(frames.identify(client_id="bad", feature_negotiation=True, deflate=True))
        with contextlib.suppress(ConnectionError):
            failing.frame()
            failing.start_deflate()
            failing.frame()
            failing.send(frames.identify())
        assert failing.frames_until_close() == []
        assert before.ask(frames.identify()) == OK
        with Wire(port) as after:
            assert after.ask(frames.identify()) == OK
    assert "a defect" in caplog.text


def test_random_bytes_hurt_nobody_else(tls_settings: Settings) -> None:
    draw = random.Random(12)
    asks = [{"tls_v1": True}, {"snappy": True}, {"deflate": True}]
    with serving(tls_settings) as port, Wire(port) as other:
        for number in range(60):
            with Wire(port) as wire:
                wire.identify(**asks[number % 3])
                wire.send(draw.randbytes(draw.choice([1, 10, 1000, 50_000])))
                wire.end_sending()
        assert other.ask(frames.identify()) == OK


@pytest.mark.parametrize(
    "text", [b'"' + b'\\"' * 500_000, b'"a' * 500_000, b"1" * 1_000_000 + b"e", b'{"a":' * 200_000]
)
def test_bad_json_of_a_megabyte_is_refused_in_a_moment(text: bytes) -> None:
    """Were the time quadratic, an acceptor would stand still for an hour."""
    with pytest.raises(DecodeError):
        go_json.loads(text)


@pytest.mark.parametrize("unit", [b'\\"', b"1e400,", b'"\\ud800",'])
def test_of_a_large_text_that_is_no_json_nothing_is_found_out(unit: bytes) -> None:
    text = b'{"a":["' + unit * (5_000_000 // len(unit))
    for part in (text, text[: go_json.MAX_BYTES]):
        began = time.process_time()
        with pytest.raises(ClientError, match="failed to decode JSON body"):
            parse(part)
        assert time.process_time() - began < 0.3
