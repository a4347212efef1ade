"""Asks a real broker what wire_scenes.py has, and keeps what it answers.

python -m tests.pulsar.record_wire [SCENE]...
"""

from __future__ import annotations

import json
import re
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from tests.pulsar import real
from tests.pulsar.record_admin import play as request
from tests.pulsar.wire import Frame, Wire, entry_of, metadata, send_frame
from tests.pulsar.wire_scenes import SCENES, Step
from tests.ready import readable

TRANSCRIPTS: Final = Path(__file__).with_name("wire_transcripts.json")
TIMEOUT_S: Final = 60  # more than it takes to find out that somebody in the way is not alive
REST: Final = ("GET", "PUT", "POST", "DELETE")
# Of an answer that is kept: what two brokers say alike.
KEPT: Final = (
    "error", "message", "error_code", "error_message", "response", "partitions", "producer_ready", "topic_epoch",
    "last_sequence_id", "filtered", "changed", "sequence_id", "schema_version", "type",
)  # fmt: skip
LISTING: Final = ("getTopicsOfNamespaceResponse", "watchTopicListSuccess", "watchTopicUpdate")
LISTS: Final = ("topics", "topic", "new_topics", "deleted_topics")
NAME: Final = re.compile(r"\bstandalone-[0-9a-f-]+|\bmq\d+-[\w.]{11}-\d+")  # that a broker has given
CHANNEL: Final = re.compile(r"0x[0-9a-f]{8}, L:")
ADDRESS: Final = re.compile(r"/?(?:127\.0\.0\.1|localhost)(?::\d+)?")


class Attended(Wire):
    """One of several connections, all of which answer PINGs while one of them waits."""

    def __init__(self, port: int, others: list[Attended]) -> None:
        super().__init__(port)
        self._others = others
        others.append(self)

    def receive(self) -> Frame | None:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            if self._is_whole():
                return super().receive()
            ready = readable([one.socket for one in self._others], max(deadline - time.monotonic(), 0))
            if not ready:
                raise TimeoutError
            if self.socket in ready:
                return super().receive()
            for one in [one for one in self._others if one.socket in ready]:
                one.attend()

    def _is_whole(self) -> bool:
        return len(self.buffer) >= 4 and len(self.buffer) >= 4 + int.from_bytes(self.buffer[:4], "big")

    def attend(self) -> None:
        """Of several frames that came together none waits for the next that comes."""
        while True:
            frame = super().receive()
            if frame is None:
                self._others.remove(self)
                return
            if frame.name == "ping":
                self.say("pong")
            else:
                self.frames.append(frame)
            if not self._is_whole():
                return


