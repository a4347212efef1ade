"""The mq-shards command: reads the options, says in one line what is wrong with them, and runs the supervisor."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from mq_shards.acceptor.option_kinds import OptionsError
from mq_shards.supervisor import journal
from mq_shards.supervisor.options.options import parse

FAILED = 1
BAD_OPTION = 2


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    try:
        options = parse(given)
        journal.configure(options.log_level, options.log_json, "mq-supervisor")
        for warning in options.warnings:
            logging.getLogger(__name__).warning("%s", warning)
        # Imported late: children import this module too, as their main module, and have no use for it.
        from mq_shards.supervisor.supervisor import StartError, Supervisor

        try:
            return Supervisor(options, reread=lambda: parse(given)).run()
        except StartError as error:
            return _complain(str(error), FAILED)
    except OptionsError as error:
        return _complain(str(error), BAD_OPTION)


def _complain(message: str, status: int) -> int:
    print("mq-shards:", " ".join(message.split()), file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
