"""Pickles readers and writers for tasks, so that an executor without this package says so in one line.

Spark would pickle them by the name of their class. Where that cannot be imported, a task fails while unpickling, with a
traceback of cloudpickle's. So a function is pickled instead, by value, since it belongs to no module that could be
imported. On the executor it imports the class.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from mq_shards.pipeline import without_stack
from pyspark import cloudpickle


def _arrive(module: str, name: str, state: bytes) -> Any:  # noqa: ANN401
    """Runs on the executor. It is pickled without its module, so it imports all that it needs."""
    import importlib
    import pickle
    import platform
    import sys

    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ImportError(
            f"executor {platform.node()}: {sys.executable} (Python {platform.python_version()}) cannot read or write "
            f"mqshards: {error}. Install the wheel pyspark_mqshards there, of the driver's version"
        ) from None
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
