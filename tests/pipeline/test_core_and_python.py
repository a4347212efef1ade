"""What is done without the C core comes to the same, whatever comes: whole, cut, damaged or never asked for."""

from __future__ import annotations

import pickle
import struct
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from mq_shards.csrc._core import ffi, lib
from mq_shards.pipeline import checksum, decode_core, decode_python, decoding, encode_python, encoding
from mq_shards.pipeline.batch import PlainBatchReader
from mq_shards.pipeline.columns import SCHEMA, to_arrow
from mq_shards.pipeline.decoding import DecodeError, Progress
from mq_shards.pipeline.key_hash import key_hash
from mq_shards.pipeline.options import ReadOptions
from mq_shards.pipeline.source import Unfiltered
from pyspark import cloudpickle
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tests.pipeline.serving import Message, record, runs
from tests.pipeline.test_reading import NATS, SPARK, spark_headers, with_headers
from tests.pipeline.test_reading_pulsar import MESSAGES, batch, content

HEADERS = 8
PUBLISH, MOVED, STAGED = 3, 6, 18
few = st.binary(max_size=12)
bodies = st.one_of(
    st.tuples(st.binary(max_size=60), st.just(0)),
    st.tuples(st.binary(max_size=60), st.just(HEADERS)),
    st.builds(with_headers, st.integers(0, 4), few, few).map(lambda one: (one, HEADERS)),
    st.builds(
        with_headers, st.just(NATS), few.map(lambda more: b"NATS/1.0\r\nA: b\r\nkey:c\r\n" + more + b"\r\n"), few
    ).map(lambda one: (one, HEADERS)),
    st.builds(with_headers, st.just(SPARK), st.dictionaries(few, few, max_size=3).map(spark_headers), few).map(
        lambda one: (one, HEADERS)
    ),
    st.sampled_from(
        [batch(*MESSAGES), batch(*MESSAGES, how="lz4"), content(b"x", partition_key="k"), batch(*MESSAGES)[:-1]]
    ).map(lambda one: (one, HEADERS)),
)
sent = st.lists(
    st.tuples(bodies, st.sampled_from([PUBLISH] * 6 + [MOVED, STAGED, 5]), st.sampled_from([1] * 6 + [0, 2, 3]),
              st.binary(max_size=30)),
    min_size=1, max_size=12,
)  # fmt: skip
damage = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 7)), max_size=1)


def outcome(made: Any, whole: bytes, end: int, piece: int, gaps_from: int, wanted: list[str]) -> list[Any]:  # noqa: ANN401
    schema = to_arrow(StructType([SCHEMA[name] for name in wanted]))
    decoder = made.Decoder("0123456789abcdef", schema, end)
    decoder.turn_to("t", 3, 0, end, gaps_from)
    rows: list[Any] = []
    said: list[Any] = []
    left = b""
    while whole or left:
        left, whole = left + whole[:piece], whole[piece:]
        try:
            progress, used = decoder.decode(np.frombuffer(left, np.uint8).copy())
        except DecodeError as error:
            said.append(str(error))
            progress, used, whole = Progress.MORE, len(left), b""
        left = left[used:]
        if (found := decoder.take()) is not None:
            found.validate(full=True)
            assert found.schema.equals(schema)
            rows += found.to_pylist()
        gap = decoder.take_gap()
        said.append((decoder.next_seq, decoder.missing, gap if gap[0] < gap[1] else None))
        if progress is Progress.MORE and not whole:
            break
    return [rows, said, decoder.between_runs]


@settings(deadline=None, max_examples=60)
@given(sent, damage, st.integers(40, 4000), st.integers(0, 5), st.integers(1, 4), st.lists(
    st.sampled_from(SCHEMA.fieldNames()), unique=True))  # fmt: skip
