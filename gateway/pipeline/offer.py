"""What the gateway does for pipelines and browsers: the HTTP API, the console, metrics."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mq_shards.acceptor.option_kinds import Number, TextList
from mq_shards.acceptor.protocol import OtherScheme
from mq_shards.gateway.offer import Offer, Service

if TYPE_CHECKING:
    from mq_shards.gateway.part import Part, Shared


def _is_host(text: str) -> bool:
    return re.fullmatch("[A-Za-z0-9_.-]{1,253}", text) is not None


def _part(shared: Shared) -> Part:
    from mq_shards.gateway.pipeline.part import PipelinePart  # slow to load

    return PipelinePart(shared)


PIPELINE: Final = Offer(
    _part,
    services=(
        Service(
            "http",
            4180,
            "curl 'http://{address}/v1/topics'",
            (OtherScheme("https", 4181, "curl --cacert CA 'https://{address}/v1/topics'"),),
        ),
    ),
    section=(
        "http",
        {
            "staged-bytes": Number(
                16 << 30, 0, 1 << 50, "bytes of messages that are staged and not published yet, in all"
            ),
            "hosts": TextList("names under which browsers come to the broker, beside addresses", "a name", _is_host),
            "metrics-topics": Number(1000, 0, 1 << 20, "topics with figures of their own in /metrics"),
        },
    ),
)
