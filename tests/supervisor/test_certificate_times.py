"""A certificate that is over, or soon will be: it is said before clients find out, and lets nobody in."""

from __future__ import annotations

import datetime
import re
import subprocess
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from mq_shards.acceptor.certificate_times import ends_s, remarks
from mq_shards.supervisor.options.options import parse

from tests import servers
from tests.nsq import api, certificates
from tests.servers import Shape, free_port, wait_until
from tests.terminal.commands import run

DAY = datetime.timedelta(days=1)
NOW = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
KEY = ec.generate_private_key(ec.SECP256R1())


def made(ends: datetime.datetime, directory: Path, name: str = "localhost") -> certificates.Pair:
    """Signed by itself."""
    return certificates.write(directory, name, certificates.sign(name, KEY, None, KEY, ends), KEY)


@given(st.datetimes(datetime.datetime(1951, 1, 1), datetime.datetime(9999, 12, 30)))
def test_the_end_is_what_the_certificate_says(when: datetime.datetime) -> None:
    when = when.replace(microsecond=0, tzinfo=datetime.UTC)
    pem = certificates.sign("x", KEY, None, KEY, when).public_bytes(serialization.Encoding.PEM)
    assert ends_s(b"before\n" + pem + pem) == when.timestamp()


@given(st.binary(max_size=300), st.integers(0, 400))
def test_what_is_no_certificate_has_no_end(junk: bytes, at: int) -> None:
    pem = certificates.sign("x", KEY, None, KEY, NOW).public_bytes(serialization.Encoding.PEM)
    for damaged in (junk, pem[:at] + junk + pem[at + len(junk) :], pem[:at]):
        found = ends_s(damaged)
        assert found is None or isinstance(found, float)
    assert ends_s(pem[:200]) is None


def test_what_is_over_or_soon_is_named(tmp_path: Path) -> None:
    files = {str(days): made(NOW + days * DAY, tmp_path).cert.read_bytes() for days in (-1, 13, 15)}
    over, soon = remarks({**files, "key": b"no certificate"}, NOW.timestamp())
    assert over == f"-1: this certificate has expired on {NOW - DAY:%Y-%m-%d %H:%M} UTC"
    assert soon == f"13: this certificate expires on {NOW + 13 * DAY:%Y-%m-%d %H:%M} UTC"


def test_a_start_says_it_and_serves_and_figures_have_the_date(tmp_path: Path) -> None:
    pair, port = made(NOW - DAY, tmp_path), free_port()
    one = [f"--set=tls.cert={pair.cert}", f"--set=tls.key={pair.key}"]
    assert any("has expired on" in line for line in parse(one).warnings)
    http = free_port()
    options = [*one, f"--listen=beanstalks://127.0.0.1:{port}", f"--listen=http://127.0.0.1:{http}"]
    with servers.running(Shape("shards-1", "mq-shards", ("--workers", "1")), options=options) as server:
        assert f"{pair.cert}: this certificate has expired on" in server.said()
        figure = re.compile(rf'^mq_shards_certificate_expiry_timestamp_seconds\{{file="{pair.cert}"\}} (\S+)$', re.M)
        found = figure.findall(api.call(http, "GET", "/metrics").body.decode())
        assert [float(end) for end in found] == [(NOW - DAY).timestamp()]
        where = ("publish", "t", "x", "--at", f"beanstalks://localhost:{port}", "--ca", str(pair.cert))
        line = run(*where).stderr.decode()
        assert "its certificate is not trusted (certificate has expired)" in line and "--ca" not in line
        # Who asks whether it is over hears so, and who does not is served.
        asked = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile", str(pair.cert), "-quiet"]
        said = subprocess.run(asked, input=b"use t\r\nquit\r\n", capture_output=True, timeout=60, check=False)
        assert b"certificate has expired" in said.stderr and b"USING t" in said.stdout
        # What it is replaced by is heard of, too.
        made(NOW + 100 * DAY, tmp_path)
        server.process.send_signal(1)

        def ends() -> list[str]:
            return figure.findall(api.call(http, "GET", "/metrics").body.decode())

        wait_until(lambda: [float(end) for end in ends()] == [(NOW + 100 * DAY).timestamp()], "it is the new one's")


def test_a_client_whose_certificate_is_over_is_not_let_in(tmp_path: Path) -> None:
    pair = certificates.make(tmp_path)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    signer = certificates.sign("signer", authority_key, None, authority_key)
    ca = certificates.write(tmp_path, "signer", signer, authority_key).cert
    port = free_port()
    options = [
        f"--set=tls.cert={pair.server.cert}", f"--set=tls.key={pair.server.key}", f"--set=tls.client-ca={ca}",
        f"--listen=beanstalks://127.0.0.1:{port}",
    ]  # fmt: skip
    with servers.running(Shape("shards-1", "mq-shards", ("--workers", "1")), options=options):
        for name, ends, answer in (("over", NOW - DAY, b""), ("good", NOW + DAY, b"USING t\r\n")):
            mine = certificates.write(tmp_path, name, certificates.sign(name, KEY, signer, authority_key, ends), KEY)
            asked = [
                "openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-cert", str(mine.cert), "-key", str(mine.key),
                "-quiet",
            ]  # fmt: skip
            said = subprocess.run(asked, input=b"use t\r\nquit\r\n", capture_output=True, timeout=60, check=False)
            assert said.stdout == answer, said.stderr
