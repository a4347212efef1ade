"""Compiles the C sources of all rooms and the cffi surface into one extension module, `mq_shards.csrc._core`.

`surface/` is the whole of what Python can call, a file a room: cffi's API mode compiles it against the headers, so
that a signature that drifts is a compile error and never a crash.

Run as a script it builds in place; setuptools calls `BuildExt` through pyproject.toml.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cffi import FFI
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
GENERATED = "_core.c"
ROOMS = ("base", "ringbuf", "log", "acceptor", "shards", "pipeline")  # of surface/, each after those it names types of
# Warnings are errors, in our sources; cffi's generated wrappers are exempt from -Wconversion only.
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wstrict-prototypes", "-Wvla", "-Werror"]
EXEMPTION = "".join(f'#pragma GCC diagnostic ignored "{name}"\n' for name in ("-Wconversion", "-Wsign-conversion"))
# Assertions stay on: they cost 2 % of the instructions at most (docs/costs.md). Python's own flags turn them off.
# Hidden, since a function that others could replace, in a shared object all that they see, is called and never inlined.
RELEASE = ["-O3", "-g", "-fno-omit-frame-pointer", "-fno-plt", "-fvisibility=hidden", "-UNDEBUG"]
# All sources as one unit, so that small functions are inlined across files: a sixth of a worker's instructions. What
# lies in an arena is seen by several types at once then. It takes long to link: while working on the core, do without.
WHOLE = ["-flto=auto", "-fno-strict-aliasing"]
DEBUG = ["-O1", "-g", "-fno-omit-frame-pointer"]
QUICK = ["-O0"]  # to build: half of the time


def sources() -> list[str]:
    return sorted(str(p.relative_to(HERE)) for p in HERE.glob("*/**/*.c"))


def surface(rooms: Sequence[str] = ROOMS) -> tuple[str, list[str]]:
    """The cdef text and the headers it needs. What follows `/* == room/name == */` is declared in room/name.h."""
    text = "".join((HERE / "surface" / f"{room}.h").read_text() for room in rooms)
    return text, [f"{name}.h" for name in re.findall(r"^/\* == (\S+) == \*/$", text, re.MULTILINE)]


def generate(target: Path, module: str = "mq_shards.csrc._core", rooms: Sequence[str] = ROOMS) -> None:
    ffi = FFI()
    cdef, headers = surface(rooms)
    ffi.cdef(cdef + "\n#define CORE_SURFACE ...\n")  # csrc/__init__.py compares it with what lies beside it
    preamble = "\n".join(f'#include "{h}"' for h in headers)
    whole = b"".join(part.read_bytes() for part in sorted((HERE / "surface").glob("*.h")))
    ffi.set_source(module, f"{preamble}\n#define CORE_SURFACE {zlib.crc32(whole)}u\n")
    fresh = target.with_suffix(".fresh")
    ffi.emit_c_code(str(fresh))
    text = EXEMPTION + fresh.read_text()
    fresh.unlink()
    if not target.exists() or target.read_text() != text:
        target.write_text(text)


class BuildExt(build_ext):  # type: ignore[misc]
    """build_ext that writes the cffi wrapper first, and knows the sources: pyproject.toml names the wrapper only.

    What is built for others is for any Python from 3.11 on, and with any compiler: a new one's new warning is no error.
    """

    def finalize_options(self) -> None:
        super().finalize_options()
        for ext in self.extensions:
            # Relative to the project, as setuptools demands; it builds again when one of these is newer.
            ext.sources = [f"{HERE.name}/{name}" for name in (GENERATED, *sources())]
            ext.depends = [f"{HERE.name}/{p.relative_to(HERE)}" for p in sorted(HERE.rglob("*.h"))]
            ext.include_dirs = [*ext.include_dirs, HERE.name]
            ext.extra_compile_args = [*STRICT, *RELEASE, *WHOLE, "-pthread"]
            if not self.inplace:
                ext.py_limited_api = True
                ext.extra_compile_args.remove("-Werror")
            ext.extra_link_args = [*RELEASE, *WHOLE, "-pthread"]

    def run(self) -> None:
        generate(HERE / GENERATED)
        super().run()


def needs_compiling(target: Path, dependencies: Path) -> bool:
    """Whether a source or header that an object was made of is newer than it, or gone."""
    if not target.exists() or not dependencies.exists():
        return True
    made = target.stat().st_mtime_ns
    files = dependencies.read_text().replace("\\\n", " ").partition(":")[2].split()
    try:
        return any(Path(name).stat().st_mtime_ns >= made for name in files)
    except OSError:
        return True


def compile_one(command: list[str], source: Path, objects: Path) -> Path:
    """The object of one source; what has not changed since it was made is not made again."""
    target = objects / (str(source.relative_to(source.anchor)).replace(os.sep, "-") + ".o")
    dependencies = target.with_suffix(".d")
    if needs_compiling(target, dependencies):
        fresh = target.with_suffix(f".{os.getpid()}")
        subprocess.run([*command, "-MMD", "-MF", str(dependencies), "-c", str(source), "-o", str(fresh)], check=True)
        fresh.replace(target)
    return target


def compile_in(out: Path, name: str, files: list[str], flags: list[str]) -> Path:
    """Builds an importable module `name` in `out` from some sources: for tests and for work on one module."""
    out.mkdir(parents=True, exist_ok=True)
    wrapper = out / f"{name}.c"
    generate(wrapper, module=name)
    target = out / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    # Not linked in place: a broker that runs has the old one mapped.
    linking = target.with_suffix(".linking")
    compiler = [os.environ.get("CC", "cc"), "-fPIC", "-pthread"]
    command = [*compiler, *STRICT, *flags, f"-I{HERE}", f"-I{sysconfig.get_paths()['include']}"]
    # Objects of one compiler and one set of options have a folder of their own.
    kind = hashlib.sha256("\0".join(command).encode()).hexdigest()[:12]
    objects = HERE.parent / "build" / "objects" / kind
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
