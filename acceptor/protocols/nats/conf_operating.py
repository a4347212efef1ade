"""Keys of nats-server's configuration file about operation: TLS, monitoring, lame duck mode, files, advertising."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mq_shards.acceptor.option_kinds import SECOND, parse_duration
from mq_shards.acceptor.protocols.nats.conf import Value
from mq_shards.acceptor.protocols.nats.conf_takers import (
    SECURE_MONITORING,
    Conf,
    Taker,
    duration_option,
    listen,
    option,
    take_block,
    unsupported,
)
from mq_shards.acceptor.protocols.nats.tls_options import CURVES


def timeout(name: str) -> Taker:
    """Makes a taker of a timeout; a number means seconds."""

    def take(conf: Conf, value: Value) -> None:
        number = value.content
        if isinstance(number, int | float) and not isinstance(number, bool):
            ns = int(number * SECOND)
        else:
            ns = value.duration_ns()
        conf.set(name, value, f"{ns}ns" if ns else 0)

    return take


def first(value: Value) -> str:
    """Whether a handshake comes before INFO: "" or "true"; "auto", or a duration, for which it may."""
    if isinstance(value.content, bool):
        return "true" if value.content else ""
    text = value.text().lower()
    if text not in FIRST and parse_duration(text) is None:
        raise value.error(f'"{value.content}" is not true, false, auto or a duration')
    return FIRST.get(text, text)


FIRST: Final = {"true": "true", "on": "true", "false": "", "off": "", "auto": "auto", "auto_fallback": "auto"}


def finish_auth_timeouts(conf: Conf) -> None:
    """Call after the whole file has been read. Who has to log in over TLS has a second more than for the handshake,
    unless the file says how long."""
    for part in ("", "cluster-", "leaf-"):
        if f"{part}tls-cert-file" in conf.options and f"{part}auth-timeout" not in conf.options:
            where, said = conf.options.get(f"{part}tls-timeout", (conf.file, "2s"))
            conf.options[f"{part}auth-timeout"] = where, f"{(parse_duration(str(said)) or 0) + SECOND}ns"


def _connections(value: Value) -> int:
    """Unlike with other limits, 0 and less mean that nobody may connect."""
    return value.whole() if value.whole() > 0 else -1


def _take_lame_duck_duration(conf: Conf, value: Value) -> None:
    ns = value.duration_ns()
    if ns < 30 * SECOND:
        raise value.error(f'lame_duck_duration "{value.content}" is less than 30s')
    conf.set("lame-duck-duration", value, f"{ns}ns")


def _take_lame_duck_grace_period(conf: Conf, value: Value) -> None:
    value.text()  # here a number of seconds is an error, unlike elsewhere
    duration_option("lame-duck-grace-period")(conf, value)


_CERTIFICATE_STORE: Final = "there is no certificate store of Windows here"


def _certificates(prefix: str) -> Taker:
    """Makes a taker of a list of certificates. nats-server chooses by SNI; here all clients are sent the first."""

    def take(conf: Conf, value: Value) -> None:
        names = {key: f"{prefix}{key.replace('_', '-')}" for key in ("cert_file", "key_file")}
        table = {key: _certificate_file(name) for key, name in names.items()}
        for place, item in enumerate(value.items()):
            found = conf if place == 0 else Conf()
            take_block(found, item.block(), table, " in certs")
            if not all(name in found.options for name in names.values()):
                raise item.error("a certificate needs cert_file and key_file")
            if place > 0:
                _refuse_certificate(item, *(str(found.options[name][1]) for name in names.values()))
        if len(value.items()) > 1:
            conf.warn(value, "certs: only the first of these certificates is shown")

    return take


def _certificate_file(name: str) -> Taker:
    """Makes a taker of a file that is named once: in the block itself, or in its list of certificates."""

    def take(conf: Conf, value: Value) -> None:
        if name in conf.options:
            raise value.error("cert_file and certs are for the same, it is one or the other")
        conf.set(name, value, value.text())

    return take


def _refuse_certificate(item: Value, certificate: str, key: str) -> None:
    """Raises ConfError for one that is not shown, but that nats-server would not start with either."""
    # Imported late: it takes long, and few files have such a list.
    import ssl

    from mq_shards.acceptor.secure import load_certificate

    try:
        load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise item.error(f"{certificate}, {key}: {reason or error}") from None


def _some(value: Value) -> list[str]:
    found = value.texts()
    if not found:
        raise value.error("there is none in this list")
    return found


def _curves(prefix: str) -> Taker:
    """Makes a taker of a list of curves. Python's ssl can be given only one."""

    def take(conf: Conf, value: Value) -> None:
        names = _some(value)
        for name in names:
            if name not in CURVES:
                raise value.error(f'there is no curve "{name}"')
        known = [name for name in names if CURVES[name]]
        if not known:
            raise value.error("curve_preferences: OpenSSL has none of these")
        if len(known) > 1:
            conf.warn(value, f"curve_preferences: of several OpenSSL chooses, among {', '.join(known)} and others")
        conf.set(f"{prefix}curve-preferences", value, names)

    return take


