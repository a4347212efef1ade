"""Roles beside what a real 4.0.7 said to the same commands and requests; what is granted and revoked takes effect."""

from __future__ import annotations

import base64
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jwt
import pytest
from mq_shards.acceptor.option_kinds import OptionsError
from mq_shards.acceptor.protocols.pulsar.credentials import OPTIONS, check

from perf.pulsar.standalone import missing
from tests.nsq.certificates import CLIENT_NAME, Pair, make
from tests.pulsar.record_roles import FAILS, TRANSCRIPTS, play, real_broker, request
from tests.pulsar.role_scenes import PROXY, SECRET, SUPER, scenes, token
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.test_admin import differences
from tests.pulsar.wire import Wire
from tests.servers import free_port

RECORDED: Final[dict[str, list[dict[str, Any]]]] = json.loads(TRANSCRIPTS.read_text())
# Names of this broker, and moments.
OWN: Final = ("brokers/standalone", "brokers/leaderBroker", "brokers/version", "/lookup/v2")


def settings(folder: Path) -> list[str]:
    key = folder / "secret"
    key.write_bytes(SECRET)
    return [
        f"pulsar.token-secret-key-file={key}", "pulsar.authorization-enabled=true",
        f"pulsar.super-user-roles={SUPER}", f"pulsar.proxy-roles={PROXY}",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarServer]:
    with running(acceptors=2, settings=settings(tmp_path_factory.mktemp("keys"))) as server:
        yield server


