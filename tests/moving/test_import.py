"""What a real beanstalkd and a real nsqd have left on their disks, taken over: all of it, and once."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import greenstalk
import pytest
from mq_shards.shards.whole_directory import making
from mq_shards.supervisor.moving.table import translate
from mq_shards.supervisor.terminal.importing import beanstalkd, log_writer, nsqd

from tests import servers
from tests.nsq.api import channel_stats, post, stats
from tests.nsq.servers import NSQD, SHARDS, NsqServer
from tests.nsq.servers import running as nsq_running
from tests.nsq.wire import Wire
from tests.servers import BEANSTALKD, SINGLE, running, wait_until
from tests.terminal.commands import MQ, done, run

needs_beanstalkd = pytest.mark.skipif(BEANSTALKD.missing is not None, reason="there is no beanstalkd")
needs_nsqd = pytest.mark.skipif(NSQD.missing is not None, reason="there is no nsqd")
FIGURES = ("current-jobs-urgent", "current-jobs-ready", "current-jobs-delayed", "current-jobs-buried")
OF_A_JOB = ("tube", "state", "pri", "ttr", "reserves", "timeouts", "releases", "buries", "kicks")


def client(server: servers.Server, tube: str) -> greenstalk.Client:
    return greenstalk.Client(("127.0.0.1", server.port), use=tube, watch=tube, encoding=None)


def fill(server: servers.Server) -> None:
    """Jobs of all states, some of which have come and gone; more than a file of the binlog holds."""
    rng = random.Random(7)
    for tube in ("mail", "default", "a/very.odd-name;($)"):
        with client(server, tube) as c:
            for n in range(150):
                c.put(rng.randbytes(n * 5) + b"%d" % n, priority=n % 5, ttr=50 + n, delay=3600 if n % 10 == 9 else 0)
            for n in range(40):
                job = c.reserve(timeout=0)
                match n % 4:
                    case 0:
                        c.delete(job)
                    case 1:
                        c.bury(job, priority=77)
                    case 2:
                        c.release(job, priority=3, delay=500 if n % 8 == 2 else 0)
            c.kick(3)
            c.kick_job(c.peek_delayed())


def described(server: servers.Server) -> dict[str, tuple[dict[str, int], Counter[tuple[object, ...]]]]:
    """By tube: its figures, and its jobs' bodies with what is known of each. Takes them."""
    found = {}
    with client(server, "default") as c:
        tubes = sorted(c.tubes())
    for tube in tubes:
        with client(server, tube) as c:
            figures = {name: int(c.stats_tube(tube)[name]) for name in FIGURES}
            jobs: Counter[tuple[object, ...]] = Counter()
            for peek in (c.peek_buried, c.peek_delayed):
                while (job := peeked(peek)) is not None:
                    about = c.stats_job(job)
                    # beanstalkd counts what it buries once more when it starts.
                    about["buries"] -= about["state"] == "buried" and server.shape is BEANSTALKD
                    jobs[job.body, *(about[name] for name in OF_A_JOB), about["delay"]] += 1
                    c.delete(job)
            order = []
            while figures["current-jobs-ready"] > len(order):
                job = c.reserve(timeout=0)
                about = c.stats_job(job)
                order.append(job.body)
                jobs[job.body, *(about[name] for name in OF_A_JOB), about["delay"]] += 1
            found[tube] = figures, jobs
            found[tube + " in order"] = {}, Counter(dict.fromkeys(enumerate(order), 1))
    return found


def peeked(peek: object) -> greenstalk.Job | None:
    assert callable(peek)
    try:
        job: greenstalk.Job = peek()
    except greenstalk.NotFoundError:
        return None
    return job


