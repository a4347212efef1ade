"""Users known by keys, users of whoever says nothing, and what becomes of users when the file changes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest

from tests.nats.conftest import KINDS, serving
from tests.nats.servers import NatsServer, running
from tests.nats.who_scenes import connect, pub
from tests.nats.wire import Wire

SEED = "SUAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H776Y"


@pytest.fixture(params=KINDS[:3], scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[NatsServer]:
    with serving(request.param, "keys.conf") as server:
        yield server


def test_a_key_signs_what_info_says(server: NatsServer) -> None:
    async def scene() -> None:
        said: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def failed(error: Exception) -> None:
            if not said.done():
                said.set_result(str(error).lower())

        client = await nats.connect(server.url, nkeys_seed_str=SEED, error_cb=failed, allow_reconnect=False)
        mine = await client.subscribe("mine.*")
        await client.publish("mine.a", b"x")
        assert (await mine.next_msg(timeout=30)).data == b"x"
        await client.publish("other", b"x")
        assert "permissions violation for publish" in await said
        await client.close()

    asyncio.run(asyncio.wait_for(scene(), 20))


@pytest.mark.parametrize("signature", ["", "AAAA", "!", "A" * 86])
def test_a_wrong_signature_is_refused(server: NatsServer, signature: str) -> None:
    wire = Wire(server.port)
    assert len(json.loads(wire.info[5:])["nonce"]) == 15
    key = "UAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3RLKK"
    wire.send(b'CONNECT {"verbose":false,"nkey":"%s","sig":"%s"}\r\n' % (key.encode(), signature.encode()))
    wire.barrier()
    assert wire.heard.data == b"-ERR 'Authorization Violation'\r\n"
    assert wire.heard.closed
    wire.close()


@pytest.mark.parametrize("said", [b"", b'CONNECT {"verbose":false}\r\n'])
def test_who_says_nothing_is_the_user_for_that(server: NatsServer, said: bytes) -> None:
    wire = Wire(server.port)
    assert "auth_required" not in json.loads(wire.info[5:])
    wire.send(said + b"SUB guest 1\r\n" + pub("guest") + pub("mine.a"))
    wire.barrier()
    assert b"MSG guest 1 1\r\nx\r\n" in wire.heard.data
    assert b"-ERR 'Permissions Violation for Publish to \"mine.a\"'\r\n" in wire.heard.data
    wire.close()


@pytest.mark.parametrize("kind", KINDS[:2])
def test_with_users_of_the_system_account_alone_nobody_needs_to_be_one(kind: int) -> None:
    with serving(kind, "system.conf") as server:
        wire = Wire(server.port)
        wire.send(b'CONNECT {"verbose":false}\r\nSUB a 1\r\n' + pub("a"))
        wire.barrier()
        assert b"MSG a 1 1\r\nx\r\n" in wire.heard.data
        wire.send(b'CONNECT {"verbose":false,"user":"admin","pass":"wrong"}\r\n')
        wire.barrier()
        assert wire.heard.closed
        wire.close()


@pytest.mark.parametrize("kind", KINDS[:3])
def test_users_that_have_changed_are_cut_off_when_the_file_is_read_anew(kind: int, tmp_path: Path) -> None:
    path = tmp_path / "users.conf"

    def write(*users: str) -> None:
        path.write_text(f"authorization {{ users: [{', '.join(users)}] }}\n")

    may_less = 'permissions: {subscribe: [y, "z w"]}'
    write("{user: a, password: a}", "{user: b, password: b}", "{user: c, password: c}")
    with running(kind, arguments=["-c" if kind == 0 else "--nats-config", str(path)]) as server:
        a, b, c = (Wire(server.port) for _ in range(3))
        for name, wire in (("a", a), ("b", b), ("c", c)):
            wire.send(connect(name) + b"SUB x 1\r\nSUB y 2\r\nSUB x q 3\r\nSUB z w 4\r\n")
            wire.barrier()
        write("{user: a, password: a}", f"{{user: b, password: b, {may_less}}}", "{user: c, password: d}")
        os.kill(server.process.pid, signal.SIGHUP)
        while not c.heard.closed:
            c.receive()
        assert c.heard.data.endswith(b"-ERR 'Authorization Violation'\r\n")
        while b.heard.data.count(b"-ERR") < 2:
            b.receive()
        said = sorted(b.heard.data.split(b"\r\n"))
        assert b'-ERR \'Permissions Violation for Subscription to "x" (sid "1")\'' in said
        assert b'-ERR \'Permissions Violation for Subscription to "x" using queue "q" (sid "3")\'' in said
        a.send(pub("x") + pub("y") + pub("z"))
        for wire in (a, b):
            wire.barrier()
            assert not wire.heard.closed
        assert b"MSG x " not in b.heard.data
        assert b"MSG y 2 1" in b.heard.data
        for wire in (a, b, c):
            wire.close()
