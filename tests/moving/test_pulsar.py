"""mq-shards started as a standalone Pulsar: what its flags and its configuration file come to."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pulsar
import pytest
from mq_shards.acceptor.option_kinds import OptionsError
from mq_shards.supervisor.moving import properties
from mq_shards.supervisor.moving.pulsar import BY_NAME
from mq_shards.supervisor.moving.table import translate
from mq_shards.supervisor.options.options import Options, parse

from perf.pulsar.standalone import java, missing
from tests.nsq import certificates
from tests.servers import ROOT, free_port

SECOND = 1_000_000_000


def options_of(*arguments: str) -> Options:
    return parse(translate(("pulsar", "standalone", *arguments)).arguments)


def conf(folder: Path, *lines: str) -> str:
    path = folder / "standalone.conf"
    path.write_text("# of a test\n" + "\n".join(lines) + "\n")
    return str(path)


def listens(options: Options) -> list[str]:
    return [str(one) for one in options.listen]


def test_properties_are_read_as_java_reads_them() -> None:
    assert doctest.testmod(properties).failed == 0
    text = "a b=c\n  d:e\nf\\ng=\\u0041\nlong=1,\\\n     2\nodd=\\\\\nnext=x"
    assert properties.parsed(text) == {"a": "b=c", "d": "e", "f\ng": "A", "long": "1,2", "odd": "\\", "next": "x"}


def test_without_flags_it_is_what_pulsar_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    options = options_of()
    assert listens(options) == ["pulsar://0.0.0.0:6650", "pulsar-http://0.0.0.0:8080"]
    assert options.data_dir == Path("data/standalone/bookkeeper/mq-shards")
    assert not any(one.both for one in options.listen), "bin/pulsar has its Java without IPv6"
    monkeypatch.setenv("PULSAR_EXTRA_OPTS", "-Xmx1g -Djava.net.preferIPv4Stack=false")
    assert all(one.both for one in options_of().listen)


def test_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = conf(
        tmp_path, "brokerServicePort=7650", "webServicePort=7080", "bindAddress=127.0.0.1", "maxMessageSize=1000",
        "keepAliveIntervalSeconds=7", "brokerDeduplicationEnabled=true", "journalSyncData=true",
        "advertisedAddress=mq.example.org", "clusterName=standalone", "backlogQuotaCheckIntervalInSeconds=9",
        "managedLedgerCacheSizeMB=64", "allowAutoTopicCreationType=non-partitioned",
    )  # fmt: skip
    arguments = ["--config", path, f"--bookkeeper-dir={tmp_path}", "-nfw", "-nss"]
    assert translate(("pulsar", "standalone", *arguments)).notes == []
    options = options_of(*arguments)
    assert listens(options) == ["pulsar://127.0.0.1:7650", "pulsar-http://127.0.0.1:7080"]
    assert (options.data_dir, options.sync) == (tmp_path / "mq-shards", "always")
    section = options.settings["pulsar"]
    assert (section["max-message-size"], section["keep-alive"]) == (1000, 7 * SECOND)
    assert (section["deduplication"], section["policies-interval"]) == (True, 9 * SECOND)
    assert section["advertised-url"] == "pulsar://mq.example.org:7650"
    assert options_of("-c", path, "-a", "::1").settings["pulsar"]["advertised-url"] == "pulsar://[::1]:7650"
    (tmp_path / "conf").mkdir()
    monkeypatch.chdir(tmp_path)
    assert ["no configuration is read" in note for note in translate(("pulsar", "standalone")).notes] == [True]
    conf(tmp_path / "conf", "brokerServicePort=7651")
    assert listens(options_of())[0] == "pulsar://0.0.0.0:7651"
    assert translate(("pulsar", "standalone")).notes == []
    monkeypatch.setenv("PULSAR_STANDALONE_CONF", path)
    assert listens(options_of()) == ["pulsar://127.0.0.1:7650", "pulsar-http://127.0.0.1:7080"]


def test_its_administration_is_encrypted_too(tmp_path: Path) -> None:
    pair = certificates.make(tmp_path).server
    path = conf(
        tmp_path, "webServicePort=", "webServicePortTls=8443", f"tlsCertificateFilePath={pair.cert}",
        f"tlsKeyFilePath={pair.key}",
    )  # fmt: skip
    assert translate(("pulsar", "standalone", "--config", path)).notes == []
    options = options_of("--config", path)
    assert listens(options) == ["pulsar://0.0.0.0:6650", "pulsar-https://0.0.0.0:8443"]
    assert options.settings["tls"]["cert"] == str(pair.cert)


def test_what_cannot_be_honoured_is_one_line_each(tmp_path: Path) -> None:
    (tmp_path / "bookkeeper0" / "current").mkdir(parents=True)
    path = conf(
        tmp_path, "clusterName=west", "webSocketServiceEnabled=true", "backlogQuotaDefaultLimitGB=10",
        "defaultRetentionTimeInMinutes=60", "brokerInterceptors=one", "maxTopicsPerNamespace=0",
    )  # fmt: skip
    arguments = ("pulsar", "standalone", "--config", path, "--bookkeeper-dir", str(tmp_path), "--wipe-data")
    notes = translate(arguments).notes
    assert len(notes) == 7
    for said in ("clusterName=west", "webSocketServiceEnabled=true", "backlogQuotaDefaultLimitGB=10", "--wipe-data",
                 "defaultRetentionTimeInMinutes=60", "brokerInterceptors=one", "messages of Pulsar"):  # fmt: skip
        assert sum(said in note for note in notes) == 1, said


def test_what_pulsar_ships_is_a_line_for_each_difference_and_none_else(tmp_path: Path) -> None:
    """Of its standalone.conf those keys that clients notice, with the values that it comes with."""
    shipped = {
        "backlogQuotaDefaultLimitGB": "10", "brokerDeleteInactiveTopicsEnabled": "true",
        "webSocketServiceEnabled": "true", "authorizationEnabled": "false",
        "authorizationProvider": "org.apache.pulsar.broker.authorization.PulsarAuthorizationProvider",
        "maxUnackedMessagesPerConsumer": "50000", "maxUnackedMessagesPerSubscription": "200000",
        "maxUnackedMessagesPerBroker": "0", "schemaCompatibilityStrategy": "FULL",
        "isSchemaValidationEnforced": "false",
        "isAllowAutoUpdateSchemaEnabled": "true", "enablePersistentTopics": "true", "topicLevelPoliciesEnabled": "true",
        "backlogQuotaDefaultLimitSecond": "-1", "tlsAllowInsecureConnection": "false", "anonymousUserRole": "",
        "dispatchThrottlingRatePerTopicInMsg": "0", "backlogQuotaCheckEnabled": "true", "tlsProtocols": "",
        "clusterName": "", "activeConsumerFailoverDelayTimeMillis": "1000", "defaultNumberOfNamespaceBundles": "4",
        "brokerDeduplicationProducerInactivityTimeoutMinutes": "360", "maxPendingPublishRequestsPerConnection": "1000",
        "exposeTopicLevelMetricsInPrometheus": "true", "splitTopicAndPartitionLabelInPrometheus": "false",
        "managedLedgerDefaultWriteQuorum": "1", "messageExpiryCheckIntervalInMinutes": "5", "statusFilePath": "",
        "backlogQuotaDefaultRetentionPolicy": "producer_request_hold", "maxActiveTransactionsPerCoordinator": "0",
        "dispatchThrottlingOnNonBacklogConsumerEnabled": "true", "topicCompactionRetainNullKey": "false",
    }  # fmt: skip

    def said(**more: str) -> list[str]:
        path = conf(tmp_path, *(f"{name}={value}" for name, value in {**shipped, **more}.items()))
        return [note.partition("=")[0] for note in translate(("pulsar", "standalone", "-c", path)).notes]

    usual = ["webSocketServiceEnabled", "brokerDeleteInactiveTopicsEnabled", "backlogQuotaDefaultLimitGB"]
    assert said() == usual
    assert said(tlsProtocols="TLSv1.3, TLSv1.2") == usual
    changed = {
        "maxUnackedMessagesPerConsumer": "10", "schemaCompatibilityStrategy": "BACKWARD",
        "enablePersistentTopics": "false", "tlsProtocols": "TLSv1.3",
        "dispatchThrottlingRatePerSubscriptionInMsg": "5", "managedLedgerOffloadDriver": "aws-s3",
        "activeConsumerFailoverDelayTimeMillis": "3000", "defaultNumberOfNamespaceBundles": "16",
        "managedLedgerDefaultWriteQuorum": "2", "messageExpiryCheckIntervalInMinutes": "1",
        "splitTopicAndPartitionLabelInPrometheus": "true", "statusFilePath": "/tmp/up", "topicFactoryClassName": "x.Y",
        "backlogQuotaDefaultRetentionPolicy": "producer_exception", "maxActiveTransactionsPerCoordinator": "10",
        "dispatchThrottlingOnNonBacklogConsumerEnabled": "false", "topicCompactionRetainNullKey": "true",
    }  # fmt: skip
    assert set(said(**changed)) == {*usual, *changed}


def test_who_may_come_is_as_it_was_or_nobody_may(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    provider = "authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProvider"
    path = conf(
        tmp_path, "authenticationEnabled=true", f"{provider}Token", f"tokenSecretKey=file://{key}",
        "authorizationEnabled=true", "superUserRoles=admin, ops ,,", "proxyRoles=proxy", "anonymousUserRole=guest",
    )  # fmt: skip
    section = options_of("-c", path).settings["pulsar"]
    assert section["token-secret-key-file"] == str(key)
    assert (section["super-user-roles"], section["proxy-roles"]) == (["admin", "ops"], ["proxy"])
    assert section["anonymous-role"] == "guest"
    assert section["authorization-enabled"] is True
    # What is there and switched off is off.
    assert not options_of("-c", conf(tmp_path, f"{provider}Token")).settings["pulsar"]["token-secret-key-file"]
    keyed = f"tokenSecretKey=file://{key}"
    for lines, said in (
        ((f"{provider}Kerberos",), "AuthenticationProviderKerberos is not known here"),
        ((f"{provider}Token", "tokenSecretKey=data:;base64,aGVsbG8="), "tokenSecretKey has to name a file"),
        ((f"{provider}Token",), "needs tokenSecretKey or tokenPublicKey"),
        (("authenticationProviders=",), "lets nobody in"),
        (
            (f"{provider}Token", keyed, "authorizationEnabled=true", "authorizationProvider=a.B"),
            "authorizationProvider: a.B is not known",
        ),
        (
            (f"{provider}Token", keyed, "proxyRoles=p", "authenticateOriginalAuthData=true"),
            "a proxy would be believed",
        ),
        ((f"{provider}Token", keyed, "tokenAudience=us"), "tokenAudience is not known here"),
        ((f"{provider}Token", keyed, "tokenAudienceClaim=aud"), "tokenAudienceClaim is not"),
    ):
        with pytest.raises(OptionsError, match=said):
            options_of("-c", conf(tmp_path, "authenticationEnabled=true", *lines))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["broker"], "of its commands there is `standalone`"),
        ([], "of its commands there is `standalone`"),
        (["standalone", "--nonsense"], "no option --nonsense"),
        (["standalone", "--config"], "--config needs a value"),
        (["standalone", "--config", "/nowhere/at/all"], "cannot be read"),
        (["standalone", "--no-broker"], "nothing to be done"),
    ],
)
def test_what_it_would_refuse_is_refused(arguments: list[str], said: str) -> None:
    with pytest.raises(OptionsError, match=said):
        translate(("pulsar", *arguments))


def test_tls_is_served_where_a_port_for_it_is_named(tmp_path: Path) -> None:
    pair = certificates.make(tmp_path).server
    files = f"tlsCertificateFilePath={pair.cert}", f"tlsKeyFilePath={pair.key}"
    path = conf(tmp_path, "brokerServicePortTls=7651", *files)
    options = options_of("-c", path)
    assert listens(options) == ["pulsar://0.0.0.0:6650", "pulsar://0.0.0.0:7651", "pulsar-http://0.0.0.0:8080"]
    assert options.settings["pulsar"]["tls-cert-file"] == str(pair.cert)
    alone = "brokerServicePort=", "brokerServicePortTls=7651", *files
    notes = translate(("pulsar", "standalone", "-c", conf(tmp_path, *alone))).notes
    assert "TLS and plain clients are served on port 7651" in notes
    required = "tlsRequireTrustedClientCertOnConnect=true", f"tlsTrustCertsFilePath={pair.cert}"
    with pytest.raises(OptionsError, match="port 7651 would let in plain clients"):
        options_of("-c", conf(tmp_path, *alone, *required))
    with pytest.raises(OptionsError, match="tlsCertificateFilePath is not set"):
        options_of("-c", conf(tmp_path, "brokerServicePortTls=7651"))


def test_certificates_that_authenticate_are_optional_as_at_a_real_broker_unless_it_demands_them(tmp_path: Path) -> None:
    pair = certificates.make(tmp_path).server
    lines = (
        "brokerServicePortTls=7651", "webServicePortTls=7443", f"tlsCertificateFilePath={pair.cert}",
        f"tlsKeyFilePath={pair.key}", f"tlsTrustCertsFilePath={pair.cert}", "authenticationEnabled=true",
        "authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderTls",
    )  # fmt: skip
    for more, optional in (((), True), (("tlsRequireTrustedClientCertOnConnect=true",), False)):
        found = options_of("-c", conf(tmp_path, *lines, *more)).settings
        assert found["pulsar"]["tls-trust-certs-file"] == found["tls"]["client-ca"] == str(pair.cert)
        assert found["pulsar"]["tls-client-cert-optional"] is found["tls"]["client-cert-optional"] is optional


@pytest.mark.skipif(missing("broker") is not None, reason=str(missing("broker")))
def test_every_flag_of_the_real_one_is_known() -> None:
    command = [*java("broker", ["-XX:TieredStopAtLevel=1"]), "org.apache.pulsar.PulsarStandaloneStarter", "--help"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=os.sep).stdout
    there = set(re.findall(r"(?<!\S)\[?(--[a-z-]+)", said))
    assert "--bookkeeper-dir" in there
    assert there <= BY_NAME.keys()


def test_it_runs_with_a_file_of_pulsars(tmp_path: Path) -> None:
    port, http = free_port(), free_port()
    path = conf(tmp_path, f"brokerServicePort={port}", f"webServicePort={http}", "bindAddress=127.0.0.1")
    command = [sys.executable, "-m", "mq_shards.supervisor.command", "as", "pulsar", "standalone", "--config", path]
    process = subprocess.Popen(
        [*command, "--bookkeeper-dir", str(tmp_path)], cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        client = pulsar.Client(f"pulsar://127.0.0.1:{port}", operation_timeout_seconds=60)
        consumer = client.subscribe("t", "s")
        client.create_producer("t").send(b"hello")
        assert consumer.receive(60_000).data() == b"hello"
        client.close()
    finally:
        process.terminate()
        assert process.wait(60) == 0
    assert (tmp_path / "mq-shards").is_dir()
