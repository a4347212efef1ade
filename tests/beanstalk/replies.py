"""Reading beanstalkd's replies, and comparing two servers' replies to the same commands.

Two servers number their jobs differently. `Comparison` pairs their ids in the order of first appearance and from then
on demands that they stay paired, and that both servers' ids rise together.
"""

from __future__ import annotations

from dataclasses import dataclass, field

WITH_BODY = (b"RESERVED", b"FOUND", b"OK")

# What describes a process, a machine or a log, and may differ.
OWN_FIELDS = frozenset(
    ["pid", "version", "rusage-utime", "rusage-stime", "uptime", "id", "hostname", "os", "platform", "file",
     "binlog-oldest-index", "binlog-current-index", "binlog-records-migrated", "binlog-records-written",
     "binlog-max-size"]
)  # fmt: skip


@dataclass(frozen=True)
class Reply:
    line: bytes
    body: bytes | None = None

    @property
    def word(self) -> bytes:
        return self.line.split(b" ", 1)[0]

    @property
    def number(self) -> int:
        """The id or count that follows the word."""
        return int(self.line.split(b" ")[1])


def take_reply(data: bytearray) -> Reply | None:
    """Takes one whole reply off the front, if there is one."""
    end = data.find(b"\r\n")
    if end < 0:
        return None
    line = bytes(data[:end])
    words = line.split(b" ")
    if words[0] not in WITH_BODY:
        del data[: end + 2]
        return Reply(line)
    body_end = end + 2 + int(words[-1])
    if len(data) < body_end + 2:
        return None
    body = bytes(data[end + 2 : body_end])
    assert data[body_end : body_end + 2] == b"\r\n", f"no CRLF after the body of {line!r}"
    del data[: body_end + 2]
    return Reply(line, body)


def take_replies(data: bytearray) -> list[Reply]:
    replies = []
    while (reply := take_reply(data)) is not None:
        replies.append(reply)
    return replies


def parse_dict(body: bytes) -> dict[str, str]:
    """The YAML subset of stats: a mapping of plain or double-quoted scalars."""
    lines = body.decode().split("\n")
    assert lines[0] == "---", lines[:1]
    assert lines[-1] == "", "the last line ends with a newline"
    fields: dict[str, str] = {}
    for line in lines[1:-1]:
        name, separator, value = line.partition(": ")
        assert separator, line
        assert name not in fields, f"{name} twice"
        fields[name] = value.removeprefix('"').removesuffix('"')
    return fields


def parse_list(body: bytes) -> list[str]:
    lines = body.decode().split("\n")
    assert lines[0] == "---", lines[:1]
    assert lines[-1] == ""
    assert all(line.startswith("- ") for line in lines[1:-1]), lines
    return [line.removeprefix("- ") for line in lines[1:-1]]


@dataclass
class Comparison:
    """Pairs the job ids of an expected and an actual server and compares their replies."""

    ids_rise: bool = True
    actual_of: dict[int, int] = field(default_factory=dict)
    expected_of: dict[int, int] = field(default_factory=dict)
    ignored_fields: frozenset[str] = OWN_FIELDS

    def actual_id(self, expected: int) -> int:
        """What to call the expected server's job when talking to the actual one; unknown ids are far from any job."""
        return self.actual_of.get(expected, (1 << 62) + expected)

    def check(self, expected: Reply, actual: Reply) -> None:
        assert actual.word == expected.word, f"{actual} where {expected} belongs"
        if expected.word in (b"INSERTED", b"RESERVED", b"FOUND") or (
            expected.word == b"BURIED" and b" " in expected.line
        ):
            self._pair(expected.number, actual.number)
            assert actual.line.split(b" ")[2:] == expected.line.split(b" ")[2:], f"{actual} where {expected} belongs"
            assert actual.body == expected.body, f"{actual} where {expected} belongs"
        elif expected.word == b"OK":
            self._check_text(expected, actual)
        else:
            assert actual == expected

    def _pair(self, expected: int, actual: int) -> None:
        if expected not in self.actual_of and actual not in self.expected_of:
            if self.ids_rise:
                self._check_order(expected, actual)
            self.actual_of[expected] = actual
            self.expected_of[actual] = expected
        assert self.actual_of.get(expected) == actual, (
            f"job {actual} (in the model {self.expected_of.get(actual)}) where {expected} (here "
            f"{self.actual_of.get(expected)}) belongs"
        )

    def _check_order(self, expected: int, actual: int) -> None:
        for other_expected, other_actual in self.actual_of.items():
            assert (expected < other_expected) == (actual < other_actual), (
                f"ids must rise with time: {actual} and {other_actual} belong to jobs {expected} and {other_expected}"
            )

    def _check_text(self, expected: Reply, actual: Reply) -> None:
        assert expected.body is not None and actual.body is not None
        if b"\n- " in expected.body:
            assert sorted(parse_list(actual.body)) == sorted(parse_list(expected.body))
            return
        wanted = parse_dict(expected.body)
        got = parse_dict(actual.body)
        for name in self.ignored_fields:
            got.pop(name, None)
            if name != "id":
                wanted.pop(name, None)
        if "id" in wanted:  # a job's; the field was dropped from `got` because stats has another of that name
            self._pair(int(wanted.pop("id")), int(parse_dict(actual.body)["id"]))
        assert got == wanted
