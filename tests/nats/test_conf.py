"""nats-server's configuration file: read as nats-server reads it, and what follows from it."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from mq_shards.acceptor.option_kinds import OptionsError
from mq_shards.acceptor.protocols.nats.conf import ConfError, Value, read
from mq_shards.acceptor.protocols.nats.conf_keys import read_conf
from mq_shards.supervisor.options.options import Options, parse

from tests.nats.servers import nats_server, running

CONFS = Path(__file__).with_name("confs")
# What `nats-server -t -c` says of each: a digest of all values, or nothing if it refuses the file (record_confs.py).
DIGESTS: dict[str, str] = json.loads((CONFS / "digests.json").read_text())
ENVIRONMENT = {"POD_NAME": "pod-1", "PASSWORD": "'from the environment'"}


def digest(value: Value) -> str:
    """As nats-server makes it: of JSON as Go writes it."""

    def default(date: object) -> str:
        assert isinstance(date, datetime)
        return date.strftime("%Y-%m-%dT%H:%M:%SZ")

    text = json.dumps(value.plain(), sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=default)
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026") + "\n"
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("name", sorted(DIGESTS))
def test_a_file_is_read_or_refused_as_by_nats_server(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, text in ENVIRONMENT.items():
        monkeypatch.setenv(variable, text)
    if DIGESTS[name]:
        assert digest(read(str(CONFS / name))) == DIGESTS[name]
        read_conf(str(CONFS / name))
    else:
        with pytest.raises(ConfError) as caught:
            read_conf(str(CONFS / name))
        assert str(caught.value).startswith(f"{CONFS / name}:")


@pytest.mark.skipif(nats_server() is None, reason="no nats-server")
@pytest.mark.parametrize("name", sorted(DIGESTS))
def test_nats_server_says_so_of_the_same_file(name: str) -> None:
    assert verdict(CONFS / name) == DIGESTS[name]


def verdict(path: Path) -> str:
    program = nats_server()
    assert program is not None
    ran = subprocess.run(
        [program, "-t", "-c", str(path)], capture_output=True, text=True, env={**os.environ, **ENVIRONMENT}, check=False
    )
    said = ran.stderr + ran.stdout
    return said.rpartition("(")[2].partition(")")[0] if ran.returncode == 0 else ""


def conf_of(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "nats.conf"
    path.write_text(text)
    return path


def options_of(tmp_path: Path, text: str, *arguments: str) -> Options:
    return parse(["--nats-config", str(conf_of(tmp_path, text)), *arguments])


def complaint(tmp_path: Path, text: str) -> str:
    with pytest.raises(OptionsError) as caught:
        options_of(tmp_path, text)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(str(tmp_path) + "/", "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\n", 'nats.conf:1: unknown key "a"'),
        ("\n\nport: yes\n", "nats.conf:3: true is not a whole number"),
        ("listen: [a]\n", "nats.conf:1: an array is not a string"),
        ("authorization { usr: a }", 'nats.conf:1: unknown key "usr" in authorization'),
        ("ping_interval: soon\n", 'nats.conf:1: "soon" is not a duration such as "250ms"'),
        ("max_payload: 2G\n", "nats.conf:1: nats.max-payload: 2000000000 is not between -1 and 1073741824"),
        ("port: 70000\n", "nats.conf:1: 70000 is not a port"),
        ("port: 1kbb\n", 'nats.conf:1: "kbb" is not a unit'),
        ("max_payload:\n", "nats.conf:1: expected a value, and found a new line"),
        ("leafnodes {tls {first: abc}}", 'nats.conf:1: "abc" is not true, false, auto or a duration'),
        ("tls {handshake_first: soon}", 'nats.conf:1: "soon" is not true, false, auto or a duration'),
        ("a {b: 99999999999999999999}", "nats.conf:1: 99999999999999999999 is out of range"),
        ("no_auth_user: b\nauthorization {users: [{user: a}]}", 'nats.conf:1: there is no user "b"'),
        ('leaf {remotes: [{url: "nats://h:1", deny_imports: "a b"}]}', 'nats.conf:1: deny_imports: "a b" is not a'),
        ("tls {cert_file: a, key_file: b, certs: [{cert_file: c}]}", "nats.conf:1: cert_file and certs are for the"),
        ("tls {certs: [{cert_file: a}], cert_file: b}", "nats.conf:1: a certificate needs cert_file and key_file"),
        (
            "tls {certs: [{cert_file: a, key_file: b}, {cert_file: c, key_file: d}]}",
            "nats.conf:1: c, d: No such file or directory",
        ),
        ('include "a\0.conf"\n', "nats.conf:1: cannot read a\0.conf: Invalid argument"),
        ("include nats.conf\n", "nats.conf:1: nats.conf includes itself"),
        ("a " + "{b " * 100, "nats.conf:1: too many blocks in each other"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    assert complaint(tmp_path, text).startswith(said)


def test_a_key_that_is_encrypted_is_refused_and_nobody_asked_for_its_password(tmp_path: Path) -> None:
    """Without a word OpenSSL would ask whoever sits at the terminal."""
    made = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=h")
    out = ("-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem"), "-passout", "pass:secret")
    subprocess.run([*made, *out], check=True, capture_output=True)
    pair = f"cert_file: '{tmp_path}/cert.pem', key_file: '{tmp_path}/key.pem'"
    reader = (
        "import sys; from mq_shards.acceptor.protocols.nats.conf_keys import read_conf; "
        "from mq_shards.acceptor.protocols.nats.conf import ConfError\n"
        "try: read_conf(sys.argv[1])\nexcept ConfError as error: print(error)"
    )
    (tmp_path / "nats.conf").write_text(f"tls {{certs: [{{{pair}}}, {{{pair}}}]}}")
    ran = subprocess.run(
        [sys.executable, "-c", reader, str(tmp_path / "nats.conf")],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60, start_new_session=True,
    )  # fmt: skip
    assert b"key.pem" in ran.stdout, ran
    assert b"pass phrase" not in ran.stderr, ran


SECRET = "5551234"
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"


@pytest.mark.parametrize(
    "text",
    [
        f'cluster {{ routes: ["nats-route://u:{SECRET}@host:bad"] }}',
        f'cluster {{ listen: "nats://u:{SECRET}@host:bad" }}',
        f'leafnodes {{ remotes: [{{url: "nats-leaf://u:{SECRET}@host:bad"}}] }}',
        f'leafnodes {{ remotes: [{{url: "nats-leaf://u:{SECRET}@h"}}, {{url: "nats-leaf://u:{SECRET}@h"}}] }}',
        f'resolver: "URL(gopher://u:{SECRET}@host)"',
        f"authorization {{ user: a, password: {SECRET} }}",
        f"authorization {{ user: a, password: [{SECRET}] }}",
        f'authorization {{ users: ["{SECRET}"] }}',
        f"authorization {{ users: [{{ nkey: {SEED} }}] }}",
    ],
)
def test_what_is_wrong_is_said_without_what_is_secret(tmp_path: Path, text: str) -> None:
    said = complaint(tmp_path, text)
    assert said.startswith("nats.conf:1: ") and SECRET not in said and SEED not in said


def test_options_of_ours_are_refused_without_what_is_secret() -> None:
    with pytest.raises(OptionsError, match=r"nats\.routes: .*//u:xxxxx@host:bad") as raised:
        parse(["--memory", "--set", f"nats.routes=nats-route://u:{SECRET}@host:bad"])
    assert SECRET not in str(raised.value)


def test_a_variable_that_names_itself_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "$TWO")
    monkeypatch.setenv("TWO", "$ONE")
    assert complaint(tmp_path, "port: $ONE\n") == "nats.conf:1: $ONE names itself"


def test_a_key_may_be_there_for_a_variable(tmp_path: Path) -> None:
    options = options_of(tmp_path, "size: 2000\nmax_payload: $size\n")
    assert options.settings["nats"]["max-payload"] == 2000
    assert options.warnings == ()


def test_what_is_not_supported_is_one_line_of_warning(tmp_path: Path) -> None:
    options = options_of(tmp_path, "jetstream: enabled\nmqtt: {port: 1883}\nleafnodes {}\nsyslog: false\n")
    said = [warning.partition("nats.conf:")[2] for warning in options.warnings]
    assert said == [
        "1: jetstream is not supported: there is no JetStream here; topics of this broker are durable",
        "2: mqtt is not supported: there is no MQTT",
    ]


def test_files_that_cannot_be_used_are_an_error(tmp_path: Path) -> None:
    why = "resolver_tls: nats.tls-ca-file: /nowhere: No such file or directory"
    assert complaint(tmp_path, "\nresolver_tls {ca_file: /nowhere}") == f"nats.conf:2: {why}"


def test_clients_may_be_allowed_to_do_without_tls_where_there_is_none(tmp_path: Path) -> None:
    assert options_of(tmp_path, "allow_non_tls: true").settings["nats"]["allow-non-tls"]


def test_a_message_may_not_be_larger_than_what_may_wait(tmp_path: Path) -> None:
    for text in ("max_payload: 100mb", "max_pending: 1000000"):
        with pytest.raises(OptionsError, match=r"max_payload \(\d+\) cannot be higher than max_pending"):
            options_of(tmp_path, text)
    assert options_of(tmp_path, "max_payload: -1\nmax_pending: 2000").settings["nats"]["max-payload"] == -1


def test_options_of_ours_count_for_more(tmp_path: Path) -> None:
    own = tmp_path / "mq.toml"
    own.write_text("[nats]\nmax-pending = 5000\n")
    options = options_of(
        tmp_path, "max_payload: 2000\nmax_pending: 4000\nping_max: 7", "--config", str(own), "--set", "nats.ping-max=9"
    )
    nats = options.settings["nats"]
    assert (nats["max-payload"], nats["max-pending"], nats["ping-max"]) == (2000, 5000, 9)


def test_our_own_file_may_name_it(tmp_path: Path) -> None:
    conf_of(tmp_path, "max_payload: 2000\n")
    own = tmp_path / "mq.toml"
    own.write_text(f'nats-config = "{tmp_path}/nats.conf"\n')
    assert parse(["--config", str(own)]).settings["nats"]["max-payload"] == 2000


@pytest.mark.parametrize(
    ("text", "listens"),
    [
        ("", "nats://0.0.0.0:4222"),
        ("port: 4333\nhost: localhost", "nats://localhost:4333"),
        ("listen: '[::1]:-1'", "nats://[::1]:0"),
        ("listen: 4333", "nats://0.0.0.0:4333"),
    ],
)
def test_it_says_where_to_listen_for_nats(tmp_path: Path, text: str, listens: str) -> None:
    found = options_of(tmp_path, text).listen
    assert [str(one) for one in found if one.protocol == "nats"] == [listens]
    assert any(one.protocol == "beanstalk" for one in found)


def test_listen_on_the_command_line_counts_for_more(tmp_path: Path) -> None:
    given = ("--listen", "nats://127.0.0.1:5000")
    assert [str(one) for one in options_of(tmp_path, "port: 1", *given).listen] == [given[1]]
    found = options_of(tmp_path, "port: 1", "--listen", "nsq://127.0.0.1:5001").listen
    assert [str(one) for one in found] == ["nsq://127.0.0.1:5001", "nats://0.0.0.0:1"]


def test_clients_are_served_as_the_file_says(tmp_path: Path) -> None:
    path = conf_of(tmp_path, "server_name: here\nmax_payload: 5000\nauthorization { token: 'a b' }\n")
    with (
        running(1, arguments=["--nats-config", str(path)]) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as client,
    ):
        info = json.loads(client.recv(4096).removeprefix(b"INFO "))
        assert info_of(info) == {"server_name": "here", "max_payload": 5000, "auth_required": True}
        client.sendall(b'CONNECT {"auth_token":"a b","verbose":true}\r\n')
        assert client.recv(100) == b"+OK\r\n"


def info_of(info: dict[str, Any]) -> dict[str, Any]:
    return {key: info[key] for key in ("server_name", "max_payload", "auth_required")}
