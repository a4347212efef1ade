"""Asks a real broker that knows roles what role_scenes.py and policy_scenes.py have, and keeps what it answers.

python -m tests.pulsar.record_roles
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.pulsar import policy_scenes, real, role_scenes
from tests.pulsar.role_scenes import PROXY, SECRET, SUPER, Step, token
from tests.pulsar.wire import Wire

TRANSCRIPTS: Final = Path(__file__).with_name("role_transcripts.json")
POLICY_TRANSCRIPTS: Final = TRANSCRIPTS.with_name("policy_transcripts.json")
KEPT_TEXT: Final = 400
FAILS: Final = 500
KEPT_STACK: Final = 120  # of a stack of Java's
SOURCES: Final = (f"127.{number >> 8 & 127}.{number & 255}.3" for number in itertools.count(1))


def settings(key: Path) -> dict[str, str]:
    """Of a real broker that has the key in this file."""
    package = "org.apache.pulsar.broker.authentication"
    return {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationProviders": f"{package}.AuthenticationProviderToken,{package}.AuthenticationProviderBasic",
        "tokenSecretKey": f"file://{key}",
        "superUserRoles": SUPER,
        "proxyRoles": PROXY,
        "basicAuthConf": f"file://{key.with_name('htpasswd')}",
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{token(SUPER)}",
    }


def play(address: str, port: int, step: Step) -> dict[str, Any]:
    """What is said to a role: to a command, or to a request."""
    role, what, *rest = step
    role, _, original = role.partition("/")
    return say(port, role, original, *rest) if what == "wire" else request(address, role, original, what, *rest)


def request(address: str, role: str, original: str, method: str, path: str, body: object = None) -> dict[str, Any]:
    """The status, and the body: as JSON, or as text when it is none."""
    connection = http.client.HTTPConnection(address, timeout=60)
    headers = {} if body is None else {"Content-Type": "application/json"}
    if role:
        headers["Authorization"] = f"Bearer {token(role)}"
    if original:
        headers["X-Original-Principal"] = original
    target = path if path.startswith("/") else f"/admin/v2/{path}"
    connection.request(method, target, None if body is None else json.dumps(body), headers)
    response = connection.getresponse()
    data = response.read()
    connection.close()
    found: dict[str, Any] = {"status": response.status}
    if data and target != "/metrics/":
        try:
            found["json"] = json.loads(data)
            if response.status >= FAILS and "reason" in found["json"]:
                found["json"]["reason"] = found["json"]["reason"][:KEPT_STACK]
        except ValueError:
            found["text"] = data.decode(errors="replace")[:KEPT_TEXT]
    return found


def say(port: int, role: str, original: str, *commands: Any) -> dict[str, Any]:  # noqa: ANN401
    """What the last of some commands is answered, on a connection of their own; or what CONNECT was.

    Ours lets an address wait that has said wrong passwords again and again. Each of these has one of its own."""
    with Wire(port, source=next(SOURCES)) as wire:
        said: dict[str, object] = {"auth_method_name": "token", "auth_data": token(role).encode()} if role else {}
        if original:
            said["original_principal"] = original
        wire.say("connect", client_version="test", protocol_version=21, **said)
        frame = wire.receive()
        for number in range(0, len(commands), 2) if frame is not None and frame.name == "connected" else ():
            fields = json.loads(json.dumps(commands[number + 1]))
            if "schema" in fields:
                fields["schema"]["schema_data"] = fields["schema"]["schema_data"].encode()
            wire.say(commands[number], request_id=number, **fields)
            frame = wire.until(lambda one, number=number: getattr(one.body, "request_id", None) == number)
        if frame is None:
            return {"answer": "closed"}
        # The next step finds nothing of this one any more.
        wire.socket.shutdown(socket.SHUT_WR)
        wire.is_closed()
        found: dict[str, Any] = {"answer": frame.name}
        for field in ("error", "message", "error_code", "error_message", "response"):
            known = field in frame.body.DESCRIPTOR.fields_by_name and frame.body.HasField(field)
            if known and getattr(frame.body, field) not in ("", None):
                found[field] = getattr(frame.body, field)
        return found


@contextlib.contextmanager
def real_broker() -> Iterator[tuple[str, int]]:
    """Its HTTP address, and its port."""
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "secret"
        key.write_bytes(SECRET)
        key.with_name("htpasswd").write_text("")
        with real.broker(settings(key), {"Authorization": f"Bearer {token(SUPER)}"}) as found:
            yield found


def main() -> None:
    """Both files; or, with an argument, the one that has it in its name."""
    wanted = {TRANSCRIPTS: role_scenes.scenes, POLICY_TRANSCRIPTS: policy_scenes.scenes}
    with real_broker() as (address, port):
        for file, scenes in wanted.items():
            if not file.name.startswith(tuple(sys.argv[1:]) or ""):
                continue
            recorded: dict[str, list[dict[str, Any]]] = {}
            for name, steps in scenes():
                recorded[name] = [{"step": list(step), **play(address, port, step)} for step in steps]
                print(name, len(steps), file=sys.stderr)
            file.write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main()
