"""What clients say who may not do everything, and what a nats-server answers, with confs/who.conf."""

from __future__ import annotations

from typing import Final

from tests.nats.scenes import Scene, one


def connect(user: str, password: str = "", **more: bool) -> bytes:
    said = {"verbose": False, "pedantic": False, **more}
    rest = "".join(f',"{key}":{str(value).lower()}' for key, value in said.items())
    return f'CONNECT {{"user":"{user}","pass":"{password or user}"{rest}}}\r\n'.encode()


def pub(subject: str, payload: str = "x", reply: str = "") -> bytes:
    return f"PUB {subject} {reply + ' ' if reply else ''}{len(payload)}\r\n{payload}\r\n".encode()


ALL: Final = connect("all")
LISTS: Final = connect("lists")

USERS: Final = (
    # --- who it is
    one("a user", ALL + b"SUB a 1\r\n" + pub("a")),
    one("a wrong password", connect("all", "wrong") + b"PING\r\n"),
    one("an unknown user", connect("nobody") + b"PING\r\n"),
    one("no user", b'CONNECT {"verbose":false}\r\nPING\r\n'),
    one("a token where there are users", b'CONNECT {"verbose":false,"auth_token":"all"}\r\nPING\r\n'),
    one("a password that is kept as bcrypt makes it", connect("hashed", "secret") + b"SUB a 1\r\n" + pub("a")),
    one("a wrong password for that", connect("hashed", "secreT") + b"SUB a 1\r\n" + pub("a")),
    one("not CONNECT first", b"SUB a 1\r\n"),
    one("a blank first", b" CONNECT {}\r\n"),
    one("C and something else", b"CON \r\n"),
    one("confirmed", connect("all", verbose=True) + b"SUB a 1\r\n" + pub("a")),
    one("a user who may not come this way", connect("websocket") + b"PING\r\n"),
    one("another user later", ALL + b"SUB default.a 1\r\nSUB a 2\r\n",
        connect("default") + b"SUB default.a 1\r\nSUB a 2\r\n" + pub("default.a") + pub("a")),
    one("a wrong password later", ALL + b"SUB a 1\r\n", connect("default", "wrong") + pub("a")),
    one("an account", b'CONNECT {"verbose":false,"user":"all","pass":"all","account":"A"}\r\n'),
    # --- publishing
    one("publishing what is allowed", LISTS + b"SUB a.> 1\r\n" + pub("a.b") + pub("b.b.b") + pub("c")),
    one("publishing what is not allowed", LISTS + pub("a.b.c") + pub("d") + pub("c.d") + pub("b")),
    one("publishing what is denied", LISTS + pub("a.secret") + pub("b.x.no") + pub("b.x.yes")),
    one("publishing to a wildcard", LISTS + pub("a.*") + pub("a.>") + pub("b.>") + pub("*.b") + pub(">")),
    one("publishing to an empty token", LISTS + pub("a..b") + pub("b.") + pub(".c")),
    one("a violation takes the place of +OK", connect("lists", verbose=True, pedantic=True) + pub("d") + pub("c")
        + b"SUB x 1\r\nSUB a.x 2\r\n"),
    one("a violation is said each time", LISTS + pub("d") * 3),
    one("a subject that has to be quoted", LISTS + pub('d"e\\f') + 'PUB d\x01\xe9\u20ac 1\r\nx\r\n'.encode()),
    one("headers do not matter", connect("lists", headers=True) + b"HPUB d 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"),
    one("a payload that is too large comes first", LISTS + b"PUB d 1048577\r\n"),
    one("a reply may be anything", LISTS + b"SUB a.* 1\r\n" + pub("a.b", reply="somewhere.else")),
    one("a reserved reply of somebody", LISTS + pub("a.b", reply="_R_.x") + pub("d", reply="_R_.x")),
    one("nobody may publish for a mute", connect("mute") + pub("a") + b"SUB a 1\r\n" + pub("b")),
    one("default permissions", connect("default") + pub("default.a") + pub("a") + b"SUB a 1\r\nSUB default.* 1\r\n"),
    one("all but what is denied", connect("denied") + b"SUB > 1\r\n" + pub("p.a") + pub("p") + pub("a")),
    # --- subscribing
    one("subscribing to what is allowed", LISTS + b"SUB a.x 1\r\nSUB a.* 2\r\nSUB a.> 3\r\n" + pub("a.x")),
    one("subscribing to what is not allowed", LISTS + b"SUB a 1\r\nSUB > 2\r\nSUB *.x 3\r\nSUB b.> 4\r\n"),
    one("subscribing to what is denied", LISTS + b"SUB a.hidden 1\r\nSUB a.b.hidden 2\r\nSUB a.*.hidden 3\r\n"),
    one("an empty token is not allowed", LISTS + b"SUB a..b 1\r\nSUB a. 2\r\n"),
    one("a tail inside is not allowed", LISTS + b"SUB a.>.b 1\r\n"),
    one("one token stands for a tail", LISTS + b"SUB both.> 1\r\nSUB both 2\r\n"),
    one("queues", LISTS + b"SUB q queue 1\r\nSUB q other 2\r\nSUB q 3\r\nSUB w v1.a 4\r\nSUB w v2.a 5\r\n"
        b"SUB both 6\r\nSUB both v2 7\r\nSUB both v1 8\r\nSUB a.x any 9\r\n"),
    one("a denied queue", connect("denied") + b"SUB d.q never 1\r\nSUB d.q other 2\r\nSUB d.q 3\r\n"),
    one("a queue of the server's own", ALL + b"SUB a _sys_ 1\r\n"),
    one("what is denied is not delivered", LISTS + b"SUB a.> 1\r\nSUB a.* 2\r\n", pub("a.b")),
    Scene("what is denied is not delivered to wildcards", (
        (0, LISTS + b"SUB a.* 1\r\nSUB a.> 2\r\n"),
        (1, ALL + pub("a.hidden") + pub("a.x") + pub("a.b.hidden") + pub("a.b.c")),
    )),
    Scene("what is denied does not count", (
        (0, connect("denied") + b"SUB d.* 1\r\nUNSUB 1 1\r\n"),
        (1, ALL + pub("d.no") + pub("d.yes") + pub("d.yes")),
    )),
    Scene("a denied queue has no message of a wildcard", (
        (0, connect("denied") + b"SUB d.* never 1\r\nSUB d.* other 2\r\nSUB d.> 3\r\n"), (1, ALL + pub("d.q")),
    )),
    Scene("a group has its message although some of it may not have it", (
        (0, connect("denied") + b"SUB d.* group 1\r\n" * 1), (1, ALL + b"SUB d.no group 1\r\n"),
        (2, ALL + pub("d.no") * 5),
    )),
    Scene("who may not have it is nobody", (
        (0, connect("denied") + b"SUB d.* 1\r\n"),
        (1, connect("all", headers=True, no_responders=True) + b"SUB in 1\r\n" + pub("d.no", reply="in")),
    )),
    # --- replies
    Scene("a service may answer once", (
        (0, connect("service") + b"SUB ask.> 1\r\n"),
        (1, ALL + b"SUB in.* 1\r\n" + pub("ask.a", reply="in.1")),
        (0, pub("in.1") + pub("in.1") + pub("in.2")),
    )),
    Scene("a service may answer twice", (
        (0, connect("twice") + b"SUB ask.> 1\r\n"),
        (1, ALL + b"SUB in.* 1\r\nSUB told 2\r\n" + pub("ask.a", reply="in.1") + pub("ask.a", reply="in.2")),
        (0, pub("in.1") + pub("in.2") + pub("in.1") + pub("told") + pub("in.2") + pub("in.1") + pub("in.2")),
    )),
    Scene("a service that is asked again may answer again", (
        (0, connect("service") + b"SUB ask.> 1\r\n"),
        (1, ALL + b"SUB in.* 1\r\n" + pub("ask.a", reply="in.1")),
        (0, pub("in.1") + pub("in.1")),
        (1, pub("ask.a", reply="in.1")),
        (0, pub("in.1") + pub("in.1")),
    )),
    Scene("an answer as often as one likes", (
        (0, connect("soon") + b"SUB ask.> 1\r\n"),
        (1, ALL + b"SUB in.* 1\r\n" + pub("ask.a", reply="in.1")),
        (0, pub("in.1") * 4),
    )),
    Scene("who was not asked does not answer", (
        (0, connect("service") + b"SUB ask.> 1\r\n"), (1, connect("service") + b"SUB other 1\r\n"),
        (2, ALL + pub("ask.a", reply="in.1")), (1, pub("in.1")),
    )),
)  # fmt: skip

