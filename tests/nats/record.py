"""Plays all scenes before real nats-servers and keeps what they say: python -m tests.nats.record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.nats.latency_scenes import LATENCIES
from tests.nats.latency_scenes import play as play_latency
from tests.nats.scenes import SCENES, Scene
from tests.nats.servers import running
from tests.nats.trace_scenes import TRACES
from tests.nats.trace_scenes import play as play_trace
from tests.nats.websocket_scenes import BLOCK, FRAMES, REQUESTS, play_frames, play_request
from tests.nats.websocket_wire import serving
from tests.nats.who_scenes import ACCOUNTS, SHARED, USERS
from tests.nats.wire import play

HERE: Final = Path(__file__).parent
TRANSCRIPTS: Final = HERE / "transcripts.json"
WHO: Final = (*USERS, *ACCOUNTS, *SHARED)
WHO_TRANSCRIPTS: Final = HERE / "who_transcripts.json"
TRACE_TRANSCRIPTS: Final = HERE / "trace_transcripts.json"
LATENCY_TRANSCRIPTS: Final = HERE / "latency_transcripts.json"
WEBSOCKET_TRANSCRIPTS: Final = HERE / "websocket_transcripts.json"


def record(scenes: Sequence[Scene], into: Path, arguments: Sequence[str] = ()) -> None:
    with running(0, arguments=arguments) as server:
        found = {
            scene.name: [[heard.data.decode("latin-1"), heard.closed] for heard in play(scene, server.port)]
            for scene in scenes
        }
    into.write_text(json.dumps(found, indent=1) + "\n")


def most_heard(port: int, frames: bytes) -> list[object]:
    """A nats-server that is told something wrong may be gone before it has said why."""
    heard = play_frames(port, frames)
    for _ in range(0 if heard[1] else 2000):
        heard = max(heard, play_frames(port, frames), key=lambda heard: len(str(heard)))
        if heard[1]:
            break
    return heard


def record_websockets() -> None:
    with serving(0, *BLOCK) as port:
        found = {
            "requests": {name: play_request(port, asked) for name, asked in REQUESTS.items()},
            "frames": {name: most_heard(port, frames) for name, frames in FRAMES.items()},
        }
    WEBSOCKET_TRANSCRIPTS.write_text(json.dumps(found, indent=1) + "\n")


def record_traces() -> None:
    with running(0, arguments=["-c", str(HERE / "confs" / "trace.conf")]) as server:
        found = {trace.name: play_trace(trace, server.port) for trace in TRACES}
    TRACE_TRANSCRIPTS.write_text(json.dumps(found, indent=1) + "\n")


def record_latencies() -> None:
    with running(0, arguments=["-c", str(HERE / "confs" / "latency.conf")]) as server:
        found = {scene.name: play_latency(scene, server.port) for scene in LATENCIES}
    LATENCY_TRANSCRIPTS.write_text(json.dumps(found, indent=1) + "\n")


def main() -> None:
    record(SCENES, TRANSCRIPTS)
    record_websockets()
    record_traces()
    record_latencies()
    record(WHO, WHO_TRANSCRIPTS, ["-c", str(HERE / "confs" / "who.conf")])


if __name__ == "__main__":
    main()
