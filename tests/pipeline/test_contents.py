"""Bodies with headers before them are what Spark reads again, whatever the attributes are."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from mq_shards.csrc._core import ffi, lib
from mq_shards.pipeline import decode
from mq_shards.pipeline.contents import MAP, contents
from mq_shards.pipeline.encode import EncodeError
from mq_shards.pipeline.key_hash import key_hash

from tests.pipeline.serving import Message, record, runs
from tests.pipeline.test_reading import HEADERS, SCHEMA, encoded

pytestmark = pytest.mark.usefixtures("either")

OURS = ("pri", "ttr_ms", "delay_ms")
texts = st.text(max_size=12)
names = st.one_of(st.sampled_from(["A", "b-c", "x:y", "key", *OURS]), st.text(min_size=1, max_size=8))
maps = st.one_of(st.none(), st.dictionaries(names, texts, max_size=5))
rows = st.lists(st.tuples(st.binary(max_size=30), maps, st.one_of(st.none(), texts)), max_size=20)


def read_again(column: pa.Array) -> list[tuple[bytes, dict[str, str]]]:
    sent = [value.as_py() for value in column]
    usual = encoded(5, 10**6, 0, moved=False)
    records = [record(1, n, one, attributes=usual, flags=HEADERS) for n, one in enumerate(sent)]
    whole = runs([Message(1, n, 0, one) for n, one in enumerate(records)])
    decoder = decode.Decoder("b" * 32, SCHEMA, max(1, len(sent)))
    decoder.turn_to("t", 0, 0, len(sent), 0)
    _, used = decoder.decode(np.frombuffer(whole, np.uint8).copy())
    assert used == len(whole)
    batch = decoder.take()
    found = [] if batch is None else batch.to_pylist()
    return [(row["body"], {k: v for k, v in row["attributes"] if k not in OURS}) for row in found]


@settings(deadline=None)
@given(rows, st.sampled_from([pa.binary(), pa.large_binary()]), st.integers(0, 2), st.booleans())
def test_what_is_written_is_read_again(
    sent: list[tuple[bytes, dict[str, str] | None, str | None]], kind: pa.DataType, skipped: int, keyed: bool
) -> None:
    before = [(b"?", {"?": "?"}, "?")] * skipped
    bodies, attributes, keys = (list(of) for of in zip(*before, *sent, strict=True)) if before + sent else ([], [], [])
    column = contents(
        pa.array(bodies, kind)[skipped:],
        pa.array([None if m is None else list(m.items()) for m in attributes], MAP)[skipped:],
        pa.array(keys, pa.string())[skipped:] if keyed else None,
    )
    column.validate(full=True)
    expected = []
    for body, attributes_of, key in sent:
        found = {name: value for name, value in (attributes_of or {}).items() if name not in OURS}
        expected.append((body, found | ({"key": key} if keyed and key is not None else {})))
    assert read_again(column) == expected
    if len(column):
        joined = b"".join(len(one.as_py()).to_bytes(4, "big") + one.as_py() for one in column)
        assert lib.many_have_headers(ffi.from_buffer("uint8_t[]", joined), len(joined))


def test_nats_clients_are_given_headers_as_they_write_them() -> None:
    column = contents(pa.array([b"x", b"y"]), pa.array([[("A", "1"), ("B", "ü")], [("A", " 1")]], MAP), None)
    assert column[0].as_py()[16:] == "NATS/1.0\r\nA: 1\r\nB: ü\r\n\r\nx".encode()
    assert (column[0].as_py()[4], column[1].as_py()[4]) == (1, 3)  # the tag: blanks at the ends are kept too


def test_a_key_chooses_the_consumer_that_it_would_choose_in_pulsar() -> None:
    # murmur3_32 with seed 0, of which Pulsar's clients take 31 bits.
    assert [key_hash(key) for key in ("", "a", "hello")] == [1, 1009084850, 613153351]
    column = contents(pa.array([b"x", b"y"]), None, pa.array(["a", None]))
    assert [int.from_bytes(one.as_py()[8:12], "little") for one in column] == [1009084850, 0]


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ([("", "v")], "a header has a name"),
        ([(f"k{n}", "") for n in range(65)], "64 headers at most"),
        ([("k", "v" * 65536)], "of 65536 bytes"),
    ],
)
def test_headers_that_no_message_can_have_are_named(attributes: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(EncodeError, match=f"in row 1 of a batch: .*{said}"):
        contents(pa.array([b"x", b"y"]), pa.array([[], attributes], MAP), None)


@pytest.mark.parametrize("size", [0, 15, 16, 20])
def test_headers_that_are_not_there_are_noticed(size: int) -> None:
    content = (5).to_bytes(4, "little") + bytes(40)
    joined = size.to_bytes(4, "big") + content[:size]
    assert not lib.many_have_headers(ffi.from_buffer("uint8_t[]", joined), len(joined))
