"""Asks a real broker what tests/pulsar/admin_scenes.py has, and keeps what it answers, for the tests to compare with.

python -m tests.pulsar.record_admin http://127.0.0.1:18080 [SCENE...]
"""

from __future__ import annotations

import http.client
import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.pulsar import cluster_scenes, older_scenes
from tests.pulsar.admin_scenes import SCENES as ADMIN_SCENES
from tests.pulsar.admin_scenes import Step

SCENES = {**ADMIN_SCENES, **cluster_scenes.SCENES, **older_scenes.SCENES}
TRANSCRIPTS = Path(__file__).with_name("admin_transcripts.json")
KEPT_TEXT = 400


def play(address: str, step: Step) -> dict[str, Any]:
    """The status, and the body: as JSON, or as text when it is none."""
    method, path = step[:2]
    body = json.dumps(step[2]) if len(step) > 2 else None
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        headers = {} if body is None else {"Content-Type": "application/json"}
        target = path if path.startswith("/") else f"/admin/v2/{path}"
        connection.request(method, target, body, headers)
        response = connection.getresponse()
        data = response.read()
        found: dict[str, Any] = {"status": response.status}
        if data:
            try:
                found["json"] = json.loads(data)
            except ValueError:
                found["text"] = data.decode(errors="replace")[:KEPT_TEXT]
        return found
    finally:
        connection.close()


def main() -> None:
    address = urlsplit(sys.argv[1]).netloc
    wanted = sys.argv[2:] or list(SCENES)
    recorded = json.loads(TRANSCRIPTS.read_text()) if sys.argv[2:] else {}
    for name in wanted:
        steps = SCENES[name]
        recorded[name] = [{"step": list(step), **play(address, step)} for step in steps]
        print(name, len(steps), file=sys.stderr)
    TRANSCRIPTS.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
