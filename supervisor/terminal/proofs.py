"""`mq-shards password` and `mq-shards token`: print the hashes that a file of users holds. Neither secret is ever an
argument, which other users of the machine could see."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Sequence

from mq_shards.acceptor.access.hashes import make_token, password_hash, token_hash

FAILED = 1


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=f"mq-shards {arguments[0]}", allow_abbrev=False,
        description="Prints the line that [users.NAME] in a file of users needs: for a password, which is asked for, "
        "or for a new token, which is printed too.",
    )  # fmt: skip
    if arguments[0] == "token":
        what = "of the token that is the input's line, not of a new one"
        parser.add_argument("--of-input", action="store_true", help=what)
    options = parser.parse_args(arguments[1:])
    try:
        return _password() if arguments[0] == "password" else _token(of_input=options.of_input)
    except ValueError as error:
        print(f"mq-shards: {error}", file=sys.stderr)
        return FAILED


def _password() -> int:
    if sys.stdin.isatty():
        password = getpass.getpass("password: ")
        if getpass.getpass("again: ") != password:
            raise ValueError("these were two")
    else:
        password = sys.stdin.readline().removesuffix("\n")
    print(f'password = "{password_hash(password)}"')
    return 0


def _token(*, of_input: bool) -> int:
    token = sys.stdin.readline().strip() if of_input else make_token()
    if not token:
        raise ValueError("a token is not empty")
    if not of_input:
        print(token)
        said = "that is the token, which its client sends; it is not shown again. The line for the file of users:"
        print(said, file=sys.stderr)
    print(f'tokens = ["{token_hash(token)}"]')
    return 0
