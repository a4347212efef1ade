"""IDENTIFY: what is negotiated, what is out of range, and that the answer is today's nsqd's."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import pytest

from tests.nsq import frames
from tests.nsq.frames import OK, RESPONSE
from tests.nsq.servers import NsqServer
from tests.nsq.wire import Wire

DEFAULTS = {
    "max_rdy_count": 2500,
    "version": None,  # each product's own
    "max_msg_timeout": 900_000,
    "msg_timeout": 60_000,
    "tls_v1": False,
    "deflate": False,
    "deflate_level": 6,
    "max_deflate_level": 6,
    "snappy": False,
    "sample_rate": 0,
    "auth_required": False,
    "output_buffer_size": 16_384,
    "output_buffer_timeout": 250,
}


def test_without_negotiation_the_answer_is_ok(wire: Wire) -> None:
    assert wire.ask(frames.identify(client_id="c", hostname="h", user_agent="u/1")) == OK
    assert wire.ask(frames.identify(feature_negotiation=False, msg_timeout=1000)) == OK


def test_the_answer_has_all_fields_in_nsqds_order(wire: Wire) -> None:
    frame = wire.ask(frames.identify(feature_negotiation=True))
    assert frame.kind == RESPONSE
    answer = json.loads(frame.data)
    assert list(answer) == list(DEFAULTS)
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", answer["version"])
    assert answer == {**DEFAULTS, "version": answer["version"]}
    assert all(type(answer[field]) is type(value) for field, value in DEFAULTS.items() if value is not None)


def test_the_answer_tells_the_servers_options(limited: NsqServer) -> None:
    with Wire(limited) as wire:
        answer = wire.identify(snappy=True, deflate_level=9)
    assert answer == {
        **DEFAULTS, "version": answer["version"], "max_rdy_count": 50, "max_msg_timeout": 1000, "msg_timeout": 300,
        "deflate_level": 3, "max_deflate_level": 3, "output_buffer_timeout": 50,
    }  # fmt: skip


Fields = Mapping[str, object]
IN_RANGE = {
    "output_buffer_size": (64, 65, 65_536), "output_buffer_timeout": (25, 26, 30_000), "sample_rate": (0, 1, 99),
    "msg_timeout": (1000, 1001, 900_000),
}  # fmt: skip
# What is asked for, and what it changes in the answer.
ACCEPTED: list[tuple[Fields, Fields]] = [
    *(({field: value}, {field: value}) for field, values in IN_RANGE.items() for value in values),
    *(({"heartbeat_interval": value}, {}) for value in (-1, 0, 1000, 60_000)),
    ({"output_buffer_size": 0}, {}),
    ({"output_buffer_timeout": 0}, {}),
    ({"msg_timeout": 0}, {}),
    ({"output_buffer_size": -1}, {"output_buffer_size": 1, "output_buffer_timeout": 0}),
    ({"output_buffer_size": -1, "output_buffer_timeout": 1000}, {"output_buffer_size": 1, "output_buffer_timeout": 0}),
    ({"output_buffer_timeout": -1}, {"output_buffer_timeout": 0}),
    ({"tls_v1": True}, {}),  # there is no certificate here
    ({"deflate_level": 1}, {}),  # only with deflate
    ({"heartbeat_interval": None, "msg_timeout": None, "client_id": None, "tls_v1": None}, {}),
    ({"short_id": "s", "long_id": "l", "something": {"else": [1]}}, {}),
    ({"client_id": "", "hostname": "ü" * 1000, "user_agent": "\0\n"}, {}),
]


@pytest.mark.parametrize(("fields", "changed"), ACCEPTED, ids=lambda value: str(value)[:60])
def test_values_in_range(wire: Wire, fields: dict[str, object], changed: dict[str, object]) -> None:
    answer = wire.identify(**fields)
    assert answer == {**DEFAULTS, "version": answer["version"], **changed}


REFUSED = [
    ("heartbeat_interval", "heartbeat interval", (-2, 1, 999, 60_001, 1 << 40)),
    ("output_buffer_timeout", "output buffer timeout", (-2, 1, 24, 30_001)),
    ("output_buffer_size", "output buffer size", (-2, 1, 63, 65_537)),
    ("sample_rate", "sample rate", (-1, 100, (1 << 31) - 1)),
    ("msg_timeout", "msg timeout", (-1, 1, 999, 900_001)),
]


@pytest.mark.parametrize("negotiation", [True, False])
@pytest.mark.parametrize(("field", "shown", "value"), [(f, s, v) for f, s, values in REFUSED for v in values])
def test_values_out_of_range(wire: Wire, field: str, shown: str, value: int, negotiation: bool) -> None:
    wire.fails(
        frames.identify(feature_negotiation=negotiation, **{field: value}),
        f"E_BAD_BODY IDENTIFY {shown} ({value}) is invalid",
    )


@pytest.mark.parametrize(
    ("field", "good", "bad", "shown"),
    [
        ("heartbeat_interval", 5000, 5001, "heartbeat interval"),
        ("output_buffer_size", 1024, 1025, "output buffer size"),
        ("output_buffer_timeout", 1000, 1001, "output buffer timeout"),
        ("output_buffer_timeout", 10, 9, "output buffer timeout"), ("msg_timeout", 1000, 1001, "msg timeout"),
    ],
)  # fmt: skip
def test_the_servers_options_set_the_ranges(limited: NsqServer, field: str, good: int, bad: int, shown: str) -> None:
    with Wire(limited) as wire:
        assert wire.identify(**{field: good}).get(field, good) == good
        wire.fails(frames.identify(**{field: bad}), f"E_BAD_BODY IDENTIFY {shown} ({bad}) is invalid")


def test_of_several_bad_values_the_first_is_told(server: NsqServer) -> None:
    bad: dict[str, object] = {field: -3 for field, _, _ in REFUSED}
    for field, shown, _ in REFUSED:
        with Wire(server) as wire:
            wire.fails(frames.identify(**bad), f"E_BAD_BODY IDENTIFY {shown} (-3) is invalid")
        del bad[field]


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"}", b"nonsense", b"[]", b'"text"', b"1", b"true", b"{}{}", b'{"client_id": 1}', b'{"hostname": []}',
        b'{"heartbeat_interval": "1000"}', b'{"heartbeat_interval": 1000.5}', b'{"heartbeat_interval": 1e3}',
        b'{"heartbeat_interval": true}', b'{"heartbeat_interval": {}}', b'{"heartbeat_interval": 99999999999999999999}',
        b'{"sample_rate": 2147483648}', b'{"feature_negotiation": 1}', b'{"tls_v1": "true"}', b"{'client_id': 'x'}",
        b'{"client_id": "x",}', b"\0", b" ",
    ],
)  # fmt: skip
def test_what_is_no_json_of_these_types_is_refused(wire: Wire, body: bytes) -> None:
    wire.fails(frames.identify_body(body), "E_BAD_BODY IDENTIFY failed to decode JSON body")


@pytest.mark.parametrize("body", [b"{}", b" {\n} \t", b"null", b'{"sample_rate": 5, "sample_rate": 0}'])
def test_odd_but_good_json(wire: Wire, body: bytes) -> None:
    assert wire.ask(frames.identify_body(body)) == OK


def test_the_last_of_a_repeated_field_holds(wire: Wire) -> None:
    frame = wire.ask(frames.identify_body(b'{"feature_negotiation":true, "msg_timeout": 1, "msg_timeout": 5000}'))
    assert json.loads(frame.data)["msg_timeout"] == 5000


def test_a_body_of_the_greatest_size(wire: Wire) -> None:
    body = b'{"user_agent": "%s"}' % (b"x" * (5 * 1024 * 1024 - 18))
    assert len(body) == 5 * 1024 * 1024
    assert wire.ask(frames.identify_body(body)) == OK


def test_it_may_be_repeated_before_sub(wire: Wire, topic: str) -> None:
    assert wire.identify(msg_timeout=5000)["msg_timeout"] == 5000
    assert wire.identify()["msg_timeout"] == 5000
    wire.subscribe(topic, "ch")


def test_a_connection_without_it_has_the_defaults(wire: Wire, topic: str) -> None:
    wire.publish(topic, b"x")
    wire.subscribe(topic, "ch", rdy=1)
    assert wire.message().body == b"x"


class TestDeflateAndSnappy:
    def test_both_are_refused(self, wire: Wire) -> None:
        wire.fails(
            frames.identify(feature_negotiation=True, deflate=True, snappy=True),
            "E_IDENTIFY_FAILED cannot enable both deflate and snappy compression",
        )

    def test_both_without_negotiation_are_ignored(self, wire: Wire, topic: str) -> None:
        assert wire.ask(frames.identify(deflate=True, snappy=True, tls_v1=True)) == OK
        wire.publish(topic, b"in the clear")

    @pytest.mark.parametrize(("asked", "given"), [(None, 6), (0, 6), (1, 1), (5, 5), (6, 6), (7, 6), (99, 6), (-1, 6)])
    def test_level(self, wire: Wire, asked: int | None, given: int) -> None:
        fields = {} if asked is None else {"deflate_level": asked}
        answer = wire.identify(deflate=True, **fields)
        assert (answer["deflate"], answer["deflate_level"], answer["snappy"]) == (True, given, False)
        wire.start_deflate()
        assert wire.frame() == OK

    def test_what_the_server_does_not_allow_is_not_given(self, limited: NsqServer, topic: str) -> None:
        with Wire(limited) as wire:
            answer = wire.identify(snappy=True)
            assert not answer["snappy"]
            wire.publish(topic, b"in the clear")
        with Wire(limited) as wire:
            answer = wire.identify(snappy=True, deflate=True)
            assert (answer["snappy"], answer["deflate"], answer["deflate_level"]) == (False, True, 3)
            wire.start_deflate()
            assert wire.frame() == OK
