"""AUTH: who may publish and subscribe what is asked of an HTTP server, and asked again when its answer is too old."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator

import pytest

from tests.nsq import frames
from tests.nsq.auth_server import AuthServer, grant, permission, running_auth
from tests.nsq.certificates import CLIENT_NAME, Certificates
from tests.nsq.frames import OK, RESPONSE
from tests.nsq.servers import NsqServer, running
from tests.nsq.wire import Wire
from tests.servers import Shape

EVERYTHING = permission(".*", [".*"], "subscribe", "publish")
_secrets = itertools.count(1)


@pytest.fixture(scope="module")
def auth() -> Iterator[AuthServer]:
    with running_auth() as auth:
        yield auth


@pytest.fixture(scope="module")
def guarded(shape: Shape, auth: AuthServer) -> Iterator[NsqServer]:
    with running(shape, {"auth-http-address": auth.address}) as server:
        yield server


@pytest.fixture(scope="module")
def guarded_with_tls(shape: Shape, auth: AuthServer, tls_options: dict[str, str]) -> Iterator[NsqServer]:
    """It asks for a certificate too, and has been told a whole URL."""
    options = {**tls_options, "tls-client-auth-policy": "require", "auth-http-address": f"http://{auth.address}/who/is"}
    with running(shape, options) as server:
        yield server


@pytest.fixture
def secret() -> str:
    return f"secret {next(_secrets)} & more/ü"


@pytest.fixture
def wire(guarded: NsqServer) -> Iterator[Wire]:
    with Wire(guarded) as wire:
        yield wire


def authorized(server: NsqServer, auth: AuthServer, secret: str, *authorizations: dict[str, object]) -> Wire:
    auth.answers[secret] = grant(*authorizations)
    wire = Wire(server)
    wire.identify(output_buffer_timeout=25)
    assert wire.ask(frames.auth(secret)).kind == RESPONSE
    return wire


def test_identify_tells_whether_it_is_required(wire: Wire, server: NsqServer) -> None:
    assert wire.identify()["auth_required"] is True
    with Wire(server) as other:
        assert other.identify()["auth_required"] is False


@pytest.mark.parametrize("command", ["PUB", "MPUB", "DPUB", "SUB"])
def test_it_comes_first(wire: Wire, topic: str, command: str) -> None:
    sent = {
        "PUB": frames.pub(topic, b"x"), "MPUB": f"MPUB {topic}\n".encode(), "DPUB": frames.dpub(topic, 1, b"x"),
        "SUB": frames.sub(topic, "ch"),
    }  # fmt: skip
    wire.fails(sent[command], f"E_AUTH_FIRST AUTH required before {command}")


def test_other_errors_come_before_it(guarded: NsqServer, topic: str) -> None:
    with Wire(guarded) as wire:
        wire.fails("PUB *\n", 'E_BAD_TOPIC PUB topic name "*" is not valid')
    with Wire(guarded) as wire:
        wire.fails(f"PUB {topic}\n".encode() + frames.size(0), "E_BAD_MESSAGE PUB invalid message body size 0")
    with Wire(guarded) as wire:
        wire.fails(f"SUB {topic} *\n", 'E_BAD_CHANNEL SUB channel name "*" is not valid')


def test_the_answer_tells_identity_and_permissions(auth: AuthServer, wire: Wire, secret: str, topic: str) -> None:
    auth.answers[secret] = grant(EVERYTHING, permission("x", [], "publish"))
    frame = wire.ask(frames.auth(secret))
    assert frame.kind == RESPONSE
    assert json.loads(frame.data) == {
        "identity": "somebody", "identity_url": "http://some.where/", "permission_count": 2,
    }  # fmt: skip
    assert list(json.loads(frame.data)) == ["identity", "identity_url", "permission_count"]
    wire.publish(topic, b"x")
    wire.publish_many(topic, [b"y"])
    wire.publish_deferred(topic, 0, b"z")
    wire.subscribe(topic, "ch", rdy=3)
    assert len(wire.messages(3)) == 3


def test_the_server_is_asked_once_with_all_that_is_known(auth: AuthServer, wire: Wire, secret: str, topic: str) -> None:
    auth.answers[secret] = grant(EVERYTHING)
    wire.ask(frames.auth(secret))
    wire.publish(topic, b"x", b"y")
    wire.subscribe(topic, "ch")
    assert auth.queries(secret) == [{"remote_ip": "127.0.0.1", "tls": "false", "secret": secret, "common_name": ""}]
    assert {path for path, query in auth.asked if query["secret"] == secret} == {"/auth"}


def test_with_tls_it_is_told_the_name_in_the_certificate(
    guarded_with_tls: NsqServer, auth: AuthServer, certificates: Certificates, secret: str, topic: str
) -> None:
    auth.answers[secret] = grant(EVERYTHING)
    with Wire(guarded_with_tls) as wire:
        answer = wire.identify(tls_v1=True, snappy=True)
        assert (answer["tls_v1"], answer["auth_required"]) == (True, True)
        wire.start_tls(certificates.context(certificates.client))
        assert wire.frame() == OK
        wire.start_snappy()
        assert wire.frame() == OK
        wire.ask(frames.auth(secret))
        wire.publish(topic, b"x")
    assert auth.queries(secret) == [
        {"remote_ip": "127.0.0.1", "tls": "true", "secret": secret, "common_name": CLIENT_NAME}
    ]
    assert {path for path, query in auth.asked if query["secret"] == secret} == {"/who/is"}


def test_it_works_without_identify(auth: AuthServer, wire: Wire, secret: str, topic: str) -> None:
    auth.answers[secret] = grant(EVERYTHING)
    assert wire.ask(frames.auth(secret)).kind == RESPONSE
    wire.publish(topic, b"x")


def test_once_only(auth: AuthServer, guarded: NsqServer, secret: str) -> None:
    with authorized(guarded, auth, secret, EVERYTHING) as wire:
        wire.fails(frames.auth(secret), "E_INVALID AUTH already set")


def test_not_after_sub(auth: AuthServer, guarded: NsqServer, secret: str, topic: str) -> None:
    with authorized(guarded, auth, secret, EVERYTHING) as wire:
        wire.subscribe(topic, "ch")
        wire.fails(frames.auth(secret), "E_INVALID cannot AUTH in current state")


def test_without_any_permission_it_fails(auth: AuthServer, wire: Wire, secret: str) -> None:
    auth.answers[secret] = grant()
    wire.fails(frames.auth(secret), "E_UNAUTHORIZED AUTH no authorizations found")


@pytest.mark.parametrize(
    "answer",
    [
        404, 500, b"no json", b"[]", b"", grant(EVERYTHING, ttl=0), grant(EVERYTHING, ttl=-1),
        grant(EVERYTHING, permission("t", ["c"], "drop")), grant(permission("(", [".*"], "publish")),
        grant(permission(".*", ["["], "publish")), {"ttl": "soon", "authorizations": [EVERYTHING]},
        {"authorizations": [EVERYTHING]},
    ],
    ids=lambda answer: str(answer)[:70],
)  # fmt: skip
def test_a_bad_answer_fails_and_tells_the_client_nothing(
    auth: AuthServer, wire: Wire, secret: str, answer: dict[str, object] | bytes | int
) -> None:
    auth.answers[secret] = answer
    wire.fails(frames.auth(secret), "E_AUTH_FAILED AUTH failed")


def test_a_server_that_is_not_there_fails(shape: Shape) -> None:
    with running_auth() as gone:
        pass
    with running(shape, {"auth-http-address": gone.address}) as server, Wire(server) as wire:
        assert wire.identify()["auth_required"] is True
        wire.fails(frames.auth("secret"), "E_AUTH_FAILED AUTH failed")


def test_of_several_servers_one_that_answers_is_enough(shape: Shape, auth: AuthServer, secret: str, topic: str) -> None:
    """They are tried in any order."""
    auth.answers[secret] = grant(EVERYTHING)
    with running_auth() as gone:
        pass
    with running(shape, {"auth-http-address": [gone.address, auth.address]}) as server:
        for _ in range(6):
            with Wire(server) as wire:
                assert wire.ask(frames.auth(secret)).kind == RESPONSE
                wire.publish(topic, b"x")


class TestPermissions:
    @pytest.mark.parametrize(
        ("granted", "topic", "allowed"),
        [
            (permission("^may$", [".*"], "publish"), "may", True),
            (permission("^may$", [".*"], "publish"), "maybe", False),
            (permission("may", [".*"], "publish"), "xmayx", True),  # a pattern that is not anchored matches inside
            (permission("^a\\.[0-9]+$", [".*"], "publish"), "a.42", True),
            (permission("^a\\.[0-9]+$", [".*"], "publish"), "a.x", False),
            (permission(".*", [".*"], "subscribe"), "may", False),
            (permission(".*", [], "publish"), "may", False),  # publishing needs a channel pattern that matches nothing
            (permission(".*", ["^ch$"], "publish"), "may", False),
            (permission(".*", ["^$"], "publish"), "may", True),
            (permission(".*", ["^ch$", ""], "publish", "subscribe"), "may", True),
        ],
    )
    @pytest.mark.parametrize("command", ["PUB", "MPUB", "DPUB"])
    def test_publish(
        self, guarded: NsqServer, auth: AuthServer, secret: str, granted: dict[str, object], topic: str, allowed: bool,
        command: str,
    ) -> None:  # fmt: skip
        commands = {
            "PUB": frames.pub(topic, b"x"), "MPUB": frames.mpub(topic, [b"x"]), "DPUB": frames.dpub(topic, 1, b"x")
        }  # fmt: skip
        with authorized(guarded, auth, secret, granted) as wire:
            if allowed:
                assert wire.ask(commands[command]) == OK
            else:
                wire.send(commands[command])
                assert wire.frame() == frames.error(f'E_UNAUTHORIZED AUTH failed for {command} on "{topic}" ""')
                assert wire.is_closed()

    @pytest.mark.parametrize(
        ("granted", "topic", "channel", "allowed"),
        [
            (permission("^s-may$", ["^ch$"], "subscribe"), "s-may", "ch", True),
            (permission("^s-may$", ["^ch$"], "subscribe"), "s-may", "chx", False),
            (permission("^s-may$", ["ch"], "subscribe"), "s-may", "xchx", True),
            (permission("^s-may$", ["^a$", "^ch[0-9]$"], "subscribe"), "s-may", "ch7", True),
            (permission("^s-may$", [], "subscribe"), "s-may", "ch", False),
            (permission("^other$", [".*"], "subscribe"), "s-may", "ch", False),
            (permission(".*", [".*"], "publish"), "s-may", "ch", False),
            (permission("^s-may$", ["#ephemeral$"], "subscribe"), "s-may", "x#ephemeral", True),
        ],
    )
    def test_subscribe(
        self, guarded: NsqServer, auth: AuthServer, secret: str, granted: dict[str, object], topic: str, channel: str,
        allowed: bool,
    ) -> None:  # fmt: skip
        with authorized(guarded, auth, secret, granted) as wire:
            if allowed:
                assert wire.ask(frames.sub(topic, channel)) == OK
            else:
                text = f'E_UNAUTHORIZED AUTH failed for SUB on "{topic}" "{channel}"'
                wire.fails(frames.sub(topic, channel), text)

    def test_any_of_several_is_enough(self, guarded: NsqServer, auth: AuthServer, secret: str) -> None:
        granted = [permission("^in$", [".*"], "publish"), permission("^out$", ["^ch$"], "subscribe")]
        with authorized(guarded, auth, secret, *granted) as wire:
            wire.publish("in", b"x")
            wire.subscribe("out", "ch")
            wire.fails(frames.pub("out", b"x"), 'E_UNAUTHORIZED AUTH failed for PUB on "out" ""')


def test_after_its_time_the_server_is_asked_again(
    guarded: NsqServer, auth: AuthServer, topic: str, secret: str
) -> None:
    """More was granted, less was granted, the answer was bad: three clients that find out after the same second."""
    secrets = [f"{secret} {n}" for n in range(3)]
    wires = []
    for each in secrets:
        auth.answers[each] = grant(permission("^at-first$", [".*"], "publish"), ttl=1)
        wires.append(Wire(guarded))
        assert wires[-1].ask(frames.auth(each)).kind == RESPONSE
        wires[-1].publish("at-first", b"x")
    auth.answers[secrets[0]] = grant(EVERYTHING)
    auth.answers[secrets[1]] = grant(permission("^else$", [".*"], "publish"))
    auth.answers[secrets[2]] = 500
    time.sleep(1.1)
    wires[0].publish(topic, b"x", b"y")
    wires[1].fails(frames.pub("at-first", b"x"), 'E_UNAUTHORIZED AUTH failed for PUB on "at-first" ""')
    wires[2].fails(frames.pub("at-first", b"x"), "E_AUTH_FAILED AUTH failed")
    assert [len(auth.queries(each)) for each in secrets] == [2, 2, 2]
    for wire in wires:
        wire.close()


def test_the_secret_may_be_as_large_as_a_body(guarded: NsqServer, auth: AuthServer) -> None:
    with Wire(guarded) as wire:
        wire.fails(b"AUTH\n" + frames.size(5 * 1024 * 1024 + 1), "E_BAD_BODY AUTH body too big 5242881 > 5242880")
    with authorized(guarded, auth, "s" * 20_000, EVERYTHING) as wire:
        wire.publish("large-secret", b"x")
