"""What a reader would have to watch: arrows between folders, sizes, dead symbols, names of files that are gone."""

from __future__ import annotations

import ast
import ctypes
import os
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from mq_shards.acceptor.protocols.table import PROTOCOLS
from mq_shards.csrc import _core

from perf.table import MEASURED

ROOT: Final = Path(__file__).resolve().parent.parent
CSRC: Final = ROOT / "csrc"
FRONT_DOOR: Final = {".clang-format", ".gitignore", "LICENSE", "Makefile", "README.md", "pyproject.toml"}

# What each folder of C may include beside its own files, and of Python import. Nothing goes up, so there is no circle.
C_ARROWS: Final[Mapping[str, tuple[str, ...]]] = {
    "base": (),
    "formats": ("base",),
    "ringbuf": ("base",),
    "log": ("base", "ringbuf"),
    "shards": ("base", "ringbuf", "log"),
    "acceptor": ("base", "ringbuf"),
    "acceptor/protocols": ("base", "ringbuf", "acceptor"),
    **{
        f"acceptor/protocols/{name}": ("base", "formats", "ringbuf", "acceptor", "acceptor/protocols")
        for name in ("beanstalk", "nats", "nsq", "pulsar")
    },
    "pipeline": ("base", "formats", "log"),
}
PYTHON_ARROWS: Final[Mapping[str, tuple[str, ...]]] = {
    "csrc": (),
    "ringbuf": ("csrc",),
    "shards": ("csrc", "ringbuf"),
    "acceptor": ("csrc", "ringbuf"),
    "gateway": ("csrc", "ringbuf", "shards", "acceptor"),
    "supervisor": ("csrc", "ringbuf", "shards", "acceptor", "gateway"),
    "pipeline": ("csrc", "shards"),
}

FILE_LINES: Final = 700
# Longer than they should be: not to grow beyond what is said here, and to go from the list when they are split.
LONG_FILES: Final[Mapping[str, int]] = {}
TEST_FILE_LINES: Final = 1000
LONG_TEST_FILES: Final[Mapping[str, int]] = {}
FUNCTION_LINES: Final = 60
LINE_CHARACTERS: Final = 120
LONG_FUNCTIONS: Final[Mapping[str, int]] = {}

PACKAGES: Final = tuple(PYTHON_ARROWS)


@cache
def all_files() -> tuple[Path, ...]:
    """Of this repository's own."""
    skipped = {".git", ".venv", "build", "__pycache__", "data"}
    found: list[Path] = []
    for directory, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in skipped]
        found += (Path(directory, name) for name in names if name != "_core.c")
    return tuple(sorted(found))


def files(*patterns: str) -> list[Path]:
    wanted = re.compile("|".join(f"(?:{fnmatch_of(pattern)})" for pattern in patterns))
    return [path for path in all_files() if wanted.fullmatch(name_of(path))]


def fnmatch_of(pattern: str) -> str:
    """As a regular expression: `**/` is any folders, none among them."""
    parts = re.split(r"(\*\*/|\*)", pattern)
    kinds = {"**/": r"(?:[^/]+/)*", "*": "[^/]*"}
    return "".join(kinds.get(part) or re.escape(part).replace(r"\[", "[").replace(r"\]", "]") for part in parts)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All that stand in it: ten times as many are the parts of their expressions, among which ast.walk goes."""
    rest = [tree]
    while rest:
        node = rest.pop()
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, name, ())
            yield from inner
            rest += inner


def c_files() -> list[Path]:
    return files("csrc/**/*.c", "csrc/**/*.h")


def package_files() -> list[Path]:
    return [path for package in PACKAGES for path in files(f"{package}/**/*.py")]


# --- arrows -----------------------------------------------------------------------------------------------------------


def test_the_arrows_that_are_allowed_have_no_circle() -> None:
    for arrows in (C_ARROWS, PYTHON_ARROWS):
        for folder, below in arrows.items():
            assert all(folder not in arrows[other] and other != folder for other in below)


def test_includes_go_down() -> None:
    wrong = []
    for path in c_files():
        folder = str(path.parent.relative_to(CSRC))
        for included in re.findall(r'#include "([^"]+)"', text_of(path)):
            to = str(Path(included).parent)
            if folder != "." and to != folder and to not in C_ARROWS[folder]:
                wrong.append(f"{name_of(path)} includes {included}")
            if not (CSRC / included).exists():
                wrong.append(f"{name_of(path)} includes {included}, which is not there")
    assert not wrong


def imported(tree: ast.AST) -> Iterator[str]:
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_imports_go_down() -> None:
    wrong = []
    for path in package_files():
        folder = path.relative_to(ROOT).parts[0]
        for name in imported(tree_of(path)):
            first, _, rest = name.partition(".")
            to = rest.split(".")[0]
            if first == "mq_shards" and to != folder and to not in PYTHON_ARROWS[folder]:
                wrong.append(f"{name_of(path)} imports {name}")
    assert not wrong


def test_nobody_imports_the_bare_names() -> None:
    """Installed there is one package: a user's own `pipeline.py` must not come in its place."""
    # The build runs before anything is installed.
    bare = re.compile(rf"^\s*(?:import|from) ({'|'.join(set(PACKAGES) - {'csrc'})})\b", re.MULTILINE)
    wrong = []
    for path in files("**/*.py"):
        wrong += [f"{name_of(path)} imports {name}" for name in bare.findall(text_of(path))]
    assert not wrong


