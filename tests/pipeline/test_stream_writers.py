"""What the driver does with what a broker says of a writer's batch."""

from __future__ import annotations

from typing import cast

import pyarrow as pa
import pytest
from mq_shards.pipeline import publish
from mq_shards.pipeline.client import CONFLICT, FAILED, Address, BrokerError, Client, WriterState
from mq_shards.pipeline.write import _batches
from mq_shards.pipeline.write_columns import Columns
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType


class Hopeless:
    """A broker whose staged file is gone: a batch is decided, and then it is found that it cannot be published."""

    address = Address("a", 1)

    def __init__(self, decided: WriterState | None = None) -> None:
        self.state = decided

    def writer(self, writer: str) -> WriterState | None:
        return self.state

    def publish(self, writer: str, batch: int, staged: object, *, once: bool) -> WriterState:
        self.state = WriterState(batch, FAILED, 0, "what was staged is gone")
        raise BrokerError("409", CONFLICT)


@pytest.mark.parametrize(
    ("batch", "advice"),
    [
        (publish.Batch("w", 3, must_follow=True), "give another with the option writer"),
        (publish.Batch("w", 3), "DELETE /v1/writers/w"),
        (publish.Batch("w", 0, once=True), "run the job again"),
    ],
)
def test_a_batch_that_can_never_be_published_ends_with_what_to_do(batch: publish.Batch, advice: str) -> None:
    client = Hopeless()
    for _ in range(2):  # when it is asked for, and when it is asked for again
        with pytest.raises(
            BrokerError, match=rf"batch {batch.number} of writer w can never be published whole"
        ) as said:
            publish._publish_at(cast(Client, client), batch, [], 60)
        assert advice in str(said.value) and "what was staged is gone" in str(said.value)


@pytest.mark.parametrize("value", [StringType(), BinaryType()])
@pytest.mark.parametrize("some", [True, False])
def test_rows_are_what_batches_are(value: StringType | BinaryType, *, some: bool) -> None:
    headers = ArrayType(StructType().add("key", StringType()).add("value", value))
    of_value = "one" if isinstance(value, StringType) else bytearray(b"one")
    schema = StructType().add("body", StringType()).add("other", ArrayType(StringType())).add("headers", headers)
    rows = [("b", ["x"], [("k", of_value), ("n", None)] if some else None), ("b", None, None)]
    (batch,) = _batches(iter(rows), schema)
    assert pa.types.is_list(batch.column(2).type) and batch.column(2).null_count == 2 - some
    (section,) = Columns.of(schema, "t").sections(iter([batch]), "t")
    assert section.topic == "t"
    schema = StructType().add("body", BinaryType()).add("attributes", MapType(StringType(), StringType()))
    (batch,) = _batches(iter([(bytearray(b"b"), {"k": "v"} if some else None), ("b", None)]), schema)
    assert batch.column(0).to_pylist() == [b"b", b"b"]
    assert batch.column(1).to_pylist() == [[("k", "v")] if some else None, None]
    assert len(list(Columns.of(schema, "t").sections(iter([batch]), "t"))) == 1