A: Final = connect("a")
B: Final = connect("b")

ACCOUNTS: Final = (
    Scene("accounts do not hear each other", (
        (0, A + b"SUB > 1\r\n"), (1, B + b"SUB > 1\r\n"), (2, ALL + b"SUB > 1\r\n"),
        (0, pub("a.x")), (1, pub("a.x")), (2, pub("a.x")),
    )),
    Scene("those of one account hear each other", (
        (0, A + b"SUB a.> 1\r\n"), (1, connect("a2") + pub("a.x") + pub("b")),
    )),
    Scene("groups of one name are apart", (
        (0, A + b"SUB a.x q 1\r\n"), (1, B + b"SUB a.x q 1\r\n"), (2, connect("a2") + pub("a.x") * 3),
    )),
    Scene("nobody is there in another account", (
        (0, A + b"SUB a.x 1\r\n"),
        (1, connect("b", headers=True, no_responders=True) + b"SUB in 1\r\n" + pub("a.x", reply="in")),
    )),
    Scene("into another account", (
        (0, A + b"SUB a.x 1\r\n"), (1, B + b"SUB a.x 1\r\n"), (0, B + b"SUB a.x 2\r\n" + pub("a.x")), (1, pub("a.x")),
    )),
    one("default permissions of an account", A + pub("a.x") + pub("b") + pub("c")),
    one("subscriptions of an account", B + b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\nUNSUB 1\r\nSUB d 4\r\n" + pub("d")),
    one("a payload of an account", B + pub("a", "x" * 1024) + b"PUB a 1025\r\n"),
    Scene("connections of an account", ((0, connect("c")), (1, connect("c") + b"SUB a 1\r\n"))),
    Scene("a connection that is again the same", ((0, connect("c")), (0, connect("c") + b"SUB a 1\r\n"))),
    one("who it is after the first PING",
        b'CONNECT {"verbose":false,"protocol":0,"user":"sys","pass":"sys"}\r\nSUB a 1\r\n' + pub("a")),
)  # fmt: skip

GIVER: Final = connect("giver", headers=True, no_responders=True)
TAKER: Final = connect("taker", headers=True, no_responders=True)
MAPPED: Final = connect("mapped")

SHARED: Final = (
    # --- streams
    Scene("a stream is imported", (
        (0, TAKER + b"SUB public.> 1\r\nSUB > 2\r\n"), (1, GIVER + pub("public.a") + pub("other") + pub("public.a.b")),
    )),
    Scene("a stream is imported with its reply", ((0, TAKER + b"SUB public.a 1\r\n"),
        (1, GIVER + pub("public.a", reply="in.1"))
    )),
    Scene("headers of a stream", (
        (0, connect("taker") + b"SUB public.a 1\r\n"), (1, TAKER + b"SUB public.* 1\r\n"),
        (2, GIVER + b"HPUB public.a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"),
    )),
    Scene("a stream under another subject", (
        (0, TAKER + b"SUB mine.*.y 1\r\nSUB private.> 2\r\nSUB from.giver.> 3\r\nSUB mine.c.y 4\r\n"),
        (1, GIVER + pub("private.a.x") + pub("private.a.y") + pub("private.b.c") + pub("private.c.x")),
    )),
    Scene("a stream that has the name of who may have it", (
        (0, TAKER + b"SUB mine.IMPORTER.a 1\r\nSUB mine.> 2\r\n"),
        (1, GIVER + pub("mine.IMPORTER.a") + pub("mine.OTHER.a")),
    )),
    Scene("who imports publishes for itself", (
        (0, GIVER + b"SUB public.> 1\r\n"), (1, TAKER + b"SUB public.> 1\r\n"), (2, TAKER + pub("public.a")),
    )),
    Scene("a queue of an imported stream", ((0, TAKER + b"SUB public.* q 1\r\n"), (1, GIVER + pub("public.a") * 3))),
    Scene("what is denied of an imported stream", (
        (0, connect("taker2") + b"SUB public.* 1\r\n"), (1, GIVER + pub("public.no") + pub("public.yes")),
    )),
    Scene("an imported stream is somebody", (
        (0, TAKER + b"SUB public.a 1\r\n"), (1, GIVER + b"SUB in.* 1\r\n" + pub("public.a", reply="in.1")
            + pub("public.b", reply="in.2")),
    )),
    # --- services
    Scene("a service is asked without a reply", (
        (0, GIVER + b"SUB ask.single 1\r\n"), (1, TAKER + pub("ask.single")),
    )),
    Scene("a service is not there", ((0, TAKER + b"SUB in.* 1\r\n" + pub("ask.single", reply="in.1")),)),
    Scene("a service under another subject", (
        (0, GIVER + b"SUB ask.> 1\r\n"), (1, TAKER + pub("many.a") + pub("ask.many.a") + pub("many.a.b")),
    )),
    Scene("a service is asked by who knows no headers", (
        (0, connect("giver") + b"SUB ask.single 1\r\n"), (1, TAKER + pub("ask.single", "hello")),
    )),
    Scene("headers of a request stay", (
        (0, GIVER + b"SUB ask.single 1\r\n"),
        (1, TAKER + b"HPUB ask.single 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n"),
    )),
    Scene("whoever says who asks is not believed", (
        (0, GIVER + b"SUB ask.single 1\r\n"),
        (1, TAKER + b"HPUB ask.single 44 46\r\nNATS/1.0\r\nNats-Request-Info: {\"a\":1}\r\nB: c\r\n\r\nhi\r\n"),
    )),
    Scene("a service of a service", ((0, GIVER + b"SUB ask.chain 1\r\n"), (1, connect("chained") + pub("far")))),
    # --- mappings
    one("mapped to another subject", MAPPED + b"SUB > 1\r\n" + pub("plain") + pub("other") + pub("plain.x")),
    one("mapped with wildcards", MAPPED + b"SUB > 1\r\n" + pub("one.a.b") + pub("new.a.b") + pub("tail.a.b.c")
        + pub("tail.a")),
    one("mapped to partitions", MAPPED + b"SUB > 1\r\n" + pub("part.a.b") + pub("part.c.d") + pub("whole.x")),
    one("mapped to parts", MAPPED + b"SUB > 1\r\n" + pub("split.a-b--c-") + pub("split.-a") + pub("split.--")
        + pub("split.a") + pub("left.12345") + pub("left.12") + pub("right.12345") + pub("right.123")
        + pub("slices.1234567890") + pub("slices.123456") + pub("slices.1234") + pub("slicer.1234567890")
        + pub("slicer.123456") + pub("slicer.12") + pub("head.abc") + pub("head.a") + pub("end.abc") + pub("end.a")
        + pub("random.x")),
    one("mapped to nobody", MAPPED + b"SUB > 1\r\n" + pub("lost")),
    one("mapped always", MAPPED + b"SUB > 1\r\n" + pub("all") * 5),
    one("mapped in the global account", ALL + b"SUB > 1\r\n" + pub("global.a")),
    one("permissions are of what it is mapped to", connect("mapped2") + b"SUB > 1\r\n" + pub("may")
        + pub("allowed.not") + pub("allowed.so")),
    one("nobody is there where it is mapped to", connect("mapped", headers=True, no_responders=True)
        + b"SUB in.* 1\r\n" + pub("plain", reply="in.1")),
    Scene("a mapped request", ((0, MAPPED + b"SUB other 1\r\n"), (1, MAPPED + pub("plain", reply="in.1")))),
)  # fmt: skip