def codecs() -> list[str]:
    return re.findall(r"^    CODEC\((\w+)\)", text_of(CSRC / "acceptor" / "protocols" / "table.c"), re.MULTILINE)


def test_what_serves_all_protocols_names_none() -> None:
    """Neither in a comment nor as a part of a name, such as that of its server."""
    protocols = re.compile("|".join(sorted({name.partition("_")[0] for name in codecs()})), re.IGNORECASE)
    neutral = files(
        "csrc/base/*.[ch]", "csrc/acceptor/*.[ch]", "csrc/ringbuf/*.[ch]", "csrc/log/*.[ch]", "csrc/shards/*.[ch]",
        "ringbuf/*.py", "shards/*.py", "shards/reader/*.py", "acceptor/*.py", "acceptor/access/*.py",
        "acceptor/filters/*.py", "supervisor/*.py", "supervisor/options/*.py",
        "gateway/*.py", "perf/*.py", "perf/*.[ch]",
    )  # fmt: skip
    # The last has the tags of headers, which say by whom they were written.
    tables = files("gateway/services.py", "perf/table.py", "perf/protocols.h", "csrc/ringbuf/message.h")
    assert len(neutral) > 300 and len(tables) == 4, "they are found"
    others = sorted(set(neutral) - set(tables))
    found = [f"{name_of(path)}: {match[0]}" for path in others if (match := protocols.search(text_of(path)))]
    assert not found


def test_the_gateways_process_reaches_its_parts_through_the_table() -> None:
    """So it names none, and what is in their folders is loaded only when the first client comes."""
    folders = {path.parent.name for path in files("gateway/*/*.py")}
    parts = {path.parent.name for path in files("gateway/*/part.py")}
    offered = re.findall(r"gateway\.(\w+)\.offer import", text_of(ROOT / "gateway" / "services.py"))
    assert parts < folders and parts == set(offered)
    process = list(imported(tree_of(ROOT / "gateway" / "process.py")))
    assert "mq_shards.gateway.services" in process
    assert not [name for name in process if any(f"gateway.{folder}." in name for folder in folders)]


def test_a_protocol_is_measured_by_c_and_by_python() -> None:
    in_c = re.findall(r"PROTOCOL\((\w+)\)", text_of(ROOT / "perf" / "protocols.h"))
    folders = {path.parent.name for path in files("perf/*/measured.py")}
    assert in_c and {*in_c, "spark"} == folders == set(MEASURED)


def test_each_codec_has_the_name_of_its_python_half() -> None:
    assert {name: half.name for name, half in PROTOCOLS.items()} == {name: name for name in PROTOCOLS}
    assert [name.replace("-", "_") for name in PROTOCOLS] == codecs()


# What functions are about in a folder where no file and no type bears the name.
NOUNS: Final[Mapping[str, set[str]]] = {
    "acceptor": {"byte", "clock", "peer", "reply", "topic", "wake"},
    "shards": {"message", "retained", "retention"},
}
EXTERNAL: Final = re.compile(r"^(?!static|typedef|return|#)[a-z_][\w *]*?[ *](\w+)\(", re.MULTILINE)


def first_word(name: str) -> str:
    return name.split("_")[0].removesuffix("s")


