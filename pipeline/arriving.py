"""Pickles readers and writers for tasks, so that an executor without this package says so in one line; and the source's
class, which goes to the Python process in which Spark's driver asks it.

Spark would pickle them by the name of their class. Where that cannot be imported, a task fails while unpickling, with a
traceback of cloudpickle's. So a function is pickled instead, by value, since it belongs to no module that could be
imported. On the executor it imports the class.
"""

from __future__ import annotations

import copyreg
from abc import ABCMeta
from collections.abc import Callable
from types import FunctionType
from typing import Any

from mq_shards.pipeline import without_stack
from pyspark import cloudpickle


def _arrive(module: str, name: str, state: bytes | None) -> Any:  # noqa: ANN401
    """Runs in another process. It is pickled without its module, so it imports all that it needs. `state`: None if the
    class itself is wanted."""
    import importlib
    import pickle
    import platform
    import sys

    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        where = f"{'driver' if state is None else 'executor'} {platform.node()}"
        raise ImportError(
            f"{where}: {sys.executable} (Python {platform.python_version()}) cannot read or write mqshards: {error}. "
            "Install the wheel pyspark_mqshards there, of the driver's version, or name another Python with "
            "PYSPARK_PYTHON"
        ) from None
    if state is None:
        return found
    made = found.__new__(found)
    made.__dict__.update(pickle.loads(state))
    return made


_by_value = FunctionType(_arrive.__code__, {"__builtins__": __builtins__}, "arrive")
_by_value.__module__ = "__main__"  # makes cloudpickle pickle the function by value


class Arrives:
    """Base class of what Spark sends to tasks, and calls."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in without_stack.CALLS:
            if name in vars(cls):
                setattr(cls, name, without_stack.told(vars(cls)[name]))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str, bytes]]:
        state: bytes = cloudpickle.dumps(self.__dict__)  # type: ignore[no-untyped-call]
        return _by_value, (type(self).__module__, type(self).__qualname__, state)


class ArrivesItself(ABCMeta):
    """Metaclass of a class that Spark pickles."""


def _reduced(of: type) -> tuple[Callable[..., Any], tuple[str, str, None]]:
    return _by_value, (of.__module__, of.__qualname__, None)


copyreg.pickle(ArrivesItself, _reduced)