@needs_beanstalkd
@pytest.mark.parametrize("shards", ["64", "1"])
def test_all_jobs_of_a_beanstalkd_with_their_states(tmp_path: Path, shards: str) -> None:
    source, copy = tmp_path / "binlog", tmp_path / "copy"
    source.mkdir()
    with running(BEANSTALKD, data_dir=source, options=("-s", "20000", "-f", "0")) as real:
        fill(real)
        running_says = run("import", "beanstalkd", str(source))
        assert (running_says.returncode, b"stop it first" in running_says.stderr) == (1, True)
        real.terminate()
    assert len(list(source.glob("binlog.*"))) > 2
    shutil.copytree(source, copy)
    assert len(translate(["beanstalkd", "-b", str(source)]).notes) == 1, "they are not read"
    said = done("import", "beanstalkd", str(source), "--shards", shards)
    assert b"3 tubes" in said
    assert translate(["beanstalkd", "-b", str(source)]).notes == []
    with running(BEANSTALKD, data_dir=copy) as real:
        ids = jobs_by_id(real)
        expected = described(real)
    with running(SINGLE, data_dir=source / "mq-shards") as ours:
        if shards == "1":
            assert jobs_by_id(ours) == ids
            with client(ours, "new") as c:
                assert c.put(b"x") == max(ids) + 1
                c.delete(c.reserve(timeout=0))
        assert described(ours) == expected
        assert "damage" not in ours.said()
        ours.kill()
    with running(SINGLE, data_dir=source / "mq-shards") as ours:
        assert sum(figures["current-jobs-buried"] for figures, _ in described(ours).values() if figures) == 0


def jobs_by_id(server: servers.Server) -> dict[int, bytes]:
    found = {}
    with client(server, "default") as c:
        for n in range(1, 600):
            try:
                found[n] = c.peek(n).body
            except greenstalk.NotFoundError:
                continue
    return found


@needs_beanstalkd
def test_a_delay_goes_on_where_it_was(tmp_path: Path) -> None:
    with running(BEANSTALKD, data_dir=tmp_path, options=("-f", "0")) as real:
        with client(real, "t") as c:
            c.put(b"later", delay=100)
        time.sleep(1.1)
        real.terminate()
    done("import", "beanstalkd", str(tmp_path))
    with running(SINGLE, data_dir=tmp_path / "mq-shards") as ours, client(ours, "t") as c:
        assert 90 <= c.stats_job(c.peek_delayed())["time-left"] <= 98


@needs_beanstalkd
def test_a_binlog_that_a_crash_cut_short_is_read_up_to_there(tmp_path: Path) -> None:
    with running(BEANSTALKD, data_dir=tmp_path, options=("-f", "0")) as real:
        with client(real, "t") as c:
            for n in range(10):
                c.put(b"%d" % n)
        real.kill()
    log = tmp_path / "binlog.1"
    data = log.read_bytes()
    end = data.rindex(b"9\r\n")
    log.write_bytes(data[:end])
    result = run("import", "beanstalkd", str(tmp_path))
    assert result.returncode == 0
    assert b"no whole record" in result.stderr
    assert b"9 jobs" in result.stdout


@needs_beanstalkd
def test_what_a_binlog_lacks_is_said(tmp_path: Path) -> None:
    with running(BEANSTALKD, data_dir=tmp_path, options=("-s", "4096", "-f", "0")) as real:
        with client(real, "t") as c:
            for _ in range(100):
                c.put(b"x" * 200)
        real.terminate()
    (tmp_path / "binlog.2").unlink()
    os.truncate(tmp_path / "binlog.4", 0)
    result = run("import", "beanstalkd", str(tmp_path))
    assert result.returncode == 0
    assert b"has nothing between binlog.1 and binlog.3: jobs put there are missing" in result.stderr
    assert b"binlog.4 is empty: jobs put there are missing" in result.stderr


def killed_while_it_imports(system: str, source: Path) -> None:
    """Kills imports at several moments, and lets the last one end."""
    target, made = source / "mq-shards", source / "mq-shards.importing"
    kills = 0
    for _ in range(40):
        process = subprocess.Popen([*MQ, "import", system, str(source)], cwd=servers.ROOT, stdout=subprocess.PIPE)
        while process.poll() is None and not made.exists():
            time.sleep(0.0005)
        time.sleep(0.004 * kills)
        process.send_signal(signal.SIGKILL)
        assert process.stdout is not None
        process.stdout.close()
        if process.wait(20) != -signal.SIGKILL:
            break
        kills += 1
        assert not target.exists() or not made.exists()
        if kills == 8 or target.exists():
            break
    assert kills > 0
    done("import", system, str(source))
    assert b"nothing to do" in done("import", system, str(source))
    assert not made.exists()


@needs_beanstalkd
def test_an_import_that_is_killed_is_done_again_and_never_twice(tmp_path: Path) -> None:
    source = tmp_path / "binlog"
    source.mkdir()
    with running(BEANSTALKD, data_dir=source, options=("-f", "50")) as real:
        with client(real, "t") as c:
            for n in range(4000):
                c.put(b"%d" % n)
        real.terminate()
    killed_while_it_imports("beanstalkd", source)
    with running(SINGLE, data_dir=source / "mq-shards") as ours, client(ours, "t") as c:
        assert c.stats_tube("t")["current-jobs-ready"] == 4000
        assert [c.reserve(timeout=0).body for _ in range(3)] == [b"0", b"1", b"2"]


