"""What is guarded at one listener does not lie open at another."""

from __future__ import annotations

from pathlib import Path

import pytest
from mq_shards.acceptor.option_kinds import OptionsError
from mq_shards.supervisor.options.options import parse

AUTH = "--set=nsq.auth-http-address=127.0.0.1:1"


def options(*listen: str, more: tuple[str, ...] = ()) -> list[str]:
    return [*(f"--listen={one}" for one in listen), *more]


@pytest.fixture
def users(tmp_path: Path) -> str:
    path = tmp_path / "users.toml"
    path.write_text("[users.a]\npublish = ['t']\n")
    return f"--users={path}"


@pytest.mark.parametrize("scheme", ["beanstalk", "nats-route", "nats-leaf"])
def test_with_users_a_listener_without_logins_is_refused(users: str, scheme: str) -> None:
    with pytest.raises(OptionsError, match=f"{scheme}://127.0.0.1.*--insecure {scheme}"):
        parse(options(f"{scheme}://127.0.0.1:9", more=(users,)))
    assert parse(options(f"{scheme}://127.0.0.1:9?user=a", more=(users,))).listen[0].user == "a"
    assert parse(options(f"{scheme}://127.0.0.1:9", more=(users, f"--insecure={scheme}"))).insecure == (scheme,)


def test_with_users_listeners_with_logins_are_served_anywhere(users: str) -> None:
    schemes = ("nsq", "nats", "pulsar", "http", "nsq-http", "pulsar-http", "nats-http")
    parse(options(*(f"{scheme}://0.0.0.0:{9 + n}" for n, scheme in enumerate(schemes)), more=(users,)))


def test_http_that_others_reach_wants_users() -> None:
    for address in ("http://0.0.0.0:9", "http://:9", "http://[::]:9", "http://0.0.0.0:9?both", "http://[::]:9?both"):
        with pytest.raises(OptionsError, match="not on loopback"):
            parse(options(address))
        parse(options(address, more=("--insecure=http",)))
    for address in ("http://127.0.0.1:9", "http://[::1]:9", "http://localhost:9", "http://unix:/run/x"):
        assert not parse(options(address)).warnings


@pytest.mark.parametrize("guarded", ["nsq", "nats", "pulsar"])
def test_what_a_protocols_own_logins_guard_does_not_lie_open_elsewhere(guarded: str, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    how = {
        "nsq": (AUTH,),
        "nats": ("--set=nats.token=t", "--set=nats.topics=t.>"),
        "pulsar": (f"--set=pulsar.token-secret-key-file={key}",),
    }[guarded]
    for host in ("0.0.0.0", "127.0.0.1", "[::1]"):
        listen = f"{guarded}://0.0.0.0:9", f"beanstalk://{host}:10"
        with pytest.raises(OptionsError, match=rf"leads to the topics that {guarded}://0\.0\.0\.0:9 guards"):
            parse(options(*listen, more=how))
        assert parse(options(*listen, more=(*how, "--insecure=beanstalk"))).insecure == ("beanstalk",)
    with pytest.raises(OptionsError, match="--insecure http"):
        parse(options(f"{guarded}://127.0.0.1:9", "http://127.0.0.1:10", more=how))


def test_a_socket_file_is_a_door_too() -> None:
    listen = "nsq://127.0.0.1:9", "beanstalk://unix:/run/x"
    for mode in ("666", "662"):
        with pytest.raises(OptionsError, match="leads to the topics"):
            parse(options(*listen, more=(AUTH, f"--set=broker.unix-mode={mode}")))
    for mode in ("660", "600", "664"):
        assert parse(options(*listen, more=(AUTH, f"--set=broker.unix-mode={mode}"))).insecure == ()
    parse(options(*listen, more=(AUTH,)))
    with pytest.raises(OptionsError, match="leads to the topics"):
        parse(options(*listen, "beanstalk://127.0.0.1:10", more=(AUTH,)))


def test_without_anything_guarded_nothing_changes() -> None:
    assert not parse([]).warnings
    assert not parse(options("beanstalk://0.0.0.0:9", "nsq://0.0.0.0:10", "nsq-http://0.0.0.0:11")).warnings


def test_a_listeners_user_is_one_that_there_is(users: str) -> None:
    with pytest.raises(OptionsError, match="there are no users"):
        parse(options("beanstalk://127.0.0.1:9?user=a"))
    for wrong in ("?user=", "?user=a&b=c", "?name=a", "?user=a b"):
        with pytest.raises(OptionsError, match="user=NAME"):
            parse(options(f"beanstalk://127.0.0.1:9{wrong}", more=(users,)))
    wanted = parse(options("beanstalk://127.0.0.1:9?user=b", more=(users,)))
    with pytest.raises(OptionsError, match="there is no user b"):
        wanted.check_doors(wanted.listen)
