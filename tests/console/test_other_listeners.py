"""Pages in a browser are kept out of NSQ's and Pulsar's HTTP too, while programs may call a broker by any name."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterator, Mapping
from functools import partial

import pytest

from tests.nsq import certificates
from tests.nsq.api import Reply
from tests.nsq.servers import HOST, listening
from tests.reader.broker import started
from tests.servers import wait_until

READS = {"nsq": "/stats", "pulsar": "/admin/v2/clusters"}
CHANGES = {"nsq": ("POST", "/pub?topic=forged"), "pulsar": ("PUT", "/admin/v2/namespaces/public/forged")}
SCHEMES = ("nsq-http", "nsq-https", "pulsar-http", "pulsar-https")
BROWSER = {"Accept-Language": "en", "User-Agent": "Mozilla/5.0"}
NODE = {"Accept-Language": "*", "Sec-Fetch-Mode": "cors", "User-Agent": "node"}  # what its fetch sends
REBOUND = "evil.example:4151"


class Place:
    def __init__(self, scheme: str, port: int, made: certificates.Certificates) -> None:
        self.protocol, _, self.web = scheme.partition("-")
        self._connection = partial(http.client.HTTPConnection, HOST, port, timeout=20)
        if self.web == "https":
            self._connection = partial(http.client.HTTPSConnection, HOST, port, timeout=20, context=made.context())

    def ask(self, method: str, target: str, host: str, said: Mapping[str, str], source: str = HOST) -> Reply:
        with contextlib.closing(self._connection(source_address=(source, 0))) as connection:
            connection.request(method, target, None if method == "GET" else b"x", {"Host": host, **said})
            reply = connection.getresponse()
            return Reply(reply.status, reply.read(), dict(reply.getheaders()))

    def read(self, host: str, said: Mapping[str, str], source: str = HOST) -> Reply:
        return self.ask("GET", READS[self.protocol], host, said, source)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Place]]:
    directory = tmp_path_factory.mktemp("listeners")
    made = certificates.make(directory)
    sets = (f"tls.cert={made.server.cert}", f"tls.key={made.server.key}", "http.hosts=mq.example.com")
    listens = (f"--listen={scheme}://{HOST}:0" for scheme in SCHEMES[1:])  # the first one listens anyway
    with started(directory / "data", *listens, *(f"--set={each}" for each in sets)) as broker:
        wait_until(lambda: listening(broker.server).keys() >= set(SCHEMES), "it has said where it listens")
        ports = listening(broker.server)
        yield {scheme: Place(scheme, ports[scheme], made) for scheme in SCHEMES}


@pytest.fixture(params=SCHEMES)
def place(places: Mapping[str, Place], request: pytest.FixtureRequest) -> Place:
    return places[request.param]


def test_a_page_of_a_rebound_name_reads_nothing(place: Place) -> None:
    refused = place.read(REBOUND, BROWSER)
    assert refused.status == 403
    assert b"http.hosts" in refused.body
    for host in ("mq.example.com:4151", "localhost:4151", "127.0.0.1:4151", "[::1]", "nsqd-1:4151"):
        assert place.read(host, BROWSER).status == 200, host


def test_a_page_of_a_rebound_name_changes_nothing(place: Place) -> None:
    said = {**BROWSER, "Origin": f"{place.web}://{REBOUND}"}
    assert place.ask(*CHANGES[place.protocol], REBOUND, said).status == 403


def test_a_page_of_another_site_starts_no_read(place: Place) -> None:
    said = {**BROWSER, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert place.read("localhost:4151", said).status == 403
    assert place.read("localhost:4151", {**said, "Sec-Fetch-Mode": "navigate"}).status == 200  # a link is followed


def test_programs_may_use_any_name(place: Place) -> None:
    method, _ = CHANGES[place.protocol]
    assert place.read("nsqd.prod.example:4151", {"User-Agent": "nsqadmin/1.3.0"}).status == 200
    assert place.ask(method, "/nothing", "nsqd.prod.example:4151", NODE).status == 404
    # An address that stands for the network: a client of 127.0.0.1 that does not choose its own has 127.0.0.1.
    assert place.read("nsqd.prod.example:4151", NODE, source="127.0.0.6").status == 200
