"""Every command in right and wrong states, every error byte for byte, and whether it closes the connection."""

from __future__ import annotations

import pytest

from tests.nsq import frames
from tests.nsq.frames import ERROR, OK, RESPONSE, Frame, error, size
from tests.nsq.servers import NsqServer
from tests.nsq.wire import Wire, consumer, unique_topic

SOME_ID = b"0123456789abcdef"
MAX_MSG_SIZE = 1024 * 1024
MAX_BODY_SIZE = 5 * 1024 * 1024
MAX_MPUB_COUNT = (MAX_BODY_SIZE - 4) // 5

# Names that are refused, and how an error shows them: as Go's %q does.
BAD_NAMES = {
    b"": r'""',
    b"a:b": r'"a:b"',
    b"a/b": r'"a/b"',
    b"*": r'"*"',
    b"a" * 65: '"' + "a" * 65 + '"',
    b"a" * 55 + b"#ephemeral": '"' + "a" * 55 + '#ephemeral"',
    b"#ephemeral": r'"#ephemeral"',
    b"a#ephemera": r'"a#ephemera"',
    b"a#ephemeral2": r'"a#ephemeral2"',
    b"a#ephemeral#ephemeral": r'"a#ephemeral#ephemeral"',
    b'a"b': r'"a\"b"',
    b"a\\b": r'"a\\b"',
    b"a\tb": r'"a\tb"',
    b"a\rb": r'"a\rb"',
    b"a\x00\x01b": r'"a\x00\x01b"',
    b"a\x7f": r'"a\x7f"',
    b"a\xff": r'"a\xff"',
    "zoë".encode(): '"zoë"',
    "話題".encode(): '"話題"',
}
GOOD_NAMES = ["a", "A.b_c-9", "." * 3, "-", "a" * 64, "a" * 54 + "#ephemeral", "x#ephemeral"]

# In which state a command is sent.
STATES = ["new", "identified", "subscribed", "closing"]


def in_state(server: NsqServer, state: str, topic: str) -> Wire:
    wire = Wire(server)
    if state != "new":
        wire.identify()
    if state in ("subscribed", "closing"):
        wire.subscribe(topic, "ch")
    if state == "closing":
        assert wire.ask("CLS\n") == Frame(RESPONSE, b"CLOSE_WAIT")
    return wire


class TestMagic:
    def test_version_2_is_spoken(self, wire: Wire, topic: str) -> None:
        wire.publish(topic, b"x")

    @pytest.mark.parametrize("magic", [b"  V1", b"  V3", b"V2  ", b"GET ", b"\0\0\0\0", b"PUB "])
    def test_another_is_refused(self, server: NsqServer, magic: bytes) -> None:
        with Wire(server, magic=magic) as wire:
            assert wire.frame() == error("E_BAD_PROTOCOL")
            assert wire.is_closed()

    def test_it_may_come_in_pieces(self, server: NsqServer, topic: str) -> None:
        with Wire(server, magic=b" ") as wire:
            assert wire.is_quiet(0.02)
            wire.send(b" V")
            assert wire.is_quiet(0.02)
            wire.send(b"2" + frames.pub(topic, b"x"))
            assert wire.frame() == OK

    @pytest.mark.parametrize("magic", [b"", b"  V", b"  V2"])
    def test_a_client_that_leaves_early_hurts_nobody(self, server: NsqServer, topic: str, magic: bytes) -> None:
        with Wire(server, magic=magic) as wire:
            wire.end_sending()
            assert wire.is_closed()
        with Wire(server) as wire:
            wire.publish(topic, b"x")


