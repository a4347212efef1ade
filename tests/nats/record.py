"""Plays all scenes before a real nats-server and keeps what it says: python -m tests.nats.record PORT."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.nats.scenes import SCENES
from tests.nats.wire import play

TRANSCRIPTS = Path(__file__).with_name("transcripts.json")


def main(port: int) -> None:
    found = {
        scene.name: [[heard.data.decode("latin-1"), heard.closed] for heard in play(scene, port)] for scene in SCENES
    }
    TRANSCRIPTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