@pytest.mark.timeout(300)  # a good thousand requests, each on a connection of its own
def test_roles_are_answered_as_by_a_real_broker(guarded: PulsarServer) -> None:
    wrong = []
    for name, steps in scenes():
        for step, theirs in zip(steps, RECORDED[name], strict=True):
            assert list(step) == theirs["step"], "record anew: python -m tests.pulsar.record_roles"
            ours = play(guarded.http, guarded.port, step)
            wrong += [f"{name}: {step[:3]}: {one}" for one in unlike(theirs, ours, step)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(missing("broker") is not None, reason=str(missing("broker")))
def test_what_is_recorded_is_what_a_real_broker_says() -> None:
    wrong = []
    with real_broker() as (address, port):
        for name, steps in scenes():
            for step, recorded in zip(steps, RECORDED[name], strict=True):
                wrong += [f"{name}: {step[:3]}: {one}" for one in unlike(recorded, play(address, port, step), step)]
    assert not wrong, "\n".join(wrong)


def unlike(theirs: dict[str, Any], ours: dict[str, Any], step: tuple[Any, ...]) -> Iterator[str]:
    if "answer" in theirs:
        expected = {key: value for key, value in theirs.items() if key != "step"}
        if ours != expected:
            yield f"{ours} and not {expected}"
        return
    if theirs["status"] == FAILS and ours["status"] in (204, 404):
        return  # it did not expect that
    if ours["status"] != theirs["status"]:
        yield f"{ours} and not {theirs}"
    elif isinstance(reason := (theirs.get("json") or {}), dict) and "reason" in reason:
        said, expected = (json.dumps(found).split(" on broker [")[0] for found in (ours.get("json"), reason))
        if said != expected:
            yield f"{said} and not {expected}"
    elif "json" in theirs and not step[2].startswith(OWN):
        yield from differences(theirs["json"], ours.get("json"))


def prepare(server: PulsarServer, tenant: str) -> str:
    """A namespace of a tenant that "boss" administers."""
    data = {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}
    assert request(server.http, SUPER, "", "PUT", f"tenants/{tenant}", data)["status"] == 204
    assert request(server.http, "boss", "", "PUT", f"namespaces/{tenant}/ns")["status"] == 204
    return f"{tenant}/ns"


def test_who_administers_a_tenant_sees_its_namespaces_of_a_cluster(guarded: PulsarServer) -> None:
    prepare(guarded, "older")
    path = "/admin/namespaces/older/standalone"
    assert request(guarded.http, "boss", "", "PUT", f"{path}/ns", {})["status"] == 204
    assert request(guarded.http, "boss", "", "GET", path) == {"status": 200, "json": ["older/standalone/ns"]}
    refused = request(guarded.http, "nobody", "", "GET", path)
    assert refused["status"] == 401 and "[LIST_NAMESPACES] on tenant [older]" in refused["json"]["reason"]


def grant(server: PulsarServer, namespace: str, role: str, *actions: str) -> None:
    done = request(server.http, "boss", "", "POST", f"namespaces/{namespace}/permissions/{role}", list(actions))
    assert done["status"] == 204


def connect(wire: Wire, role: str) -> Wire:
    wire.say(
        "connect", client_version="x", protocol_version=21, auth_method_name="token", auth_data=token(role).encode()
    )
    wire.expect("connected")
    return wire


def test_who_loses_a_permission_loses_what_it_had_and_others_keep_it(guarded: PulsarServer) -> None:
    namespace = prepare(guarded, "losing")
    for role in ("one", "two"):
        grant(guarded, namespace, role, "produce", "consume")
    topic = f"persistent://{namespace}/t"
    with Wire(guarded.port) as first, Wire(guarded.port) as second:
        for wire, role in ((first, "one"), (second, "two")):
            connect(wire, role)
            wire.producer(topic)
            wire.subscribe(topic, "s", 1, 2)
        grant(guarded, namespace, "one", "consume")
        assert first.expect("close_producer").producer_id == 1
        error = first.ask("producer", "error", topic=topic, producer_id=3)
        assert (error.error, error.message) == (4, "Client is not authorized to Produce")
        data = {"adminRoles": ["two"], "allowedClusters": ["standalone"]}
        assert request(guarded.http, "boss", "", "DELETE", f"namespaces/{namespace}/permissions/one")["status"] == 204
        assert request(guarded.http, SUPER, "", "POST", "tenants/losing", data)["status"] == 204
        assert first.expect("close_consumer").consumer_id == 2
        error = first.ask("subscribe", "error", topic=topic, subscription="s", subType=1, consumer_id=3)
        assert (error.error, error.message) == (4, "Client is not authorized to subscribe")
        second.quiet()
        assert not second.pending("close_producer") and not second.pending("close_consumer")


def test_a_namespace_is_made_with_the_permissions_that_are_given(guarded: PulsarServer) -> None:
    namespace = prepare(guarded, "granted")
    made = namespace + "-at-once"
    roles = {"one": ["produce", "consume", "fly"], "two": None}
    given = {"auth_policies": {"namespace_auth": roles, "subscription_auth_roles": {"s": ["one"]}}}
    assert request(guarded.http, SUPER, "", "PUT", f"namespaces/{made}", given)["status"] == 204
    shown = request(guarded.http, SUPER, "", "GET", f"namespaces/{made}")["json"]["auth_policies"]
    assert sorted(shown["namespace_auth"].pop("one")) == ["consume", "produce"]
    expected = {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {"s": ["one"]}}
    assert shown == expected
    with Wire(guarded.port) as wire:
        connect(wire, "one")
        wire.producer(f"persistent://{made}/t")
    for wrong in ([], {"namespace_auth": ["one"]}, {"namespace_auth": {"one": "produce"}},
                  {"subscription_auth_roles": {"s": "one"}}):  # fmt: skip
        answer = request(guarded.http, SUPER, "", "PUT", f"namespaces/{namespace}-not", {"auth_policies": wrong})
        assert answer["status"] == 400, wrong
    for more in ({"auth_policies": {"destination_auth": {"t": {"one": ["consume"]}}}},
                 {"subscription_auth_mode": "Prefix"}):  # fmt: skip
        assert request(guarded.http, SUPER, "", "PUT", f"namespaces/{namespace}-not", more)["status"] == 501, more


def test_grants_survive_a_broker_that_is_killed(tmp_path: Path) -> None:
    options = settings(tmp_path)
    data_dir = tmp_path / "data"
    with running(data_dir=data_dir, settings=options) as server:
        namespace = prepare(server, "kept")
        grant(server, namespace, "writer", "produce")
        topic = f"{namespace}/t"
        assert request(server.http, "boss", "", "PUT", f"persistent/{topic}")["status"] == 204
        path = f"persistent/{topic}/permissions/reader"
        assert request(server.http, "boss", "", "POST", path, ["consume"])["status"] == 204
        path = f"namespaces/{namespace}/permissions/subscription/s"
        assert request(server.http, "boss", "", "POST", path, ["other"])["status"] == 204
        subprocess.run(["kill", "-9", str(server.pid_of("mq-gateway")), str(server.process.pid)], check=True)
        server.process.wait()
    with running(data_dir=data_dir, settings=options) as server:
        with Wire(server.port) as wire:
            connect(wire, "writer").producer(f"persistent://{topic}")
            wire.ask("subscribe", "error", topic=f"persistent://{topic}", subscription="s", subType=1, consumer_id=1)
        with Wire(server.port) as wire:
            connect(wire, "reader").subscribe(f"persistent://{topic}", "mine")
            wire.ask("subscribe", "error", topic=f"persistent://{topic}", subscription="s", subType=1, consumer_id=2)
            wire.ask("producer", "error", topic=f"persistent://{topic}", producer_id=1)


def test_a_gateway_that_is_down_lets_no_role_in(tmp_path: Path) -> None:
    with running(settings=settings(tmp_path)) as server, Wire(server.port) as wire:
        connect(wire, SUPER).producer("kept")
        subprocess.run(["kill", "-STOP", str(server.pid_of("mq-gateway"))], check=True)
        wire.send(b"what is there goes on")
        wire.expect("send_receipt")
        assert wire.ask("producer", "error", topic="kept", producer_id=2).error == 6
        subprocess.run(["kill", "-CONT", str(server.pid_of("mq-gateway"))], check=True)


def test_who_does_not_say_who_it_is_has_the_anonymous_role(tmp_path: Path) -> None:
    """Each answer as a 4.0.7 with anonymousUserRole gave it."""
    topic = "persistent://public/default/t"
    with running(settings=[*settings(tmp_path), "pulsar.anonymous-role=guest"]) as server:

        def said(**fields: object) -> str:
            """What a client that says this hears when it connects, or else when it produces."""
            with Wire(server.port) as wire:
                wire.say("connect", client_version="x", protocol_version=21, **fields)
                frame = wire.receive()
                assert frame is not None
                if frame.name != "connected":
                    return str(frame.body.message)
                wire.say("producer", request_id=1, topic=topic, producer_id=1)
                frame = wire.receive()
                assert frame is not None
                return str(frame.body.message) if frame.name == "error" else frame.name

        def status(path: str, **headers: str) -> int:
            asked = urllib.request.Request(f"http://{server.http}/admin/v2/{path}", headers=headers)
            try:
                return int(urllib.request.urlopen(asked, timeout=60).status)
            except urllib.error.HTTPError as error:
                return error.code

        assert said() == "Client is not authorized to Produce"
        assert [status("tenants"), status("clusters"), status("persistent/public/default/t/stats")] == [401, 200, 401]
        given = request(server.http, SUPER, "", "POST", "namespaces/public/default/permissions/guest", ["produce"])
        assert given["status"] == 204
        for fields in (
            {}, {"auth_method_name": "none"}, {"auth_method_name": "zzz", "auth_data": b"x"}, {"auth_data": b"x"},
            {"original_principal": "boss"},
        ):  # fmt: skip
            assert said(**fields) == "producer_success", fields
        for data in (b"", b"bad"):
            assert said(auth_method_name="token", auth_data=data) == "Failed to authenticate"
        stats = "persistent/public/default/t/stats"
        for headers in ({}, {"Authorization": ""}, {"Authorization": "Bearer bad"}, {"Authorization": "Basic YTpi"}):
            assert status(stats, **headers) == 200, headers
        assert status(stats, **{"X-Original-Principal": "boss"}) == 401


def test_a_list_of_roles_has_no_role_with_a_comma() -> None:
    """It would be one role that nobody has, where Pulsar reads two."""
    for option in ("super-user-roles", "proxy-roles"):
        with pytest.raises(OptionsError, match="admin,boss"):
            OPTIONS[option].parse(option, ["admin,boss"], [])


def test_an_anonymous_role_needs_rights_to_be_checked(tmp_path: Path) -> None:
    chosen: dict[str, Any] = {name: kind.default for name, kind in OPTIONS.items()}
    chosen["token-secret-key-file"] = settings(tmp_path)[0].partition("=")[2]
    with pytest.raises(ValueError, match=r"pulsar\.authorization-enabled"):
        check({**chosen, "anonymous-role": "guest"})
    check({**chosen, "anonymous-role": "guest", "authorization-enabled": True})


def test_names_and_passwords_are_roles(tmp_path: Path) -> None:
    """The file as Apache's htpasswd -m writes it; openssl says the same."""
    made = subprocess.run(
        ["openssl", "passwd", "-apr1", "-salt", "8sFt66rZ", "pässword of some length"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    users = tmp_path / "users"
    users.write_text(f"# of the broker\nsomebody:{made}\n")
    options = [f"pulsar.basic-auth-file={users}", "pulsar.authorization-enabled=true"]
    options.append("pulsar.super-user-roles=somebody")
    with running(settings=options) as server:
        for given, expected in (
            ("somebody:pässword of some length", "connected"), ("somebody:password", "error"), ("none:x", "error"),
            ("somebody", "error"), ("", "error"),
        ):  # fmt: skip
            with Wire(server.port) as wire:
                wire.say(
                    "connect", client_version="x", protocol_version=21, auth_method_name="basic",
                    auth_data=given.encode(),
                )  # fmt: skip
                frame = wire.receive()
                assert frame is not None and frame.name == expected, given
                if frame.name == "connected":
                    wire.producer("t")

        def status(credentials: str) -> int:
            header = {"Authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}"}
            try:
                asked = urllib.request.Request(f"http://{server.http}/admin/v2/tenants", headers=header)
                return int(urllib.request.urlopen(asked, timeout=60).status)
            except urllib.error.HTTPError as error:
                return error.code

        assert [status("somebody:pässword of some length"), status("somebody:"), status("x")] == [200, 401, 401]


def test_the_name_in_a_certificate_is_a_role(tmp_path: Path) -> None:
    pulsar = pytest.importorskip("pulsar")
    found = make(tmp_path)
    options = [
        f"pulsar.tls-cert-file={found.server.cert}", f"pulsar.tls-key-file={found.server.key}",
        f"pulsar.tls-trust-certs-file={found.authority}", "pulsar.tls-auth=true", "pulsar.authorization-enabled=true",
        f"pulsar.super-user-roles={CLIENT_NAME}",
    ]  # fmt: skip
    with running(settings=options) as server:
        url = server.url.replace("pulsar://127.0.0.1", "pulsar+ssl://localhost")
        client = pulsar.Client(
            url, tls_trust_certs_file_path=str(found.authority), tls_validate_hostname=False,
            authentication=pulsar.AuthenticationTLS(str(found.client.cert), str(found.client.key)),
        )  # fmt: skip
        client.create_producer("t").send(b"m")
        client.close()
        with Wire(server.port) as wire:
            wire.say("connect", client_version="x", protocol_version=21, auth_method_name="tls")
            assert wire.expect("error").error == 3


def test_every_role_may_see_transactions_and_only_super_users_end_them(guarded: PulsarServer) -> None:
    def asked(method: str, path: str, role: str = "whoever") -> int:
        return int(request(guarded.http, role, "", method, f"/admin/v3/transactions/{path}")["status"])

    assert asked("GET", "coordinatorStats?coordinatorId=0") == 200
    assert asked("GET", "transactionMetadata/0/99999999") == 404
    assert asked("GET", "transactionBufferStats/public/default/nowhere") == 404
    assert asked("POST", "abortTransaction/0/99999999") == 401
    assert asked("POST", "abortTransaction/0/99999999", SUPER) == 404


def test_clients_with_certificates_and_with_tokens_come_to_the_same_ports(tmp_path: Path) -> None:
    pulsar = pytest.importorskip("pulsar")
    found, https = make(tmp_path), free_port()
    options = [
        *settings(tmp_path), "pulsar.tls-auth=true", "pulsar.tls-client-cert-optional=true",
        f"pulsar.tls-cert-file={found.server.cert}", f"pulsar.tls-key-file={found.server.key}",
        f"pulsar.tls-trust-certs-file={found.authority}", f"pulsar.super-user-roles={CLIENT_NAME}",
        f"tls.cert={found.server.cert}", f"tls.key={found.server.key}",
        f"tls.client-ca={found.authority}", "tls.client-cert-optional=true",
    ]  # fmt: skip
    with running(settings=options, listen=[f"pulsar-https://127.0.0.1:{https}"]) as server:
        url = server.url.replace("pulsar://127.0.0.1", "pulsar+ssl://localhost")
        for authentication in (
            pulsar.AuthenticationTLS(str(found.client.cert), str(found.client.key)),
            pulsar.AuthenticationToken(token(SUPER)),
        ):
            client = pulsar.Client(
                url, tls_trust_certs_file_path=str(found.authority), tls_validate_hostname=False,
                authentication=authentication,
            )  # fmt: skip
            client.create_producer("t").send(b"m")
            client.close()

        def status(pair: Pair | None, authorization: str = "") -> int:
            asked = urllib.request.Request(f"https://localhost:{https}/admin/v2/tenants")
            if authorization:
                asked.add_header("Authorization", authorization)
            try:
                with urllib.request.urlopen(asked, timeout=30, context=found.context(pair)) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                return error.code

        assert status(found.client) == 200
        # A certificate goes before a token, as at a real broker.
        assert status(found.client, "Bearer nonsense") == status(found.client, f"Bearer {token('nobody')}") == 200
        assert status(None, f"Bearer {token(SUPER)}") == 200
        assert status(None) == 401
        with pytest.raises(OSError):
            status(found.stranger)


def test_a_token_that_has_expired_is_asked_for_anew_and_roles_go_on(guarded: PulsarServer) -> None:
    with Wire(guarded.port) as wire:
        soon = jwt.encode({"sub": SUPER, "exp": int(time.time()) + 2}, SECRET, algorithm="HS256")
        wire.say(
            "connect", client_version="x", protocol_version=21, auth_method_name="token", auth_data=soon.encode(),
            feature_flags={"supports_auth_refresh": True},
        )  # fmt: skip
        wire.expect("connected")
        wire.expect("authChallenge")
        wire.say("authResponse", response={"auth_method_name": "token", "auth_data": token(SUPER).encode()})
        wire.producer("persistent://public/default/refreshed")