def only_of_routes(_: Conf, value: Value) -> None:
    raise value.error("verify_cert_and_check_known_urls is for routes")


def tls_block(prefix: str, why_not: Mapping[str, str]) -> Mapping[str, Taker]:
    """The keys of a block `tls` whose options start with `prefix`. `why_not`: keys without a meaning there, and why."""
    table: dict[str, Taker] = {
        "cert_file": _certificate_file(f"{prefix}cert-file"),
        "key_file": _certificate_file(f"{prefix}key-file"),
        "ca_file": option(f"{prefix}ca-file", Value.text),
        "verify": option(f"{prefix}verify", Value.flag),
        "timeout": timeout(f"{prefix}timeout"),
        "pinned_certs": option(f"{prefix}pinned-certs", Value.texts),
        "cipher_suites": option(f"{prefix}cipher-suites", _some),
        "min_version": option(f"{prefix}min-version", Value.text),
        "certs": _certificates(prefix),
        "certificates": _certificates(prefix),
        "curve_preferences": _curves(prefix),
        "insecure": unsupported("insecure", "it is about connections that the server makes"),
        "allow_insecure_cipher_suites": unsupported("allow_insecure_cipher_suites", "OpenSSL has none of them"),
        "ocsp_peer": unsupported("ocsp_peer", "certificates are not asked about over OCSP"),
        **{
            key: unsupported(key, _CERTIFICATE_STORE)
            for key in ("cert_store", "cert_match_by", "cert_match", "ca_certs_match", "cert_match_skip_invalid")
        },
    }
    for key, why in why_not.items():
        table[key] = unsupported(key, why)
    return table


def take_tls(where: str, prefix: str, table: Mapping[str, Taker]) -> Taker:
    """Takes a block `tls`, which must have a certificate and a key. `where`: how the file names the block."""

    def take(conf: Conf, value: Value) -> None:
        take_block(conf, value.block(), table, f" in {where}")
        for name in ("cert-file", "key-file"):
            if prefix + name not in conf.options:
                raise value.error(f"{where} has no {name.replace('-', '_')}")

    return take


TLS: Final[Mapping[str, Taker]] = {
    **tls_block("tls-", {}),
    "verify_cert_and_check_known_urls": only_of_routes,
    "verify_and_map": option("tls-verify-and-map", Value.flag),
    "handshake_first": option("tls-handshake-first", first),
    "first": option("tls-handshake-first", first),
    "immediate": option("tls-handshake-first", first),
    "connection_rate_limit": option("tls-connection-rate-limit", Value.whole),
}


def _monitoring(scheme: str, *, is_port: bool = False) -> Taker:
    """`is_port`: a number only."""

    def take(conf: Conf, value: Value) -> None:
        """A port, or HOST:PORT; 0: no monitoring."""
        if is_port:
            value.whole()
        if value.content == 0 and value.content is not False:
            return
        listen(scheme)(conf, value)
        if isinstance(value.content, int):
            del conf.hosts[scheme]  # listens on the host that clients connect to

    return take


def _take_log_file(conf: Conf, value: Value) -> None:
    conf.log_file = conf.log_file._replace(path=value.text())


def _take_log_file_limit(conf: Conf, value: Value) -> None:
    conf.log_file = conf.log_file._replace(limit_bytes=max(0, value.whole()))


def _take_log_file_count(conf: Conf, value: Value) -> None:
    conf.log_file = conf.log_file._replace(max_files=max(0, value.whole()))


OPERATING: Final[Mapping[str, Taker]] = {
    "http": _monitoring("nats-http"),
    "http_port": _monitoring("nats-http", is_port=True),
    "https": _monitoring(SECURE_MONITORING),
    "https_port": _monitoring(SECURE_MONITORING, is_port=True),
    "http_base_path": option("http-base-path", Value.text),
    "max_closed_clients": option("max-closed-clients", Value.whole),
    "tls": take_tls("tls", "tls-", TLS),
    "allow_non_tls": option("allow-non-tls", Value.flag),
    "max_connections": option("max-connections", _connections),
    "client_advertise": option("client-advertise", Value.text),
    "lame_duck_duration": _take_lame_duck_duration,
    "lame_duck_grace_period": _take_lame_duck_grace_period,
    "logfile": _take_log_file,
    "logfile_size_limit": _take_log_file_limit,
    "logfile_max_num": _take_log_file_count,
    "pidfile": option("pid-file", Value.text),
    "ports_file_dir": option("ports-file-dir", Value.text),
}
