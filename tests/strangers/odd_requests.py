"""Clients of the HTTP services that ask for what there is and is not, with names, bodies, lengths and headers of all
kinds, one request behind the other."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from tests.strangers.odd_commands import TOPICS, Odd

NAMES: Final = (
    *TOPICS, *TOPICS, *TOPICS, "s1", "ch", "public", "default", "persistent", "", "..", "%2e%2e", "%00", "%0A", "%ff",
    "%C3%A9",
    "a%2Fb", "%zz", "%", "*", ">", "-1", "0", "1", "NaN", "1e400", "18446744073709551616", "true", "json", "latest",
    "e%23ephemeral", "p-partition-0", "0x00000000_0xffffffff", "x" * 65, "x" * 1025,
)  # fmt: skip
TOPIC: Final = "/admin/v2/persistent/public/default/{}"
NAMESPACE: Final = "/admin/v2/namespaces/public/{}"
KEYS: Final = (
    "do", "topic", "channel", "body", "base64", "seq", "time_ns", "to", "most", "seconds", "name", "topics", "type",
    "schema", "properties", "ledgerId", "entryId", "partitionIndex", "retentionTimeInMinutes", "retentionSizeInMB",
)  # fmt: skip
WORDS: Final = (
    "a", "b", "s1", "ch", "publish", "make", "delete", "empty", "pause", "unpause", "kick", "rewind", "JSON", "AVRO",
    "\0",
    "é", "", "x" * 2000, "-1", "persistent://public/default/a",
)  # fmt: skip
NUMBERS: Final = (0, 1, -1, 1 << 31, 1 << 53, (1 << 63) - 1, 1 << 64, -(1 << 63), 0.5, -0.0, 1e308, 5e-324)
BODIES: Final = (
    b"", b"{", b"[" * 50_000, b'{"a":' * 20_000, b"null", b"NaN", b"1e999", b"\xff\xfe", b'"\\ud800"', b'{"a":1,"a":2}',
    b"9" * 5000, b"\0" * 100, b"[" + b"1," * 50_000 + b"1]", b"\0\0\0\1\0\0\0\3abc", b"\xff\xff\xff\xff",
)  # fmt: skip
HEADERS: Final = (
    b"Expect: 100-continue", b"Connection: close", b"Connection: keep-alive", b"Connection: Upgrade, HTTP2-Settings",
    b"Upgrade: websocket", b"Content-Type: application/json", b"Content-Type: multipart/form-data; boundary=x",
    b"Authorization: Basic x", b"Authorization: Bearer x.y.z", b"Authorization: \xff", b"Origin: http://elsewhere",
    b"Cookie: a=\xff; ; =", b"Range: bytes=0-5", b"Accept-Encoding: gzip",
    b"Accept: application/openmetrics-text;q=nan",
    b"X : y", b" folded", b"A:\0b", b"X: " + b"y" * 20_000, b"Host: y",
)  # fmt: skip
LENGTHS: Final = (b"-1", b"+5", b"1e3", b"99999999999999999999", b"0x10", b"", b"5, 5")
CODINGS: Final = (b"gzip", b"gzip, chunked", b"identity", b"Chunked", b"chunked, chunked")
LAST_CHUNKS: Final = (
    b"0\r\n\r\n", b"0\r\n\r\n", b"0\r\nA: b\r\n\r\n", b"0\n\n", b"-1\r\n\r\n", b"f" * 18 + b"\r\n", b"",
)  # fmt: skip


class OddRequests(Odd[int]):
    targets: ClassVar[Sequence[str]]

    def command(self) -> bytes:
        draw = self.draw
        target = re.sub(r"\{\}", lambda _: draw.choice(NAMES), draw.choice(self.targets)).encode()
        if draw.random() < 0.05:
            target = draw.choice([b"http://h:1" + target, b"*", b"/" + target, target + b"?" + b"a=b&" * 5000])
        method = draw.choice([b"GET", b"GET", b"POST", b"POST", b"PUT", b"DELETE"])
        if draw.random() < 0.05:
            method = draw.choice([b"HEAD", b"OPTIONS", b"PATCH", b"TRACE", b"get", b"FOO"])
        version = b"HTTP/1.1" if draw.random() < 0.95 else draw.choice([b"HTTP/1.0", b"HTTP/2.0", b"", b"HTTP/1.1 "])
        headers = [b"Host: x"] if draw.random() < 0.97 else []
        if draw.random() < 0.3:
            headers.append(draw.choice(HEADERS))
        framing, body = self.framed(b"" if method == b"GET" else self.content())
        end = b"\r\n" if draw.random() < 0.97 else b"\n"
        return end.join([b" ".join([method, target, version]), *headers, *framing]) + end * 2 + body

    def content(self) -> bytes:
        drawn = self.draw.random()
        if drawn < 0.2:
            return self.draw.choice(BODIES)
        return json.dumps(self.value(0)).encode() if drawn < 0.8 else self.body()

    def value(self, depth: int) -> object:
        draw = self.draw
        kind = draw.randrange(8)
        if kind < 3 and depth < 4:
            return {draw.choice(KEYS): self.value(depth + 1) for _ in range(draw.randrange(6))}
        if kind == 3 and depth < 4:
            return [self.value(depth + 1) for _ in range(draw.randrange(4))]
        return draw.choice([draw.choice(WORDS), draw.choice(WORDS), draw.choice(NUMBERS), None, True, False])

    def framed(self, body: bytes) -> tuple[list[bytes], bytes]:
        """Headers that say how long the body is, mostly truly, and the body."""
        draw = self.draw
        drawn = draw.random()
        length = b"Content-Length: %d" % len(body)
        if drawn < 0.8:
            return [length] if body or drawn < 0.4 else [], body
        if drawn < 0.92:
            size = draw.choice([1000, 7000, 100_000])
            parts = [body[at : at + size] for at in range(0, len(body), size)]
            chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
            return [b"Transfer-Encoding: chunked"], chunks + draw.choice(LAST_CHUNKS)
        if drawn < 0.94:
            return [length, b"Transfer-Encoding: chunked"], body
        if drawn < 0.96:
            return [length, b"Content-Length: %d" % (len(body) + draw.randrange(2))], body
        if drawn < 0.98:
            return [b"Content-Length: " + draw.choice(LENGTHS)], body
        return [b"Transfer-Encoding: " + draw.choice(CODINGS)], body

    def take(self) -> None:
        for status in re.findall(rb"HTTP/1\.[01] (\d+) ", self.buffer):
            self.heard[f"{self.at} {status.decode()}"] += 1
        self.buffer = self.buffer[-12:] if b"HTTP" not in self.buffer[-12:] else b""


class OddNsqRequests(OddRequests):
    at = "nsq-http"
    targets = (
        "/pub?topic={}", "/pub?topic={}&defer={}", "/mpub?topic={}", "/mpub?topic={}&binary={}",
        "/topic/create?topic={}",
        "/topic/delete?topic={}", "/topic/empty?topic={}", "/topic/pause?topic={}", "/topic/unpause?topic={}",
        "/channel/create?topic={}&channel={}", "/channel/delete?topic={}&channel={}",
        "/channel/empty?topic={}&channel={}",
        "/channel/pause?topic={}&channel={}", "/channel/unpause?topic={}&channel={}",
        "/stats?format={}&topic={}&channel={}",
        "/stats?format=json&include_clients={}&include_mem={}", "/ping", "/info", "/config/{}", "/debug/pprof/{}",
        "/{}",
    )  # fmt: skip


class OddConsoleRequests(OddRequests):
    at = "http"
    targets = (
        "/v1/broker", "/v1/topics", "/v1/topics?since={}&topics={}&prefix={}", "/v1/topics/{}",
        "/v1/offsets?topic={}&topics={}&time_ns={}&at={}", "/v1/records?topic={}&from={}&to={}&max_bytes={}",
        "/v1/readers/{}",
        "/v1/staged/{}?at={}", "/v1/writers/{}", "/v1/publish", "/v1/erased", "/v1/health", "/v1/overview",
        "/v1/find?q={}&sort={}&offset={}&limit={}&kind={}", "/v1/topic?name={}",
        "/v1/peek?topic={}&from={}&limit={}&body={}",
        "/v1/act", "/v1/act", "/v1/act", "/v1/login", "/v1/logout", "/", "/console/{}", "/metrics", "/{}",
    )  # fmt: skip


class OddMonitoringRequests(OddRequests):
    at = "nats-http"
    targets = (
        "/varz", "/connz?sort={}&auth={}&subs={}&offset={}&limit={}&cid={}&state={}", "/routez?subs={}", "/gatewayz",
        "/subsz?subs={}&offset={}&limit={}&test={}", "/leafz?subs={}", "/accountz?acc={}", "/accstatz?unused={}",
        "/healthz?js-enabled-only={}", "/jsz?accounts={}&limit={}", "/", "/{}",
    )  # fmt: skip


class OddAdminRequests(OddRequests):
    at = "pulsar-http"
    targets = (
        "/admin/v2/clusters/{}", "/admin/v2/tenants/{}", "/admin/v2/namespaces/{}", NAMESPACE, f"{NAMESPACE}/retention",
        f"{NAMESPACE}/permissions/{{}}", f"{NAMESPACE}/backlogQuotaMap", f"{NAMESPACE}/{{}}",
        "/admin/v2/persistent/public/{}", TOPIC, f"{TOPIC}/partitions", f"{TOPIC}/stats", f"{TOPIC}/internalStats",
        f"{TOPIC}/subscriptions", f"{TOPIC}/subscription/{{}}", f"{TOPIC}/subscription/{{}}/skip/{{}}",
        f"{TOPIC}/subscription/{{}}/position/{{}}", f"{TOPIC}/subscription/{{}}/resetcursor/{{}}",
        f"{TOPIC}/subscription/{{}}/expireMessages/{{}}", f"{TOPIC}/ledger/{{}}/entry/{{}}", f"{TOPIC}/terminate",
        f"{TOPIC}/compaction", f"{TOPIC}/{{}}", "/admin/v2/schemas/public/default/{}/schema/{}",
        "/admin/v3/transactions/{}", "/admin/v2/brokers/{}", "/lookup/v2/topic/persistent/public/default/{}",
        "/metrics", "/{}",
    )  # fmt: skip


KINDS: Final[tuple[type[Odd[Any]], ...]] = (OddNsqRequests, OddConsoleRequests, OddMonitoringRequests, OddAdminRequests)
