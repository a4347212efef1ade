"""The real Pulsar, to compare with: a standalone broker and its command-line tools, fetched by Maven (`make pulsar`).

    python -m tests.pulsar.real fetch             about 330 MB, once
    python -m tests.pulsar.real serve [HTTP-PORT] a standalone on 127.0.0.1, until it is interrupted; 1.5 to 3 GB
    python -m tests.pulsar.real admin ADMIN-URL COMMAND...

Where there is no Java 17 or no Maven, what needs it is skipped.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from perf.ports import free_port
from perf.pulsar import standalone
from perf.pulsar.standalone import CLASSPATHS, VERSION, java, missing

TOOLS_VERSION: Final = "4.0.8"  # the last whose tools are whole, but for what is taken from the other
QUICK_START: Final = "-XX:TieredStopAtLevel=1"
FETCH_S: Final = 1800
START_S: Final = 180
STOP_S: Final = 60

_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>peer</groupId><artifactId>{name}</artifactId><version>1</version><packaging>pom</packaging>
<dependencyManagement><dependencies>{managed}</dependencies></dependencyManagement>
<dependencies>{dependencies}</dependencies></project>
"""
# Some of the poms name repositories that are not asked: everything is in the one that Maven knows by itself.
_SETTINGS: Final = (
    "<settings><mirrors><mirror><id>only</id><mirrorOf>*</mirrorOf><url>{url}</url></mirror></mirrors></settings>"
)


def admin(admin_url: str, service_url: str, commands: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Commands of pulsar-admin, all in one JVM. One that fails says "Reason:"; its shell's status says nothing."""
    return shell(admin_url, service_url, [f"admin {command}" for command in commands])


def shell(admin_url: str, service_url: str, commands: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Commands of pulsar-admin ("admin ...") and pulsar-client ("client ..."), all in one JVM."""
    with tempfile.TemporaryDirectory() as folder:
        config, script = Path(folder) / "client.conf", Path(folder) / "commands"
        config.write_text(f"webServiceUrl={admin_url}\nbrokerServiceUrl={service_url}\n")
        script.write_text("".join(f"{command}\n" for command in commands))
        command = [
            "nice",
            *java("tools", [QUICK_START]),
            f"-Duser.home={folder}",
            "org.apache.pulsar.shell.PulsarShell",
        ]
        command += ["--config", str(config), "-f", str(script), "--no-progress"]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def tool(main: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program of Pulsar's by its main class, as org.apache.pulsar.testclient.PulsarPerfTestTool. What it writes
    beside itself goes."""
    command = ["nice", *java("tools", [QUICK_START]), main, *arguments]
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=folder)


def serve(port: int, http: int, folder: Path, more: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    command = ["nice", *standalone.command(port, http, folder, options=[QUICK_START], more=more)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=folder)


@contextlib.contextmanager
def broker(
    more: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None, start_s: float = START_S
) -> Iterator[tuple[str, int]]:
    """A standalone that serves: its HTTP address, and its port. `more`: lines of its configuration; `headers`: of who
    may ask whether it serves. Raises RuntimeError when it does not come up."""
    port, http_port = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        process = serve(port, http_port, Path(folder), more)
        try:
            address, deadline = f"127.0.0.1:{http_port}", time.monotonic() + start_s
            while not _is_healthy(address, headers or {}):
                if process.poll() is not None:
                    raise RuntimeError(f"the real Pulsar has ended with {process.returncode} before it served")
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the real Pulsar does not serve after {start_s:g} s")
                time.sleep(0.5)
            yield address, port
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _is_healthy(address: str, headers: Mapping[str, str]) -> bool:
    with contextlib.closing(http.client.HTTPConnection(address, timeout=30)) as connection:
        try:
            connection.request("GET", "/admin/v2/brokers/health", headers=dict(headers))
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False


# --- fetching ---------------------------------------------------------------------------------------------------------


def _dependency(name: str, version: str, more: str = "") -> str:
    group = "<groupId>org.apache.pulsar</groupId>"
    return f"<dependency>{group}<artifactId>{name}</artifactId><version>{version}</version>{more}</dependency>"


def _pom(name: str, version: str, artifacts: Sequence[str], first: str = "") -> str:
    imported = _dependency("pulsar", version, "<type>pom</type><scope>import</scope>")
    wanted = "".join(_dependency(artifact, version) for artifact in artifacts)
    return _POM.format(name=name, managed=first + imported, dependencies=wanted)


def _poms() -> dict[str, str]:
    older = _dependency("jetcd-core-shaded", VERSION, "<classifier>shaded</classifier>")
    older += _dependency("jetcd-core-shaded", VERSION) + _dependency("pulsar-opentelemetry", VERSION)
    return {
        "broker": _pom("broker", VERSION, ["pulsar-broker"]),
        "tools": _pom("tools", TOOLS_VERSION, ["pulsar-client-tools", "pulsar-testclient"], older),
    }


def _maven(*arguments: str) -> str:
    done = subprocess.run(
        ["nice", "mvn", "-B", "-q", *arguments], capture_output=True, text=True, timeout=FETCH_S, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"mvn: {done.stdout[-500:]}{done.stderr[-500:]}")
    return done.stdout


def fetch() -> None:
    """Raises RuntimeError, TimeoutExpired."""
    if missing("broker") is None and missing("tools") is None:
        return
    CLASSPATHS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CLASSPATHS) as work:
        pom, settings = Path(work) / "pom.xml", Path(work) / "settings.xml"
        pom.write_text(_POM.format(name="none", managed="", dependencies=""))
        url = _maven("-f", str(pom), "help:evaluate", "-Dexpression=project.repositories[0].url", "-DforceStdout")
        found = re.search(r"https://[\w./-]+", url)
        if found is None:
            raise RuntimeError(f"mvn knows no repository: {url}")
        settings.write_text(_SETTINGS.format(url=found[0]))
        for name, text in _poms().items():
            pom.write_text(text)
            into = Path(work) / f"{name}.classpath"
            _maven("-s", str(settings), "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={into}")
            into.replace(CLASSPATHS / into.name)


def main() -> int:
    match sys.argv[1:]:
        case ["fetch"]:
            if shutil.which("mvn") is None or shutil.which("java") is None:
                print("there is no Maven or no Java: comparisons with the real Pulsar are skipped")
                return 0
            try:
                fetch()
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"the real Pulsar cannot be fetched: {error}")
        case ["serve", *rest]:
            http = int(rest[0]) if rest else 18080
            with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
                standalone = serve(http - 1430, http, Path(folder))
                signal.signal(signal.SIGTERM, signal.default_int_handler)
                try:
                    return standalone.wait()
                except KeyboardInterrupt:
                    standalone.terminate()
                    return standalone.wait()
        case ["admin", url, *command]:
            done = admin(url, "pulsar://127.0.0.1:6650", [" ".join(command)])
            print(done.stdout + done.stderr)
            return done.returncode
        case _:
            print(__doc__)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
