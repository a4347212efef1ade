"""The gateway's first code: takes in what the supervisor says at a start, and only then loads the rest of the gateway.

Loading takes some tenths of a second, in which nobody would read the supervisor's messages: it would wait if there were
many workers and acceptors. The supervisor has this module loaded before it forks, and nothing else of the gateway.
"""

from __future__ import annotations

from mq_shards.ringbuf.control import Control


def main(control: Control) -> None:
    told = [control.receive()]
    while told[-1][0]["do"] != "go":
        told.append(control.receive())
    from mq_shards.gateway import process

    process.main(control, told)
