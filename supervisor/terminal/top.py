"""`mq-shards top`: the broker live, in a terminal.

One thread asks the broker, the other draws and reads keys, so that keys work while a broker does not answer.
"""

from __future__ import annotations

import argparse
import contextlib
import curses
import locale
import os
import sys
import threading
import time
from dataclasses import replace
from typing import Any, Final, cast

from mq_shards.supervisor.terminal import screen, show
from mq_shards.supervisor.terminal.client import Client, ClientError
from mq_shards.supervisor.terminal.columns import columns
from mq_shards.supervisor.terminal.http import Http
from mq_shards.supervisor.terminal.screen import SORTS, View

KEY_MS: Final = 50  # how long to wait for a key
ROWS: Final = 200  # in one request; more than a terminal shows
SLOW_S: Final = 2.0  # an answer that is waited for so long is said to be missing
ESCAPE: Final = 27
ENTER: Final = (10, 13, curses.KEY_ENTER)
ERASE: Final = (8, 127, curses.KEY_BACKSPACE)


def run(client: Client, options: argparse.Namespace) -> None:
    """Runs `mq-shards top` to its end. Raises ClientError."""
    http = cast(Http, client)  # no other client has an overview
    if options.json or options.count or not sys.stdout.isatty():
        _write(http, options)
        return
    if not _can_draw():
        _write(http, options)
        return
    locale.setlocale(locale.LC_ALL, "")
    curses.wrapper(_Top(http, options.interval).run)


def _can_draw() -> bool:
    """Whether the terminal can put text anywhere; a dumb one, and one that nobody knows, cannot."""
    try:
        curses.setupterm()
        return curses.tigetstr("cup") is not None
    except curses.error:
        return False


def _write(client: Http, options: argparse.Namespace) -> None:
    """Without a screen: writes an object, or a table, at each interval."""
    left = options.count or (1 if not options.json else None)
    while left is None or left > 0:
        overview, page = client.overview(), client.find(limit=ROWS)
        if options.json:
            show.as_json({**overview, "rows": page["rows"]})
        else:
            width, height = 120, 12 + len(page["rows"]) + len(overview["processes"])
            for line in screen.frame(str(client.at), overview, page, View(), width, height):
                print(show.spelled("".join(piece.text for piece in line).rstrip(), sys.stdout.encoding))
        if left is not None:
            left -= 1
        if left != 0:
            time.sleep(options.interval)


class _Asking(threading.Thread):
    """The thread that asks. Keeps the last answer, and why the last question had none."""

    def __init__(self, client: Http, interval_s: float) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._interval_s = interval_s
        self._wanted = threading.Event()
        self._lock = threading.Lock()
        self._view = View()
        self._found: tuple[dict[str, Any], dict[str, Any]] | None = None
        self._error = ""
        self._asked_at: float | None = None

    def look(self, view: View) -> None:
        with self._lock:
            if (view.order, view.search, view.first) != (self._view.order, self._view.search, self._view.first):
                self._wanted.set()
            self._view = replace(view)

    def found(self) -> tuple[tuple[dict[str, Any], dict[str, Any]] | None, str]:
        with self._lock:
            waited_s = 0 if self._asked_at is None else int(time.monotonic() - self._asked_at)
            late = f"no answer for {waited_s} s" if waited_s >= SLOW_S else ""
            return self._found, self._error or late

    def run(self) -> None:
        while True:
            self._wanted.clear()
            with self._lock:
                view = replace(self._view)
            if not view.paused:
                self._ask(view)
            self._wanted.wait(self._interval_s)

    def _ask(self, view: View) -> None:
        self._asked_at = time.monotonic()
        try:
            page = self._client.find(order=view.order, search=view.search, limit=ROWS, **{"from": view.first})
            found = self._client.overview(), page
            with self._lock:
                self._found, self._error = found, ""
        except ClientError as error:
            with self._lock:
                self._error = str(error)
        finally:
            self._asked_at = None


