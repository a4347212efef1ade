"""A broker serves soon after it was started, and an idle one is small: what that takes, without a look at a clock."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import SINGLE, free_port, running, wait_until

# Each of these takes milliseconds and megabytes, and nothing that happens before a broker serves needs it.
LATE = {
    "_hashlib", "aiohttp", "asyncio", "bz2", "cramjam", "crc32c", "ctypes", "email", "encodings.idna", "fractions",
    "hashlib", "hmac", "importlib.metadata", "multiprocessing", "numpy", "OpenSSL", "pyarrow", "secrets", "shutil",
    "ssl", "subprocess", "tempfile", "tomllib",
}  # fmt: skip
# Of its own: what files it maps take depends on how many other programs map them, libpython above all.
IDLE_KB = 26 << 10 | 512
DATA_KB = 2 << 10  # what a data directory of 64 shards adds


def test_nothing_is_loaded_that_serving_does_not_need() -> None:
    code = (
        "import mq_shards.supervisor.command, mq_shards.supervisor.supervisor, mq_shards.acceptor.process, "
        "mq_shards.shards.worker, mq_shards.gateway.load, sys\n"
        "from mq_shards.acceptor.protocols.nats.client import server_id_of\n"
        "from mq_shards.supervisor import listeners\n"
        "from mq_shards.supervisor.options.options import parse\n"
        "options = parse(['--memory', '--listen', 'http://127.0.0.1:0'])\n"
        "options.check_doors(options.listen)\n"
        "listeners.listen_on(options.listen, 1)\n"
        "server_id_of('0123456789abcdef')\n"
        "print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not LATE & set(loaded)


# Sends SIGINT to itself at the import of the first argument, and runs the command that the second names with the rest.
INTERRUPTED = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)
_, wanted, sys.argv[0], entry, *sys.argv[1:] = sys.argv
sys.meta_path.insert(0, Interrupting())
module, _, name = entry.rpartition(".")
signal.signal(signal.SIGINT, signal.default_int_handler)
__import__(module)
sys.exit(getattr(sys.modules[module], name)())
"""


@pytest.mark.parametrize(
    "loaded",
    [
        "typing", "logging", "mq_shards.supervisor.serve", "orjson", "mq_shards.supervisor.options.options",
        "mq_shards.supervisor.supervisor", "mq_shards.supervisor.mesh",
    ],
)  # fmt: skip
def test_an_interrupt_while_it_is_loaded_ends_it_without_a_word(loaded: str) -> None:
    assert interrupted(loaded, "mq-shards", "mq_shards.supervisor.command.main", "--memory") == (-signal.SIGINT, "")


def test_an_interrupt_ends_a_command_and_a_job_that_are_loaded_without_a_word() -> None:
    for loaded in ("argparse", "mq_shards.supervisor.terminal.show"):
        ended = interrupted(loaded, "mq-shards", "mq_shards.supervisor.command.main", "topics")
        assert ended == (-signal.SIGINT, "")
    ended = interrupted("pyspark.sql", "mq-pipeline", "mq_shards.pipeline.command.main", "readers")
    assert ended == (-signal.SIGINT, "")


def interrupted(loaded: str, *arguments: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, loaded, *arguments], stderr=subprocess.PIPE, text=True,
                          timeout=60, check=False)  # fmt: skip
    return done.returncode, done.stderr


def all_listeners() -> list[str]:
    return [
        word
        for scheme in ("nsq", "nsq-http", "nats", "http")
        for word in ("--listen", f"{scheme}://127.0.0.1:{free_port()}")
    ]


def own_kb(pid: int) -> int:
    """The process's share of anonymous and shared memory."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))


@pytest.mark.parametrize("durable", [False, True])
def test_an_idle_broker_is_small(durable: bool, tmp_path: Path) -> None:
    with running(SINGLE, options=all_listeners(), data_dir=tmp_path if durable else None, as_program=True) as server:
        wait_until(lambda: len(server.pids()) == 3, "all are there, but for a gateway")
        assert sum(own_kb(pid) for pid in server.pids()) < IDLE_KB + durable * DATA_KB


def request(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        sock.sendall(b"GET /ping HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: sock.recv(4096), b""))


def test_a_gateway_that_nobody_came_to_answers_the_first_and_knows_the_workers_of_now() -> None:
    port = free_port()
    with running(SINGLE, options=["--listen", f"nsq-http://127.0.0.1:{port}"]) as server:
        server.replace("mq-worker-0")
        assert request(port).endswith(b"OK")
        with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
            sock.sendall(b"POST /pub?topic=t HTTP/1.0\r\nContent-Length: 1\r\n\r\nx")
            assert b" 200 " in sock.recv(4096)


def test_a_gateway_whose_data_directory_is_elsewhere_says_so_in_a_line_until_it_is_back(tmp_path: Path) -> None:
    port, data = free_port(), tmp_path / "data"
    with running(SINGLE, data_dir=data, options=["--listen", f"nsq-http://127.0.0.1:{port}"]) as server:
        data.rename(tmp_path / "moved")
        with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
            sock.sendall(b"GET /ping HTTP/1.0\r\n\r\n")
            why = f"mq-gateway cannot serve: {data}/meta.json cannot be read: No such file or directory"
            wait_until(lambda: server.said().count(why) > 1, "it is tried again")
            assert "Traceback" not in server.said()
            (tmp_path / "moved").rename(data)
            assert sock.recv(4096).startswith(b"HTTP/1.0 200")
