"""The TLS options of the section nsq: what they mean, and whether they can be used.

    tls-cert, tls-key         both or neither: without them no client gets TLS
    tls-client-auth-policy    "", "require" (a certificate, whoever signed it) or "require-verify"; implies tls-required
    tls-root-ca-file          the authorities for certificates of clients and of the auth server; "": the system's roots
    tls-required              "false", "true" or "tcp-https": with the last two a client does nothing before TLS
    tls-min-version           tls1.0 to tls1.3

Must not need the C core, so that the supervisor can check the options before it starts anything.
"""

from __future__ import annotations

import importlib
import ssl
import warnings
from collections.abc import Mapping
from typing import Any, Final

from mq_shards.acceptor import named_files
from mq_shards.acceptor.filters.tls import TlsFactory, UnverifyingTls, VerifyingTls, reason
from mq_shards.acceptor.secure import demand_certificates, load_authorities, load_certificate, why_unusable

REQUIRE: Final = "require"
REQUIRE_VERIFY: Final = "require-verify"
POLICIES: Final = ("", REQUIRE, REQUIRE_VERIFY)
REQUIRED: Final = ("false", "true", "tcp-https")
MIN_VERSIONS: Final = {
    "": ssl.TLSVersion.TLSv1,
    "tls1.0": ssl.TLSVersion.TLSv1,
    "tls1.1": ssl.TLSVersion.TLSv1_1,
    "tls1.2": ssl.TLSVersion.TLSv1_2,
    "tls1.3": ssl.TLSVersion.TLSv1_3,
}
# OpenSSL offers versions before 1.2 only at its security level 0, which also accepts old, weak keys and signatures.
CIPHERS: Final = "DEFAULT"
OLD_CIPHERS: Final = "DEFAULT:@SECLEVEL=0"

Settings = Mapping[str, Any]


def check(settings: Settings) -> None:
    """Raises ValueError with one line that names the option and says what is wrong with it."""
    if settings["tls-client-auth-policy"] not in POLICIES:
        raise ValueError(_bad(settings, "tls-client-auth-policy", '"require" or "require-verify"'))
    if settings["tls-required"] not in REQUIRED:
        raise ValueError(_bad(settings, "tls-required", ", ".join(REQUIRED)))
    if settings["tls-min-version"].lower() not in MIN_VERSIONS:
        raise ValueError(_bad(settings, "tls-min-version", ", ".join(name for name in MIN_VERSIONS if name)))
    for one, other in (("tls-cert", "tls-key"), ("tls-key", "tls-cert")):
        if settings[one] and not settings[other]:
            raise ValueError(f"nsq.{one} is set, so nsq.{other} must be too")
    if not settings["tls-cert"]:
        for name in ("tls-required", "tls-client-auth-policy"):
            if settings[name] not in ("", "false"):
                raise ValueError(f'nsq.{name} is "{settings[name]}", which needs nsq.tls-cert and nsq.tls-key')
    for name in ("tls-cert", "tls-key", "tls-root-ca-file"):
        _check_readable(settings, name)
    factory(settings)
    client_context(settings)


def factory(settings: Settings) -> TlsFactory | None:
    """A factory of TLS filters; None when there is no certificate. Raises ValueError as check() does."""
    if not settings["tls-cert"]:
        return None
    if settings["tls-client-auth-policy"] == REQUIRE:
        unverifying = _unverifying_context(settings)
        return lambda: UnverifyingTls(unverifying)
    verifying = server_context(settings)
    return lambda: VerifyingTls(verifying)


def server_context(settings: Settings) -> ssl.SSLContext:
    """The context by ssl. With "require" it asks for no certificate: ssl cannot accept certificates of any signer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    _set_min_version(context, settings)
    context.set_ciphers(_ciphers(settings))
    try:
        load_certificate(context, settings["tls-cert"], settings["tls-key"])
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ValueError(_not_loaded(settings, error)) from None
    if settings["tls-client-auth-policy"] == REQUIRE_VERIFY:
        demand_certificates(context)
        _trust(context, settings, ssl.Purpose.CLIENT_AUTH)
    return context


def client_context(settings: Settings) -> ssl.SSLContext:
    """The context of our own https requests. Raises ValueError as check() does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _set_min_version(context, settings)
    _trust(context, settings, ssl.Purpose.SERVER_AUTH)
    return context


def _unverifying_context(settings: Settings) -> object:
    try:
        library: Any = importlib.import_module("OpenSSL.SSL")
    except ImportError:
        raise ValueError('nsq.tls-client-auth-policy: "require" needs the Python package pyOpenSSL') from None
    server_context(settings)  # raises if something is wrong with the files
    context = library.Context(library.TLS_SERVER_METHOD)
    context.set_options(library.OP_NO_RENEGOTIATION)
    context.set_min_proto_version(int(_min_version(settings)))
    context.set_cipher_list(_ciphers(settings).encode())
    try:
        with named_files.opened(settings["tls-cert"]) as cert, named_files.opened(settings["tls-key"]) as key:
            context.use_certificate_chain_file(cert)
            context.use_privatekey_file(key)
        context.check_privatekey()
    except (library.Error, OSError, ValueError) as error:
        raise ValueError(_not_loaded(settings, error)) from None
    context.set_verify(library.VERIFY_PEER | library.VERIFY_FAIL_IF_NO_PEER_CERT, lambda *_: True)
    # Without this id OpenSSL refuses to resume the session of a client whose certificate it has asked for.
    context.set_session_id(b"nsq")
    return context


def _trust(context: ssl.SSLContext, settings: Settings, purpose: ssl.Purpose) -> None:
    path = settings["tls-root-ca-file"]
    if not path:
        context.load_default_certs(purpose)
        return
    load_authorities(context, path, f"nsq.tls-root-ca-file: {path}")


def _check_readable(settings: Settings, name: str) -> None:
    if not settings[name]:
        return
    try:
        named_files.check(settings[name])
    except OSError as error:
        raise ValueError(f"nsq.{name}: {settings[name]}: {error.strerror}") from None


def _min_version(settings: Settings) -> ssl.TLSVersion:
    return MIN_VERSIONS[settings["tls-min-version"].lower()]


def _set_min_version(context: ssl.SSLContext, settings: Settings) -> None:
    with warnings.catch_warnings():
        # The operator has asked for the old version, so no warning is needed.
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = _min_version(settings)


def _ciphers(settings: Settings) -> str:
    return OLD_CIPHERS if _min_version(settings) < ssl.TLSVersion.TLSv1_2 else CIPHERS


def _bad(settings: Settings, name: str, choices: str) -> str:
    return f'nsq.{name}: "{settings[name]}" is none of {choices}'


def _not_loaded(settings: Settings, error: Exception) -> str:
    why = why_unusable(error) if isinstance(error, OSError) else reason(error)  # an ssl.SSLError is an OSError
    return f"nsq.tls-cert {settings['tls-cert']}, nsq.tls-key {settings['tls-key']}: {why}"