@needs_nsqd
def test_an_import_of_nsqds_that_is_killed_is_done_again_and_never_twice(tmp_path: Path) -> None:
    source = tmp_path / "nsq"
    with nsq_running(NSQD, {"mem-queue-size": "100", "max-bytes-per-file": "20000"}, data_dir=source) as real:
        for channel in ("c", "d"):
            post(real, "/topic/create?topic=t")
            post(real, f"/channel/create?topic=t&channel={channel}")
        sent = {b"%d" % n for n in range(3000)}
        post(real, "/mpub?topic=t", b"\n".join(sent))
        wait_until(lambda: depth(real, "t", "d") == depth(real, "t", "c") == 3000, "they are handed out")
        consume(real, "c", {b"%d" % n for n in range(1000)})
        stopped(real)
    killed_while_it_imports("nsqd", source)
    with nsq_running(SHARDS, data_dir=source / "mq-shards") as ours:
        assert (depth(ours, "t", "c"), depth(ours, "t", "d")) == (2000, 3000)
        assert Counter(consume(ours, "d", sent)) == Counter(sent)


@needs_beanstalkd
@needs_nsqd
def test_while_one_imports_no_other_does_and_no_server_starts(tmp_path: Path) -> None:
    (tmp_path / "binlog.1").write_bytes((7).to_bytes(4, "little"))
    (tmp_path / "lock").touch()
    (tmp_path / "nsqd.dat").write_text('{"topics": []}')
    here = "127.0.0.1:0"
    for locked, server in (
        (beanstalkd.locked, [BEANSTALKD.program, "-l", "127.0.0.1", "-p", "0", "-b", str(tmp_path)]),
        (nsqd.locked, [NSQD.program, f"-tcp-address={here}", f"-http-address={here}", f"-data-path={tmp_path}"]),
    ):
        with locked(tmp_path):
            assert subprocess.run(server, capture_output=True, timeout=30, check=False).returncode > 0
    target = tmp_path / "mq-shards"
    with making(target, ".importing") as made, log_writer.LogWriter(made, 1) as log:
        for system in ("beanstalkd", "nsqd"):
            result = run("import", system, str(tmp_path))
            assert (result.returncode, result.stdout) == (1, b"")
            assert b"another process makes" in result.stderr and result.stderr.count(b"\n") == 1
        log.finish(b'{"from": "nsqd", "source": "/x", "at_ns": %d}\n' % time.time_ns())
    assert b"nothing to do" in done("import", "nsqd", str(tmp_path))
    other = tmp_path / "other"
    other.mkdir()
    (other / "nsqd.dat").write_text('{"topics": []}')
    for arguments in (("beanstalkd", str(tmp_path)), ("nsqd", str(other), "--data-dir", str(target))):
        result = run("import", *arguments)
        assert (result.returncode, result.stderr.count(b"\n")) == (1, 1) and b"from /x, of nsqd" in result.stderr


def test_what_a_server_wrote_after_the_import_is_not_passed_over(tmp_path: Path) -> None:
    """Somebody went back to it, with the same directory, and comes again."""
    (tmp_path / "nsqd.dat").write_text('{"topics": []}')
    done("import", "nsqd", str(tmp_path))
    assert b"nothing to do" in done("import", "nsqd", str(tmp_path))
    assert translate(["nsqd", f"-data-path={tmp_path}"]).notes == []
    later_ns = time.time_ns() + 1_000_000_000
    os.utime(tmp_path / "nsqd.dat", ns=(later_ns, later_ns))
    result = run("import", "nsqd", str(tmp_path))
    assert (result.returncode, result.stderr.count(b"\n")) == (1, 1) and b"was written to after" in result.stderr
    assert "which are not read" in translate(["nsqd", f"-data-path={tmp_path}"]).notes[0]
    done("import", "nsqd", str(tmp_path), "--data-dir", str(tmp_path / "again"))