class _Top:
    def __init__(self, client: Http, interval_s: float) -> None:
        self._at = str(client.at)
        self._asking = _Asking(client, interval_s)
        self._view = View()
        self._styles: dict[int, int] = {}

    def run(self, window: curses.window) -> None:
        self._colour()
        window.timeout(KEY_MS)
        window.keypad(True)
        self._asking.start()
        drawn: object = None
        while self._key(window):
            self._asking.look(self._view)
            found, error = self._asking.found()
            self._view.error = error
            now = (id(found), replace(self._view), window.getmaxyx())
            if now != drawn:
                self._draw(window, found)
                drawn = now

    def _colour(self) -> None:
        with contextlib.suppress(curses.error):  # some cannot hide the cursor
            curses.curs_set(0)
        self._styles = {screen.DIM: curses.A_DIM, screen.BOLD: curses.A_BOLD, screen.HEAD: curses.A_REVERSE,
                        screen.CHOSEN: curses.A_REVERSE | curses.A_BOLD}  # fmt: skip
        if not curses.has_colors():
            return
        curses.use_default_colors()  # otherwise all is white on black
        if os.environ.get("NO_COLOR"):
            return
        pairs = (
            (screen.GOOD, curses.COLOR_GREEN, -1), (screen.BAD, curses.COLOR_RED, -1),
            (screen.IN, curses.COLOR_CYAN, -1),
            (screen.WAIT, curses.COLOR_YELLOW, -1), (screen.KEY, curses.COLOR_CYAN, -1),
            (screen.HEAD, curses.COLOR_BLACK, curses.COLOR_CYAN),
            (screen.CHOSEN, curses.COLOR_BLACK, curses.COLOR_GREEN),
        )  # fmt: skip
        for style, colour, ground in pairs:
            curses.init_pair(style, colour, ground)
            self._styles[style] = curses.color_pair(style)

    def _draw(self, window: curses.window, found: tuple[dict[str, Any], dict[str, Any]] | None) -> None:
        height, width = window.getmaxyx()
        window.erase()
        window.redrawwin()  # another program may have written to the terminal
        if found is None:
            waiting = show.spelled(self._view.error or f"asking {self._at} ...", window.encoding)
            window.addnstr(0, 0, waiting, width - 1)
        else:
            self._view.first = min(self._view.first, max(0, found[1]["found"] - 1))
            for y, line in enumerate(screen.frame(self._at, *found, self._view, width, height)):
                x = 0
                for piece, style in line:
                    text = show.spelled(piece, window.encoding)
                    with contextlib.suppress(curses.error):  # curses fails at the last place of the screen
                        window.addstr(y, x, text, self._styles.get(style, 0))
                    x += columns(text)
        window.refresh()

    def _key(self, window: curses.window) -> bool:
        """Handles a key, if one was pressed. False: quit."""
        try:
            key = window.get_wch()
        except curses.error:
            return True  # no key was pressed
        code = key if isinstance(key, int) else ord(key)
        if self._view.typing:
            self._type(key, code)
            return True
        page = max(1, window.getmaxyx()[0] - 10)
        moves = {curses.KEY_DOWN: 1, curses.KEY_UP: -1, ord("j"): 1, ord("k"): -1, curses.KEY_NPAGE: page,
                 curses.KEY_PPAGE: -page, curses.KEY_HOME: -(1 << 40)}  # fmt: skip
        if code in moves:
            self._view.first = max(0, self._view.first + moves[code])
        elif key == "q":
            return False
        elif key == "/":
            self._view.typing = True
        elif key == "p":
            self._view.paused = not self._view.paused
        elif code == ESCAPE:
            self._view.search, self._view.first = "", 0
        elif isinstance(key, str) and key.lower() in SORTS:
            self._view.order, self._view.first = SORTS[key.lower()], 0
        return True

    def _type(self, key: int | str, code: int) -> None:
        view = self._view
        view.first = 0
        if code in ENTER:
            view.typing = False
        elif code == ESCAPE:
            view.typing, view.search = False, ""
        elif code in ERASE:
            view.search = view.search[:-1]
        elif isinstance(key, str) and key.isprintable():
            view.search = (view.search + key)[:100]
