"""REST shows a message whole; one that would take more than the gateway has for answers is refused."""

from __future__ import annotations

import http.client

from tests.nsq import wire as nsq
from tests.pulsar.servers import running

MIB = 1 << 20
# Half of it is the limit of what is held of answers, and a message is held twice as it comes.
SETTINGS = ("broker.max-buffered-bytes=4194304", "nsq.max-body-size=524288", "nsq.max-msg-size=2097152")
EXAMINE = "/admin/v2/persistent/public/default/{}/examinemessage?initialPosition=earliest"


def test_a_message_is_shown_whole_or_refused_by_its_size() -> None:
    with running(settings=SETTINGS) as server:
        for name, body in (("whole", b"x" * 500_000), ("large", b"y" * (MIB + 1))):
            with nsq.Wire(server.other_port) as wire:
                wire.publish(name, body)
        client = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
        client.request("GET", EXAMINE.format("whole"))
        assert client.getresponse().read() == b"x" * 500_000
        client.request("GET", EXAMINE.format("large"))
        answer = client.getresponse()
        assert (answer.status, b"1048577 bytes" in answer.read()) == (413, True)