class TestLines:
    @pytest.mark.parametrize(
        ("line", "shown"),
        [
            (b"\n", b""), (b"\r\n", b""), (b" \n", b""), (b" NOP\n", b""), (b"nop\n", b"nop"), (b"Pub t\n", b"Pub"),
            (b"FOO\n", b"FOO"), (b"FOO bar\n", b"FOO"), (b"NOP\t\n", b"NOP\t"), (b"NOPE\n", b"NOPE"),
            (b"PU\n", b"PU"), (b"\xff\x00\n", b"\xff\x00"), (b"FOO\r\r\n", b"FOO\r"), (b"GET / HTTP/1.1\r\n", b"GET"),
            (b"X" * 1000 + b"\n", b"X" * 1000),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("state", STATES)
    def test_what_is_no_command_is_fatal(
        self, server: NsqServer, topic: str, state: str, line: bytes, shown: bytes
    ) -> None:
        with in_state(server, state, topic) as wire:
            wire.fails(line, b"E_INVALID invalid command " + shown)

    def test_a_line_may_end_with_cr_lf(self, wire: Wire, topic: str) -> None:
        wire.send(b"NOP\r\n")
        assert wire.ask(b"PUB %s\r\n\0\0\0\1x" % topic.encode()) == OK
        assert wire.ask(b"SUB %s ch\r\n" % topic.encode()) == OK
        wire.send(b"RDY 1\r\n")
        message = wire.message()
        wire.send(b"FIN %s\r\n" % message.id)
        assert wire.is_not_in_flight(message)

    def test_a_line_without_an_end_is_cut_off(self, wire: Wire) -> None:
        """nsqd's buffer is 16 KiB, and it closes without a word; an error before that is as good."""
        wire.send(b"PUB " + b"x" * 20_000)
        assert all(frame.kind == ERROR for frame in wire.frames_until_close())

    @pytest.mark.parametrize("state", STATES)
    def test_nop_has_no_answer(self, server: NsqServer, topic: str, state: str) -> None:
        with in_state(server, state, topic) as wire:
            wire.send(b"NOP\nNOP with parameters\n" * 100 + frames.pub(topic, b"x"))
            assert wire.frame() == OK
            assert wire.is_quiet(0.02)

    def test_more_parameters_than_needed_are_ignored(self, wire: Wire, topic: str) -> None:
        t = topic.encode()
        assert wire.ask(b"IDENTIFY again and again\n\0\0\0\2{}") == OK
        assert wire.ask(b"PUB %s more\n\0\0\0\1x" % t) == OK
        assert wire.ask(b"DPUB %s 0 more\n\0\0\0\1y" % t) == OK
        assert wire.ask(b"MPUB %s more\n\0\0\0\x09\0\0\0\1\0\0\0\1z" % t) == OK
        assert wire.ask(b"SUB %s ch more\n" % t) == OK
        wire.send(b"RDY 3 more\n")
        first, second, third = wire.messages(3)
        wire.send(b"TOUCH %s more\nFIN %s more\nREQ %s 0 more\n" % (third.id, first.id, second.id))
        assert wire.message().id == second.id
        assert wire.ask("CLS more\n") == Frame(RESPONSE, b"CLOSE_WAIT")


class TestIdentifyErrors:
    @pytest.mark.parametrize("state", ["subscribed", "closing"])
    def test_not_after_sub(self, server: NsqServer, topic: str, state: str) -> None:
        with in_state(server, state, topic) as wire:
            wire.fails(frames.identify(), "E_INVALID cannot IDENTIFY in current state")

    @pytest.mark.parametrize(
        ("claimed", "text"),
        [
            (0, "invalid body size 0"), (-1, "invalid body size -1"),
            (-(1 << 31), "invalid body size -2147483648"),
            (MAX_BODY_SIZE + 1, f"body too big {MAX_BODY_SIZE + 1} > {MAX_BODY_SIZE}"),
            ((1 << 31) - 1, f"body too big 2147483647 > {MAX_BODY_SIZE}"),
        ],
    )  # fmt: skip
    def test_size(self, wire: Wire, claimed: int, text: str) -> None:
        wire.fails(b"IDENTIFY\n" + size(claimed), f"E_BAD_BODY IDENTIFY {text}")


class TestSub:
    def test_ok(self, wire: Wire, topic: str) -> None:
        assert wire.ask(frames.sub(topic, "ch")) == OK

    @pytest.mark.parametrize("state", ["subscribed", "closing"])
    def test_once_only(self, server: NsqServer, topic: str, state: str) -> None:
        with in_state(server, state, topic) as wire:
            wire.fails(frames.sub(topic, "other"), "E_INVALID cannot SUB in current state")

    @pytest.mark.parametrize("line", ["SUB\n", "SUB topic\n"])
    def test_parameters(self, wire: Wire, line: str) -> None:
        wire.fails(line, "E_INVALID SUB insufficient number of parameters")

    @pytest.mark.parametrize("name", BAD_NAMES)
    def test_bad_topic(self, wire: Wire, name: bytes) -> None:
        wire.fails(b"SUB %s ch\n" % name, f"E_BAD_TOPIC SUB topic name {BAD_NAMES[name]} is not valid")

    @pytest.mark.parametrize("name", BAD_NAMES)
    def test_bad_channel(self, wire: Wire, topic: str, name: bytes) -> None:
        wire.fails(
            b"SUB %s %s\n" % (topic.encode(), name), f"E_BAD_CHANNEL SUB channel name {BAD_NAMES[name]} is not valid"
        )

    def test_the_topic_is_looked_at_first(self, wire: Wire) -> None:
        wire.fails("SUB * *\n", 'E_BAD_TOPIC SUB topic name "*" is not valid')

    @pytest.mark.parametrize("name", GOOD_NAMES)
    def test_good_names(self, server: NsqServer, topic: str, name: str) -> None:
        with Wire(server) as wire, Wire(server) as other:
            assert wire.ask(frames.sub(topic, name)) == OK
            assert other.ask(frames.sub(name, "ch")) == OK

    def test_not_without_heartbeats(self, wire: Wire, topic: str) -> None:
        wire.identify(heartbeat_interval=-1)
        wire.fails("SUB\n", "E_INVALID cannot SUB with heartbeats disabled")

    @pytest.mark.parametrize("command", ["SUB t ch\n", "SUB * *\n"])
    def test_state_is_looked_at_before_names(self, server: NsqServer, topic: str, command: str) -> None:
        with in_state(server, "subscribed", topic) as wire:
            wire.fails(command, "E_INVALID cannot SUB in current state")


class TestPub:
    @pytest.mark.parametrize("state", STATES)
    def test_in_every_state(self, server: NsqServer, topic: str, state: str) -> None:
        with in_state(server, state, topic) as wire:
            wire.publish(topic, b"x")
            wire.publish_many(topic, [b"y", b"z"])
            wire.publish_deferred(topic, 0, b"w")

    def test_parameters(self, wire: Wire) -> None:
        wire.fails("PUB\n", "E_INVALID PUB insufficient number of parameters")

    @pytest.mark.parametrize("name", BAD_NAMES)
    def test_bad_topic(self, wire: Wire, name: bytes) -> None:
        wire.fails(b"PUB %s\n" % name, f"E_BAD_TOPIC PUB topic name {BAD_NAMES[name]} is not valid")

    @pytest.mark.parametrize("name", GOOD_NAMES)
    def test_good_names(self, wire: Wire, name: str) -> None:
        wire.publish(name, b"x")

    @pytest.mark.parametrize(
        ("claimed", "text"),
        [
            (0, "PUB invalid message body size 0"), (-1, "PUB invalid message body size -1"),
            (-(1 << 31), "PUB invalid message body size -2147483648"),
            (MAX_MSG_SIZE + 1, f"PUB message too big {MAX_MSG_SIZE + 1} > {MAX_MSG_SIZE}"),
            ((1 << 31) - 1, f"PUB message too big 2147483647 > {MAX_MSG_SIZE}"),
        ],
    )  # fmt: skip
    def test_size(self, wire: Wire, topic: str, claimed: int, text: str) -> None:
        wire.fails(f"PUB {topic}\n".encode() + size(claimed), f"E_BAD_MESSAGE {text}")


class TestDpub:
    @pytest.mark.parametrize("line", ["DPUB\n", "DPUB topic\n"])
    def test_parameters(self, wire: Wire, line: str) -> None:
        wire.fails(line, "E_INVALID DPUB insufficient number of parameters")

    @pytest.mark.parametrize("name", BAD_NAMES)
    def test_bad_topic(self, wire: Wire, name: bytes) -> None:
        wire.fails(b"DPUB %s 1\n" % name, f"E_BAD_TOPIC DPUB topic name {BAD_NAMES[name]} is not valid")

    @pytest.mark.parametrize("timeout", ["abc", "-1", "+1", "1.5", "1s", "0x1", "1 "[:1] + "\t"])
    def test_timeout_that_is_no_number(self, wire: Wire, topic: str, timeout: str) -> None:
        wire.fails(f"DPUB {topic} {timeout}\n", f"E_INVALID DPUB could not parse timeout {timeout}")

    @pytest.mark.parametrize("timeout", [3_600_001, 1 << 40])
    def test_timeout_out_of_range(self, wire: Wire, topic: str, timeout: int) -> None:
        wire.fails(f"DPUB {topic} {timeout}\n", f"E_INVALID DPUB timeout {timeout} out of range 0-3600000")

    @pytest.mark.parametrize("timeout", ["0", "000", "1", "3600000", "00003600000"])
    def test_timeout_in_range(self, wire: Wire, topic: str, timeout: str) -> None:
        assert wire.ask(f"DPUB {topic} {timeout}\n".encode() + frames.sized(b"x")) == OK

    def test_an_empty_timeout_is_0(self, wire: Wire, topic: str) -> None:
        assert wire.ask(f"DPUB {topic} \n".encode() + frames.sized(b"x")) == OK

    @pytest.mark.parametrize(
        ("claimed", "text"),
        [
            (0, "DPUB invalid message body size 0"), (-1, "DPUB invalid message body size -1"),
            (MAX_MSG_SIZE + 1, f"DPUB message too big {MAX_MSG_SIZE + 1} > {MAX_MSG_SIZE}"),
        ],
    )  # fmt: skip
    def test_size(self, wire: Wire, topic: str, claimed: int, text: str) -> None:
        wire.fails(f"DPUB {topic} 5\n".encode() + size(claimed), f"E_BAD_MESSAGE {text}")


class TestMpub:
    def test_parameters(self, wire: Wire) -> None:
        wire.fails("MPUB\n", "E_INVALID MPUB insufficient number of parameters")

    @pytest.mark.parametrize("name", BAD_NAMES)
    def test_bad_topic(self, wire: Wire, name: bytes) -> None:
        """nsqd says the error's name twice."""
        wire.fails(b"MPUB %s\n" % name, f"E_BAD_TOPIC E_BAD_TOPIC MPUB topic name {BAD_NAMES[name]} is not valid")

    @pytest.mark.parametrize(
        ("claimed", "text"),
        [
            (0, "invalid body size 0"), (-1, "invalid body size -1"),
            (MAX_BODY_SIZE + 1, f"body too big {MAX_BODY_SIZE + 1} > {MAX_BODY_SIZE}"),
        ],
    )  # fmt: skip
    def test_body_size(self, wire: Wire, topic: str, claimed: int, text: str) -> None:
        wire.fails(f"MPUB {topic}\n".encode() + size(claimed), f"E_BAD_BODY MPUB {text}")

    @pytest.mark.parametrize("count", [0, -1, -(1 << 31), MAX_MPUB_COUNT + 1, (1 << 31) - 1])
    def test_count(self, wire: Wire, topic: str, count: int) -> None:
        wire.fails(
            f"MPUB {topic}\n".encode() + size(1000) + size(count), f"E_BAD_BODY MPUB invalid message count {count}"
        )

    @pytest.mark.parametrize(
        ("claimed", "text"),
        [
            (0, "MPUB invalid message(2) body size 0"), (-1, "MPUB invalid message(2) body size -1"),
            (MAX_MSG_SIZE + 1, f"MPUB message too big {MAX_MSG_SIZE + 1} > {MAX_MSG_SIZE}"),
        ],
    )  # fmt: skip
    def test_one_bad_size_and_none_is_taken(self, server: NsqServer, topic: str, claimed: int, text: str) -> None:
        content = size(4) + frames.sized(b"1") + frames.sized(b"2") + size(claimed) + b"3" + frames.sized(b"4")
        with Wire(server) as wire, consumer(server, topic, rdy=10) as reader:
            assert wire.ask(f"MPUB {topic}\n".encode() + frames.sized(content)) == error(f"E_BAD_MESSAGE {text}")
            assert wire.is_closed()
            with Wire(server) as other:
                other.publish(topic, b"the only one")
            assert reader.message().body == b"the only one"
            assert reader.is_quiet()

    def test_one_that_is_cut_off_is_not_taken(self, server: NsqServer, topic: str) -> None:
        command = frames.mpub(topic, [b"1", b"2", b"3"])
        with consumer(server, topic, rdy=10) as reader:
            for cut in range(len(command)):
                with Wire(server) as wire:
                    wire.send(command[:cut])
                    wire.end_sending()
                    assert all(frame.kind == ERROR for frame in wire.frames_until_close())
            assert reader.is_quiet()
            with Wire(server) as other:
                other.publish(topic, b"the only one")
            assert reader.message().body == b"the only one"

    def test_the_greatest_body(self, server: NsqServer, topic: str) -> None:
        """Five messages of nearly the greatest size fill the greatest body to the last byte."""
        sizes = [MAX_MSG_SIZE] * 4
        sizes.append(MAX_BODY_SIZE - 4 - 4 * 5 - sum(sizes))
        bodies = [bytes([n]) * length for n, length in enumerate(sizes)]
        assert len(frames.mpub("t", bodies)) == len("MPUB t\n") + 4 + MAX_BODY_SIZE
        with Wire(server) as wire, consumer(server, topic, rdy=10) as reader:
            wire.publish_many(topic, bodies)
            assert [message.body for message in reader.messages(5)] == bodies


class TestRdy:
    @pytest.mark.parametrize("state", ["new", "identified"])
    def test_not_before_sub(self, server: NsqServer, topic: str, state: str) -> None:
        with in_state(server, state, topic) as wire:
            wire.fails("RDY 1\n", "E_INVALID cannot RDY in current state")

    @pytest.mark.parametrize("count", ["abc", "-1", "+1", "1.0", "0x1", "1k"])
    def test_no_number(self, server: NsqServer, topic: str, count: str) -> None:
        with in_state(server, "subscribed", topic) as wire:
            wire.fails(f"RDY {count}\n", f"E_INVALID RDY could not parse count {count}")

    @pytest.mark.parametrize("count", [2501, 1 << 40])
    def test_out_of_range(self, server: NsqServer, topic: str, count: int) -> None:
        with in_state(server, "subscribed", topic) as wire:
            wire.fails(f"RDY {count}\n", f"E_INVALID RDY count {count} out of range 0-2500")

    @pytest.mark.parametrize("count", ["0", "1", "2500", "0002500", ""])
    def test_in_range_has_no_answer(self, server: NsqServer, topic: str, count: str) -> None:
        with in_state(server, "subscribed", topic) as wire:
            wire.send(f"RDY {count}\n".encode())
            wire.publish(unique_topic(), b"x")

    def test_without_a_count_it_is_1(self, server: NsqServer, topic: str) -> None:
        with consumer(server, topic) as wire, Wire(server) as producer:
            producer.publish(topic, b"1", b"2")
            wire.send(b"RDY\n")
            assert wire.message().body == b"1"
            assert wire.is_quiet()

    def test_after_cls_it_is_ignored(self, server: NsqServer, topic: str) -> None:
        with in_state(server, "closing", topic) as wire:
            wire.send(b"RDY 5\nRDY nonsense\nRDY 99999\n")
            wire.publish(topic, b"x")
            assert wire.is_quiet()


MESSAGE_COMMANDS = {"FIN": "", "REQ": " 0", "TOUCH": ""}


@pytest.mark.parametrize("command", MESSAGE_COMMANDS)
class TestFinReqTouch:
    @pytest.mark.parametrize("state", ["new", "identified"])
    def test_not_before_sub(self, server: NsqServer, topic: str, command: str, state: str) -> None:
        with in_state(server, state, topic) as wire:
            wire.fails(f"{command}\n", f"E_INVALID cannot {command} in current state")

    @pytest.mark.parametrize("state", ["subscribed", "closing"])
    def test_parameters(self, server: NsqServer, topic: str, command: str, state: str) -> None:
        with in_state(server, state, topic) as wire:
            wire.fails(f"{command}\n", f"E_INVALID {command} insufficient number of params")

    @pytest.mark.parametrize("message_id", ["", "0", SOME_ID.decode()[:15], SOME_ID.decode() + "0"])
    def test_an_id_of_another_length(self, server: NsqServer, topic: str, command: str, message_id: str) -> None:
        with in_state(server, "subscribed", topic) as wire:
            wire.fails(f"{command} {message_id}{MESSAGE_COMMANDS[command]}\n", "E_INVALID invalid message ID")

    @pytest.mark.parametrize(
        "message_id", [SOME_ID, b"0" * 16, b"f" * 16, b"F" * 16, b"z" * 16, b"\xff\0" * 8, b"-000000000000001"]
    )
    @pytest.mark.parametrize("state", ["subscribed", "closing"])
    def test_an_unknown_id_is_not_fatal(
        self, server: NsqServer, topic: str, command: str, state: str, message_id: bytes
    ) -> None:
        with in_state(server, state, topic) as wire:
            c = command.encode()
            asked = wire.ask(b"%s %s%s\n" % (c, message_id, MESSAGE_COMMANDS[command].encode()))
            assert asked == error(b"E_%s_FAILED %s %s failed ID not in flight" % (c, c, message_id))
            wire.publish(topic, b"goes on")

    def test_another_clients_message_is_not_fatal(self, server: NsqServer, topic: str, command: str) -> None:
        with consumer(server, topic, rdy=1) as owner, consumer(server, topic) as other:
            other.publish(topic, b"x")
            message = owner.message()
            asked = other.ask(f"{command} {message.id.decode()}{MESSAGE_COMMANDS[command]}\n")
            text = f"E_{command}_FAILED {command} {message.id.decode()} failed client does not own message"
            assert asked == error(text)
            other.publish(topic, b"goes on")
            owner.fin(message)
            assert owner.message().body == b"goes on", "it was the owner's all the time"

    @pytest.mark.parametrize("before", ["FIN", "REQ"])
    def test_what_is_no_longer_in_flight(self, server: NsqServer, topic: str, command: str, before: str) -> None:
        with consumer(server, topic, rdy=1) as wire:
            wire.publish(topic, b"x")
            message = wire.message()
            wire.rdy(0)
            asked = wire.ask(
                f"{before} {message.id.decode()}{MESSAGE_COMMANDS[before]}\n"
                f"{command} {message.id.decode()}{MESSAGE_COMMANDS[command]}\n"
            )
            assert asked == error(f"E_{command}_FAILED {command} {message.id.decode()} failed ID not in flight")
            wire.publish(topic, b"goes on")

    def test_another_channels_message(self, server: NsqServer, topic: str, command: str) -> None:
        """It is in flight there, not here."""
        with consumer(server, topic, "a", rdy=1) as owner, consumer(server, topic, "b") as other:
            other.publish(topic, b"x")
            message = owner.message()
            asked = other.ask(f"{command} {message.id.decode()}{MESSAGE_COMMANDS[command]}\n")
            assert asked == error(f"E_{command}_FAILED {command} {message.id.decode()} failed ID not in flight")


class TestReq:
    @pytest.mark.parametrize("line", [f"REQ {SOME_ID.decode()}\n", "REQ x\n"])
    def test_parameters(self, server: NsqServer, topic: str, line: str) -> None:
        with in_state(server, "subscribed", topic) as wire:
            wire.fails(line, "E_INVALID REQ insufficient number of params")

    @pytest.mark.parametrize("timeout", ["abc", "-1", "1.5", "1s"])
    def test_timeout_that_is_no_number(self, server: NsqServer, topic: str, timeout: str) -> None:
        with in_state(server, "subscribed", topic) as wire:
            wire.fails(f"REQ {SOME_ID.decode()} {timeout}\n", f"E_INVALID REQ could not parse timeout {timeout}")


class TestCls:
    @pytest.mark.parametrize("state", ["new", "identified", "closing"])
    def test_only_when_subscribed(self, server: NsqServer, topic: str, state: str) -> None:
        with in_state(server, state, topic) as wire:
            wire.fails("CLS\n", "E_INVALID cannot CLS in current state")

    def test_no_more_messages_and_those_in_flight_can_be_finished(self, server: NsqServer, topic: str) -> None:
        with consumer(server, topic, rdy=3) as wire, Wire(server) as producer:
            producer.publish(topic, b"1", b"2", b"3")
            first, second, third = wire.messages(3)
            assert wire.ask("CLS\n") == Frame(RESPONSE, b"CLOSE_WAIT")
            producer.publish(topic, b"4")
            wire.touch(first)
            wire.fin(first)
            wire.req(second)
            assert wire.is_not_in_flight(first)
            assert wire.is_not_in_flight(second)
            wire.fin(third)
            assert wire.is_quiet()
            with consumer(server, topic, rdy=10) as other:
                assert sorted(message.body for message in other.messages(2)) == [b"2", b"4"]
                assert other.is_quiet()


class TestAuthWhereItIsDisabled:
    def test_disabled(self, wire: Wire) -> None:
        wire.fails(frames.auth("secret"), "E_AUTH_DISABLED AUTH disabled")

    def test_parameters(self, wire: Wire) -> None:
        wire.fails("AUTH secret\n", "E_INVALID AUTH invalid number of parameters")

    @pytest.mark.parametrize("state", ["subscribed", "closing"])
    def test_not_after_sub(self, server: NsqServer, topic: str, state: str) -> None:
        with in_state(server, state, topic) as wire:
            wire.fails(frames.auth("secret"), "E_INVALID cannot AUTH in current state")

    @pytest.mark.parametrize(
        ("claimed", "text"),
        [
            (0, "invalid body size 0"), (-1, "invalid body size -1"),
            (MAX_BODY_SIZE + 1, f"body too big {MAX_BODY_SIZE + 1} > {MAX_BODY_SIZE}"),
        ],
    )  # fmt: skip
    def test_size(self, wire: Wire, claimed: int, text: str) -> None:
        wire.fails(b"AUTH\n" + size(claimed), f"E_BAD_BODY AUTH {text}")
