"""Compiles the C sources of all rooms and the cffi surface into one extension module, `mq_shards.csrc._core`.

`surface/` is all that Python can call, one file for each room. cffi's API mode compiles it against the headers, so that
a signature that differs is a compile error and never a crash.

Run as a script it builds in place; setuptools calls `BuildExt` through pyproject.toml.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from cffi import FFI
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent / "build"
GENERATED = "_core.c"
ROOMS = ("base", "ringbuf", "log", "acceptor", "shards", "pipeline")  # of surface/; each may use types of earlier ones
# Warnings are errors, in our sources; cffi's generated wrappers are exempt from -Wconversion only.
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wstrict-prototypes", "-Wvla", "-Werror"]
EXEMPTION = "".join(f'#pragma GCC diagnostic ignored "{name}"\n' for name in ("-Wconversion", "-Wsign-conversion"))
# Assertions stay on: they cost 2 % of the instructions at most (docs/costs.md). Python's own flags turn them off.
# Hidden symbols: a visible function of a shared object could be replaced by another, so it would never be inlined.
RELEASE = ["-O3", "-g", "-fno-omit-frame-pointer", "-fno-plt", "-fvisibility=hidden", "-UNDEBUG"]
# All sources as one unit, so that small functions are inlined across files, which saves a sixth of a worker's
# instructions. Aliasing is not strict, as memory of an arena is then seen under several types. Linking takes long, so
# leave this out while working on the core.
WHOLE = ["-flto=auto", "-fno-strict-aliasing"]
DEBUG = ["-O1", "-g", "-fno-omit-frame-pointer"]
QUICK = ["-O0"]  # builds in half the time


def sources() -> list[str]:
    return sorted(str(p.relative_to(HERE)) for p in HERE.glob("*/**/*.c"))


def surface(rooms: Sequence[str] = ROOMS) -> tuple[str, list[str]]:
    """The cdef text and the headers it needs. Declarations behind `/* == room/name == */` are those of room/name.h."""
    text = "".join((HERE / "surface" / f"{room}.h").read_text() for room in rooms)
    return text, [f"{name}.h" for name in re.findall(r"^/\* == (\S+) == \*/$", text, re.MULTILINE)]


def generate(target: Path, module: str = "mq_shards.csrc._core", rooms: Sequence[str] = ROOMS) -> None:
    ffi = FFI()
    cdef, headers = surface(rooms)
    ffi.cdef(cdef + "\n#define CORE_SURFACE ...\n")  # csrc/__init__.py compares it with the files of surface/
    preamble = "\n".join(f'#include "{h}"' for h in headers)
    whole = b"".join(part.read_bytes() for part in sorted((HERE / "surface").glob("*.h")))
    ffi.set_source(module, f"{preamble}\n#define CORE_SURFACE {zlib.crc32(whole)}u\n")
    fresh = target.with_suffix(".fresh")
    ffi.emit_c_code(str(fresh))
    text = EXEMPTION + fresh.read_text()
    fresh.unlink()
    if not target.exists() or target.read_text() != text:
        target.write_text(text)


@contextmanager
def alone(build: Path) -> Iterator[None]:
    """Waits until no other build runs in this tree: two would write the same wrapper, objects and module."""
    build.mkdir(parents=True, exist_ok=True)
    with (build / "compiling.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class BuildExt(build_ext):  # type: ignore[misc]
    """Writes the cffi wrapper before it builds, and adds the sources, as pyproject.toml names only the wrapper.

    A wheel is for any Python from 3.11 on. It may be built with any compiler, so warnings are not errors then.
    """

    def finalize_options(self) -> None:
        super().finalize_options()
        for ext in self.extensions:
            # Relative to the project, as setuptools demands. It builds again when one of these files is newer.
            ext.sources = [f"{HERE.name}/{name}" for name in (GENERATED, *sources())]
            ext.depends = [f"{HERE.name}/{p.relative_to(HERE)}" for p in sorted(HERE.rglob("*.h"))]
            ext.include_dirs = [*ext.include_dirs, HERE.name]
            ext.extra_compile_args = [*STRICT, *RELEASE, *WHOLE, "-pthread"]
            if not self.inplace:
                ext.py_limited_api = True
                ext.extra_compile_args.remove("-Werror")
            ext.extra_link_args = [*RELEASE, *WHOLE, "-pthread"]

    def run(self) -> None:
        with alone(BUILD):
            generate(HERE / GENERATED)
            super().run()


def needs_compiling(target: Path, dependencies: Path) -> bool:
    """Whether an object is missing, or a source or header it was made of is newer or gone."""
    if not target.exists() or not dependencies.exists():
        return True
    made = target.stat().st_mtime_ns
    files = dependencies.read_text().replace("\\\n", " ").partition(":")[2].split()
    try:
        return any(Path(name).stat().st_mtime_ns >= made for name in files)
    except OSError:
        return True


def compile_one(command: list[str], source: Path, objects: Path) -> Path:
    """Returns the object of one source, compiled again if the source or a header has changed."""
    target = objects / (str(source.relative_to(source.anchor)).replace(os.sep, "-") + ".o")
    dependencies = target.with_suffix(".d")
    if needs_compiling(target, dependencies):
        fresh = target.with_suffix(f".{os.getpid()}")
        subprocess.run([*command, "-MMD", "-MF", str(dependencies), "-c", str(source), "-o", str(fresh)], check=True)
        fresh.replace(target)
    return target


def compile_in(out: Path, name: str, files: list[str], flags: list[str]) -> Path:
    """Builds an importable module `name` in `out` from some sources, for tests and for work on one module."""
    with alone(BUILD):
        return compile_alone(out, name, files, flags)


def compile_alone(out: Path, name: str, files: list[str], flags: list[str]) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    wrapper = out / f"{name}.c"
    generate(wrapper, module=name)
    target = out / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    # Not linked in place, as a running broker has the old module mapped.
    linking = target.with_suffix(".linking")
    compiler = [os.environ.get("CC", "cc"), "-fPIC", "-pthread"]
    command = [*compiler, *STRICT, *flags, f"-I{HERE}", f"-I{sysconfig.get_paths()['include']}"]
    # Each compiler and set of options has its own folder of objects.
    kind = hashlib.sha256("\0".join(command).encode()).hexdigest()[:12]
    objects = BUILD / "objects" / kind
    objects.mkdir(parents=True, exist_ok=True)
    wanted = [wrapper, *(HERE / f for f in files)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = list(pool.map(lambda source: compile_one(command, source, objects), wanted))
    subprocess.run([*compiler, *flags, "-shared", *map(str, made), "-o", str(linking)], check=True)
    linking.replace(target)
    return target


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description="build csrc._core in place")
    parser.add_argument("--debug", action="store_true", help="optimise little")
    parser.add_argument("--quick", action="store_true", help="optimise nothing")
    parser.add_argument("--whole", action="store_true", help="as one unit: as what is installed, slower to build")
    parser.add_argument("--out", type=Path, default=HERE, help="where to put the module")
    parser.add_argument("--name", default="_core")
    parser.add_argument("--files", help="comma-separated C files (default: all)")
    options = parser.parse_args(argv)
    files = options.files.split(",") if options.files else sources()
    flags = [*RELEASE, *WHOLE] if options.whole else RELEASE
    if options.debug or options.quick:
        flags = DEBUG if options.debug else QUICK
    print(compile_in(options.out, options.name, files, flags))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
