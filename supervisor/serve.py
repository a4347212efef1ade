"""mq-shards without a command: reads the options, says in one line what is wrong with them, and runs the supervisor."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence

from mq_shards.acceptor.option_kinds import OptionsError
from mq_shards.supervisor import journal
from mq_shards.supervisor.log_file import LogFile
from mq_shards.supervisor.options.options import Options, parse

FAILED = 1
BAD_OPTION = 2


def main(given: list[str]) -> int:
    checking = given[:1] == ["check-config"]
    if checking:
        del given[0]
    try:
        notes: list[str] = []
        others: list[str] = []  # another server's arguments, if it has a configuration file
        if given[:1] == ["as"]:
            from mq_shards.supervisor.moving.table import translate

            translation = translate(given[1:])
            if translation.said is not None:
                print(translation.said, end="")
                return 0
            if translation.signal is not None:
                return 0 if checking else _tell(*translation.signal)
            others = given[1:] if translation.has_file else []
            given, notes = translation.arguments, translation.notes
            if translation.checks_only and not checking:
                # The original tells of the configuration alone, whatever machine it is asked on.
                options = parse(given)
                return _checked(options, [*notes, *_obstacles(options)], [])
        options = parse(given)
        if checking:
            return _checked(options, notes, _obstacles(options))
        log_file = LogFile()
        try:
            log_file.use(options.log_file)
        except OSError as error:
            return _complain(f"cannot open the log file {options.log_file.path}: {error.strerror}", FAILED)
        journal.configure(options.log_level, options.log_json, "mq-supervisor")
        for warning in [*notes, *options.warnings]:
            logging.getLogger(__name__).warning("%s", warning)
        return _run(options, log_file, reread=lambda: _read_anew(given, others))
    except OptionsError as error:
        return _complain(str(error), BAD_OPTION)


def _run(options: Options, log_file: LogFile, reread: Callable[[], Options]) -> int:
    # Imported late: `--help` and `check-config` have no use for the supervisor.
    from mq_shards.supervisor.resources import StartError
    from mq_shards.supervisor.supervisor import Supervisor

    try:
        return Supervisor(options, reread=reread, log_file=log_file).run()
    except (StartError, OptionsError) as error:
        status = FAILED if isinstance(error, StartError) else BAD_OPTION
        if not options.log_file.path:
            return _complain(str(error), status)
        logging.getLogger(__name__).error("%s", error)  # in a log file each line has its time
        return status


def _tell(pid: int, signal: int) -> int:
    try:
        os.kill(pid, signal)
    except OSError as error:
        return _complain(f"process {pid}: {error.strerror}", FAILED)
    return 0


def _read_anew(given: list[str], others: list[str]) -> Options:
    """Parses the arguments of the start again. What another server's file says may have changed since. Raises
    OptionsError."""
    if not others:
        return parse(given)
    from mq_shards.supervisor.moving.table import translate

    return parse(translate(others).arguments)


def _obstacles(options: Options) -> list[str]:
    from mq_shards.supervisor.checking import obstacles

    return list(obstacles(options))


def _checked(options: Options, notes: Sequence[str], obstacles: Sequence[str]) -> int:
    """Prints what a start with these options would do; opens and binds nothing. Returns its exit status, if `obstacles`
    are what would end it on this machine."""
    options.check_doors(options.listen)
    for line in [*notes, *options.warnings]:
        print(f"warning: {line}")
    for listen in options.listen:
        print(f"listens on {listen}")
    if options.users is not None:
        count = len(options.users.by_name)
        print(f"knows {count} {'user' if count == 1 else 'users'}")
    kept = "memory only" if options.data_dir is None else options.data_dir.absolute()
    print(f"keeps messages in {kept}")
    if options.log_file.path:
        print(f"writes its journal to {options.log_file.path}")
    for line in obstacles:
        _complain(line, FAILED)
    print("the configuration is good" + (", but not for this machine" if obstacles else ""), flush=True)
    return FAILED if obstacles else 0


def _complain(message: str, status: int) -> int:
    journal.complain(message)
    return status
