"""Policies for offloading: kept and shown as a real broker shows them. There is nothing here that offloads.

A real broker fills in what was not given, and leaves out what it does not know.
"""

from __future__ import annotations

from typing import Any, Final

from mq_shards.gateway.pulsar import scalars
from mq_shards.gateway.pulsar.catalog import Json
from mq_shards.gateway.pulsar.refusals import RefusedError, precondition

KEY: Final = "offload_policies"
BYTES: Final = "managedLedgerOffloadThresholdInBytes"
SECONDS: Final = "managedLedgerOffloadThresholdInSeconds"
LAG_MS: Final = "managedLedgerOffloadDeletionLagInMillis"
_DRIVER: Final = "managedLedgerOffloadDriver"
_DRIVERS: Final = ("S3", "aws-s3", "google-cloud-storage", "filesystem", "azureblob", "aliyun-oss")
_TEXTS: Final = frozenset({
    "offloadersDirectory", _DRIVER, "s3ManagedLedgerOffloadRegion", "s3ManagedLedgerOffloadBucket",
    "s3ManagedLedgerOffloadServiceEndpoint", "s3ManagedLedgerOffloadCredentialId",
    "s3ManagedLedgerOffloadCredentialSecret", "s3ManagedLedgerOffloadRole", "s3ManagedLedgerOffloadRoleSessionName",
    "gcsManagedLedgerOffloadRegion", "gcsManagedLedgerOffloadBucket", "gcsManagedLedgerOffloadServiceAccountKeyFile",
    "fileSystemProfilePath", "fileSystemURI", "managedLedgerOffloadBucket", "managedLedgerOffloadRegion",
    "managedLedgerOffloadServiceEndpoint", "managedLedgerOffloadedReadPriority",
})  # fmt: skip
_NUMBERS: Final = frozenset({
    "managedLedgerOffloadMaxThreads", "managedLedgerOffloadReadThreads", "managedLedgerOffloadPrefetchRounds",
    SECONDS, BYTES, LAG_MS, "s3ManagedLedgerOffloadMaxBlockSizeInBytes", "s3ManagedLedgerOffloadReadBufferSizeInBytes",
    "gcsManagedLedgerOffloadMaxBlockSizeInBytes", "gcsManagedLedgerOffloadReadBufferSizeInBytes",
    "managedLedgerOffloadMaxBlockSizeInBytes", "managedLedgerOffloadReadBufferSizeInBytes",
})  # fmt: skip
_FILLED_IN: Final[Json] = {
    "offloadersDirectory": "./offloaders",
    "managedLedgerOffloadMaxThreads": 2,
    "managedLedgerOffloadPrefetchRounds": 1,
    "managedLedgerExtraConfigurations": {},
    "s3ManagedLedgerOffloadMaxBlockSizeInBytes": 64 << 20,
    "s3ManagedLedgerOffloadReadBufferSizeInBytes": 1 << 20,
    "s3ManagedLedgerOffloadRoleSessionName": "pulsar-s3-offload",
    "gcsManagedLedgerOffloadMaxBlockSizeInBytes": 128 << 20,
    "gcsManagedLedgerOffloadReadBufferSizeInBytes": 1 << 20,
}
_MOST_TEXT: Final = 4096


def checked(given: Any) -> Json:  # noqa: ANN401
    """Raises RefusedError."""
    if given is None:
        raise precondition("The offloadPolicies must be specified for namespace offload.")
    if not isinstance(given, dict):
        raise RefusedError(400, "MetadataError", "offload policies are an object")
    found: Json = {}
    for name, value in given.items():
        if value is None:
            continue
        if name in _NUMBERS:
            found[name] = scalars.whole(value, name)
        elif name in _TEXTS:
            if not isinstance(value, str) or len(value) > _MOST_TEXT:
                raise RefusedError(400, "MetadataError", f"{name} is not a text of up to {_MOST_TEXT} characters")
            found[name] = value
    driver = found.get(_DRIVER)
    if driver not in _DRIVERS:
        raise precondition(f"The driver is not supported, support value: {','.join(_DRIVERS)}")
    bucket = found.get("managedLedgerOffloadBucket") or found.get(f"{_own(driver)}ManagedLedgerOffloadBucket")
    if driver != "filesystem" and not bucket:
        raise precondition("The bucket must be specified for namespace offload.")
    return whole(found)


def _own(driver: str) -> str:
    return "gcs" if driver == "google-cloud-storage" else "s3"


def whole(fields: Json) -> Json:
    """With what was not given, and what follows from the driver."""
    driver = fields.get(_DRIVER)
    return {
        **_FILLED_IN, **fields, "s3Driver": driver in ("S3", "aws-s3"), "gcsDriver": driver == "google-cloud-storage",
        "fileSystemDriver": driver == "filesystem",
    }  # fmt: skip


def with_number(before: Json | None, name: str, value: int | None) -> Json:
    """The policies of a namespace with another threshold or lag; None: without it."""
    found = {one: what for one, what in (before or {}).items() if one != name}
    return whole(found if value is None else {**found, name: value})


def applied(of_topic: Json | None, of_namespace: Json | None) -> Json | None:
    """What holds for a topic: each field of its own before those of its namespace."""
    return whole({**(of_namespace or {}), **(of_topic or {})}) if of_topic or of_namespace else None
