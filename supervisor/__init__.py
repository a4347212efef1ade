"""The parent process: it starts the others, joins them by rings, and starts them again."""

from typing import Final

VERSION: Final = "0.1.0"
