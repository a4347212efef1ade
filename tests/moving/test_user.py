"""--user: bound as root, served as somebody else."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from pathlib import Path

import pytest

from tests import servers
from tests.nsq import certificates
from tests.servers import Shape, children

NOBODY = "nobody"
SHAPE = Shape("shards-1", "mq-shards", ("--workers", "1"))


def owners(pid: int) -> set[int]:
    fields = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("Uid"))
    return {int(word) for word in fields.split()[1:]}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_no_process_is_roots_any_more_and_the_data_belongs_to_the_user() -> None:
    wanted = pwd.getpwnam(NOBODY).pw_uid
    place = Path(tempfile.mkdtemp(prefix="user-"))
    try:
        os.chown(place, wanted, -1)
        file = place / "socket"
        options = ["--user", NOBODY, "--listen", "beanstalk://127.0.0.1:0", "--listen", f"nsq://unix:{file}"]
        with servers.running(SHAPE, data_dir=place / "data", options=options) as server:
            for pid in [server.process.pid, *children(server.process.pid)]:
                assert owners(pid) == {wanted}
            assert (place / "data").stat().st_uid == wanted
            assert (file.stat().st_uid, file.stat().st_gid) == (wanted, pwd.getpwnam(NOBODY).pw_gid)
            assert server.terminate() == 0
    finally:
        shutil.rmtree(place)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_key_that_the_user_cannot_read_is_one_line(tmp_path: Path) -> None:
    pair = certificates.make(tmp_path).server
    Path(pair.key).chmod(0o600)
    tls = ["--set", f"tls.cert={pair.cert}", "--set", f"tls.key={pair.key}"]
    with pytest.raises(RuntimeError, match=r"ended with 2:[^\0]*mq-shards: tls.cert [^\n]*: Permission denied"):
        servers.start(SHAPE, options=["--user", NOBODY, "--listen", "beanstalks://127.0.0.1:0", *tls])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_program_that_the_user_cannot_read_is_one_line_where_http_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mq_shards").symlink_to(servers.ROOT)
    tmp_path.chmod(0o700)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    options = ["--user", NOBODY, "--memory", "--listen", "http://127.0.0.1:0"]
    with pytest.raises(RuntimeError, match=r"ended with 1:[^\0]*mq-shards: --user: nobody cannot read /[^\n]*HTTP"):
        servers.start(SHAPE, options=options)


def test_a_user_that_is_not_there_is_one_line() -> None:
    with pytest.raises(RuntimeError, match='--user: there is no "no-such-user"'):
        servers.start(SHAPE, options=["--user", "no-such-user"])
