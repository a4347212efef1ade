"""Keeps what a real nats-server says of the files in confs/: python -m tests.nats.record_confs."""

from __future__ import annotations

import json

from tests.nats.test_conf import CONFS, verdict


def main() -> None:
    found = {path.name: verdict(path) for path in sorted(CONFS.glob("*.conf"))}
    (CONFS / "digests.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
