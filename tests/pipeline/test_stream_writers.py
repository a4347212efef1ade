"""What the driver does with what a broker says of a writer's batch."""

from __future__ import annotations

from typing import cast

import pytest
from mq_shards.pipeline import publish
from mq_shards.pipeline.client import CONFLICT, FAILED, Address, BrokerError, Client, WriterState


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
