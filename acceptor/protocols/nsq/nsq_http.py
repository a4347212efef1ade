"""nsqd's HTTP API as the supervisor knows it. http_serving.py serves it, with the gateway."""

from __future__ import annotations

from typing import Final

from mq_shards.acceptor.protocol import OtherScheme, Protocol


class NsqHttp(Protocol):
    name = "nsq-http"
    served_by = "http_serving"
    section = "nsq"
    port = 4151
    example = "curl -d hello 'http://{address}/pub?topic=greetings'"
    other_schemes = (
        OtherScheme("nsq-https", 4152, "curl --cacert CA -d hello 'https://{address}/pub?topic=greetings'"),
    )
    listens_early = True
    hands_over = True
    has_logins = True


PROTOCOL: Final = NsqHttp