@needs_beanstalkd
def test_without_room_for_it_an_import_leaves_nothing(tmp_path: Path) -> None:
    with running(BEANSTALKD, data_dir=tmp_path, options=("-f", "0")) as real:
        with client(real, "t") as c:
            for _ in range(40):
                c.put(b"x" * 60_000)
        real.terminate()
    files = sorted(tmp_path.iterdir())
    command = shlex.join([*MQ, "import", "beanstalkd", str(tmp_path)])
    result = subprocess.run(["sh", "-c", f"ulimit -f 1000; exec {command}"], cwd=servers.ROOT, capture_output=True)
    assert (result.returncode, result.stderr.count(b"\n")) == (1, 1), result
    assert sorted(tmp_path.iterdir()) == files
    assert b"40 jobs" in done("import", "beanstalkd", str(tmp_path))


@needs_nsqd
def test_what_each_channel_of_an_nsqd_has_not_finished(tmp_path: Path) -> None:
    source = tmp_path / "nsq"
    sent = [b"%d" % n for n in range(600)]
    with nsq_running(NSQD, {"mem-queue-size": "10"}, data_dir=source) as real:
        for channel in ("all", "none", "some", "later"):
            if channel != "later":
                post(real, "/topic/create?topic=t")
                post(real, f"/channel/create?topic=t&channel={channel}")
        post(real, "/mpub?topic=t", b"\n".join(sent[:400]))
        taken = {b for b in sent[:400] if int(b) % 3 == 0}
        wait_until(lambda: depth(real, "t", "all") == 400, "they are handed out")
        consume(real, "none", set(sent[:400]))
        consume(real, "some", taken)
        post(real, "/channel/create?topic=t&channel=later")
        post(real, "/mpub?topic=t", b"\n".join(sent[400:]))
        wait_until(lambda: depth(real, "t", "later") == 200, "they are handed out")
        consume(real, "none", set(sent[400:500]))
        post(real, "/channel/pause?topic=t&channel=all")
        post(real, "/topic/create?topic=alone")
        post(real, "/mpub?topic=alone", b"x\ny\nz")
        post(real, "/topic/create?topic=empty")
        post(real, "/channel/create?topic=empty&channel=c")
        post(real, "/topic/create?topic=stopped")
        post(real, "/channel/create?topic=stopped&channel=c")
        post(real, "/topic/pause?topic=stopped")
        post(real, "/mpub?topic=stopped", b"a\nb")
        assert b"stop it first" in run("import", "nsqd", str(source)).stderr
        stopped(real)
    said = done("import", "nsqd", str(source))
    assert b"4 topics, 6 channels, 605 messages" in said
    with nsq_running(SHARDS, data_dir=source / "mq-shards") as ours:
        assert {one["topic_name"] for one in stats(ours)["topics"]} == {"t", "alone", "empty", "stopped"}
        left = {"all": set(sent), "none": set(sent[500:]), "some": set(sent) - taken, "later": set(sent[400:])}
        all_of = channel_stats(ours, "t", "all")
        assert all_of is not None
        assert all_of["paused"]
        post(ours, "/channel/unpause?topic=t&channel=all")
        assert depth(ours, "alone") == 3
        assert depth(ours, "stopped") == 2, "what a topic that is paused keeps"
        assert depth(ours, "stopped", "c") == 0
        post(ours, "/topic/unpause?topic=stopped")
        wait_until(lambda: depth(ours, "stopped", "c") == 2, "it goes on")
        for channel, bodies in left.items():
            assert depth(ours, "t", channel) == len(bodies), channel
            assert Counter(consume(ours, channel, bodies)) == Counter(bodies), channel
            assert depth(ours, "t", channel) == 0
        ours.kill()
    with nsq_running(SHARDS, data_dir=source / "mq-shards") as ours:
        assert all(depth(ours, "t", channel) == 0 for channel in left)