def test_any_records_are_the_same_rows_and_the_same_errors(
    given_: list[Any], damaged: list[tuple[float, int]], piece: int, gaps_from: int, most: int, wanted: list[str]
) -> None:
    seq, messages = -1, []
    for n, ((body, flags), kind, step, attributes) in enumerate(given_):
        seq += step
        at = max(0, seq)
        one = record(1, at, body, time_ns=n * 1_234_567, identity=n << 40, kind=kind, flags=flags,
                     attributes=attributes)  # fmt: skip
        messages.append(Message(1, at, 0, one))
    whole = bytearray(runs(messages, most))
    for place, bit in damaged:
        whole[int(place * len(whole))] ^= 1 << bit
    by_core, by_python = (
        outcome(made, bytes(whole), max(1, seq + 1), piece, gaps_from, wanted)
        for made in (decode_core, decode_python)
    )  # fmt: skip
    for core, python in zip(by_core, by_python, strict=True):
        assert core == python


@given(st.lists(st.binary(min_size=4, max_size=300), min_size=1, max_size=20), st.integers(0, 3 * checksum.LANE))
def test_a_crc_is_the_cores(pieces: list[bytes], long: int) -> None:
    pieces.append(bytes(range(4, 256)) * (long // 252 + 1))
    expected = [int(lib.crc32c_extend(0, ffi.from_buffer(piece), len(piece))) for piece in pieces]
    assert checksum.crcs(pieces) == expected
    assert [checksum.crc32c(piece) for piece in pieces] == expected
    assert checksum.crc32c(b"") == 0


@given(st.text(max_size=40))
def test_a_key_has_the_hash_that_brokers_give_it(key: str) -> None:
    data = key.encode()
    hashed = int(lib.pulsar_murmur(data, len(data))) & 0x7FFFFFFF
    assert key_hash(key) == (hashed if hashed % 65536 else hashed + 1)


@pytest.mark.parametrize("made", [decode_core, decode_python])
def test_without_columns_there_are_as_many_rows(made: Any) -> None:  # noqa: ANN401
    messages = [Message(1, seq, 0, record(1, seq, b"x", time_ns=0, identity=seq, kind=3)) for seq in range(5)]
    rows, _, _ = outcome(made, runs(messages, 5), 5, 100, 0, [])
    assert rows == [{}] * 5


def test_columns_are_what_spark_takes_them_for() -> None:
    assert to_arrow(SCHEMA).equals(to_arrow_schema(SCHEMA, timezone="UTC"))


@pytest.mark.parametrize("where", ["executor", "driver"])
def test_an_executor_without_the_package_says_so_in_one_line(where: str) -> None:
    """And so does the Python process in which the driver asks the source: it gets the class."""
    pickled = cloudpickle.dumps(PlainBatchReader(ReadOptions.parse({"topic": "t"}, streaming=False), SCHEMA))
    assert type(pickle.loads(pickled)) is PlainBatchReader
    if where == "driver":
        pickled = cloudpickle.dumps(Unfiltered)
        assert pickle.loads(pickled) is Unfiltered
    program = """
import pickle, sys
class NotHere:
    def find_spec(self, name, *_):
        if name.split(".")[0] == "mq_shards":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, NotHere())
try:
    pickle.loads(sys.stdin.buffer.read())
except ImportError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", program], input=pickled, capture_output=True, check=True, timeout=60)
    assert said.stdout.startswith(where.encode())
    assert b"cannot read or write mqshards: No module named 'mq_shards" in said.stdout
    assert b"Install the wheel pyspark_mqshards there" in said.stdout and sys.executable.encode() in said.stdout


def test_what_both_know_of_the_wire_is_the_cores() -> None:
    assert (decoding.ID_PREFIX_BYTES, encoding.SIZE_BYTES) == (lib.DECODE_ID_PREFIX_BYTES, lib.ENCODE_SIZE_BYTES)


@pytest.mark.parametrize(
    ("copied", "of"),
    [
        (decode_python._RUN, "run"),
        (decode_python._RECORD, "record"),
        (decode_python._HEADERS, "headers"),
        (decode_python._LONG, "publish_attributes"),
        (encode_python._HEADERS, "headers"),
    ],
)
def test_layouts_copied_for_machines_without_the_core_are_the_cores(copied: struct.Struct, of: str) -> None:
    fields = [copied.format[: n + 1] for n in range(1, len(copied.format))]
    ends = [field.offset + ffi.sizeof(field.type) for _, field in ffi.typeof(f"struct {of}").fields]
    assert [struct.calcsize(field) for field in fields] == ends
    assert copied.size == ffi.sizeof(f"struct {of}")
