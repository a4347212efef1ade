"""What clients say, and what a nats-server 2.15 answers to the byte: one connection after another, or several in turn.

Each step is a client's number and what it sends; a scene ends with a PING of each client that is still connected. What
comes back is without the INFO at the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

QUIET: Final = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
HEADERS: Final = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'


@dataclass(frozen=True)
class Scene:
    name: str
    steps: tuple[tuple[int, bytes], ...]


def one(name: str, *said: bytes) -> Scene:
    return Scene(name, tuple((0, line) for line in said))


def traced(subject: str, *lines: bytes) -> bytes:
    header = b"NATS/1.0\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"
    return b"HPUB %s %d %d\r\n%shi\r\n" % (subject.encode(), len(header), len(header) + 2, header)


SCENES: Final = (
    # --- before CONNECT, and CONNECT itself
    one("everything is confirmed before CONNECT", b"SUB a 1\r\nPUB a 2\r\nhi\r\nUNSUB 1\r\nPING\r\n"),
    one("an empty CONNECT changes nothing", b"CONNECT {}\r\nSUB a 1\r\nPUB a 2\r\nhi\r\n"),
    one("CONNECT may be small", b'connect {"verbose":false}\r\nsub a 1\r\npub a 2\r\nhi\r\nping\r\n'),
    one("bad JSON ends it without a word", b"CONNECT {\r\n"),
    one("CONNECT of another type ends it without a word", b'CONNECT {"verbose":1}\r\n'),
    one("permissions in CONNECT have to be an object, though they are servers'", b'CONNECT {"import":"a"}\r\n'),
    one("lists in it of subjects", b'CONNECT {"export":{"allow":["a",1]}}\r\n'),
    one("with what is well-formed nothing is done", b'CONNECT {"import":{"deny":[">"]},"export":null}\r\nSUB a 1\r\n'),
    one("CONNECT without arguments", b"CONNECT\r\n"),
    one("a sign is no other byte: CR differs from - in bit 32 only", b"\rERR x\r\n"),
    one("nor is VT a +", b"\x0bOK\r\n"),
    one("an unknown protocol", b'CONNECT {"verbose":false,"protocol":2}\r\n'),
    one("no responders without headers", b'CONNECT {"verbose":false,"no_responders":true}\r\n'),
    one("an account is refused", b'CONNECT {"verbose":false,"account":"x"}\r\n'),
    one("a new account is refused", b'CONNECT {"verbose":false,"new_account":true}\r\n'),
    one("verbose CONNECT", b'CONNECT {"verbose":true}\r\nPUB a 0\r\n\r\n'),
    one("a second CONNECT drops subscriptions", QUIET + b"SUB a 1\r\n", QUIET + b"PUB a 1\r\nx\r\n"),
    one("a key in other letters", b'CONNECT {"VERBOSE":false}\r\nPUB a 1\r\nx\r\n'),
    one("the last of two values counts", b'CONNECT {"verbose":true,"verbose":false}\r\nPING\r\n'),
    one("the type of the first counts too", b'CONNECT {"verbose":"x","verbose":false}\r\nPING\r\n'),
    one("null behind a value leaves it", b'CONNECT {"protocol":2,"verbose":false,"protocol":null}\r\nPING\r\n'),
    one("one key in two cases", b'CONNECT {"Verbose":1,"verbose":false}\r\nPING\r\n'),
    one("null is nothing said", b'CONNECT {"verbose":null,"echo":null}\r\nSUB a 1\r\nPUB a 1\r\nx\r\n'),
    one("CONNECT null", b"CONNECT null\r\nPING\r\n"),
    one("CONNECT with a list ends it without a word", b"CONNECT []\r\n"),
    one("something behind CONNECT's JSON ends it without a word", b'CONNECT {"verbose":false} x\r\n'),
    one("CONNECT needs no blank", b'CONNECT{"verbose":false}\r\nPING\r\n'),
    one("a number that no float can hold", b'CONNECT {"x":[-1e400],"verbose":false}\r\nPING\r\n'),
    one("... and is no protocol", b'CONNECT {"verbose":false,"protocol":1e400}\r\nPING\r\n'),
    one("halves of surrogate pairs", b'CONNECT {"\\ud800":"\\udc00\\ud83d","verbose":false}\r\nPING\r\n'),
    one("... in a name", b'CONNECT {"name":"\\ud83d\\ude00\\ud83d","verbose":false}\r\nPING\r\n'),
    one("... of which one backslash is none", b'CONNECT {"\\\\ud800":"\\ud","verbose":false}\r\nPING\r\n'),
    one("a negative protocol", b'CONNECT {"verbose":false,"protocol":-1}\r\n'),
    one(
        "who nobody asks for may say who it is",
        b'CONNECT {"verbose":false,"user":"u","pass":"p","auth_token":"t"}\r\nPING\r\n',
    ),
    one("CONNECT just not too long", b'CONNECT {"verbose":false,"name":"' + b"n" * 4000 + b'"}\r\nPING\r\n'),
    one("CONNECT too long", b'CONNECT {"verbose":false,"name":"' + b"n" * 5000 + b'"}\r\nPING\r\n'),
    one("a second CONNECT without headers", HEADERS, QUIET + b"SUB a 1\r\nPUB nobody a 1\r\nx\r\n"),
    # --- words
    one("an unknown word", QUIET + b"FOO\r\n"),
    one("the wrong word is answered at its first byte", QUIET + b"GET / HTTP/1.1\r\n"),
    one("half a word goes wrong", QUIET + b"PUX a 1\r\nx\r\n"),
    one("PING with something behind it", QUIET + b"PINGxx\r\n"),
    one("PONG with something behind it", QUIET + b"PONG zz\r\nPING\r\n"),
    one("+OK of a client", QUIET + b"+OK\r\nPING\r\n"),
    one("-ERR of a client", QUIET + b"-ERR 'x'\r\nPING\r\n"),
    one("-ERR of a client that says no more", QUIET + b"-ERR\r\n"),
    one("-ERR of a client that says a blank more", QUIET + b"-ERR \r\n"),
    one("+ and something else", QUIET + b"+X\r\n"),
    one("letters of both kinds", QUIET + b"sUb a 1\r\nPuB a 1\r\nx\r\nuNsUb 1\r\npOnG\r\npInG\r\n"),
    one("a blank before a word", QUIET + b" PING\r\n"),
    one("two returns end a line", QUIET + b"PING\r\r\n"),
    one("RS+ of a client", QUIET + b"RS+ a b\r\n"),
    one("LS+ of a client", QUIET + b"LS+ a\r\n"),
    one("words without arguments", QUIET + b"UNSUB\r\n"),
    one("the end of a line as an argument", QUIET + b"SUB a\r 1\r\nPUB a\r1\r\nx\r\n"),
    one("lines may end in LF", QUIET + b"SUB a 1\nPUB a 2\nhi\r\nPING\n"),
    one("a payload may not end in LF", QUIET + b"SUB a 1\nPUB a 2\nhi\nPING\r\n"),
    one("blanks and tabs", QUIET + b"SUB \t a  \t 1 \r\nPUB\ta\t2\t\r\nhi\r\n"),
    one("an empty line", QUIET + b"\r\n"),
    one("MSG of a client", QUIET + b"MSG a 1 2\r\nhi\r\n"),
    one("HMSG of a client", QUIET + b"HMSG a 1 2 2\r\nhi\r\n"),
    one("RMSG of a client", QUIET + b"RMSG a 1 2\r\nhi\r\n"),
    one("INFO of a client", QUIET + b"INFO {}\r\nPING\r\n"),
    # --- SUB and UNSUB
    one("SUB with one argument", QUIET + b"SUB a\r\n"),
    one("SUB with four arguments", QUIET + b"SUB a b c d\r\n"),
    one("SUB without arguments", QUIET + b"SUB \r\n"),
    one("SUB with an empty token", QUIET + b"SUB a..b 1\r\nSUB .a 2\r\nSUB a. 3\r\nPING\r\n"),
    one("SUB with a tail inside", QUIET + b"SUB a.>.b 1\r\nPING\r\n"),
    one("SUB with nothing but dots", QUIET + b"SUB . 1\r\nSUB .. 2\r\nSUB *. 3\r\nSUB >. 4\r\nPING\r\n"),
    one("SUB with bytes of any kind", QUIET + b"SUB \xff\x00.\xc3\xa9 1\r\nPUB \xff\x00.\xc3\xa9 1\r\nx\r\n"),
    one("SUB with 300 tokens", QUIET + b"SUB a" + b".a" * 299 + b" 1\r\nPUB a" + b".a" * 299 + b" 1\r\nx\r\n"),
    one(
        "SUB with what the server has for itself",
        QUIET + b"SUB _R_.> 1\r\nSUB $GR.x 2\r\nSUB $NRG.> 3\r\nSUB $SYS.> 4\r\n",
    ),
    one("SUB just not too long", QUIET + b"SUB " + b"a" * 4094 + b" 1\r\nPING\r\n"),
    one("a queue may be called anything", QUIET + b"SUB a *.> 1\r\nPUB a 1\r\nx\r\n"),
    one(
        "SUB with wildcards that are none",
        QUIET + b"SUB foo* 1\r\nSUB >> 2\r\nSUB a.** 3\r\n"
        b"PUB foo* 1\r\na\r\nPUB foox 1\r\nb\r\nPUB >> 1\r\nc\r\nPUB a.** 1\r\nd\r\nPUB a.b 1\r\ne\r\n",
    ),
    one("a sid in use", QUIET + b"SUB a 1\r\nSUB b 1\r\nPUB a 1\r\nx\r\nPUB b 1\r\ny\r\n"),
    one("a sid in use, confirmed", b"CONNECT {}\r\nSUB a 1\r\nSUB b 1\r\n"),
    one("a sid of letters", QUIET + b"SUB a abc\r\nPUB a 1\r\nx\r\n"),
    one("UNSUB", QUIET + b"SUB a 1\r\nPUB a 1\r\nx\r\nUNSUB 1\r\nPUB a 1\r\ny\r\n"),
    one("UNSUB of what is not there", QUIET + b"UNSUB 9\r\nPING\r\n"),
    one("UNSUB with three arguments", QUIET + b"UNSUB a b c\r\n"),
    one("UNSUB without arguments", QUIET + b"UNSUB \r\n"),
    one("UNSUB after some", QUIET + b"SUB a 1\r\nUNSUB 1 2\r\n" + b"PUB a 1\r\nx\r\n" * 4),
    one(
        "UNSUB after what has come already",
        QUIET + b"SUB a 1\r\n" + b"PUB a 1\r\nx\r\n" * 3 + b"UNSUB 1 2\r\n" + b"PUB a 1\r\ny\r\n",
    ),
    one(
        "UNSUB counts from the beginning",
        QUIET + b"SUB a 1\r\n" + b"PUB a 1\r\nx\r\n" * 2 + b"UNSUB 1 3\r\n" + b"PUB a 1\r\ny\r\n" * 3,
    ),
    one("UNSUB with a bad number is now", QUIET + b"SUB a 1\r\nUNSUB 1 x\r\nPUB a 1\r\ny\r\n"),
    one("UNSUB with a negative number is now", QUIET + b"SUB a 1\r\nUNSUB 1 -1\r\nPUB a 1\r\ny\r\n"),
    one("UNSUB with 0 is now", QUIET + b"SUB a 1\r\nUNSUB 1 0\r\nPUB a 1\r\ny\r\n"),
    one("UNSUB with twenty digits", QUIET + b"SUB a 1\r\nUNSUB 1 99999999999999999999\r\nPUB a 1\r\ny\r\n"),
    one("UNSUB of a queue's member after some", QUIET + b"SUB a q 1\r\nUNSUB 1 2\r\n" + b"PUB a 1\r\nx\r\n" * 4),
    one("UNSUB may be said again", QUIET + b"SUB a 1\r\nUNSUB 1 1\r\nUNSUB 1 3\r\n" + b"PUB a 1\r\ny\r\n" * 4),
    one("a sid may be used anew", QUIET + b"SUB a 1\r\nUNSUB 1\r\nSUB b 1\r\nPUB b 1\r\nx\r\n"),
    # --- PUB
    one("PUB without arguments", QUIET + b"PUB \r\n"),
    one("PUB with one argument", QUIET + b"PUB a\r\n"),
    one("PUB with four arguments", QUIET + b"PUB a b c 1\r\nx\r\n"),
    one("PUB with a bad size", QUIET + b"PUB a x\r\n"),
    one("PUB with a sign", QUIET + b"PUB a +1\r\nx\r\n"),
    one("PUB with a size of zeros", QUIET + b"SUB a 1\r\nPUB a 000000000\r\n\r\n"),
    one("PUB with a negative size", QUIET + b"PUB a -1\r\n"),
    one("PUB with a size of ten digits", QUIET + b"PUB a 1000000000\r\n"),
    one("PUB with a size of nine digits", QUIET + b"PUB a 000000001\r\nx\r\n"),
    one("a size is echoed as it came", QUIET + b"SUB a 1\r\nPUB a 0002\r\nhi\r\n"),
    one("an empty payload", QUIET + b"SUB a 1\r\nPUB a 0\r\n\r\n"),
    one("a reply", QUIET + b"SUB a 1\r\nPUB a r.1 2\r\nhi\r\n"),
    one("a payload that does not end", QUIET + b"PUB a 2\r\nhixx"),
    one("a payload that ends in CR and something", QUIET + b"PUB a 2\r\nhi\rx"),
    one(
        "PUB to an empty token",
        QUIET + b"SUB > 1\r\nPUB a..b 1\r\nx\r\nPUB .a 1\r\nx\r\nPUB a. 1\r\nx\r\nPUB b 1\r\ny\r\n",
    ),
    one("PUB to a wildcard", QUIET + b"SUB foo.* 1\r\nSUB foo.bar 2\r\nPUB foo.* 1\r\nx\r\n"),
    one(
        "PUB to a wildcard, pedantic",
        b'CONNECT {"verbose":false,"pedantic":true}\r\nSUB foo.* 1\r\nPUB foo.* 1\r\nx\r\n',
    ),
    one("PUB too large", QUIET + b"PUB a 1048577\r\n"),
    one("a control line too long", QUIET + b"PUB " + b"a" * 4097 + b" 1\r\nx\r\n"),
    one("a control line just not too long", QUIET + b"SUB > 1\r\nPUB " + b"a" * 4094 + b" 1\r\nx\r\n"),
    one("a control line too long without an end", QUIET + b"SUB " + b"a" * 5000),
    one("without echo", b'CONNECT {"verbose":false,"echo":false}\r\nSUB a 1\r\nPUB a 1\r\nx\r\n'),
    one(
        "a reserved reply",
        QUIET + b"SUB a 1\r\nPUB a _R_.x 1\r\nx\r\nPUB a $JS.ACK.x 1\r\nx\r\nPUB a _GR_.x 1\r\nx\r\n",
    ),
    one("a reserved reply, confirmed", b"CONNECT {}\r\nPUB a _R_.x 1\r\nx\r\n"),
    one("a reserved subject", QUIET + b"PUB _GR_.x 1\r\nx\r\nPUB $NRG.x 1\r\nx\r\n"),
    one(
        "what only looks reserved",
        QUIET + b"SUB a 1\r\nPUB a $GR 1\r\nx\r\nPUB a _R_ 1\r\ny\r\nPUB $NRG 1\r\nz\r\n"
        b"PUB _R_.x 1\r\nx\r\nPUB $JS.ACK.x 1\r\nx\r\n",
    ),
    one("the other reserved ones", QUIET + b"PUB a $GR.x 1\r\nx\r\nPUB $GR.x 1\r\nx\r\n"),
    # --- headers
    one("HPUB without having said headers", QUIET + b"HPUB a 2 4\r\nhixx\r\n"),
    one("HPUB", HEADERS + b"SUB a 1\r\nHPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"),
    one("HPUB with a reply", HEADERS + b"SUB a 1\r\nHPUB a r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"),
    one("HPUB without headers in it", HEADERS + b"SUB a 1\r\nHPUB a 0 2\r\nhi\r\n"),
    one("HPUB whose header is larger than all", HEADERS + b"HPUB a 5 4\r\nhixx\r\n"),
    one("HPUB with a bad size", HEADERS + b"HPUB a x 4\r\nhixx\r\n"),
    one("HPUB with too few arguments", HEADERS + b"HPUB a 4\r\nhixx\r\n"),
    one("HPUB with too many arguments", HEADERS + b"HPUB a b c 12 13\r\nNATS/1.0\r\n\r\nx\r\n"),
    one("HPUB whose sizes begin with zeros", HEADERS + b"SUB a 1\r\nHPUB a 0012 0013\r\nNATS/1.0\r\n\r\nx\r\n"),
    one("HPUB too large", HEADERS + b"HPUB a 12 1048577\r\n"),
    one(
        "HPUB to a wildcard, pedantic",
        b'CONNECT {"verbose":false,"pedantic":true,"headers":true}\r\n'
        b"SUB a.* 1\r\nHPUB a.* 12 13\r\nNATS/1.0\r\n\r\nx\r\n",
    ),
    one("header bytes are not looked at", HEADERS + b"SUB a 1\r\nHPUB a 3 5\r\nxyzhi\r\n"),
    Scene(
        "a client without headers gets the message without",
        (
            (0, HEADERS),
            (1, QUIET + b"SUB a 7\r\n"),
            (0, b"HPUB a r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"),
        ),
    ),
    # --- messages that are only traced: the trace itself is for nobody here
    one(
        "only traced",
        HEADERS
        + b"SUB a 1\r\n"
        + traced("a", b"Nats-Trace-Dest: t", b"Nats-Trace-Only: true")
        + traced("a", b"Nats-Trace-Dest:t", b"Nats-Trace-Only: \tON ", b"x: y")
        + traced("a", b"Nats-Trace-Only: 1", b"Nats-Trace-Dest: t"),
    ),
    one(
        "traced and delivered",
        HEADERS
        + b"SUB a 1\r\n"
        + traced("a", b"Nats-Trace-Dest: t")
        + traced("a", b"Nats-Trace-Dest: t", b"Nats-Trace-Only: false")
        + traced("a", b"Nats-Trace-Dest: t", b"Nats-Trace-Only:", b"x: y"),
    ),
    one(
        "traced to nowhere",
        HEADERS
        + b"SUB a 1\r\n"
        + traced("a", b"Nats-Trace-Only: true")
        + traced("a", b"Nats-Trace-Dest:", b"Nats-Trace-Only: true")
        + traced("a", b"Nats-Trace-Dest: trace disabled", b"Nats-Trace-Only: true")
        + traced("a", b"nats-trace-dest: t", b"Nats-Trace-Only: true"),
    ),
    one(
        "only traced, confirmed",
        b'CONNECT {"headers":true}\r\nSUB a 1\r\n' + traced("a", b"Nats-Trace-Dest: t", b"Nats-Trace-Only: true"),
    ),
    one(
        "only traced, and somebody is there",
        HEADERS + b"SUB in.* 1\r\nSUB a 2\r\n" + traced("a in.1", b"Nats-Trace-Dest: t", b"Nats-Trace-Only: true"),
    ),
    one(
        "only traced, and nobody is there",
        HEADERS + b"SUB in.* 1\r\n" + traced("a in.1", b"Nats-Trace-Dest: t", b"Nats-Trace-Only: true"),
    ),
    # --- no responders
    one("nobody is there", HEADERS + b"SUB in.* 1\r\nPUB nobody in.1 2\r\nhi\r\n"),
    one("nobody is there and nobody listens", HEADERS + b"PUB nobody in.1 2\r\nhi\r\n"),
    one("nobody is there, and a queue listens", HEADERS + b"SUB in.* q 1\r\nPUB nobody in.1 2\r\nhi\r\n"),
    one("nobody is there for headers", HEADERS + b"SUB in.* 1\r\nHPUB nobody in.1 12 13\r\nNATS/1.0\r\n\r\nx\r\n"),
    one(
        "nobody is there, confirmed",
        b'CONNECT {"verbose":true,"headers":true,"no_responders":true}\r\nSUB in.* 1\r\nPUB nobody in.1 1\r\nx\r\n',
    ),
    one("nobody is at a subject that is none", HEADERS + b"SUB in.* 1\r\nPUB a..b in.1 1\r\nx\r\n"),
    one(
        "nobody is there, and who does not want to know",
        b'CONNECT {"verbose":false,"headers":true}\r\nSUB in.* 1\r\nPUB nobody in.1 1\r\nx\r\n',
    ),
    one(
        "503 does not count",
        HEADERS + b"SUB in.* 1\r\nUNSUB 1 1\r\nPUB nobody in.1 2\r\nhi\r\n"
        b"PUB nobody in.1 2\r\nhi\r\n"
        b"PUB in.2 1\r\nx\r\nPUB in.2 1\r\nx\r\n",
    ),
    one("oneself is somebody", HEADERS + b"SUB in.* 1\r\nSUB me 2\r\nPUB me in.1 2\r\nhi\r\n"),
    one(
        "oneself without echo is nobody",
        b'CONNECT {"verbose":false,"echo":false,"headers":true,"no_responders":true}\r\n'
        b"SUB in.* 1\r\nSUB me 2\r\nPUB me in.1 2\r\nhi\r\n",
    ),
    # --- wildcards, queues, several clients
    Scene(
        "wildcards",
        (
            (0, QUIET + b"SUB a.* 1\r\nSUB a.> 2\r\nSUB *.b 3\r\nSUB > 4\r\nSUB a.b.c 5\r\n"),
            (1, QUIET + b"PUB a.b.c.d 1\r\nx\r\n"),
            (1, b"PUB z 1\r\ny\r\n"),
        ),
    ),
    Scene(
        "a queue has one of its members",
        (
            (0, QUIET + b"SUB a q 1\r\n"),
            (1, QUIET + b"PUB a 1\r\nx\r\nPUB a 1\r\ny\r\n"),
        ),
    ),
    Scene(
        "without echo in a queue",
        (
            (0, b'CONNECT {"verbose":false,"echo":false}\r\nSUB a q 1\r\nPUB a 1\r\ny\r\n'),
            (1, QUIET + b"SUB a q 2\r\n"),
            (0, b"PUB a 1\r\nz\r\n" * 3),
        ),
    ),
    Scene(
        "without echo others are heard",
        (
            (0, b'CONNECT {"verbose":false,"echo":false}\r\nSUB a 1\r\n'),
            (1, QUIET + b"PUB a 1\r\nx\r\n"),
        ),
    ),
    Scene(
        "order of one publisher",
        (
            (0, QUIET + b"SUB a 1\r\n"),
            (1, QUIET + b"".join(b"PUB a 3\r\n%03d\r\n" % n for n in range(50))),
        ),
    ),
    Scene(
        "what a client had goes with it",
        (
            (0, QUIET + b"SUB a 1\r\n"),
            (1, QUIET + b"SUB a 1\r\n"),
            (0, b"BYE\r\n"),
            (1, b"PUB a 1\r\nx\r\n"),
        ),
    ),
)
