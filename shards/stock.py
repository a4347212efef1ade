"""Compares the files found in a shard's folder with those that should be there. Pure, so each case can be tested alone.

A segment belongs where its header says: one under another's name gets its own name back. Files that belong nowhere
are put aside, not destroyed. A segment that is listed but not found is missing: the log goes on without it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from mq_shards.shards.manifest import Manifest


class Found(NamedTuple):
    """A file that has the name of a segment. `begun_ns` None: the header does not tell; 0: there is no header yet."""

    begun_ns: int | None
    number: int = 0  # which segment it is by its header (0: unreadable),
    why_foreign: str = ""  # and why it does not belong to this shard
    bytes: int = 0  # 0: also if all of them are zeros
    is_written: bool = False  # its header is zeros, but something is written behind it
    is_emptied: bool = False  # it has no content, but there are copies of names that were in it
    log_began_ns: int = 0  # the same in all segments of a log; 0: the header does not tell


@dataclass(slots=True, eq=False, repr=False)
class Stock:
    """What has to be done, in this order."""

    remove: list[int] = field(default_factory=list)  # files without any content, or that were being removed
    aside: list[int] = field(default_factory=list)  # no segments of this shard, by the number in their names
    back: dict[int, int] = field(default_factory=dict)  # misnamed files, by the number they should have
    begin: list[int] = field(default_factory=list)  # missing or emptied segments, which new ones replace
    segments: dict[int, int] = field(default_factory=dict)  # the segments of the log after all this
    lost_tail: int = 0  # how many of the newest are missing or emptied
    problems: list[str] = field(default_factory=list)  # a line each
    wrong_until: int = 0  # the newest segment that a problem is about
    notes: list[str] = field(default_factory=list)  # one line each, worth telling but no damage

    def is_wrong(self, number: int, what: str) -> None:
        self.problems.append(f"{_name(number)} {what}")
        self.wrong_until = max(self.wrong_until, number)


def _name(number: int) -> str:
    return f"{number:010d}.log"


def take(found: Mapping[int, Found], manifest: Manifest | None, why: str) -> Stock:
    """Takes stock. `found`: by the numbers in the file names. `why`: why an expected manifest is missing, or ""."""
    stock = Stock()
    if why:
        stock.problems.append(f"{why}: whether all of its segments are there is not known")
    going = set(manifest.going) if manifest else set()
    stock.remove = sorted(number for number in found if number in going)
    files = {number: file for number, file in found.items() if number not in going}
    if manifest is None:
        if files and not why:
            stock.notes.append("taken over from a version without manifests")
        # By their headers: under another's name a copy would make all segments up to it missing.
        own = {n: file.number or n for n, file in files.items() if file.begun_ns != 0 and not file.why_foreign}
        listed = {number: files[n].begun_ns or 0 for n, number in sorted(own.items(), key=lambda at: at[0] == at[1])}
    else:
        listed = dict(manifest.segments)
        files = _of_this_log(files, listed)
    right = _sort_out(files, listed, stock, manifest is None)
    _see_what_is_missing(right, listed, {number for number, file in files.items() if file.is_emptied}, stock)
    return stock


def _is(file: Found, number: int, listed: Mapping[int, int]) -> bool:
    begun = listed.get(number)
    is_named = not file.why_foreign and file.number == number and begun is not None
    return is_named and (begun in (0, file.begun_ns) or file.begun_ns is None)


def _of_this_log(files: Mapping[int, Found], listed: Mapping[int, int]) -> dict[int, Found]:
    """Tells segments of another log from those that are surely of this one. The list may not say yet when the newest
    segment was begun, and without this any segment of its number would be taken for it."""
    sure = [file for file in files.values() if file.begun_ns and listed.get(file.number) == file.begun_ns]
    began = {file.log_began_ns for file in sure} - {0}
    if not began:
        return dict(files)
    why = "it is from another data directory or an older time"
    foreign = {
        number: file._replace(why_foreign=file.why_foreign or why)
        for number, file in files.items()
        if file.log_began_ns not in {0, *began}
    }
    return {**files, **foreign}


def _sort_out(files: Mapping[int, Found], listed: dict[int, int], stock: Stock, is_unlisted: bool) -> dict[int, int]:
    """The segments of this shard: when each was begun, by its number. `is_unlisted`: there is no manifest."""
    right: dict[int, int] = {}
    wrong: list[int] = []
    newest = max(listed, default=0)
    for number, file in sorted(files.items()):
        if file.begun_ns == 0:
            # That the newest segment has a header is listed only when the next one exists.
            if listed.get(number) or (file.is_written and (number in listed or is_unlisted)):
                if file.bytes:
                    stock.is_wrong(number, "has lost its header; what is whole after it is served")
                    right[number] = listed.get(number, 0)
            elif file.is_written:
                wrong.append(number)
            elif not file.is_emptied or number not in listed:
                stock.remove.append(number)  # it waited for its first record
        elif not file.number and not file.why_foreign:
            if number in listed:  # recovery reports the damage, and what is whole after it
                right[number] = listed[number]
            else:
                wrong.append(number)
        elif _is(file, number, listed):
            right[number] = file.begun_ns or listed[number]
        elif number == newest + 1 and not file.why_foreign and file.number == number:
            stock.notes.append(f"{_name(number)} is not in its manifest; it is served, as it follows the others")
            listed[number] = right[number] = file.begun_ns or 0
            newest = number
        else:
            wrong.append(number)
    for number in wrong:
        file = files[number]
        own = file.number
        if _is(file, own, listed) and own not in right and own not in stock.back:
            stock.back[own] = number
            stock.is_wrong(number, f"is segment {own}, and is put back there; nothing of it is lost")
            stock.wrong_until = max(stock.wrong_until, own)
            continue
        stock.aside.append(number)
        stock.is_wrong(number, f"is put aside: {_what_it_is(file, number, listed)}")
    # Only the last segment may be waiting for its first record: all before it have been written to.
    for number in [
        n for n in stock.remove if n in files and (n in listed or is_unlisted) and n < max(right, default=0)
    ]:
        stock.remove.remove(number)
        if files[number].bytes:
            stock.is_wrong(number, "has lost its header; what is whole after it is served")
            right[number] = 0
    right |= {own: files[number].begun_ns or 0 for own, number in stock.back.items()}
    return right


def _what_it_is(file: Found, number: int, listed: Mapping[int, int]) -> str:
    if file.why_foreign:
        return file.why_foreign
    if not file.number:
        return "it is no segment, and none of that number is known"
    if file.number != number:
        return f"it is a copy of segment {file.number}"
    if number in listed:
        return "it is another segment than was written under this name, from another data directory or an older time"
    return "no segment of that number is known"


def _see_what_is_missing(
    right: Mapping[int, int], listed: Mapping[int, int], emptied: Collection[int], stock: Stock
) -> None:
    """Reports the messages of missing segments as lost, even of one listed without a header, probably empty."""
    waiting = [n for n in stock.remove if n in listed]
    wanted = sorted(n for n in listed if n not in waiting)
    stock.segments = dict(right)
    if not wanted:
        return
    first, last = min(right, default=wanted[-1]), wanted[-1]
    stock.lost_tail = last - max(right, default=first - len(wanted))
    stock.begin = [n for n in range(first, last + 1) if n not in right]
    stock.remove = [n for n in stock.remove if n not in stock.begin]  # an empty one takes its place
    for number in sorted({*wanted, *stock.begin} - right.keys()):
        if number in emptied and not listed.get(number):
            # No reason to refuse a start: a machine that fails may have written the copies, and not yet the segment.
            stock.notes.append(f"{_name(number)} is empty, and was not: the messages that were in it are lost")
        else:
            stock.is_wrong(number, "is missing: the messages that were in it are lost")
    stock.segments |= dict.fromkeys(stock.begin, 0)
