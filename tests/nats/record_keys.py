"""Takes from nats-server's source which keys its configuration file has: python -m tests.nats.record_keys."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Final

KEYS: Final = Path(__file__).parent / "nats_server_keys.json"
# What a switch has beside keys: values that one may have.
VALUES: Final = {
    "processConfigFileLine": ("CACHE", "FULL", "MEM", "MEMORY", "mode", "url", "urls"),
    "parseExportStreamOrService": ("single", "singleton", "chunk", "chunked"),
    "parseTLS": ("true", "on", "false", "off", "auto", "auto_fallback"),
}


def keys_of(source: str) -> dict[str, list[str]]:
    """By the function that reads a block."""
    found: dict[str, list[str]] = {}
    for function in source.split("\nfunc "):
        name = re.match(r"(?:\([^)]*\) )?(\w+)", function)
        if name is None or "strings.ToLower(" not in function:
            continue
        cases = re.findall(r'\n\s*case ((?:"[^"]*"(?:,\s*)?)+):', function)
        keys = [key for case in cases for key in re.findall(r'"([^"]*)"', case)]
        found[name[1]] = sorted({key for key in keys if key not in VALUES.get(name[1], ())})
    return {name: keys for name, keys in found.items() if keys}


def main() -> None:
    asked = ["go", "mod", "download", "-json", "github.com/nats-io/nats-server/v2@v2.15.2"]
    directory = json.loads(subprocess.run(asked, check=True, capture_output=True).stdout)["Dir"]
    found = keys_of((Path(directory) / "server" / "opts.go").read_text())
    KEYS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
