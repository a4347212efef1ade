"""The terminal's commands with listeners that are encrypted from the first byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers import free_port
from tests.supervisor.test_secure import secure
from tests.terminal.commands import done, objects, run


def test_encrypted_listeners_are_spoken_with_and_their_certificates_looked_at(tmp_path: Path) -> None:
    with secure(tmp_path) as broker:
        ports = {"https": broker.https, "nsq-https": broker.nsq_https, "beanstalks": broker.beanstalks}
        trusted = ("--ca", str(broker.made.authority))
        for scheme, port in ports.items():
            at = ("--at", f"{scheme}://localhost:{port}")
            done("publish", "t", scheme, *at, *trusted)
            assert b"t " in done("topics", *at, *trusted)
            refused = run("topics", *at)
            assert refused.returncode == 1
            assert b"its certificate is not trusted" in refused.stderr
            assert refused.stderr.count(b"\n") == 1
            assert b"t " in done("topics", *at, "--insecure")
        by_https = ("--at", f"https://localhost:{broker.https}", *trusted)
        assert done("peek", "t", "--raw", *by_https) == b"https\nnsq-https\nbeanstalks\n"
        assert b"cannot be used" in run("topics", *at, "--ca", str(tmp_path / "none")).stderr


def test_tls_that_begins_when_the_protocol_says_so_is_spoken_too(tmp_path: Path) -> None:
    pair = {"cert": tmp_path / "cert.pem", "key": tmp_path / "key.pem"}
    options = [f"--set={name}-{part}{'' if name == 'nsq.tls' else '-file'}={path}"
               for name in ("nsq.tls", "nats.tls", "pulsar.tls") for part, path in pair.items()]  # fmt: skip
    ports = {scheme: free_port() for scheme in ("nsq", "nats", "pulsar")}
    options += [f"--listen={scheme}://127.0.0.1:{port}" for scheme, port in ports.items()]
    with secure(tmp_path, *options, "--set=nats.topics=t", "--set=nsq.tls-required=true") as broker:
        trusted = ("--ca", str(broker.made.authority))
        by_https = ("--at", f"https://localhost:{broker.https}", *trusted)
        schemes = {"nsq+tls": "nsq", "tls": "nats", "nats+tls": "nats", "pulsar+ssl": "pulsar"}
        for scheme, protocol in schemes.items():
            at = ("--at", f"{scheme}://localhost:{ports[protocol]}")
            refused = run("publish", "t", "x", *at)
            assert (refused.returncode, refused.stderr.count(b"\n")) == (1, 1)
            assert b"its certificate is not trusted" in refused.stderr
            done("publish", "t", scheme, *at, *trusted)
        found = objects("peek", "t", *by_https)
        assert [one["bytes"] >= len(scheme) for one, scheme in zip(found, schemes, strict=True)] == [True] * 4
        assert done("consume", "t", "-n", "1", "--raw", *trusted, "--at", f"nsq+tls://localhost:{ports['nsq']}") == (
            b"nsq+tls\n"
        )
        # Over https:// messages are consumed by a listener that is encrypted too.
        assert done("consume", "t", "-n", "1", "--raw", *by_https) == b"tls\n"


@pytest.mark.parametrize("scheme", ["nsq", "nats"])
def test_where_no_tls_is_offered_nothing_is_said_in_plain(at: dict[str, str], scheme: str) -> None:
    refused = run("publish", "t", "x", at[scheme].replace("://", "+tls://"))
    assert refused.returncode == 1
    assert refused.stderr.endswith(b" offers no TLS\n")
