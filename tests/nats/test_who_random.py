"""Users with permissions drawn at random, in accounts that share: what clients are told, beside a real nats-server."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.nats.scenes import Scene
from tests.nats.servers import nats_server, running
from tests.nats.test_scenes import in_any_order
from tests.nats.wire import Heard, play

SCENES: Final = 50
USERS: Final = 60  # of each account
TOKENS: Final = ("a", "b", "c")
SHARED: Final = (
    'exports: [{stream: "a.>"}, {service: "b.*"}, {service: "c", response: stream}]',
    'imports: [{stream: {account: A, subject: "a.>"}, prefix: c}, {service: {account: A, subject: "b.*"}, to: "b.*"},\n'
    ' {service: {account: A, subject: c}}], mappings: {"b.b": "a.c"}',
)


@dataclass
class Draw:
    random: random.Random

    def subject(self, *, wild: bool) -> str:
        tokens = [self.random.choice((*TOKENS, "*") if wild else TOKENS) for _ in range(self.random.randint(1, 3))]
        return ".".join([*tokens, *([">"] if wild and self.often(25) else [])])

    def often(self, percent: int) -> bool:
        return self.random.random() * 100 < percent

    def subjects(self, *, queues: bool) -> str:
        found = []
        for _ in range(self.random.randint(1, 3)):
            queue = f" {self.random.choice(('q', 'q.*', 'w.>', 'q1'))}" if queues and self.often(30) else ""
            found.append(f'"{self.subject(wild=True)}{queue}"')
        return f"[{', '.join(found)}]"

    def limits(self, *, queues: bool) -> str:
        if self.often(25):
            return self.subjects(queues=queues)
        words = [word for word, percent in (("allow", 70), ("deny", 60)) if self.often(percent)]
        parts = [f"{word}: {self.subjects(queues=queues)}" for word in words]
        return f"{{{', '.join(parts)}}}"

    def user(self, number: int) -> str:
        named = f"user: u{number}, password: x"
        if self.often(15):
            return f"{{{named}}}"
        parts = [f"publish: {self.limits(queues=False)}"] if self.often(70) else []
        parts += [f"subscribe: {self.limits(queues=True)}"] if self.often(70) else []
        responses = self.random.choice(("true", "{max: 2}", '{max: -1, ttl: "1m"}'))
        parts += [f"allow_responses: {responses}"] if self.often(30) else []
        return f"{{{named}, permissions: {{{', '.join(parts)}}}}}"

    def conf(self) -> str:
        accounts = []
        for place, name in enumerate("AB"):
            users = "\n".join(self.user(place * USERS + number) for number in range(USERS))
            accounts.append(f"{name} {{ {SHARED[place]}\nusers: [\n{users}\n] }}")
        return "accounts {\n" + "\n".join(accounts) + "\n}\n"

    def scene(self, number: int) -> Scene:
        last = USERS if self.often(50) else 0
        users = [self.random.randrange(USERS), self.random.randrange(USERS), last + self.random.randrange(USERS)]
        steps = [(place, self.connect(user)) for place, user in enumerate(users)]
        for sid in range(1, self.random.randint(4, 12)):
            steps.append((self.random.randrange(3), self.line(sid)))
        return Scene(f"{number}", tuple(steps))

    def connect(self, user: int) -> bytes:
        said = {
            "verbose": False, "pedantic": False, "user": f"u{user}", "pass": "x", "headers": True,
            "no_responders": self.often(50), "echo": self.often(80),
        }  # fmt: skip
        return b"CONNECT " + json.dumps(said).encode() + b"\r\n"

    def line(self, sid: int) -> bytes:
        if self.often(45):
            queue = f" {self.random.choice(('q', 'q1', 'w.a', 'q.b'))}" if self.often(30) else ""
            return f"SUB {self.subject(wild=True)}{queue} {sid}\r\n".encode()
        if self.often(80):
            reply = f" {self.subject(wild=False)}" if self.often(40) else ""
            return f"PUB {self.subject(wild=False)}{reply} 2\r\n{sid:02}\r\n".encode()
        return f"UNSUB {self.random.randint(1, sid)} {self.random.choice(('', '1', '2'))}\r\n".encode()


def still(heard: Heard) -> tuple[list[str], bool]:
    """Without names that are made, and times."""
    text = re.sub(r"_R_\.[A-Za-z0-9._]+", "_R_", heard.data.decode("latin-1"))
    text = re.sub(r',"rtt":[0-9]+', "", text)
    return in_any_order(re.sub(r"HMSG (\S+ \S+(?: _R_)?) \d+ \d+", r"HMSG \1", text), heard.closed)


@pytest.mark.skipif(nats_server() is None, reason="no nats-server")
@pytest.mark.parametrize(
    ("seed", "acceptors"),
    [(2, 2), *(pytest.param(seed, 1 + seed % 3, marks=pytest.mark.long) for seed in range(3, 20))],
)
def test_who_may_what_is_what_a_nats_server_says(tmp_path: Path, seed: int, acceptors: int) -> None:
    draw = Draw(random.Random(seed))
    path = tmp_path / "nats-server.conf"
    path.write_text(draw.conf())
    scenes = [draw.scene(number) for number in range(SCENES)]
    said = []
    for kind in (0, acceptors):
        with running(kind, arguments=["-c" if kind == 0 else "--nats-config", str(path)]) as server:
            said.append([[still(heard) for heard in play(scene, server.port)] for scene in scenes])
    for scene, real, ours in zip(scenes, *said, strict=True):
        assert ours == real, scene
