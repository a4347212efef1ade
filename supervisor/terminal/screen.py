"""What `top` draws: rows of text with a style for each piece. Knows nothing of terminals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from mq_shards.supervisor.terminal.columns import columns, first, padded
from mq_shards.supervisor.terminal.show import NOT_SAID, short

PLAIN, DIM, BOLD, GOOD, BAD, HEAD, CHOSEN, IN, WAIT, KEY = range(10)
BLOCKS: Final = " ▁▂▃▄▅▆▇█"
BAR: Final = "|"
SORTS: Final[Mapping[str, str]] = {
    "a": "activity",
    "n": "name",
    "i": "in",
    "d": "delivered",
    "o": "out",
    "b": "backlog",
    "f": "in_flight",
    "c": "consumers",
}
# Key in a row, title, the order that sorts by it ("": none), and width of each column.
COLUMNS: Final = (
    ("in", "IN/S", "in", 9), ("delivered", "DELIV/S", "delivered", 9), ("out", "FIN/S", "out", 9),
    ("backlog", "BACKLOG", "backlog", 9), ("in_flight", "INFLIGHT", "in_flight", 10), ("oldest_s", "OLDEST", "", 8),
    ("consumers", "CONSUMERS", "consumers", 11), ("published", "PUBLISHED", "published", 11),
)  # fmt: skip
NAME: Final = 16  # this much of a name is always shown
SPARK: Final = 20


class Piece(NamedTuple):
    text: str
    style: int = PLAIN


Line = list[Piece]


@dataclass(slots=True)
class View:
    """What the user of `top` has chosen."""

    order: str = "activity"
    search: str = ""
    typing: bool = False
    first: int = 0  # index of the first row that is shown
    paused: bool = False
    error: str = ""


def spark(values: Sequence[float], width: int) -> str:
    """
    >>> spark([0, 1, 2, 4], 6)
    '   ▂▄█'
    """
    last = list(values[-width:])
    most = max(last, default=0) or 1
    drawn = "".join(BLOCKS[round(value / most * (len(BLOCKS) - 1))] for value in last)
    return drawn.rjust(width)


def bar(name: str, percent: float, width: int, text: str) -> Line:
    """A bar like htop's: its name, then the bar with a text at its end."""
    room = max(4, width - len(name) - 3)
    inside = min(room, round(room * min(100.0, percent) / 100))
    text = text[-room:]
    filled = (BAR * inside).ljust(room - len(text)) if inside <= room - len(text) else BAR * (room - len(text))
    style = BAD if percent >= 90 else GOOD
    return [Piece(f"{name} ", DIM), Piece("["), Piece(filled, style), Piece(text, PLAIN), Piece("]")]


def frame(
    at: str, overview: Mapping[str, Any], page: Mapping[str, Any], view: View, width: int, height: int
) -> list[Line]:
    """The whole screen. `page`: the answer of GET /v1/find, with at least as many rows as are shown."""
    lines = [_title(at, overview, view, width), *_figures(overview, width), *_processes(overview, width), []]
    lines.append(_heads(view, width))
    room = max(1, height - len(lines) - 1)
    rows = page["rows"][:room]
    lines += [_row(row, width) for row in rows]
    lines += [[] for _ in range(room - len(rows))]
    lines.append(_foot(page, view, len(rows), width))
    return [_cut(line, width) for line in lines[:height]]


def _title(at: str, overview: Mapping[str, Any], view: View, width: int) -> Line:
    line = [Piece("mq-shards", BOLD), Piece(f" {overview['version']}  {at}", DIM)]
    if view.error:  # in the place of what is known of an earlier moment only
        line.append(Piece(f"  {view.error}", BAD))
    else:
        up = int((overview["now_wall_ns"] - overview["started_wall_ns"]) / 1e9)
        health = "drains" if overview["draining"] else overview["health"]
        line += [Piece(f"  {health} ", GOOD if health == "OK" else BAD), Piece(f" up {_duration(up)}", DIM)]
    if view.paused:
        line.append(Piece("  standing still: p", BAD))
    return line


