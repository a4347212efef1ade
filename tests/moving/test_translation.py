"""mq-shards started as another server: what its flags come to, beside the real ones where they are there."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from mq_shards.acceptor.option_kinds import OptionsError
from mq_shards.supervisor.command import main
from mq_shards.supervisor.moving.table import translate
from mq_shards.supervisor.options.options import Options, parse

from tests.nsq import certificates
from tests.servers import ROOT, free_port, wait_until

SECOND = 1_000_000_000


def options_of(*arguments: str) -> Options:
    return parse(translate(arguments).arguments)


def listens(options: Options) -> list[str]:
    return [str(one) for one in options.listen]


def on_both(options: Options) -> list[str]:
    """Those with one socket for IPv6 and IPv4."""
    return [str(one) for one in options.listen if one.both]


def test_beanstalkd_without_flags_is_what_beanstalkd_is() -> None:
    options = options_of("beanstalkd")
    assert listens(options) == ["beanstalk://0.0.0.0:11300"] and on_both(options) == []
    assert options.data_dir is None and options.settings["beanstalk"]["max-job-size"] == 65535


def test_beanstalkd_with_a_binlog(tmp_path: Path) -> None:
    options = options_of("beanstalkd", "-b", str(tmp_path), "-p11301", "-l", "::1", "-z", "1000", "-f", "20", "-VV")
    assert listens(options) == ["beanstalk://[::1]:11301"] and on_both(options) == []
    assert on_both(options_of("beanstalkd", "-l", "::")) == ["beanstalk://[::]:11300"]
    assert options.data_dir == tmp_path / "mq-shards"
    assert (options.sync, options.settings["log"]["sync-interval"]) == ("interval", 20)
    assert (options.settings["beanstalk"]["max-job-size"], options.log_level) == (1000, "debug")


@pytest.mark.parametrize(
    ("flags", "sync"),
    [(["-f0"], "always"), (["-F"], "never"), (["-F", "-f0"], "always"), (["-f0", "-F"], "never"), ([], "interval")],
)
def test_the_last_of_f_and_capital_f_counts(flags: list[str], sync: str, tmp_path: Path) -> None:
    assert options_of("beanstalkd", "-b", str(tmp_path), *flags).sync == sync


def test_beanstalkds_values_in_all_the_spellings_that_it_takes() -> None:
    options = options_of("beanstalkd", "-p", "amqp", "-z", " +70000")
    assert listens(options) == ["beanstalk://0.0.0.0:5672"] and options.settings["beanstalk"]["max-job-size"] == 70000
    most = options_of("beanstalkd", "-z1073741825")
    assert most.settings["beanstalk"]["max-job-size"] == 1 << 30 and len(most.warnings) == 1


def test_beanstalkd_on_a_socket_file_and_as_another_user() -> None:
    options = options_of("beanstalkd", "-l", "unix:/run/b.sock", "-u", "nobody")
    assert listens(options) == ["beanstalk://unix:/run/b.sock"] and options.user == "nobody"


def test_what_has_no_meaning_or_is_left_behind_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "binlog.3").touch()
    notes = translate(["beanstalkd", "-b", str(tmp_path), "-s", "4096"]).notes
    assert len(notes) == 2 and any("-s has no effect" in note for note in notes)
    assert any("messages of beanstalkd" in note for note in notes)
    assert translate(["nats-server", "-T", "--logtime=true"]).notes == [], "every line has its time"
    assert translate(["nats-server", "-T=false"]).notes == ["-T=false has no effect: every line has its time"]


@pytest.mark.parametrize(
    "arguments",
    [["beanstalkd", "-x"], ["beanstalkd", "-p", "x"], ["beanstalkd", "here"], ["beanstalkd", "-b"], ["rabbitmq"], [],
     ["beanstalkd", "-p", "nothing"], ["beanstalkd", "-f", "x"], ["beanstalkd", "-s", "1k"], ["beanstalkd", "-z", "-1"],
     ["beanstalkd", "-b", "/nowhere"], ["nsqd", "-data-path=/nowhere"], ["nsqd", "-tcp-address=a:nothing"],
     ["nsqd", "-nonsense"], ["nsqd", "--tcp-address"], ["nsqd", "what"], ["nats-server", "--cluster", "nats://h:x"],
     ["nsqd", "--config=/nowhere.toml"], ["nats-server", "--what"], ["nats-server", "-p"], ["nats-server", "-p", "x"],
     ["nats-server", "here"], ["nats-server", "--routes", "nats-route://h:1"], ["nats-server", "-t"],
     ["nats-server", "-D=maybe"], ["nats-server", "---D"], ["nats-server", "-n", "a b"], ["nsqd", "-verbose=maybe"],
     ["nsqd", "---verbose"], ["nsqd", "-worker-id=5"], ["nsqd", "-mem-queue-size=x"], ["nsqd", "-log-level=warning"]],
)  # fmt: skip
def test_what_the_server_would_refuse_is_refused(arguments: list[str]) -> None:
    with pytest.raises(OptionsError):
        translate(arguments)


def test_nsqd_without_flags_is_what_nsqd_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    options = options_of("nsqd")
    assert listens(options) == ["nsq://0.0.0.0:4150", "nsq-http://0.0.0.0:4151"]
    assert options.data_dir == tmp_path / "mq-shards"


def test_nsqds_flags_in_all_of_gos_forms(tmp_path: Path) -> None:
    options = options_of(
        "nsqd", "--tcp-address=127.0.0.1:5000", "-http-address", "[::1]:5001", "-data-path", str(tmp_path),
        "--max-rdy-count", "77", "-msg-timeout=90s", "-snappy=false", "-deflate", "-lookupd-tcp-address=a:1",
        "--lookupd-tcp-address", "b:2", "-log-level=WARN", "-mem-queue-size=0",
    )  # fmt: skip
    nsq = options.settings["nsq"]
    assert listens(options) == ["nsq://127.0.0.1:5000", "nsq-http://[::1]:5001"]
    assert (nsq["max-rdy-count"], nsq["msg-timeout"], nsq["snappy"], nsq["deflate"]) == (77, 90 * SECOND, False, True)
    assert nsq["lookupd-tcp-address"] == ["a:1", "b:2"] and options.log_level == "warning"


def test_switches_in_all_of_gos_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [options_of("nsqd", f"-verbose{value}").log_level for value in ("", "=T", "=1", "=False", "=0")] == [
        "debug", "debug", "debug", "info", "info",
    ]  # fmt: skip
    assert [options_of("nats-server", f"-D{value}").log_level for value in ("", "=True", "=F")] == [
        "debug", "debug", "info",
    ]  # fmt: skip
    assert listens(options_of("nats-server", "-c", "", "-m", "-1"))[1].startswith("nats-http://0.0.0.0:0")


def test_nsqds_addresses_and_numbers_in_all_the_spellings_that_it_takes(tmp_path: Path) -> None:
    options = options_of(
        "nsqd", "-data-path", str(tmp_path), f"-tcp-address={tmp_path}/nsqd.sock", "-http-address=127.0.0.1:http",
        "-max-msg-size=0x100", "-max-body-size=1_000", "-worker-id", "-max-rdy-count=017",
    )  # fmt: skip
    assert listens(options) == [f"nsq://unix:{tmp_path}/nsqd.sock", "nsq-http://127.0.0.1:80"]
    nsq = options.settings["nsq"]
    assert (nsq["max-msg-size"], nsq["max-body-size"], nsq["max-rdy-count"]) == (256, 1000, 15)


def test_nsqds_file_in_all_the_spellings_that_it_takes(tmp_path: Path) -> None:
    file = tmp_path / "nsqd.cfg"
    file.write_text(
        'nsqlookupd_tcp_addresses = "x:1,y:2"\nmsg_timeout = 90000\nmax_req_timeout = "5000"\nformer_key = 1\n'
        'tls_cert = ""\ntls_key = ""\ntls_client_auth_policy = ""\ntls_root_ca_file = ""\n[nsqd]\nsnappy = false\n'
    )
    arguments = ["nsqd", "-data-path", str(tmp_path), "-config", str(file)]
    nsq = options_of(*arguments).settings["nsq"]
    assert (nsq["msg-timeout"], nsq["max-req-timeout"]) == (90 * SECOND, 5 * SECOND)
    assert nsq["lookupd-tcp-address"] == ["x:1", "y:2"]
    notes = translate(arguments).notes
    assert len(notes) == 2 and "no option former_key" in notes[0] and "no option nsqd" in notes[1]


def test_an_empty_address_in_the_file_that_nsqd_ships_is_this_hosts_name(tmp_path: Path) -> None:
    file = tmp_path / "nsqd.cfg"
    file.write_text('broadcast_address = ""\n')
    arguments = ["nsqd", "-data-path", str(tmp_path), "-config", str(file)]
    assert options_of(*arguments).settings["nsq"]["broadcast-address"]
    (note,) = translate(arguments).notes
    assert note.startswith("an empty -broadcast-address means the name of this host")


def test_nsqds_file_and_a_flag_that_wins_over_it(tmp_path: Path) -> None:
    file = tmp_path / "nsqd.cfg"
    file.write_text(
        'tcp_address = "127.0.0.1:1"\nmax_rdy_count = 5\nnsqlookupd_tcp_addresses = ["x:1", "y:2"]\n'
        'tls_required = false\nverbose = true\nid = 7\nmsg_timeout = "2m"\nmem_queue_size = 10\n'
    )
    options = options_of("nsqd", "-config", str(file), "-max-rdy-count=6")
    nsq = options.settings["nsq"]
    assert listens(options)[0] == "nsq://127.0.0.1:1" and options.log_level == "debug"
    assert (nsq["max-rdy-count"], nsq["node-id"], nsq["msg-timeout"]) == (6, 7, 120 * SECOND)
    assert nsq["lookupd-tcp-address"] == ["x:1", "y:2"]


def test_nsqds_https_is_served_where_there_is_a_certificate(tmp_path: Path) -> None:
    pair = certificates.make(tmp_path).server
    flags = ["nsqd", "-data-path", str(tmp_path), f"-tls-cert={pair.cert}", f"-tls-key={pair.key}"]
    options = options_of(*flags)
    assert "nsq-https://0.0.0.0:4152" in listens(options) and options.settings["tls"]["cert"] == str(pair.cert)
    assert "nsq-https" not in str(listens(options_of(*flags, "-https-address=")))
    assert "nsq-https" not in str(listens(options_of("nsqd", "-data-path", str(tmp_path))))


@pytest.mark.skipif(not (nsqd := shutil.which(str(ROOT / "build/nsq/nsqd"))), reason="there is no nsqd here")
def test_every_flag_of_the_real_nsqd_is_known(tmp_path: Path) -> None:
    said = subprocess.run([nsqd or "", "--help"], capture_output=True, text=True).stderr
    flags = [line.split()[0].lstrip("-") for line in said.splitlines() if line.startswith("  -")]
    assert len(flags) > 40
    for flag in flags:
        if flag in ("version", "help", "config"):
            continue
        try:
            translate(["nsqd", f"-{flag}=1", "-data-path", str(tmp_path)])
        except OptionsError as error:
            assert "no option" not in str(error)


@pytest.mark.skipif(shutil.which("beanstalkd") is None, reason="there is no beanstalkd here")
def test_every_flag_of_the_real_beanstalkd_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "1").mkdir()
    said = subprocess.run(["beanstalkd", "-h"], capture_output=True, text=True)
    for line in (said.stdout + said.stderr).splitlines():
        if line.startswith(" -"):
            flag, value, *_ = line.split()
            takes_value = value.isupper() and len(value) > 1
            translate(["beanstalkd", flag, *(["1"] if takes_value else [])])


def test_nats_server_without_flags_is_what_nats_server_is() -> None:
    options = options_of("nats-server")
    assert listens(options) == on_both(options) == ["nats://0.0.0.0:4222"] and options.data_dir is None


def test_what_is_every_address_to_go_is_so_of_both_kinds(tmp_path: Path) -> None:
    conf = tmp_path / "nats.conf"
    conf.write_text("host: ''\nhttp: 8222\ncluster { port: 6222 }\nwebsocket { listen: '[::]:8080', no_tls: true }\n")
    everywhere = [
        "nats-http://0.0.0.0:8222", "nats-route://0.0.0.0:6222", "nats-ws://[::]:8080", "nats://0.0.0.0:4222",
    ]  # fmt: skip
    assert sorted(on_both(options_of("nats-server", "-c", str(conf)))) == everywhere
    assert sorted(on_both(parse(["--nats-config", str(conf)]))) == everywhere
    assert on_both(options_of("nats-server", "-a", "", "-p", "1")) == ["nats://0.0.0.0:1"]
    assert on_both(options_of("nats-server", "-a", "127.0.0.1", "-m", "1")) == []
    nsqd = options_of("nsqd", "-tcp-address", ":1", "-http-address=[::]:2", "-data-path", str(tmp_path))
    assert listens(nsqd) == on_both(nsqd) == ["nsq://0.0.0.0:1", "nsq-http://[::]:2"]
    ours = options_of("nats-server", "--", "--listen", "nsq://0.0.0.0:1", "--listen", "nsq-http://[::]:2")
    assert on_both(ours) == ["nats://0.0.0.0:4222"]


def test_nats_servers_flags() -> None:
    options = options_of(
        "nats-server", "-a", "127.0.0.1", "--port=5000", "-m", "8222", "-n", "one", "--user", "u", "--pass=p", "-D",
        "--cluster", "nats://127.0.0.1:6222", "--routes", "nats-route://h:1,nats-route://i:2", "--cluster_name=c",
    )  # fmt: skip
    nats = options.settings["nats"]
    assert sorted(listens(options)) == [
        "nats-http://127.0.0.1:8222", "nats-route://127.0.0.1:6222", "nats://127.0.0.1:5000",
    ]  # fmt: skip
    assert (nats["server-name"], nats["user"], nats["password"], nats["cluster-name"]) == ("one", "u", "p", "c")
    assert nats["routes"] == ["nats-route://h:1", "nats-route://i:2"] and options.log_level == "debug"


def test_nats_servers_cluster_may_take_any_port(capsys: pytest.CaptureFixture[str]) -> None:
    assert "nats-route://127.0.0.1:0" in listens(options_of("nats-server", "--cluster", "nats://127.0.0.1:-1"))
    assert main(["as", "nats-server", "version"]) == main(["as", "nats-server", "help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("nats-server: v2.15.2\nmq-shards ")


def test_nats_servers_file_and_flags_that_win_over_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "nats.conf"
    file.write_text("listen: 127.0.0.1:5001\nserver_name: filed\nmax_payload: 2KB\n")
    options = options_of("nats-server", "-c", str(file), "-p", "5002", "--name", "flagged")
    assert listens(options) == ["nats://127.0.0.1:5002"]
    assert (options.settings["nats"]["server-name"], options.settings["nats"]["max-payload"]) == ("flagged", 2048)
    assert main(["as", "nats-server", "-t", "-c", str(file)]) == 0
    assert "the configuration is good" in capsys.readouterr().out
    assert main(["as", "nats-server", "-c", "/nowhere.conf"]) == 2


def test_nats_servers_signals_reach_the_one_that_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a chart has it: nats-server -sl=ldm=/var/run/nats/nats.pid."""
    told: list[int] = []
    numbers = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    before = {number: signal.signal(number, lambda n, _: told.append(n)) for number in numbers}
    try:
        (tmp_path / "pid").write_text(f"{os.getpid()}\n")
        assert main(["as", "nats-server", f"-sl=ldm={tmp_path}/pid"]) == 0
        assert main(["as", "nats-server", "--signal", f"reload={os.getpid()}"]) == 0
        assert main(["as", "nats-server", "-sl", f"reopen={os.getpid()}"]) == 0
        wait_until(lambda: told == [signal.SIGUSR2, signal.SIGHUP, signal.SIGUSR1], "all have come")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    (tmp_path / "pid").write_text("-1")
    ended = subprocess.Popen(["true"])
    ended.wait()
    for given, status, said in (
        (f"ldm={tmp_path}/pid", 2, "-1 is no process"), ("ldm=/nowhere", 2, "cannot read /nowhere"), ("ldm", 2, "-P"),
        ("ldm=99999999999", 2, "99999999999 is no process"), ("rotate=1", 2, "is none of"),
        (f"term={ended.pid}", 1, "No such process"),
    ):  # fmt: skip
        assert main(["as", "nats-server", "-sl", given]) == status
        assert said in capsys.readouterr().err