class Player:
    """Of one scene: its connections, the messages it has had, and its transactions."""

    def __init__(self, address: str, port: int) -> None:
        self._address, self._port = address, port
        self._wires: dict[str, Wire] = {}
        self._open: list[Attended] = []
        self._ids: list[dict[str, int]] = []
        self._transactions: list[int] = []

    def close(self) -> None:
        for wire in self._wires.values():
            wire.socket.close()

    def play(self, step: Step) -> dict[str, Any]:
        on, what, fields = step
        if what in REST:
            body = (fields["body"],) if "body" in fields else ()
            return {"status": request(self._address, (what, fields["path"], *body))["status"]}
        wire = self._wires.get(on)
        if wire is None:
            wire = self._wires[on] = Attended(self._port, self._open)
            wire.connect()
        try:
            return self._said(wire, what, self._filled(fields))
        except (AssertionError, OSError) as error:
            if "closed" in str(error) or isinstance(error, ConnectionError):
                return {"answer": "closed"}
            raise

    def _said(self, wire: Wire, what: str, fields: dict[str, Any]) -> dict[str, Any]:
        match what:
            case "closed":
                return {"answer": "closed" if wire.is_closed() else "open"}
            case "hears":
                return self._kept(wire.until(lambda frame: frame.name == fields["frame"]))
            case "message":
                wire.flow(1, fields["consumer_id"])
                frame = wire.message(fields["consumer_id"])
                self._ids.append({name: getattr(frame.body.message_id, name) for name in ("ledgerId", "entryId")})
                return {"answer": "message"}
            case "send" | "publish":
                sequence = fields.get("sequence", 0)
                entry = entry_of(
                    metadata(sequence_id=sequence), fields["payload"].encode(), checksum=fields.get("checksum")
                )
                wire.raw(send_frame(1, sequence, entry))
                if what == "send":
                    return {}
                return self._kept(wire.until(lambda frame: frame.name in ("send_receipt", "send_error")))
        if what == "flow":
            wire.say(what, **fields)
            return {}
        wire.requests += 1
        number = wire.requests
        wire.say(what, request_id=number, **fields)
        frame = wire.until(lambda frame: getattr(frame.body, "request_id", None) == number)
        if what == "newTxn" and not frame.body.HasField("error"):
            self._transactions.append(frame.body.txnid_least_bits)
        return self._kept(frame)

    def _filled(self, fields: Any) -> Any:  # noqa: ANN401
        """With the ids of messages and transactions in their places."""
        if isinstance(fields, dict):
            filled = {name: self._filled(value) for name, value in fields.items()}
            for name in ("schema_data", "schema_version"):
                if isinstance(filled.get(name), str):
                    filled[name] = filled[name].encode()
            return filled
        if isinstance(fields, list):
            return [self._filled(value) for value in fields]
        if isinstance(fields, str) and re.fullmatch(r"\$\d", fields):
            return self._ids[int(fields[1:])]
        if isinstance(fields, str) and re.fullmatch(r"%\d", fields):
            return self._transactions[int(fields[1:])]
        return fields

    def _kept(self, frame: Frame) -> dict[str, Any]:
        found: dict[str, Any] = {"answer": frame.name}
        for name in KEPT:
            known = name in frame.body.DESCRIPTOR.fields_by_name and frame.body.HasField(name)
            if known and (value := getattr(frame.body, name)) != "":
                found[name] = value.hex() if isinstance(value, bytes) else value
        for name in LISTS:
            if (
                name in frame.body.DESCRIPTOR.fields_by_name
                and frame.name in LISTING
                and (names := list(getattr(frame.body, name)))
            ):
                found[name] = names
        if frame.name == "getSchemaResponse" and frame.body.HasField("schema"):
            found["schema"] = {"name": frame.body.schema.name, "type": frame.body.schema.type}
        for name in ("message", "error_message"):
            if name in found:
                found[name] = self.like(found[name])
        return found

    def like(self, text: str) -> str:
        """Without what is of one broker and one moment."""
        for number, one in enumerate(self._ids):
            text = text.replace(f"{one['ledgerId']}:{one['entryId']}", f"${number}")
        for number, transaction in enumerate(self._transactions):
            text = re.sub(rf"\b0,{transaction}\b", f"0,%{number}", text)
        text = CHANNEL.sub("0xID, L:", text)
        return ADDRESS.sub("ADDRESS", NAME.sub("NAME", text))


def real_broker() -> AbstractContextManager[tuple[str, int]]:
    """Its HTTP address, and its port."""
    return real.broker({"transactionCoordinatorEnabled": "true"})


def played(address: str, port: int, steps: list[Step]) -> list[dict[str, Any]]:
    player = Player(address, port)
    try:
        return [player.play(step) for step in steps]
    finally:
        player.close()


def main() -> None:
    """All scenes, or those that are named: the others stay as they are."""
    recorded = json.loads(TRANSCRIPTS.read_text())
    with real_broker() as (address, port):
        for name in sys.argv[1:] or SCENES:
            print(name, file=sys.stderr)
            answers = played(address, port, SCENES[name])
            recorded[name] = [{"step": list(step), **said} for step, said in zip(SCENES[name], answers, strict=True)]
    ordered = {name: recorded[name] for name in SCENES}
    TRANSCRIPTS.write_text(json.dumps(ordered, indent=1) + "\n")


if __name__ == "__main__":
    main()
