"""Every key of nats-server 2.15.2's configuration file is known: obeyed, or one clear warning says that it is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest
from mq_shards.acceptor.protocols.nats.conf import Value
from mq_shards.acceptor.protocols.nats.conf_keys import CHECKS, UNSUPPORTED, read_conf

from tests.nats.record_keys import KEYS

SEEN: Final = json.loads(KEYS.read_text())

# Where a block is that a function of nats-server reads; % is the key and its value.
BLOCKS: Final = {
    "processConfigFileLine": "%",
    "parseCluster": "cluster { % }",
    "parseCompression": "cluster { compression { % } }",
    "parseAccountMapDest": 'mappings { a { % } }',
    "parseAccountLimits": "accounts { A { limits { % } } }",
    "parseAccounts": "accounts { A { % } }",
    "parseExportStreamOrService": "accounts { A { exports [ { % } ] } }",
    "parseImportStreamOrService": "accounts { A { imports [ { % } ] } }",
    "parseAccountMsgTrace": "accounts { A { msg_trace { % } } }",
    "parseAccount": "accounts { A { imports [ { stream { % } } ] } }",
    "parseAuthorization": "authorization { % }",
    "parseUsers": "authorization { users [ { % } ] }",
    "parseUserPermissions": "authorization { users [ { user: a, permissions { % } } ] }",
    "parseAllowResponses": "authorization { users [ { user: a, permissions { allow_responses { % } } } ] }",
    "parseSubjectPermission": "authorization { users [ { user: a, permissions { publish { % } } } ] }",
    "parseTLS": "tls { % }",
    "parseSimpleAuth": "websocket { authorization { % } }",
    "parseWebsocket": "websocket { % }",
    "parseLeafNodes": "leafnodes { % }",
    "parseLeafAuthorization": "leafnodes { authorization { % } }",
    "parseLeafUsers": "leafnodes { authorization { users [ { % } ] } }",
    "parseRemoteLeafNodes": "leafnodes { remotes [ { % } ] }",
}  # fmt: skip
# Blocks of which nothing is served: the block is one warning, or an error, whatever is in it.
WHOLE: Final = {
    "parseGateway": "gateway", "parseGateways": "gateway",
    "parseMQTT": "mqtt", "parseJetStream": "jetstream", "parseJetStreamLimits": "jetstream",
    "parseJetStreamLimitsBatch": "jetstream", "parseJetStreamTPM": "jetstream", "setJetStreamEkCipher": "jetstream",
    "parseProxies": "proxies", "parseProxiesTrusted": "proxies", "parseJetStreamForAccount": "accounts",
    "parseAuthCallout": "authorization",
}  # fmt: skip
VALUES: Final = ("1", "x", "true", "{}", "[]", '"1s"')


def complaint(tmp_path: Path, text: str) -> str:
    path = tmp_path / "nats-server.conf"
    path.write_text(text)
    try:
        read_conf(str(path))
    except ValueError as error:
        return str(error)
    return ""


def test_all_blocks_are_looked_at() -> None:
    assert {*BLOCKS, *WHOLE} == set(SEEN)


# Of the block proxy in a remote, which is an error as a whole.
OF_PROXY: Final = ("username", "password", "timeout")
EACH: Final = [
    (block, key) for block in BLOCKS for key in SEEN[block] if block != "parseRemoteLeafNodes" or key not in OF_PROXY
]


@pytest.mark.parametrize(("block", "key"), EACH, ids=lambda one: one)
def test_a_key_is_known(tmp_path: Path, block: str, key: str) -> None:
    for value in VALUES:
        text = BLOCKS[block].replace("%", f"{key}: {value}") + "\n"
        assert f'unknown key "{key}"' not in complaint(tmp_path, text), value


@pytest.mark.parametrize(
    "line",
    [
        "http: no", "https: off", "http_port: off", 'http_port: "127.0.0.1:8222"', 'https_port: ":8222"',
        "lame_duck_grace_period: 1", 'websocket { ping_interval: "1" }', "leafnodes { isolate: x }",
        "leafnodes { remotes [ { isolate: 1 } ] }", "leafnodes { remotes [ { js_cluster_migrate: x } ] }",
        "leafnodes { remotes [ { compression: {a: 1} } ] }", "authorization { users [ { proxy_required: 1 } ] }",
        *(
            f'accounts {{ A {{ exports [ {{ service: "a.*", account_token_position: {place} }} ] }} }}'
            for place in (-1, 1, 3)
        ),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused(tmp_path: Path, line: str) -> None:
    assert complaint(tmp_path, line)


@pytest.mark.parametrize(
    "line",
    [
        "leafnodes { remotes [ { dial_timeout: 2, first_info_timeout: 3 } ] }", "websocket { ping_interval: 60 }",
        'mappings: { "m.x": "{{partition(3,1)}}.a" }',
        "authorization { users [ { user: a, password: b, connection_types: STANDARD } ] }",
        'accounts { A { exports [ { service: "a.*", account_token_position: 2 } ] } }',
    ],
)  # fmt: skip
def test_a_value_that_nats_server_accepts_is_accepted(tmp_path: Path, line: str) -> None:
    assert not complaint(tmp_path, line)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_key_that_nobody_knows_is_an_error_with_its_line(tmp_path: Path, block: str) -> None:
    said = complaint(tmp_path, "\n\n" + BLOCKS[block].replace("%", "nobodys_key: 1") + "\n")
    assert "nats-server.conf:3" in said and 'unknown key "nobodys_key"' in said


VALID: Final = {Value.flag: "true", Value.whole: "1", Value.text: "x", Value.block: "{ a: true }"}


@pytest.mark.parametrize("key", CHECKS)
def test_a_value_that_nats_server_refuses_is_refused(tmp_path: Path, key: str) -> None:
    for value in VALID.values():
        assert bool(complaint(tmp_path, f"{key}: {value}\n")) == (value != VALID[CHECKS[key]]), value


@pytest.mark.parametrize("key", UNSUPPORTED)
def test_what_is_not_supported_is_one_warning_with_its_line(tmp_path: Path, key: str) -> None:
    path = tmp_path / "nats-server.conf"
    path.write_text(f"\n{key}: {VALID.get(CHECKS.get(key), 'x')}\n")
    warnings = read_conf(str(path)).warnings
    assert len(warnings) == 1 and f"nats-server.conf:2: {key} is not supported: " in warnings[0]


def test_the_keys_are_those_of_the_source() -> None:
    """Where it can be had."""
    found = list(Path.home().glob("go/pkg/mod/github.com/nats-io/nats-server/v2@v2.15.2/server/opts.go"))
    if not found:
        pytest.skip("no source of nats-server")
    from tests.nats.record_keys import keys_of

    assert keys_of(found[0].read_text()) == SEEN
