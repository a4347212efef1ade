"""beanstalkd's protocol as the supervisor knows it: its options, and what follows from them. serving.py serves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from mq_shards.acceptor.option_kinds import MAX_BODY, Choice, Kind, Number
from mq_shards.acceptor.protocol import OtherScheme, Protocol, Settings


class Beanstalk(Protocol):
    name = "beanstalk"
    served_by = "serving"
    port = 11300
    example = r"printf 'put 0 0 60 5\r\nhello\r\nreserve\r\nquit\r\n' | nc {host} {port}"
    other_schemes = (OtherScheme("beanstalks", 11301, "openssl s_client -quiet -connect {address}"),)
    system = "beanstalkd"
    largest = "max-job-size"
    listens_early = True
    usages = (
        "--memory --listen beanstalk://0.0.0.0:11300 --listen 'beanstalk://[::]:11300'",
        "--config mq.toml --set beanstalk.max-job-size=1048576",
    )
    options: ClassVar[Mapping[str, Kind]] = {
        # As in beanstalkd -z: the default, the maximum, and that a larger size is lowered with a warning.
        "max-job-size": Number(65535, 0, MAX_BODY, "bytes of the largest job body", clamped=True),
        "ids": Choice(
            "",
            ("", "sequential"),
            "sequential: job ids count 1, 2, 3, as beanstalkd's; that needs one shard, and so one worker",
        ),
    }

    @classmethod
    def shards(cls, settings: Settings) -> int | None:
        """Consecutive ids need one shard: an id is a counter's value times the number of shards, plus the shard."""
        return 1 if settings["ids"] == "sequential" else None


PROTOCOL: Final = Beanstalk