@needs_nsqd
def test_files_that_nsqd_has_read_and_removed_are_not_waited_for(tmp_path: Path) -> None:
    """It says now and then where it reads: when it was killed that file may be gone, and the next ones are there."""
    source = tmp_path / "nsq"
    with nsq_running(NSQD, {"mem-queue-size": "0", "max-bytes-per-file": "1000"}, data_dir=source) as real:
        post(real, "/topic/create?topic=t")
        post(real, "/channel/create?topic=t&channel=c")
        post(real, "/mpub?topic=t", b"\n".join(b"%03d" % n for n in range(100)))
        wait_until(lambda: waiting(real, "c") == 100, "they are handed out")
        stopped(real)
    files = sorted(source.glob("t:c.diskqueue.0*.dat"))
    gone = files[0].stat().st_size // (4 + 26 + 3)
    assert len(files) > 2 and gone > 10
    lacking = shutil.copytree(source, tmp_path / "lacking")
    files[0].unlink()
    result = run("import", "nsqd", str(source))
    assert result.returncode == 0 and b"000000.dat is not there: it is read from" in result.stderr
    for name, spoil in (("unnoted", Path.unlink), ("damaged", lambda path: path.write_text("1\n0"))):
        copy = shutil.copytree(lacking, tmp_path / name)
        spoil(copy / "t:c.diskqueue.meta.dat")
        result = run("import", "nsqd", str(copy))
        assert result.returncode == 0 and b"100 messages" in result.stdout
        assert b"t:c.diskqueue.meta.dat is " in result.stderr and b"000000.dat on are taken over" in result.stderr
    (lacking / files[1].name).unlink()
    os.truncate(lacking / files[-1].name, files[-1].stat().st_size - (4 + 26 + 3))
    result = run("import", "nsqd", str(lacking))
    assert result.returncode == 0 and b"000001.dat is not there: messages are missing" in result.stderr
    assert files[-1].name.encode() + b" ends at byte" in result.stderr
    with nsq_running(SHARDS, data_dir=source / "mq-shards") as ours:
        assert waiting(ours, "c") == 100 - gone


@pytest.mark.long
@needs_beanstalkd
def test_a_binlog_whose_files_were_emptied_has_the_jobs_that_the_real_one_finds_in_it(tmp_path: Path) -> None:
    source, copy = tmp_path / "binlog", tmp_path / "copy"
    source.mkdir()
    with running(BEANSTALKD, data_dir=source, options=("-s", "20000", "-f", "0")) as real:
        with client(real, "t") as c:
            for n in range(30):
                c.put(b"kept %d" % n, priority=n, delay=1000 if n % 3 == 0 else 0)
            for n in range(2000):
                c.put(b"x" * 300, priority=1 << 31)
                if n % 50 == 0:
                    c.reserve(timeout=0)
                else:
                    peeked_at = c.peek_ready()
                    c.delete(peeked_at)
        real.kill()
    assert not (source / "binlog.1").exists(), "it was emptied into later ones"
    shutil.copytree(source, copy)
    done("import", "beanstalkd", str(source))
    with running(BEANSTALKD, data_dir=copy) as real:
        expected = described(real)
    with running(SINGLE, data_dir=source / "mq-shards") as ours:
        assert described(ours) == expected


@pytest.mark.long
@needs_nsqd
@pytest.mark.parametrize("kill", [signal.SIGTERM, signal.SIGKILL])
def test_queues_on_disk_have_what_the_real_one_finds_in_them(tmp_path: Path, kill: signal.Signals) -> None:
    """Also in the midst of writing, with many files, messages in flight and deferred ones."""
    source, copy = tmp_path / "nsq", tmp_path / "copy"
    options = {"mem-queue-size": "0", "sync-every": "50", "max-bytes-per-file": "1000"}
    with nsq_running(NSQD, options, data_dir=source) as real:
        for channel in ("c", "d"):
            post(real, "/topic/create?topic=t")
            post(real, f"/channel/create?topic=t&channel={channel}")
        post(real, "/mpub?topic=t", b"\n".join(b"%d" % n for n in range(500)))
        for n in range(20):
            post(real, "/pub?topic=t&defer=60000", b"late %d" % n)
        wait_until(lambda: waiting(real, "d") == 520, "they are handed out")
        with Wire(real) as wire:
            wire.subscribe("t", "c", 50)
            taken = [wire.message() for _ in range(50)]
            wire.fin(*taken[:20])
            wait_until(lambda: in_flight(real, "c") == 50, "they are away")
            real.process.send_signal(kill)
            real.process.wait(20)
            real.was_killed = True
    shutil.copytree(source, copy)
    assert run("import", "nsqd", str(source)).returncode == 0
    with nsq_running(NSQD, {"mem-queue-size": "10"}, data_dir=copy) as real:
        wait_until(lambda: channel_stats(real, "t", "d") is not None, "it has read them")
        expected = {channel: waiting(real, channel) for channel in ("c", "d")}
    with nsq_running(SHARDS, data_dir=source / "mq-shards") as ours:
        for channel, count in expected.items():
            if kill == signal.SIGTERM:
                assert waiting(ours, channel) == count > 400, channel
            # nsqd's own count is of when it last wrote it down; deferred ones it has in memory only.
            assert 500 - (70 if channel == "c" else 0) <= waiting(ours, channel) <= 520, channel


