"""A client is in the way of another only as long as it is there."""

from __future__ import annotations

from mq_shards.acceptor.protocols.pulsar.liveness import Liveness

from tests.acceptor.bench import Bench


def test_a_number_that_another_protocol_has_by_now_is_no_client_that_is_alive() -> None:
    bench = Bench()
    conn = bench.client().number
    said: list[bool] = []
    Liveness(bench.acceptor, clients={}, acceptor=0, calls=None).look(conn, said.append)
    assert said == [False]
    bench.close()
