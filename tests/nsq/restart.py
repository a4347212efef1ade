"""Stopping a broker and starting it again where its clients look for it."""

from __future__ import annotations

from tests.nsq.servers import HOST, NsqServer, wait_for_magic
from tests.starting import begin


def start_again(server: NsqServer) -> None:
    """The same command on the same ports, after it has ended."""
    assert server.process.poll() is not None, "it still runs"
    ports = {f"--listen=nsq://{HOST}:0": server.port, f"--listen=nsq-http://{HOST}:0": server.http_port}
    given = [str(argument) for argument in server.process.args]  # type: ignore[union-attr]
    arguments = [
        f"{argument.removesuffix('0')}{ports[argument]}" if argument in ports else argument for argument in given
    ]
    with server.stderr.open("ab") as sink:
        server.process = begin(arguments, sink, is_ours=server.shape.is_shards)
    wait_for_magic(server)
