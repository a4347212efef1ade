"""Builds the command line of a real Pulsar standalone broker, as `make pulsar` has fetched it. Needs Java 17."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

VERSION: Final = "4.0.7"
CLASSPATHS: Final = Path(os.environ.get("PULSAR_CLASSPATHS", Path(__file__).resolve().parents[2] / "build" / "pulsar"))

_CONF: Final = """brokerServicePort={port}
webServicePort={http}
bindAddress=127.0.0.1
advertisedAddress=127.0.0.1
clusterName=standalone
managedLedgerDefaultEnsembleSize=1
managedLedgerDefaultWriteQuorum=1
managedLedgerDefaultAckQuorum=1
managedLedgerCacheSizeMB=64
loadBalancerEnabled=false
defaultNumberOfNamespaceBundles=4
allowAutoTopicCreationType=non-partitioned
backlogQuotaDefaultLimitGB=-1
journalSyncData=false
allowLoopback=true
diskUsageThreshold=0.99
diskUsageWarnThreshold=0.98
numIOThreads=2
numHttpServerThreads=8
"""
_OPENED: Final = (
    "jdk.internal.loader", "jdk.internal.platform", "java.lang", "java.nio", "jdk.internal.misc", "sun.net",
    "java.util.zip", "java.io", "java.util",
)  # fmt: skip
_MEMORY: Final = ("-Xms256m", "-Xmx1g", "-XX:MaxDirectMemorySize=1g")


def missing(what: str) -> str | None:
    """Returns why "broker" or "tools" cannot be run, or None."""
    if shutil.which("java") is None:
        return "there is no Java"
    return None if (CLASSPATHS / f"{what}.classpath").exists() else "make pulsar has not fetched it"


def java(what: str, options: Sequence[str] = ()) -> list[str]:
    """Returns the beginning of a command line of "broker" or "tools": the class and its arguments follow it."""
    opened = [word for package in _OPENED for word in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")]
    opened += ["--add-opens", "java.management/sun.management=ALL-UNNAMED"]
    opened += ["--add-opens", "jdk.management/com.sun.management.internal=ALL-UNNAMED"]
    classpath = (CLASSPATHS / f"{what}.classpath").read_text().strip()
    return ["java", *options, *opened, "-cp", classpath]


def command(
    port: int, http: int, folder: Path, *, options: Sequence[str] = (), more: Mapping[str, str] | None = None
) -> list[str]:
    """Writes the broker's configuration into `folder`, where its data goes. `more`: lines to add or to replace."""
    lines = dict(line.split("=", 1) for line in _CONF.format(port=port, http=http).splitlines()) | dict(more or {})
    conf = folder / "standalone.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    words = [*java("broker", (*_MEMORY, *options)), "org.apache.pulsar.PulsarStandaloneStarter", "-c", str(conf)]
    words += ["--metadata-dir", str(folder / "metadata"), "--bookkeeper-dir", str(folder / "bookkeeper")]
    return [*words, "--no-functions-worker", "--no-stream-storage"]
