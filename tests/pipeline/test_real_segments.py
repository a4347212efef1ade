"""What a real broker has written to its log comes out of the decoder."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.pipeline.serving import Gateway, kept_in
from tests.pipeline.test_reading import read
from tests.servers import SINGLE, running


def test_jobs_come_out_as_they_were_put(gateway: Gateway, tmp_path: Path) -> None:
    jobs = [(b"x" * n, n, n % 3, 60 + n) for n in range(200)]
    with running(SINGLE, data_dir=tmp_path / "data") as server:
        with socket.create_connection(("127.0.0.1", server.port)) as connection, connection.makefile("rb") as replies:
            connection.sendall(b"use orders\r\n")
            assert replies.readline() == b"USING orders\r\n"
            ids = []
            for body, pri, delay, ttr in jobs:
                connection.sendall(b"put %d %d %d %d\r\n%s\r\n" % (pri, delay, ttr, len(body), body))
                ids.append(int(replies.readline().split()[1]))
        server.terminate()
    gateway.topics.update(kept_in(tmp_path / "data"))
    kept = gateway.topics["orders"]
    table = read(gateway, "orders", kept.earliest, kept.next_seq)
    assert table["body"].to_pylist() == [body for body, *_ in jobs]
    assert [int(text[-16:], 16) for text in table["id"].to_pylist()] == ids
    assert [dict(pairs) for pairs in table["attributes"].to_pylist()] == [
        {"pri": str(pri), "ttr_ms": str(1000 * ttr)} | ({"delay_ms": str(1000 * delay)} if delay else {})
        for _, pri, delay, ttr in jobs
    ]
