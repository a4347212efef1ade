"""Traffic under credentials that change, with the Python client:

python -m tests.pulsar.traffic SERVICE-URL SECONDS token TOKEN-FILE | certificate CERT KEY CA
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import pulsar

TIMEOUT_S: Final = 30


def made(url: str, kind: str, files: list[str]) -> Any:  # noqa: ANN401
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    if kind == "token":
        found = pulsar.AuthenticationToken(lambda: Path(files[0]).read_text())
        return pulsar.Client(url, authentication=found, logger=logger)
    return pulsar.Client(
        url, authentication=pulsar.AuthenticationTLS(files[0], files[1]), tls_trust_certs_file_path=files[2],
        logger=logger,
    )  # fmt: skip


def main() -> int:
    url, seconds, kind, *files = sys.argv[1:]
    client = made(url, kind, files)
    consumer = client.subscribe("python-traffic", "s", pulsar.ConsumerType.Shared)
    producer = client.create_producer("python-traffic")
    end, sent = time.monotonic() + float(seconds), []

    def send() -> None:
        count = 0
        while time.monotonic() < end:
            producer.send(str(count).encode())
            count += 1
            time.sleep(0.005)
        sent.append(count)

    sending = threading.Thread(target=send)
    sending.start()
    found: set[bytes] = set()
    while sending.is_alive() or len(found) < sent[0]:
        try:
            message = consumer.receive(200)
            found.add(message.data())
            consumer.acknowledge(message)
        except pulsar.Timeout:
            pass
        if time.monotonic() > end + TIMEOUT_S or not (sending.is_alive() or sent):
            print(f"failed traffic: {len(found)} of {sent} came")
            return 1
    client.close()
    print(f"ok traffic: {sent[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