def test_nats_servers_tls_is_asked_for_and_put_aside(tmp_path: Path) -> None:
    pair = certificates.make(tmp_path).server
    files = [f"--tlscert={pair.cert}", f"--tlskey={pair.key}"]
    for flags in (files, ["--tls", *files]):
        assert options_of("nats-server", *flags).settings["nats"]["tls-cert-file"] == str(pair.cert)
    assert options_of("nats-server", "--tls=false", *files).settings["nats"]["tls-cert-file"] == ""
    with pytest.raises(OptionsError, match="--tls needs"):
        translate(["nats-server", "--tls"])


def test_nats_servers_encrypted_monitoring(tmp_path: Path) -> None:
    pair = certificates.make(tmp_path).server
    (from_flags,) = (
        one
        for one in options_of("nats-server", "-ms", "8223", f"--tlscert={pair.cert}", f"--tlskey={pair.key}").listen
        if one.protocol == "nats-https"
    )
    assert (from_flags.port, from_flags.both, from_flags.cert, from_flags.key) == (
        8223, True, str(pair.cert), str(pair.key),
    )  # fmt: skip
    file = tmp_path / "nats.conf"
    file.write_text(f'https_port: 8223\ntls {{ cert_file: "{pair.cert}", key_file: "{pair.key}" }}\n')
    (from_file,) = (one for one in options_of("nats-server", "-c", str(file)).listen if one.protocol == "nats-https")
    assert from_file == from_flags
    file.write_text('https: "127.0.0.1:8223"\n')
    with pytest.raises(OptionsError, match="https needs tls"):
        options_of("nats-server", "-c", str(file))
    with pytest.raises(OptionsError, match="-ms needs"):
        translate(["nats-server", "-ms", "8223"])


