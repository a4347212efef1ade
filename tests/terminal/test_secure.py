"""The terminal's commands with listeners that are encrypted from the first byte."""

from __future__ import annotations

from pathlib import Path

from tests.terminal.commands import done, run
from tests.test_secure import secure


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
