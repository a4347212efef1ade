"""The checksum, beside another implementation of it."""

from __future__ import annotations

import os
import random

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mq_shards.csrc._core import ffi, lib

from tests.log.log import HEADER, Entry, Log, memfd, written


@given(st.binary(max_size=9000), st.integers(0, 2**32 - 1), st.data())
def test_crc_is_the_python_packages(data: bytes, start: int, draw: st.DataObject) -> None:
    expected = crc32c.crc32c(data, start)
    assert lib.crc32c_extend(start, data, len(data)) == expected
    assert lib.crc32c_extend_streams(start, data, len(data)) == expected
    assert lib.crc32c_extend_portable(start, data, len(data)) == expected
    split = draw.draw(st.integers(0, len(data)))
    first = lib.crc32c_extend(start, data, split)
    assert lib.crc32c_extend(first, data[split:], len(data) - split) == expected


@pytest.mark.parametrize(
    "size",
    [*range(64), 383, 384, 385, 511, 512, 513, 767, 768, 1023, 1024, 1025, 3071, 3072, 3073, 3456, 100_003, 1 << 20],
)
def test_crc_of_every_kind_of_length_and_alignment(size: int) -> None:
    data = random.Random(size).randbytes(size + 8)
    buffer = ffi.from_buffer(data)
    for shift in range(8):
        expected = crc32c.crc32c(data[shift : shift + size])
        assert lib.crc32c_extend(0, buffer + shift, size) == expected
        assert lib.crc32c_extend_streams(0, buffer + shift, size) == expected
        assert lib.crc32c_extend_portable(0, buffer + shift, size) == expected


@given(st.integers(0, 2**32 - 1), st.integers(0, 5000))
def test_crc_advances_over_zeros(state: int, count: int) -> None:
    assert lib.crc32c_advance(state, count) == crc32c.crc32c(bytes(count), state ^ 0xFFFFFFFF) ^ 0xFFFFFFFF


def test_the_crc_in_a_record_is_what_the_header_file_says() -> None:
    content = written(0x01020304, [Entry(body=b"body")])
    record = content[HEADER:]
    size = int.from_bytes(record[0:4], "little")
    seeded = crc32c.crc32c(record[0:4] + (0x01020304).to_bytes(4, "little"))
    assert int.from_bytes(record[4:8], "little") == crc32c.crc32c(record[8:size], seeded)
    assert int.from_bytes(content[60:64], "little") == crc32c.crc32c(content[:60])


def test_padding_is_zeros_whatever_was_staged_before(log: Log) -> None:
    fd = memfd()
    assert log.add(fd, 1)
    for _ in range(2):
        assert log.put(Entry(body=b"\xff" * 1000)) and log.flush() == lib.LOG_OK
    begin = lib.log_segment_end(log.c, 1)
    assert log.put(Entry(body=b"\xff")) and log.flush() == lib.LOG_OK
    assert os.pread(fd, 48, begin)[40:] == b"\xff" + bytes(7)