def test_external_symbols_begin_with_the_name_of_what_they_belong_to() -> None:
    """A file of the folder, or of the one above, or a type that it declares."""
    names: dict[Path, set[str]] = {CSRC / folder: set(nouns) for folder, nouns in NOUNS.items()}
    types = re.compile(r"\b(?:struct|enum|union) (\w+) \{")
    sources = {path: code_of(path) for path in c_files() if path.parent.name != "surface"}
    for path, text in sources.items():
        names.setdefault(path.parent, set()).update(map(first_word, [path.stem, *types.findall(text)]))
    found = [(path, name) for path, text in sources.items() if path.suffix == ".c" for name in EXTERNAL.findall(text)]
    assert len(found) > 1000, "they are found"
    wrong = [
        f"{name_of(path)}: {name}"
        for path, name in found
        if first_word(name) not in names[path.parent] | names.get(path.parent.parent, set())
    ]
    assert not wrong


# A message's way through a worker leads down: a turn (worker.c) receives requests (requests.c), which the files in
# between carry out; these write to the log, and answer. What is below calls none of them, and none calls what is above.
SHARDS_ABOVE: Final = {"worker.c", "peer.c", "requests.c", "execute.c", "gone.c", "many.c", "group.c"}
SHARDS_BELOW: Final = {
    "answers.c", "client.c", "drop.c", "durations.c", "job_parts.c", "known.c", "naming.c", "parked.c", "producers.c",
    "queue.c", "ready.c", "records.c", "room.c", "shard.c", "sleeping.c", "stream.c", "topic.c", "unreadable.c",
}  # fmt: skip
# Folders in which no files need each other in a circle.
NO_CIRCLES: Final = (
    "base", "formats", "shards", "pipeline", "acceptor",
    *(f"acceptor/protocols/{name}" for name in ("beanstalk", "nats", "nsq", "pulsar")),
)  # fmt: skip
# Folders in which one header says what several files do. No files call each other in a circle.
ONE_HEADER: Final = ("log", "ringbuf")
CALL: Final = re.compile(r"(?<![\w.>])(\w+)\(")


@cache
def called(folder: str) -> dict[str, set[str]]:
    """Of each C file in a folder, the others that define a function which it calls."""
    sources = {path.name: code_of(path) for path in files(f"{folder}/*.c")}
    home = {name: file for file, text in sources.items() for name in EXTERNAL.findall(text)}
    return {
        file: {home[name] for name in CALL.findall(text) if name in home} - {file} for file, text in sources.items()
    }