def stopped(server: NsqServer) -> None:
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(20)
    server.was_killed = True


def in_flight(server: NsqServer, channel: str) -> int:
    found = channel_stats(server, "t", channel)
    return -1 if found is None else int(found["in_flight_count"])


def waiting(server: NsqServer, channel: str) -> int:
    """In t, for its consumers."""
    found = channel_stats(server, "t", channel)
    return -1 if found is None else int(found["depth"] + found["deferred_count"])


def depth(server: NsqServer, topic: str, channel: str = "") -> int:
    for one in stats(server, topic=topic)["topics"]:
        if not channel:
            return int(one["depth"])
        return sum(c["depth"] + c["in_flight_count"] for c in one["channels"] if c["channel_name"] == channel)
    return -1


def consume(server: NsqServer, channel: str, wanted: set[bytes]) -> list[bytes]:
    """Takes those from t, and leaves the others, which it has in flight until it goes."""
    found = []
    with Wire(server) as wire:
        wire.subscribe("t", channel, 2500)
        while len(found) < len(wanted):
            message = wire.message()
            if message.body in wanted:
                wire.fin(message)
                found.append(message.body)
        wire.send(b"CLS\n")
    wait_until(lambda: channel_stats(server, "t", channel)["client_count"] == 0, "it has gone")  # type: ignore[index]
    return found


def test_what_is_no_source_or_no_target_is_said(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    for arguments, said in (
        (("beanstalkd", str(tmp_path / "none")), "is no directory"),
        (("beanstalkd", str(tmp_path)), "has no binlog"),
        (("nsqd", str(tmp_path)), "is no data path of an nsqd"),
        (("nsqd", str(tmp_path), "--data-dir", str(tmp_path / "full")), "is no data directory, and not empty"),
    ):
        result = run("import", *arguments)
        assert (result.returncode, said in result.stderr.decode()) == (1, True), result
        assert result.stderr.count(b"\n") == 1
    assert run("import", "kafka", "d").returncode == 2
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


@pytest.mark.parametrize("system, name", [
    ("beanstalkd", "binlog.2"), ("nsqd", "nsqd.dat"), ("nsqd", "t.diskqueue.meta.dat"),
    ("nsqd", "t.diskqueue.000000.dat"),
])  # fmt: skip
def test_what_is_no_file_in_a_files_place_is_said_and_not_waited_for(system: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "binlog.1").write_bytes((7).to_bytes(4, "little"))
    (tmp_path / "nsqd.dat").write_text('{"topics": [{"name": "t", "channels": []}]}')
    (tmp_path / "t.diskqueue.meta.dat").write_text("1\n0,0\n0,100\n")
    for make in (os.mkfifo, Path.mkdir):
        (tmp_path / name).unlink(missing_ok=True)
        make(tmp_path / name)
        result = run("import", system, str(tmp_path))
        assert (result.returncode, name in result.stderr.decode()) == (1, True), result
        assert result.stderr.count(b"\n") == 1
    assert not list(tmp_path.glob("mq-shards*"))


def test_a_log_of_several_segments_is_one_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "SEGMENT_BYTES", 40_000)
    sent = [b"%d" % n for n in range(2000)]
    with log_writer.LogWriter(tmp_path / "data", 2) as log:
        topic = log.topic(b"t", 1, is_durable=True)
        log.channel(topic, "all", paused=False)
        for body in sent[:1000]:
            log.publish(topic, body, 1, 1024, 60_000_000_000)
        later = log.channel(topic, "later", paused=True)
        for body in sent[1000:]:
            log.publish(topic, body, 1, 1024, 60_000_000_000)
        log.passed(topic, later, 1500, range(1000, 1490))
        log.finish(b"{}\n")
    assert len(list((tmp_path / "data").glob("shard-*/*.log"))) >= 3
    with nsq_running(SHARDS, data_dir=tmp_path / "data") as ours:
        assert (depth(ours, "t", "all"), depth(ours, "t", "later")) == (2000, 510)
        assert Counter(consume(ours, "all", set(sent))) == Counter(sent)
        post(ours, "/channel/unpause?topic=t&channel=later")
        assert set(consume(ours, "later", set(sent[1490:]))) == set(sent[1490:])
        assert "error" not in ours.said()
