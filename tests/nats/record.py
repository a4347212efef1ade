"""Plays all scenes before real nats-servers and keeps what they say: python -m tests.nats.record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.nats.scenes import SCENES, Scene
from tests.nats.servers import running
from tests.nats.who_scenes import ACCOUNTS, SHARED, USERS
from tests.nats.wire import play

HERE: Final = Path(__file__).parent
TRANSCRIPTS: Final = HERE / "transcripts.json"
WHO: Final = (*USERS, *ACCOUNTS, *SHARED)
WHO_TRANSCRIPTS: Final = HERE / "who_transcripts.json"


def record(scenes: Sequence[Scene], into: Path, arguments: Sequence[str] = ()) -> None:
    with running(0, arguments=arguments) as server:
        found = {
            scene.name: [[heard.data.decode("latin-1"), heard.closed] for heard in play(scene, server.port)]
            for scene in scenes
        }
    into.write_text(json.dumps(found, indent=1) + "\n")


def main() -> None:
    record(SCENES, TRANSCRIPTS)
    record(WHO, WHO_TRANSCRIPTS, ["-c", str(HERE / "confs" / "who.conf")])


if __name__ == "__main__":
    main()