def circle(calls: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The files that call each other in a circle, and what is above them."""
    left = {file: set(others) for file, others in calls.items()}
    while ground := [file for file, others in left.items() if not others & left.keys()]:
        for file in ground:
            del left[file]
    return {file: others & left.keys() for file, others in left.items()}


def test_a_message_goes_down_through_a_worker() -> None:
    calls = called("csrc/shards")
    assert calls["execute.c"] > {"publish.c", "tube.c"} and "answers.c" in calls["queue.c"], "they are found"
    up = {file: calls[file] - SHARDS_BELOW for file in SHARDS_BELOW}
    up |= {file: calls[file] & SHARDS_ABOVE for file in calls.keys() - SHARDS_ABOVE}
    assert not {file: to for file, to in up.items() if to}


def needed(folder: str) -> dict[str, set[str]]:
    """Of each C file in a folder, taken as one with its header, the others whose functions or headers it needs."""
    needs = {Path(file).stem: {Path(other).stem for other in others} for file, others in called(folder).items()}
    for path in files(f"{folder}/*.[ch]"):
        included = re.findall(rf'#include "{folder.removeprefix("csrc/")}/(\w+)\.h"', text_of(path))
        needs.setdefault(path.stem, set()).update(set(included) - {path.stem})
    return needs


@pytest.mark.parametrize("folder", NO_CIRCLES)
def test_no_files_need_each_other_in_a_circle(folder: str) -> None:
    assert not circle(needed(f"csrc/{folder}"))


@pytest.mark.parametrize("folder", ONE_HEADER)
def test_no_files_call_each_other_in_a_circle(folder: str) -> None:
    assert not circle(called(f"csrc/{folder}"))


def test_a_circle_is_found() -> None:
    calls = called("csrc/shards")
    assert circle({**calls, "queue.c": calls["queue.c"] | {"give_up.c"}})
    needs = needed("csrc/acceptor")
    assert circle({**needs, "lists": needs["lists"] | {"socket"}})


def imports_of(path: Path) -> set[str]:
    """The other files of the packages that a file imports, also late or for its types alone."""
    tree = tree_of(path)
    tops = {name.removeprefix("mq_shards.").replace(".", "/") for name in imported(tree)}
    return ({f"{name}.py" for name in tops} | {f"{name.rpartition('/')[0]}.py" for name in tops}) - {name_of(path)}


def test_no_python_files_import_each_other_in_a_circle() -> None:
    imports = {name_of(path): imports_of(path) for path in package_files()}
    assert "gateway/part.py" in imports["gateway/offer.py"] and "gateway/terms.py" in imports["gateway/part.py"]
    assert not circle(imports)
    assert circle({**imports, "gateway/terms.py": {"gateway/offer.py"}}), "one is found"


@pytest.mark.parametrize("parent", ["gateway", "acceptor/protocols", "supervisor"])
def test_folders_beside_each_other_do_not_import_each_other_in_a_circle(parent: str) -> None:
    folders: dict[str, set[str]] = {}
    for path in files(f"{parent}/*/*.py"):
        to = {str(Path(name).parent) for name in imports_of(path) if Path(name).parent.parent == Path(parent)}
        folders.setdefault(str(path.parent.relative_to(ROOT)), set()).update(to)
    folders = {folder: to - {folder} for folder, to in folders.items()}
    assert len(folders) >= 3 and not circle(folders)


# --- sizes ------------------------------------------------------------------------------------------------------------


def too_long(lengths: Mapping[str, int], limit: int, exceptions: Mapping[str, int]) -> list[str]:
    longer = [f"{name} has {n} lines" for name, n in lengths.items() if n > exceptions.get(name, limit)]
    return longer + [f"{name} is no exception any more" for name in exceptions if lengths.get(name, 0) <= limit]


def test_files_are_short() -> None:
    sources = [*c_files(), *package_files(), *files("perf/**/*.py", "perf/**/*.[ch]")]
    assert not too_long({name_of(p): len(text_of(p).splitlines()) for p in sources}, FILE_LINES, LONG_FILES)
    tests = files("tests/**/*.py", "tests/**/*.[ch]")
    lengths = {name_of(p): len(text_of(p).splitlines()) for p in tests}
    assert not too_long(lengths, TEST_FILE_LINES, LONG_TEST_FILES)


def test_lines_are_short() -> None:
    """Those of C: clang-format does not break comments. Of Python's ruff knows."""
    sources = [*c_files(), *files("perf/**/*.[ch]", "tests/**/*.[ch]")]
    long = [
        f"{name_of(path)}:{number}"
        for path in sources
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if len(line) > LINE_CHARACTERS
    ]
    assert len(sources) > 500, "they are found"
    assert not long


def c_functions(path: Path) -> Iterator[tuple[str, int]]:
    """Names and numbers of lines: clang-format sees to it that a function begins and ends in the first column."""
    begin, name = 0, ""
    for number, line in enumerate(text_of(path).splitlines()):
        head = re.match(r"(?!typedef|struct \w+ \{|enum|union|static const|#)[a-z].*?\b(\w+)\(", line)
        if head:
            begin, name = number, head[1]
        elif line == "}" and name:
            yield name, number - begin + 1
            name = ""


def python_functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in statements(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


def test_functions_fit_a_screen() -> None:
    lengths: dict[str, int] = {}
    for path in c_files():
        lengths |= {f"{name_of(path)}: {name}": n for name, n in c_functions(path)}
    for path in package_files():
        lengths |= {f"{name_of(path)}: {name}": n for name, n in python_functions(path)}
    assert len(lengths) > 1000, "they are found"
    assert not too_long(lengths, FUNCTION_LINES, LONG_FUNCTIONS)


# --- what is not used -------------------------------------------------------------------------------------------------


@cache
def code_of(path: Path) -> str:
    """Without comments."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text_of(path), flags=re.DOTALL)


def declared(header: str) -> dict[str, int]:
    """The functions, macros and constants of a header, and how often each is named if nobody uses it.

    A function is named where it is declared and where it is defined.
    """
    found = dict.fromkeys(re.findall(r"^(?!static|typedef|#|return)[a-z][\w *]*?[ *](\w+)\(", header, re.MULTILINE), 2)
    once = re.findall(r"^static inline [\w *]*?[ *](\w+)\(", header, re.MULTILINE)
    once += [name for name in re.findall(r"^#define (\w+)", header, re.MULTILINE) if not name.startswith("MQ_")]
    for body in re.findall(r"\benum(?: \w+)? \{(.*?)\}", header, re.DOTALL):
        once += re.findall(r"\b([A-Z][A-Z0-9_]+)\b(?=\s*(?:=|,|$))", body)
    return found | dict.fromkeys(once, 1)


def words_of(texts: Iterable[str]) -> Counter[str]:
    return Counter(re.findall(r"\w+", "\n".join(texts)))


@cache
def python_words() -> Counter[str]:
    return words_of(map(text_of, files("**/*.py")))


def test_what_is_declared_is_used() -> None:
    inside = {path: code_of(path) for path in c_files() if path.parent.name != "surface"}
    used = python_words() + words_of(inside.values())
    used += words_of(map(text_of, files("tests/**/*.[ch]", "perf/**/*.[ch]")))
    dead = [
        f"{name_of(path)}: {name}"
        for path, text in inside.items()
        if path.suffix == ".h"
        for name, unused in declared(text).items()
        if used[name] <= unused
    ]
    assert not dead


def test_what_python_can_call_is_called() -> None:
    surface = "".join(map(code_of, files("csrc/surface/*.h")))
    names = set(re.findall(r"^[a-z][\w *]*?[ *](\w+)\([^)]*\);", surface, re.MULTILINE))
    names |= set(re.findall(r"^#define (\w+)", surface, re.MULTILINE))
    assert len(names) > 100, "they are found"
    assert not sorted(name for name in names if not python_words()[name])


def test_the_core_shows_others_nothing_but_the_module() -> None:
    """What others could replace is called, not inlined: a sixth of the instructions of a message."""
    core = ctypes.CDLL(_core.__file__)
    assert hasattr(core, "PyInit__core")
    assert not [name for name in ("acceptor_run", "worker_turn", "channel_send", "log_append") if hasattr(core, name)]


# --- names of files ---------------------------------------------------------------------------------------------------


# Not in git.
MADE: Final = ("perf/results/",)


def test_docs_and_makefile_name_files_that_are_there() -> None:
    tops = "|".join((*PACKAGES, "csrc", "docs", "perf", "tests"))
    path_in = re.compile(rf"(?<![\w/.-])((?:{tops})/[\w/.-]*[\w/])")
    gone = []
    for path in [*files("docs/*.md", "README.md", "Makefile", "pyproject.toml")]:
        for named in path_in.findall(text_of(path)):
            there = any((ROOT / named).parent.glob(Path(named).name + "*")) or "NAME" in named or named in MADE
            if not there:
                gone.append(f"{name_of(path)}: {named}")
    assert not gone


def test_comments_name_files_that_are_there() -> None:
    names = {path.name for path in files("**/*.[ch]")} | {"prot.c", "heap.c"}
    gone = []
    for path in c_files():
        comments = " ".join(re.findall(r"/\*.*?\*/", text_of(path), re.DOTALL))
        gone += [f"{name_of(path)}: {n}" for n in re.findall(r"\b[\w]+\.[ch]\b(?!\w)", comments) if n not in names]
    assert not gone


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="asks git")
def test_the_front_door_has_nothing_lying_about() -> None:
    """What stands beside the folders was put there on purpose."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert {name for name in listed if "/" not in name} == FRONT_DOOR


def test_the_list_of_packages_is_the_list_of_folders() -> None:
    told = tomllib.loads(text_of(ROOT / "pyproject.toml"))["tool"]["setuptools"]
    listed, elsewhere = told["packages"], told["package-dir"]
    assert len(listed) == len(set(listed))
    installed = {ROOT / (elsewhere[name] if name in elsewhere else Path(*name.split(".")[1:])) for name in listed}
    assert {path.parent for path in package_files()} <= installed, "a folder that is not installed"
    assert not [path for path in installed if not path.is_dir()]


def test_links_between_documents_lead_somewhere() -> None:
    gone = []
    for path in files("docs/*.md", "README.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text_of(path)):
            if not (path.parent / target).exists():
                gone.append(f"{name_of(path)}: {target}")
    assert not gone
