"""The commands, for which http:// is usually on the port that is said first: on port 4180 may be another broker."""

from __future__ import annotations

import sys

from mq_shards.supervisor import command
from mq_shards.supervisor.terminal import at


def main() -> int:
    at.HTTP_PORT = int(sys.argv.pop(1))  # type: ignore[misc]
    return command.main()


if __name__ == "__main__":
    sys.exit(main())
