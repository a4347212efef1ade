"""The file of users: what it grants, and what is said of one that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mq_shards.acceptor.access import rights
from mq_shards.acceptor.access.hashes import make_token, password_hash, token_hash
from mq_shards.acceptor.access.rights import Patterns, Users
from mq_shards.acceptor.access.users_file import read_file
from mq_shards.acceptor.option_kinds import OptionsError
from mq_shards.supervisor.options.options import parse

HASH = password_hash("x", 4)


def read(tmp_path: Path, text: str) -> Users:
    path = tmp_path / "users.toml"
    path.write_text(text)
    return read_file(str(path))


def test_a_user_has_what_its_groups_have_and_what_everybody_has(tmp_path: Path) -> None:
    users = read(
        tmp_path,
        """
        [users.shop]
        groups = ["staff"]
        publish = ["orders", "events.*"]
        [groups.staff]
        read = ["orders"]
        [groups.everybody]
        publish = ["greetings"]
    """,
    )
    shop = users.by_name["shop"]
    for right, topic, granted in (
        ("publish", "orders", True), ("publish", "orders2", False), ("publish", "events.a.b", True),
        ("publish", "events", False), ("publish", "greetings", True), ("read", "orders", True),
        ("manage", "orders", False),
    ):  # fmt: skip
        assert shop.may(right, topic) is granted, (right, topic)
    assert not shop.may_all("publish")


@given(st.text("ab.*", max_size=5), st.text("ab.", max_size=6))
def test_a_pattern_is_a_name_or_the_beginning_of_names(text: str, topic: str) -> None:
    if "*" in text[:-1]:
        return
    expected = topic.startswith(text[:-1]) if text.endswith("*") else topic == text
    assert Patterns((text,)).match(topic) is expected


def test_what_goes_to_other_processes_says_the_same(tmp_path: Path) -> None:
    token = make_token()
    users = read(
        tmp_path,
        f"""
        [users.a]
        password = "{HASH}"
        tokens = ["{token_hash(token)}"]
        certificates = ["a.example.org"]
        publish = ["*"]
    """,
    )
    again = rights.decode(users.encode())
    assert again.encode() == users.encode() and again.by_name.keys() == {"a"}
    for part in ("password", "tokens", "certificates"):
        assert getattr(again.by_name["a"], part) == getattr(users.by_name["a"], part), part
    found = again.of_token(token)
    assert found is not None and found.user.may_all("publish")
    assert again.of_token(token_hash(token)) is None, "what is kept is no token"
    assert HASH not in repr(again.by_name) and token_hash(token) not in repr(found)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("\n[users.a]\npassword = 'plain'\n", 3, "password is not hashed"),
        ("[users.a]\n\n# why\ntokens = ['x']\n", 4, "a token is not hashed"),
        ("[users.a]\npublish = ['a*b']\n", 2, "neither a topic's name nor the beginning"),
        ("[users.a]\npublish = 'a'\n", 2, "publish is not a list of texts"),
        ("[users.a]\nright = ['a']\n", 2, '"right" is not known in [users.a]'),
        ("[users.a]\ngroups = ['x']\n", 2, "there is no [groups.x]"),
        ("[groups.x]\n[groups.y]\ntokens = []\n", 3, "is not known in [groups.y]"),
        ("[users.a]\n[users.'a b']\n", 2, "is no name"),
        ("[users]\na = 1\n", 2, "a is not a table"),
        ("users = 1\n", 1, "users are tables"),
        ("[other]\n", 1, "is neither [users.NAME] nor [groups.NAME]"),
        (f"[users.a]\ntokens=['{token_hash('t')}']\n[users.b]\ntokens=['{token_hash('t')}']\n", 4, "in common"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    with pytest.raises(OptionsError) as error:
        read(tmp_path, text)
    assert f"users.toml:{line}: " in str(error.value)
    assert said in str(error.value)


def test_what_is_no_toml_is_said_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="line 1"):
        read(tmp_path, "[users.a\npublish = []\n")
    with pytest.raises(OptionsError, match="cannot read"):
        read_file(str(tmp_path / "none"))


@pytest.mark.parametrize("text", ["", "# of the shop\n", "[users]\n", '[groups.staff]\nread = ["orders"]\n'])
def test_a_file_without_users_is_no_file_of_users(tmp_path: Path, text: str) -> None:
    with pytest.raises(OptionsError, match=r"users\.toml has no \[users\.NAME\]"):
        read(tmp_path, text)
    if "[" in text:  # without a table the options have no users
        (tmp_path / "mq.toml").write_text(text)
        with pytest.raises(OptionsError, match=r"mq\.toml has no \[users\.NAME\]"):
            parse(["--memory", "--config", str(tmp_path / "mq.toml")])


def test_users_may_stand_in_the_options_or_be_named_there(tmp_path: Path) -> None:
    listen = "listen = ['nsq://127.0.0.1:4150']\n"
    (tmp_path / "a.toml").write_text(listen + "[users.a]\npublish = ['t']\n[groups.g]\n[nsq]\n")
    (tmp_path / "users.toml").write_text("[users.b]\n")
    (tmp_path / "b.toml").write_text(f"users = '{tmp_path / 'users.toml'}'\n" + listen)
    for name, user in (("a", "a"), ("b", "b")):
        users = parse(["--config", str(tmp_path / f"{name}.toml")]).users
        assert users is not None and list(users.by_name) == [user]
    (tmp_path / "c.toml").write_text(listen + "[users.a]\n\npassword = 'x'\n")
    with pytest.raises(OptionsError, match=r"c\.toml:4: password"):
        parse(["--config", str(tmp_path / "c.toml")])
