"""A real Chromium, without a screen, driven over its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

from tests.servers import wait_until

SECONDS = 60.0
BROWSERS_OWN = {"Tab": 9, "Escape": 27}  # keys that the browser itself acts on, with their codes
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-extensions", "--no-first-run",
    "--disable-background-networking", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-port=0",
    "--disable-component-update", "--disable-default-apps", "--mute-audio", "--no-proxy-server",
    # One process for all pages, and none kept for the next one: to start them takes longer than the pages do.
    "--no-zygote", "--in-process-gpu", "--renderer-process-limit=1", "--disable-site-isolation-trials",
    "--disable-features=site-per-process,IsolateOrigins,SpareRendererForSitePerProcess",
)  # fmt: skip


def program() -> str | None:
    """Debian's; installed if that is possible."""
    found = shutil.which("chromium")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        apt = "apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core"
        subprocess.run(["sh", "-c", apt], capture_output=True, timeout=300, check=False)
        found = shutil.which("chromium")
    return found


class Browser:
    """One page of it. What the page says on its console as an error, and what it cannot load, is kept in `errors`."""

    def __init__(self, chromium: str) -> None:
        self._own = Path(tempfile.mkdtemp(prefix="browser-"))
        self._process = subprocess.Popen(
            [chromium, *OPTIONS, f"--user-data-dir={self._own}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._loop = asyncio.new_event_loop()
        self._numbers = itertools.count(1)
        self.errors: list[str] = []
        self.requested: list[str] = []
        port_file = self._own / "DevToolsActivePort"
        try:
            wait_until(lambda: port_file.exists() and "\n" in port_file.read_text(), "chromium listens", 40.0)
            self._run(self._connect(int(port_file.read_text().split()[0])))
        except BaseException:
            self.close()
            raise

    def _run(self, work: Any) -> Any:  # noqa: ANN401
        return self._loop.run_until_complete(asyncio.wait_for(work, SECONDS))

    async def _connect(self, port: int) -> None:
        self._session = aiohttp.ClientSession()
        async with self._session.get(f"http://127.0.0.1:{port}/json") as reply:
            page = next(one for one in await reply.json() if one["type"] == "page")
        self._socket = await self._session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0)
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self._call(f"{domain}.enable")

    async def _call(self, method: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        while True:
            said = await self._socket.receive_json()
            if said.get("id") == number:
                assert "error" not in said, (method, said["error"])
                return said["result"]
            self._hear(said)

    def _hear(self, said: dict[str, Any]) -> None:
        params = said.get("params", {})
        match said.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(params["exceptionDetails"])[:500])
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case "Network.requestWillBeSent":
                self.requested.append(params["request"]["url"])

    def call(self, method: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401
        found: dict[str, Any] = self._run(self._call(method, **params))
        return found

    def size(self, width: int, height: int, *, dark: bool = False, phone: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def go(self, where: str) -> None:
        """To another page of the console."""
        self.js(f"location.hash = {where!r}")

    def js(self, code: str) -> Any:  # noqa: ANN401
        """What an expression is; of a promise, what it becomes."""
        result = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def text(self) -> str:
        return str(self.js("document.body?.innerText ?? ''"))

    def wait(self, code: str, what: str) -> None:
        self._until(lambda: bool(self.js(f"Boolean({code})")), what)

    def sees(self, pattern: str) -> None:
        self._until(lambda: re.search(pattern, self.text(), re.IGNORECASE) is not None, f"the page says {pattern}")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + SECONDS
        pause = 0.03
        while not condition():
            assert time.monotonic() < until, f"in vain: {what}; the page says:\n{self.text()[:2000]}\n{self.errors}"
            time.sleep(pause)
            pause = min(pause * 1.3, 0.15)  # each look has the page laid out anew

    def click(self, selector: str) -> None:
        self.wait(f"document.querySelector({selector!r})", f"there is {selector}")
        self.js(f"document.querySelector({selector!r}).click()")

    def button(self, text: str) -> None:
        """The first that says so; in a dialog, if one is open."""
        find = (
            f"[...(document.querySelector('dialog[open]') ?? document).querySelectorAll('button, nav a')]"
            f".find((one) => one.innerText.trim() === {text!r} && !one.disabled)"
        )
        self.wait(f"Boolean({find})", f"there is a button {text}")
        self.js(f"{find}.click()")

    def key(self, key: str) -> None:
        """A key as a keyboard sends it."""
        text: dict[str, Any] = {"text": "\r" if key == "Enter" else key} if len(key) == 1 or key == "Enter" else {}
        if key in BROWSERS_OWN:
            text["windowsVirtualKeyCode"] = BROWSERS_OWN[key]
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def tab_to(self, code: str, what: str) -> None:
        """By the Tab key alone, to where `code` of the focused element, `it`, holds."""
        for _ in range(500):
            self.key("Tab")
            if self.js(f"((it) => Boolean({code}))(document.activeElement)"):
                return
        raise AssertionError(f"no Tab leads to {what}")

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        data = self.call("Page.captureScreenshot", format="png", optimizeForSpeed=False)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        if hasattr(self, "_session"):
            self._run(self._session.close())
        self._loop.close()
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)
        shutil.rmtree(self._own, ignore_errors=True)
