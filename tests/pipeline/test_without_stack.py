"""What Spark's Python processes tell of an error of ours, and of others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import BytesIO

import pytest

pytest.importorskip("pyspark")

from mq_shards.pipeline import without_stack
from mq_shards.pipeline.arriving import Arrives
from mq_shards.pipeline.batch import PlainBatchReader
from mq_shards.pipeline.columns import SCHEMA
from mq_shards.pipeline.options import OptionError, ReadOptions
from pyspark.util import handle_worker_exception

from tests.pipeline.serving import Gateway


class Fails(Arrives):
    def partitions(self) -> list[int]:
        raise KeyError("nobody thought of it")

    def read(self) -> Iterator[int]:
        yield 1
        raise OptionError("it is wrong")


@pytest.fixture(autouse=True)
def of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(without_stack.OF_SPARK, "65536")
    monkeypatch.setenv(without_stack.HIDE, "")


def told(error: BaseException) -> str:
    sent = BytesIO()
    handle_worker_exception(error, sent)
    return sent.getvalue()[8:].decode()  # behind what it is, and its length


def test_an_error_of_ours_is_told_in_one_line(gateway: Gateway) -> None:
    reader = PlainBatchReader(ReadOptions.parse({"brokers": gateway.address, "topic": "t"}, streaming=False), SCHEMA)
    try:
        reader.partitions()
    except OptionError as error:
        assert told(error) == "mq_shards.pipeline.options.OptionError: topic: the brokers have no t\n"


def test_so_is_one_that_comes_while_rows_are_read() -> None:
    rows = Fails().read()
    assert next(rows) == 1
    try:
        next(rows)
    except OptionError as error:
        assert told(error) == "mq_shards.pipeline.options.OptionError: it is wrong\n"


def test_any_other_is_told_with_its_stack() -> None:
    try:
        Fails().partitions()
    except KeyError as error:
        assert "nobody thought of it" in told(error) and "in partitions" in told(error)


def test_a_program_of_the_users_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(without_stack.OF_SPARK)
    with pytest.raises(OptionError):
        list(Fails().read())
    assert not os.environ[without_stack.HIDE]
