"""Modules of csrc/base do what models do that are slower and plainer; each model is a program beside this file."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from mq_shards.csrc.build import BUILD, alone, compile_one

HERE = Path(__file__).resolve().parent
CORE = HERE.parent.parent / "csrc"
FLAGS = ("-std=c11", "-g1", "-O1", "-Wall", "-Wextra", "-fsanitize=undefined", "-fno-sanitize-recover=all")


def run_model(name: str, sources: tuple[str, ...], *arguments: str, beside: Path = HERE) -> None:
    done = subprocess.run(
        [made(name, [beside / f"{name}.c", *(CORE / source for source in sources)]), *arguments],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.stdout == "ok\n", done.stderr


def made(name: str, sources: list[Path]) -> Path:
    """The program, of which is compiled what has changed: to compile a model takes longer than to run it."""
    compiler = os.environ.get("CC", "cc")
    if not shutil.which(compiler):
        pytest.skip("no C compiler")
    kept = BUILD / "objects" / "models"
    command = [compiler, *FLAGS, f"-I{CORE}"]
    program = kept / name
    with alone(kept):
        objects = [compile_one(command, source, kept) for source in sources]
        linking = kept / f"{name}.linking"  # another pytest may run the old one
        subprocess.run([*command, *map(str, objects), "-o", str(linking)], check=True)
        linking.replace(program)
    return program


def test_a_wheel_gives_what_is_due_in_order_and_never_early_with_bounded_work_a_call() -> None:
    run_model("wheel_model", ("base/wheel.c", "base/heap.c"), os.environ.get("WHEEL_SEEDS", "15"))


def test_decimal_numbers_are_those_of_the_c_library() -> None:
    run_model("decimal_model", ())


def test_a_walk_over_subjects_in_pieces_misses_nobody_who_stays() -> None:
    names = ("subjects", "subject_cache", "subject_groups", "subject_tail", "subject_text", "siphash")
    run_model("cursor_model", tuple(f"base/{name}.c" for name in names))


def test_names_are_bound_found_and_forgotten_within_their_limits() -> None:
    run_model("bindings_model", tuple(f"base/{name}.c" for name in ("bindings", "siphash", "crc32c")))


def test_a_treap_keeps_its_order_and_stays_flat_wherever_items_come_and_go() -> None:
    run_model("treap_model", ("base/treap.c",), os.environ.get("TREAP_SEEDS", "20"))


def test_an_arena_that_gives_pages_back_keeps_what_lives() -> None:
    run_model("arena_pages_model", ("base/arena_pages.c", "base/arena.c", "base/stale.c"))


def test_a_spin_lasts_where_messages_come_soon_and_ends_where_most_do_not() -> None:
    run_model("adaptive_spin_model", ())


def test_members_of_a_json_object_are_written_within_their_room() -> None:
    run_model("json_members_model", ("base/json_members.c",))
