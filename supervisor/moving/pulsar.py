"""The command line and the configuration file of a standalone Pulsar (4.0's): `bin/pulsar standalone`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from mq_shards.acceptor.option_kinds import OptionsError
from mq_shards.supervisor.moving import properties
from mq_shards.supervisor.moving.translation import ANY_ADDRESS, DUAL_STACK, Translation, checked, ignored

HELP: Final = """\
Usage: mq-shards as pulsar standalone [options of Pulsar 4.0's standalone] [-- options of mq-shards]
"""
# The names of each flag, and whether it takes a value; the rest of this module uses the first name.
FLAGS: Final[Mapping[tuple[str, ...], bool]] = {
    ("--config", "-c"): True, ("--advertised-address", "-a"): True, ("--bookkeeper-dir",): True,
    ("--metadata-dir",): True, ("--metadata-url",): True, ("--zookeeper-dir",): True, ("--zookeeper-port",): True,
    ("--bookkeeper-port",): True, ("--num-bookies",): True, ("--stream-storage-port",): True,
    ("--functions-worker-conf", "-fwc"): True, ("--no-functions-worker", "-nfw"): False,
    ("--no-stream-storage", "-nss"): False, ("--wipe-data",): False, ("--only-broker",): False, ("--no-broker",): False,
    ("--help", "-h"): False, ("--generate-docs", "-g"): False,
}  # fmt: skip
BY_NAME: Final = {name: names[0] for names in FLAGS for name in names}
TAKES_VALUE: Final = {names[0]: takes for names, takes in FLAGS.items()}
NO_BOOKIES: Final = "there are no bookies and no metadata store here: it is all in one directory"
NO_FUNCTIONS: Final = "there are no Pulsar Functions here"
NO_EFFECT: Final[Mapping[str, str]] = {
    "metadata-dir": NO_BOOKIES, "metadata-url": NO_BOOKIES, "zookeeper-dir": NO_BOOKIES, "zookeeper-port": NO_BOOKIES,
    "bookkeeper-port": NO_BOOKIES, "num-bookies": NO_BOOKIES, "only-broker": NO_BOOKIES,
    "stream-storage-port": "there is no table service here", "functions-worker-conf": NO_FUNCTIONS,
    "wipe-data": "remove the data directory by hand",
}  # fmt: skip
CONFIG_IN_ENVIRONMENT: Final = "PULSAR_STANDALONE_CONF"  # the variable of bin/pulsar
USUAL_CONFIG: Final = "conf/standalone.conf"  # bin/pulsar reads it without being told, below the directory it runs in
# bin/pulsar runs Java without IPv6, unless one of these variables says otherwise.
JAVA_OPTIONS: Final = ("OPTS", "PULSAR_EXTRA_OPTS")
WITH_IPV6: Final = "-Djava.net.preferIPv4Stack=false"
DIRECTORY: Final = "data/standalone/bookkeeper"
MESSAGES: Final = ("bookkeeper*/current", "current")
TLS_PORT: Final = "brokerServicePortTls"
WEB_TLS_PORT: Final = "webServicePortTls"

TOKENS: Final = "AuthenticationProviderToken"
PASSWORDS: Final = "AuthenticationProviderBasic"
CERTIFICATES: Final = "AuthenticationProviderTls"
RIGHTS: Final = "PulsarAuthorizationProvider"
# Settings of the file, and the names of the options that they are here.
SETTINGS: Final[Mapping[str, str]] = {
    "maxMessageSize": "max-message-size", "brokerDeduplicationEnabled": "deduplication",
    "authorizationEnabled": "authorization-enabled",
}  # fmt: skip
IN_SECONDS: Final[Mapping[str, str]] = {
    "keepAliveIntervalSeconds": "keep-alive", "backlogQuotaCheckIntervalInSeconds": "policies-interval",
}  # fmt: skip
LISTS: Final[Mapping[str, str]] = {"superUserRoles": "super-user-roles", "proxyRoles": "proxy-roles"}


class Unlike(NamedTuple):
    """A setting without effect. A note says so, unless its value is a quiet one: what this broker does anyway."""

    quiet: tuple[str, ...]
    why: str


OFF: Final = ("", "0", "-1", "false")
ON: Final = ("", "true")
POLICY: Final = "set it with pulsar-admin, by namespace or topic"
DYNAMIC: Final = "set it with pulsar-admin brokers update-dynamic-config"
NO_LIMIT: Final = "there is no such limit here"
LIMITED: Final = "broker.max-connections is the limit of an acceptor, for all addresses and protocols"
NO_PLUGINS: Final = "there are no plugins here"
ONE_COPY: Final = "a message is kept once, on this machine's disk"
FIGURES: Final = "/metrics/ has what it has, whatever the file says"
LOOKED_AT: Final = "pulsar.policies-interval says how often policies are looked after"
UNLIKE: Final[Mapping[str, Unlike]] = {
    "advertisedListeners": Unlike(("",), "clients are told one address: pulsar.advertised-url"),
    "bindAddresses": Unlike(("",), "further addresses are --listen pulsar://HOST:PORT"),
    "clusterName": Unlike(("standalone", ""), "the cluster is called standalone"),
    "haProxyProtocolEnabled": Unlike(OFF, "the PROXY protocol is not spoken"),
    "tlsEnabledWithKeyStore": Unlike(OFF, "certificates are PEM files here"),
    "tlsAllowInsecureConnection": Unlike(OFF, "a certificate that nobody trusts is refused"),
    "tlsProtocols": Unlike(("", "TLSv1.3,TLSv1.2", "TLSv1.2,TLSv1.3"), "TLS 1.2 and 1.3 are spoken"),
    "tlsCiphers": Unlike(("",), "the ciphers are those that Python's TLS has by default"),
    "authorizationAllowWildcardsMatching": Unlike(OFF, "what is granted is granted to whole names of roles"),
    "tokenAllowedClockSkewSeconds": Unlike(OFF, "a token's times are taken as they stand there"),
    "webSocketServiceEnabled": Unlike(OFF, "there is no websocket service here"),
    "functionsWorkerEnabled": Unlike(OFF, NO_FUNCTIONS),
    "enablePackagesManagement": Unlike(OFF, "there is no packages service here"),
    "managedLedgerOffloadDriver": Unlike(("",), "nothing is offloaded"),
    "clientLibraryVersionCheckEnabled": Unlike(OFF, "clients of all versions are let in"),
    "enablePersistentTopics": Unlike(ON, "both kinds of topics are served"),
    "enableNonPersistentTopics": Unlike(ON, "both kinds of topics are served"),
    "topicLevelPoliciesEnabled": Unlike(ON, "topics have policies of their own here"),
    "backlogQuotaCheckEnabled": Unlike(ON, "a quota that is set is looked after"),
    "brokerDeleteInactiveTopicsEnabled": Unlike(("", "false"), f"topics that nobody uses stay: {DYNAMIC}"),
    "forceDeleteNamespaceAllowed": Unlike(OFF, f"a namespace is deleted when it is empty: {DYNAMIC}"),
    "forceDeleteTenantAllowed": Unlike(OFF, f"a tenant is deleted when it is empty: {DYNAMIC}"),
    "maxSameAddressProducersPerTopic": Unlike(OFF, NO_LIMIT),
    "maxSameAddressConsumersPerTopic": Unlike(OFF, NO_LIMIT),
    "maxNumPartitionsPerPartitionedTopic": Unlike(OFF, DYNAMIC),
    "maxUnackedMessagesPerBroker": Unlike(OFF, NO_LIMIT),
    "dispatchThrottlingRateInMsg": Unlike(OFF, NO_LIMIT),
    "dispatchThrottlingRateInByte": Unlike(OFF, NO_LIMIT),
    "brokerPublisherThrottlingMaxMessageRate": Unlike(OFF, NO_LIMIT),
    "brokerPublisherThrottlingMaxByteRate": Unlike(OFF, NO_LIMIT),
    "defaultRetentionTimeInMinutes": Unlike(OFF, "log.retention-hours keeps what is finished, for all topics"),
    "defaultRetentionSizeInMB": Unlike(OFF, "log.retention-bytes keeps what is finished, for all topics"),
    "maxTenants": Unlike(OFF, DYNAMIC),
    "maxNamespacesPerTenant": Unlike(OFF, DYNAMIC),
    "brokerMaxConnections": Unlike(OFF, LIMITED),
    "brokerMaxConnectionsPerIp": Unlike(OFF, LIMITED),
    "httpRequestsLimitEnabled": Unlike(OFF, NO_LIMIT),
    "delayedDeliveryMaxDelayInMillis": Unlike(OFF, "a message may be delayed as long as it says"),
    "bootstrapNamespaces": Unlike(("",), "namespaces are made with pulsar-admin"),
    "strictTopicNameEnabled": Unlike(OFF, "names of topics are taken as they are"),
    "subscriptionKeySharedEnable": Unlike(ON, "Key_Shared subscriptions are served"),
    "exposingBrokerEntryMetadataToClientEnabled": Unlike(OFF, "clients are shown no metadata of the broker's"),
    "authenticateMetricsEndpoint": Unlike(OFF, "figures are at http://.../metrics, where users may be asked for"),
    "webServiceHaProxyProtocolEnabled": Unlike(OFF, "the PROXY protocol is not spoken"),
    "webServiceTrustXForwardedFor": Unlike(OFF, "an address is that of the connection"),
    "brokerEntryMetadataInterceptors": Unlike(("",), NO_PLUGINS),
    "brokerEntryPayloadProcessors": Unlike(("",), NO_PLUGINS),
    "messagingProtocols": Unlike(("",), f"{NO_PLUGINS}; other protocols are --listen SCHEME://HOST:PORT"),
    "brokerInterceptors": Unlike(("",), NO_PLUGINS),
    "additionalServlets": Unlike(("",), NO_PLUGINS),
    "entryFilterNames": Unlike(("",), NO_PLUGINS),
    "activeConsumerFailoverDelayTimeMillis": Unlike(("", "1000", "0"), "the active consumer changes at once"),
    "brokerDeduplicationProducerInactivityTimeoutMinutes": Unlike(("", "360"), "a producer is forgotten after 6 hours"),
    "compactionServiceFactoryClassName": Unlike(
        ("", "org.apache.pulsar.compaction.PulsarCompactionServiceFactory"), NO_PLUGINS
    ),
    "connectionLivenessCheckTimeoutMillis": Unlike(("", "5000"), "who is in another's way has 5 s to answer a PING"),
    "defaultNumberOfNamespaceBundles": Unlike(("", "4"), DYNAMIC),
    "dispatchThrottlingOnBatchMessageEnabled": Unlike(OFF, "rates count the messages of a batch"),
    "dispatchThrottlingOnNonBacklogConsumerEnabled": Unlike(ON, "rates are for all consumers"),
    "maxActiveTransactionsPerCoordinator": Unlike(OFF, "50,000 open transactions are the limit here"),
    "maxConsumerMetadataSize": Unlike(("", "1024"), "1,024 characters are the limit here"),
    "maxPendingPublishRequestsPerConnection": Unlike(("", "1000"), "1,000 are the limit here"),
    "sslFactoryPlugin": Unlike(("", "org.apache.pulsar.common.util.DefaultPulsarSslFactory"), NO_PLUGINS),
    "statusFilePath": Unlike(("",), "/status.html says that the broker serves, without a file"),
    "strictlyVerifySubscriptionName": Unlike(OFF, "names of subscriptions are taken as they are"),
    "subscriptionBacklogScanMaxEntries": Unlike(("", "10000"), "analyze-backlog counts 10,000 entries"),
    "subscriptionRedeliveryTrackerEnabled": Unlike(ON, "redeliveries are counted"),
    "topicCompactionRetainNullKey": Unlike(OFF, "compaction removes messages without a key"),
    "topicFactoryClassName": Unlike(("",), NO_PLUGINS),
    "exposeTopicLevelMetricsInPrometheus": Unlike(ON, FIGURES),
    **dict.fromkeys(
        (
            "exposeBundlesMetricsInPrometheus",
            "exposeConsumerLevelMetricsInPrometheus",
            "exposeProducerLevelMetricsInPrometheus",
            "splitTopicAndPartitionLabelInPrometheus",
        ),
        Unlike(OFF, FIGURES),
    ),
    **dict.fromkeys(
        ("managedLedgerDefaultEnsembleSize", "managedLedgerDefaultWriteQuorum", "managedLedgerDefaultAckQuorum"),
        Unlike(("", "1"), ONE_COPY),
    ),
    "brokerServiceCompactionMonitorIntervalInSeconds": Unlike(("", "60"), LOOKED_AT),
    "messageExpiryCheckIntervalInMinutes": Unlike(("", "5"), LOOKED_AT),
    "retentionCheckIntervalInSeconds": Unlike(("", "120"), LOOKED_AT),
    "subscriptionExpiryCheckIntervalInMinutes": Unlike(("", "5"), LOOKED_AT),
    # Settings that pulsar-admin can change here, each with the values that hold until it does.
    **{
        name: Unlike(quiet, POLICY)
        for name, quiet in {
            "allowAutoTopicCreation": ON,
            "allowAutoTopicCreationType": ("", "non-partitioned"),
            "allowAutoSubscriptionCreation": ON,
            "backlogQuotaDefaultRetentionPolicy": ("", "producer_request_hold"),
            "defaultNumPartitions": ("", "1"),
            "delayedDeliveryEnabled": ON,
            "isAllowAutoUpdateSchemaEnabled": ON,
            "isSchemaValidationEnforced": OFF,
            "schemaCompatibilityStrategy": ("", "FULL"),
            "encryptionRequireOnProducer": OFF,
            "subscriptionTypesEnabled": ("", "Exclusive,Shared,Failover,Key_Shared"),
            "maxUnackedMessagesPerConsumer": ("", "50000"),
            "maxUnackedMessagesPerSubscription": ("", "200000"),
            **dict.fromkeys(
                (
                    "ttlDurationDefaultInSeconds",
                    "backlogQuotaDefaultLimitGB",
                    "backlogQuotaDefaultLimitBytes",
                    "backlogQuotaDefaultLimitSecond",
                    "subscriptionExpirationTimeMinutes",
                    "dispatchThrottlingRatePerTopicInMsg",
                    "dispatchThrottlingRatePerTopicInByte",
                    "dispatchThrottlingRatePerSubscriptionInMsg",
                    "dispatchThrottlingRatePerSubscriptionInByte",
                    "dispatchThrottlingRateRelativeToPublishRate",
                    "subscribeThrottlingRatePerConsumer",
                    "maxPublishRatePerTopicInMessages",
                    "maxPublishRatePerTopicInBytes",
                    "maxProducersPerTopic",
                    "maxConsumersPerTopic",
                    "maxConsumersPerSubscription",
                    "maxSubscriptionsPerTopic",
                    "maxTopicsPerNamespace",
                    "brokerServiceCompactionThresholdInBytes",
                ),
                OFF,
            ),
        }.items()
    },
}


def translate(arguments: Sequence[str], version: str) -> Translation:
    """Translates the arguments of bin/pulsar. Raises OptionsError."""
    if not arguments or arguments[0] != "standalone":
        raise OptionsError("pulsar: of its commands there is `standalone` here: mq-shards as pulsar standalone ...")
    t = Translation()
    given = dict(_flags(arguments[1:]))
    if "help" in given or "generate-docs" in given:
        t.said = HELP
        return t
    if "no-broker" in given:
        raise OptionsError("pulsar: --no-broker leaves nothing to be done here")
    config = given.get("config") or os.environ.get(CONFIG_IN_ENVIRONMENT, "")
    if not config and Path(USUAL_CONFIG).exists():
        config = USUAL_CONFIG
    if not config:  # it may be what turns authentication on
        t.notes.append(f"no configuration is read: there is no {USUAL_CONFIG} in {Path.cwd()}, and no --config")
    t.has_file = bool(config)
    conf = {name: value.strip() for name, value in (properties.read(config) if config else {}).items()}
    _listen(t, conf, given.get("advertised-address") or conf.get("advertisedAddress", ""))
    t.keep_in(given.get("bookkeeper-dir", DIRECTORY), MESSAGES, "Pulsar", is_made=True)
    for name in given:
        ignored(t, name, NO_EFFECT, dashes="--")
    _set(t, conf)
    _authenticate(t, conf)
    for name, unlike in UNLIKE.items():
        value = conf.get(name, unlike.quiet[0])
        if value.replace(" ", "") not in unlike.quiet and value.lower() not in unlike.quiet:
            t.notes.append(f"{name}={value} has no effect: {unlike.why}")
    return t


def _listen(t: Translation, conf: Mapping[str, str], advertised: str) -> None:
    host = conf.get("bindAddress") or ANY_ADDRESS
    wildcards = DUAL_STACK if any(WITH_IPV6 in os.environ.get(name, "").split() for name in JAVA_OPTIONS) else ()
    port = conf.get("brokerServicePort", "6650")
    with_tls = conf.get(TLS_PORT, "")
    if not port and not with_tls:
        raise OptionsError(f"pulsar: neither brokerServicePort nor {TLS_PORT} is set")
    for name, scheme, number in (
        ("brokerServicePort", "pulsar", port),
        (TLS_PORT, "pulsar", with_tls if with_tls != port else ""),
        ("webServicePort", "pulsar-http", conf.get("webServicePort", "8080")),
    ):
        if number:
            t.listen(scheme, host, str(checked(number, f"pulsar: {name}", range(65536))), wildcards)
    _listen_for_administration(t, conf, host, wildcards)
    if advertised:
        bare = advertised.strip("[]")
        t.setting("pulsar.advertised-url", f"pulsar://{f'[{bare}]' if ':' in bare else bare}:{port or with_tls}")
    if with_tls or conf.get("tlsEnabled", "").lower() == "true":
        t.setting("pulsar.tls-cert-file", _needed(conf, "tlsCertificateFilePath"))
        t.setting("pulsar.tls-key-file", _needed(conf, "tlsKeyFilePath"))
        certificates = _wants_certificates(conf)
        if with_tls and not port and certificates:
            raise OptionsError(
                f"pulsar: tlsRequireTrustedClientCertOnConnect without brokerServicePort: port {with_tls} would let"
                " in plain clients, of whom no certificate is asked"
            )
        if with_tls:
            ports = f"each of the ports {port} and {with_tls}" if port else f"port {with_tls}"
            t.notes.append(f"TLS and plain clients are served on {ports}")
        if certificates:
            t.setting("pulsar.tls-trust-certs-file", _needed(conf, "tlsTrustCertsFilePath"))


def _listen_for_administration(t: Translation, conf: Mapping[str, str], host: str, wildcards: Sequence[str]) -> None:
    """Serves administration over TLS, with the same certificate as brokerServicePortTls."""
    number = conf.get(WEB_TLS_PORT, "")
    if number:
        t.listen("pulsar-https", host, str(checked(number, f"pulsar: {WEB_TLS_PORT}", range(65536))), wildcards)
        t.setting("tls.cert", _needed(conf, "tlsCertificateFilePath"))
        t.setting("tls.key", _needed(conf, "tlsKeyFilePath"))
        if _wants_certificates(conf):
            t.setting("tls.client-ca", _needed(conf, "tlsTrustCertsFilePath"))


def _wants_certificates(conf: Mapping[str, str]) -> bool:
    return conf.get("tlsRequireTrustedClientCertOnConnect", "").lower() == "true"


def _needed(conf: Mapping[str, str], name: str) -> str:
    if not conf.get(name):
        raise OptionsError(f"pulsar: {name} is not set")
    return conf[name]


def _set(t: Translation, conf: Mapping[str, str]) -> None:
    t.option("sync", "always" if conf.get("journalSyncData", "").lower() == "true" else "interval")
    for name, option in SETTINGS.items():
        if conf.get(name):
            t.setting(f"pulsar.{option}", conf[name].lower())
    for name, option in IN_SECONDS.items():
        if conf.get(name):
            t.setting(f"pulsar.{option}", f"{checked(conf[name], f'pulsar: {name}', range(1, 1 << 31))}s")
    for name, option in LISTS.items():
        for role in filter(None, (role.strip() for role in conf.get(name, "").split(","))):
            t.setting(f"pulsar.{option}", role)


def _authenticate(t: Translation, conf: Mapping[str, str]) -> None:
    """Translates authentication. What is unknown here is an error, not a note: it could let the wrong clients in."""
    if conf.get("authenticationEnabled", "").lower() != "true":
        return
    if conf.get("anonymousUserRole"):
        t.setting("pulsar.anonymous-role", conf["anonymousUserRole"])
    judge = conf.get("authorizationProvider", "")
    if conf.get("authorizationEnabled", "").lower() == "true" and judge.rpartition(".")[2] not in ("", RIGHTS):
        raise OptionsError(f"pulsar: authorizationProvider: {judge} is not known here ({RIGHTS})")
    if conf.get("proxyRoles") and conf.get("authenticateOriginalAuthData", "").lower() == "true":
        raise OptionsError("pulsar: authenticateOriginalAuthData is not known here: a proxy would be believed")
    providers = [one.strip().rpartition(".")[2] for one in conf.get("authenticationProviders", "").split(",")]
    providers = list(filter(None, providers))
    if not providers:
        raise OptionsError("pulsar: authenticationEnabled=true without authenticationProviders lets nobody in")
    for provider in providers:
        if provider == TOKENS:
            _tokens(t, conf)
        elif provider == PASSWORDS:
            t.setting("pulsar.basic-auth-file", _file(_needed(conf, "basicAuthConf"), "basicAuthConf"))
        elif provider == CERTIFICATES:
            t.setting("pulsar.tls-auth", "true")
            t.setting("pulsar.tls-trust-certs-file", _needed(conf, "tlsTrustCertsFilePath"))
            optional = str(not _wants_certificates(conf)).lower()
            t.setting("pulsar.tls-client-cert-optional", optional)
            if conf.get(WEB_TLS_PORT):
                t.setting("tls.client-ca", _needed(conf, "tlsTrustCertsFilePath"))
                t.setting("tls.client-cert-optional", optional)
        else:
            raise OptionsError(
                f"pulsar: authenticationProviders: {provider} is not known here ({TOKENS}, {PASSWORDS}, {CERTIFICATES})"
            )


def _tokens(t: Translation, conf: Mapping[str, str]) -> None:
    if conf.get("tokenSecretKey"):
        t.setting("pulsar.token-secret-key-file", _file(conf["tokenSecretKey"], "tokenSecretKey"))
    elif conf.get("tokenPublicKey"):
        t.setting("pulsar.token-public-key-file", _file(conf["tokenPublicKey"], "tokenPublicKey"))
    else:
        raise OptionsError(f"pulsar: {TOKENS} needs tokenSecretKey or tokenPublicKey")
    for name in ("tokenAudienceClaim", "tokenAudience"):
        if conf.get(name):
            raise OptionsError(f"pulsar: {name} is not known here: tokens for another audience would be let in")
    for name, option in (("tokenPublicAlg", "token-public-alg"), ("tokenAuthClaim", "token-auth-claim")):
        if conf.get(name):
            t.setting(f"pulsar.{option}", conf[name])


def _file(value: str, name: str) -> str:
    """Reads a path or file URL. Raises OptionsError, also for a key itself: other users can see arguments."""
    path = Path(value.removeprefix("file://") if value.startswith("file://") else value.removeprefix("file:"))
    if not path.is_file():
        raise OptionsError(f"pulsar: {name} has to name a file that is there, as file:///path")
    return str(path)


def _flags(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields the first name of each flag, without dashes, and its value."""
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if name not in BY_NAME:
            raise OptionsError(f"pulsar standalone has no option {word}")
        name = BY_NAME[name]
        if not TAKES_VALUE[name]:
            yield name[2:], "true"
        elif equals or rest:
            yield name[2:], value if equals else rest.pop(0)
        else:
            raise OptionsError(f"pulsar standalone: {name} needs a value")
