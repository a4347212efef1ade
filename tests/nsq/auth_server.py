"""An authorization server as nsqd asks one: GET with the secret, answered with what the client may do."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


def permission(topic: str, channels: list[str], *permissions: str) -> dict[str, object]:
    return {"topic": topic, "channels": channels, "permissions": list(permissions)}


def grant(*authorizations: dict[str, object], ttl: int = 3600) -> dict[str, object]:
    return {
        "ttl": ttl, "identity": "somebody", "identity_url": "http://some.where/",
        "authorizations": list(authorizations),
    }  # fmt: skip


class AuthServer:
    """`answers` by secret: JSON, or bytes to send as they are, or a status that is not 200; `asked`: what came."""

    def __init__(self) -> None:
        self.answers: dict[str, dict[str, object] | bytes | int] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        auth = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                query = {name: values[-1] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
                auth.asked.append((url.path, query))
                answer = auth.answers.get(query.get("secret", ""), 404)
                body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(answer if isinstance(answer, int) else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 128  # else many at once are told nothing, and try again after a second

        self.http = Server(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.http.server_address[1]}"

    def queries(self, secret: str) -> list[dict[str, str]]:
        return [query for _, query in self.asked if query.get("secret") == secret]


@contextmanager
def running_auth() -> Iterator[AuthServer]:
    auth = AuthServer()
    thread = threading.Thread(target=auth.http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield auth
    finally:
        auth.http.shutdown()
        thread.join()
        auth.http.server_close()