def test_jetstream_is_one_line() -> None:
    assert ["JetStream" in note for note in translate(["nats-server", "-js"]).notes] == [True]


@pytest.mark.skipif(not (nats_server := shutil.which(str(ROOT / "build/nats/nats-server"))), reason="it is not here")
def test_every_flag_of_the_real_nats_server_is_known() -> None:
    said = subprocess.run([nats_server or "", "--help"], capture_output=True, text=True)
    flags = re.findall(r"(?:^    |, )(-{1,2}\w+)", said.stdout + said.stderr, re.MULTILINE)
    assert len(flags) > 35
    for flag in flags:
        try:
            translate(["nats-server", f"{flag}=1"])
        except OptionsError as error:
            assert "no option" not in str(error)


def test_ones_own_options_follow_two_dashes() -> None:
    assert options_of("beanstalkd", "-p", "1", "--", "--workers", "3").workers == 3


def test_it_runs_under_another_servers_flags(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "mq_shards.supervisor.command", "as", "beanstalkd"]
    process = subprocess.Popen([*command, "-l127.0.0.1", f"-p{port}", "-b", str(tmp_path), "-Vz", "100"], cwd=ROOT,
                               stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        heard = b""

        def answers() -> bool:
            nonlocal heard
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
                    client.sendall(b"put 0 0 60 101\r\n" + b"x" * 101 + b"\r\nput 0 0 60 5\r\nhello\r\n")
                    heard = b""
                    while heard.count(b"\r\n") < 2:
                        heard += client.recv(100)
            except OSError:
                return False
            return True

        wait_until(answers, "it answers")
        assert heard.startswith(b"JOB_TOO_BIG\r\nINSERTED ")
    finally:
        process.terminate()
        assert process.wait(20) == 0
    assert (tmp_path / "mq-shards").is_dir()


def test_a_reload_reads_the_other_servers_file_again(tmp_path: Path) -> None:
    file, port = tmp_path / "nats.conf", free_port()

    def write(port: int, payload: int) -> None:
        file.write_text(f"listen: 127.0.0.1:{port}\nmax_payload: {payload}\n")

    write(port, 1000)
    command = [sys.executable, "-m", "mq_shards.supervisor.command", "as", "nats-server", "-c", str(file)]
    with (tmp_path / "said").open("w+") as sink:
        process = subprocess.Popen(command, cwd=ROOT, stderr=sink)

        def hears(text: str) -> None:
            wait_until(lambda: text in (tmp_path / "said").read_text(), text)

        try:
            hears("Server is ready")
            write(port, 2000)
            process.send_signal(signal.SIGHUP)
            hears("reloaded: nats.max-payload = 2000")
            write(free_port(), 3000)
            process.send_signal(signal.SIGHUP)
            hears("cannot reload, nothing is changed: only a restart can change listen")
        finally:
            process.terminate()
            assert process.wait(20) == 0


def test_a_configuration_is_checked_without_starting(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["check-config", "--memory", "--listen", "nsq://127.0.0.1:1"]) == 0
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "listens on nsq://127.0.0.1:1", "keeps messages in memory only", "the configuration is good",
    ]  # fmt: skip
    assert main(["check-config", "as", "beanstalkd", "-b", str(tmp_path), "-s", "1"]) == 0
    assert "warning: -s has no effect" in capsys.readouterr().out
    (tmp_path / "file").touch()
    assert main(["check-config", "--data-dir", str(tmp_path / "file"), "--user", "nobody-of-that-name"]) == 1
    said = capsys.readouterr()
    assert 'mq-shards: --user: there is no "nobody-of-that-name"\n' in said.err
    assert f"the data directory {tmp_path / 'file'} cannot be made: {tmp_path / 'file'} is no directory\n" in said.err
    assert said.out.endswith("the configuration is good, but not for this machine\n")
    assert main(["check-config", "--set", "nsq.nonsense=1"]) == 2
    assert "nonsense" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["as", "beanstalkd", "-v"], ["as", "nsqd", "--version"], ["as", "nsqd", "-h"]])
def test_version_and_help_are_said_and_nothing_is_run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    assert arguments[1] in capsys.readouterr().out