def _figures(overview: Mapping[str, Any], width: int) -> list[Line]:
    history, totals = overview["history"], overview["totals"]
    wide = max(8, min(60, (width - 46) // 2))
    rate_in, rate_out = (f"{short(overview['rates'][way]):>8}/s " for way in ("in", "out"))
    first = [
        Piece("  published ", DIM), Piece(rate_in, BOLD), Piece(spark(history["in"], wide), IN),
        Piece("   backlog ", DIM), Piece(f"{short(overview['backlog']):>8} ", BOLD),
        Piece(spark(history["backlog"], wide), WAIT),
    ]  # fmt: skip
    second = [
        Piece("   finished ", DIM), Piece(rate_out, BOLD), Piece(spark(history["out"], wide), IN),
        Piece("   clients ", DIM), Piece(f"{totals['connections']:>8} ", BOLD),
        Piece(spark(history["connections"], wide), DIM),
    ]  # fmt: skip
    return [first, second]


def _processes(overview: Mapping[str, Any], width: int) -> list[Line]:
    """All processes, two in a line; if there are more than 16, those that use most CPU."""
    processes = sorted(overview["processes"], key=lambda one: -one["cpu"])[:16]
    processes.sort(key=lambda one: one["name"])
    wide = (width - 3) // 2
    bars = []
    for one in processes:
        name, said = one["name"].removeprefix("mq-"), f"{one['cpu']:.0f}% {size(one['memory'])}"
        if one["name"] in overview.get("silent", ()):  # an older broker does not say
            said = f"does not answer {said}"
        bars.append(bar(f"{name:>12}", one["cpu"], wide, said))
    if disk := overview["disk"]:
        used = 100 * (1 - disk["free"] / max(1, disk["all"]))
        bars.append(bar(f"{'disk':>12}", used, wide, f"{size(disk['free'])} free, log {size(disk['log'])}"))
    return [
        [*bars[at], *([Piece("   "), *bars[at + 1]] if at + 1 < len(bars) else [])] for at in range(0, len(bars), 2)
    ]


def _heads(view: View, width: int) -> Line:
    text = " TOPIC".ljust(_name_width(width) + 1)
    line = [Piece(text, CHOSEN if view.order == "name" else HEAD)]
    for _, title, order, wide in _columns(width):
        line.append(Piece(f"{title:>{wide}}", CHOSEN if view.order == order else HEAD))
    line.append(Piece(" " * width, HEAD))
    return line


def _columns(width: int) -> list[tuple[str, str, str, int]]:
    """As many columns as there is room for beside a name."""
    room, found = width - NAME - 2, []
    for column in COLUMNS:
        room -= column[3]
        if room < 0:
            break
        found.append(column)
    return found


def _rest(width: int) -> int:
    """The width that the columns leave."""
    return width - 2 - sum(column[3] for column in _columns(width))


def _name_width(width: int) -> int:
    """The width for names, which leaves room for the sparkline of the last minutes."""
    return max(NAME, _rest(width) - SPARK - 2)


def _row(row: Mapping[str, Any], width: int) -> Line:
    name = "".join(one if one.isprintable() else "?" for one in row["name"])
    room = _name_width(width)
    name = name if columns(name) <= room else first(name, room - 1) + "…"
    shown = {**row, "backlog": max(row["backlog"], row["jobs"])}
    line = [Piece(f" {padded(name, room)}", BAD if row["paused"] else BOLD)]
    for figure, _, _, wide in _columns(width):
        value = shown.get(figure)  # an older broker does not send every figure
        text = age(value) if figure == "oldest_s" else short(value)
        line.append(Piece(f"{text if value != 0 else '·':>{wide}}", PLAIN if value else DIM))
    room_left = min(SPARK, _rest(width) - room - 2)
    if room_left > 3:
        line.append(Piece("  " + spark(row["history"]["in"], room_left), IN))
    return line


def _foot(page: Mapping[str, Any], view: View, rows: int, width: int) -> Line:
    if view.typing:
        return [
            Piece("/", KEY),
            Piece(view.search),
            Piece("_", BOLD),
            Piece("   Enter: so it is   Esc: all topics", DIM),
        ]
    last = min(page["found"], view.first + rows)
    line = [Piece(f" {min(view.first + 1, last)}-{last} of {page['found']} ", BOLD)]
    if view.search:
        line.append(Piece(f"with “{view.search}” ", KEY))
    for key, what in (
        ("/", "find"),
        ("a n i d o b f c", "order"),
        ("↑↓ PgUp PgDn", "move"),
        ("p", "stand still"),
        ("q", "end"),
    ):
        line += [Piece(f" {key} ", KEY), Piece(what, DIM)]
    return line


def _cut(line: Line, width: int) -> Line:
    cut: Line = []
    for text, style in line:
        if width <= 0:
            break
        cut.append(Piece(first(text, width), style))
        width -= columns(text)
    return cut


def _duration(seconds: int) -> str:
    days, rest = divmod(seconds, 86400)
    text = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days} d {text}" if days else text


def age(seconds: float | None) -> str:
    """
    >>> [age(s) for s in (None, 0.2, 59, 61, 7200, 3 * 86400)]
    ['-', '<1s', '59s', '1m', '2h', '3d']
    """
    if seconds is None:
        return NOT_SAID
    for size_s, unit in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        if seconds >= size_s:
            return f"{seconds // size_s:.0f}{unit}"
    return "<1s"


def size(count: float) -> str:
    """
    >>> [size(n) for n in (17, 2048, 35 << 20, 3 << 40)]
    ['17B', '2.0K', '35M', '3.0T']
    """
    for unit in ("B", "K", "M", "G"):
        if count < 1024:
            return f"{count:.0f}{unit}" if unit == "B" or count >= 10 else f"{count:.1f}{unit}"
        count /= 1024
    return f"{count:.1f}T"
