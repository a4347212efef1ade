"""pulsar-admin's everyday commands and the other tools, by the real programs. Long: each JVM takes seconds."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.pulsar import real
from tests.pulsar.servers import PulsarServer

COMMANDS = """tenants create shop --admin-roles boss
tenants get shop
namespaces create shop/apps
namespaces list shop
namespaces set-retention shop/apps --time 2h --size 1G
namespaces get-retention shop/apps
namespaces set-message-ttl shop/apps -ttl 3600
namespaces get-message-ttl shop/apps
namespaces set-backlog-quota shop/apps --limit 10M --policy producer_request_hold
namespaces get-backlog-quotas shop/apps
namespaces remove-backlog-quota shop/apps
namespaces set-deduplication shop/apps --enable
namespaces set-schema-compatibility-strategy shop/apps -c BACKWARD
namespaces get-schema-compatibility-strategy shop/apps
namespaces set-auto-topic-creation shop/apps --enable --type partitioned -n 2
namespaces remove-auto-topic-creation shop/apps
namespaces set-publish-rate shop/apps -m 100 -b 100000
namespaces set-delayed-delivery shop/apps --enable --time 1s
namespaces grant-permission shop/apps --role r --actions produce,consume
namespaces permissions shop/apps
namespaces revoke-permission shop/apps --role r
namespaces policies shop/apps
topics create-partitioned-topic persistent://shop/apps/orders -p 3
topics update-partitioned-topic persistent://shop/apps/orders -p 4
topics get-partitioned-topic-metadata persistent://shop/apps/orders
topics list-partitioned-topics shop/apps
topics create persistent://shop/apps/plain
topics list shop/apps
topics create-subscription persistent://shop/apps/plain -s sub -p color=blue
topics get-subscription-properties persistent://shop/apps/plain -s sub
topics update-subscription-properties persistent://shop/apps/plain -s sub -p color=red
topics analyze-backlog persistent://shop/apps/plain -s sub
topics set-replicated-subscription-status persistent://shop/apps/plain -s sub -e
topics get-replicated-subscription-status persistent://shop/apps/plain -s sub
topics get-replication-clusters persistent://shop/apps/plain
topicPolicies delete persistent://shop/apps/plain
namespaces get-dispatcher-pause-on-ack-state-persistent shop/apps
namespaces get-allowed-clusters shop/apps
topics subscriptions persistent://shop/apps/plain
topics stats persistent://shop/apps/plain
topics stats-internal persistent://shop/apps/plain
topics partitioned-stats persistent://shop/apps/orders
topics lookup persistent://shop/apps/plain
topics partitioned-lookup persistent://shop/apps/orders
topics clear-backlog persistent://shop/apps/plain -s sub
topics skip persistent://shop/apps/plain -s sub -n 1
topics reset-cursor persistent://shop/apps/plain -s sub -t 10m
topics last-message-id persistent://shop/apps/plain
topics unload persistent://shop/apps/plain
topics compaction-status persistent://shop/apps/plain
topics info-internal persistent://shop/apps/plain
topics terminate persistent://shop/apps/plain
topics unsubscribe persistent://shop/apps/plain -s sub
topics delete persistent://shop/apps/plain
topics delete-partitioned-topic persistent://shop/apps/orders
namespaces create shop/bundled --bundles 8
namespaces split-bundle shop/bundled -b 0x00000000_0x20000000
namespaces bundles shop/bundled
namespaces set-dispatch-rate shop/bundled -md 10 -bd 100 -dt 1 --relative-to-publish-rate
namespaces set-anti-affinity-group shop/bundled -g apart
namespaces get-anti-affinity-namespaces -p shop -c standalone -g apart
namespaces set-bookie-affinity-group shop/bundled --primary-group x
namespaces set-schema-autoupdate-strategy shop/bundled -c Forward
resourcegroups create --msg-publish-rate 10 --byte-publish-rate 1000 g
resourcegroups update --msg-publish-rate 20 g
namespaces set-resource-group shop/bundled -rgn g
namespaces get-resource-group shop/bundled
namespaces remove-resource-group shop/bundled
resourcegroups delete g
resource-quotas set -mi 10 -mo 20 -bi 1000 -bo 2000 -mem 100 -n shop/bundled -b 0x40000000_0x60000000
resource-quotas reset-namespace-bundle-quota -n shop/bundled -b 0x40000000_0x60000000
non-persistent list-in-bundle shop/bundled -b 0x40000000_0x60000000
brokers update-dynamic-config --config maxTenants --value 55
brokers get-all-dynamic-config
brokers delete-dynamic-config --config maxTenants
brokers list-dynamic-config
brokers get-runtime-config
clusters create-failure-domain standalone --domain-name d --broker-list b
clusters delete-failure-domain standalone --domain-name d
ns-isolation-policy set --namespaces iso/.* --primary x --secondary y --auto-failover-policy-type min_available \
--auto-failover-policy-params min_limit=1,usage_threshold=80 standalone p
ns-isolation-policy delete standalone p
namespaces delete shop/bundled
brokers healthcheck
brokers list standalone
brokers version
clusters list
clusters get standalone
clusters create far --url http://far:8080
clusters update far --url http://farther:8080
clusters delete far
namespaces delete shop/apps
tenants delete shop
""".splitlines()


@pytest.mark.long
@pytest.mark.skipif(real.missing("tools") is not None, reason=real.missing("tools") or "")
def test_everyday_commands_of_pulsar_admin_work(server: PulsarServer) -> None:
    done = real.admin(f"http://{server.http}", server.url, COMMANDS)
    assert "Reason:" not in done.stdout + done.stderr, done.stdout
    assert "Unmatched argument" not in done.stdout + done.stderr, done.stdout
    assert f"[{len(COMMANDS)}/{len(COMMANDS)}]" in done.stdout
    assert '"retentionTimeInMinutes" : 120' in done.stdout
    assert "persistent://shop/apps/orders-partition-3" in done.stdout
    assert "shop/apps" in done.stdout


@pytest.mark.long
@pytest.mark.skipif(real.missing("tools") is not None, reason=real.missing("tools") or "")
def test_a_command_that_is_refused_says_why(server: PulsarServer) -> None:
    done = real.admin(f"http://{server.http}", server.url, ["topics stats persistent://public/default/there-is-none"])
    assert "there-is-none not found" in done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.skipif(real.missing("tools") is not None, reason=real.missing("tools") or "")
def test_pulsars_other_tools_produce_consume_read_and_end_transactions(server: PulsarServer, tmp_path: Path) -> None:
    config = tmp_path / "client.conf"
    config.write_text(f"webServiceUrl=http://{server.http}\nbrokerServiceUrl={server.url}\n")

    def run(main: str, *arguments: str) -> str:
        done = real.tool(f"org.apache.pulsar.{main}", str(config), *arguments)
        assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
        return done.stdout

    perf, client = "testclient.PulsarPerfTestTool", "client.cli.PulsarClientTool"
    told = "-u", server.url
    admin = "--admin-url", f"http://{server.http}"
    said = run(perf, "produce", "tools-perf", *told, *admin, "-np", "2", "-r", "2000", "-m", "2000")
    assert "records sent" in said
    said = run(perf, "consume", "tools-perf", *told, "-ss", "s", "-st", "Shared", "-sp", "Earliest", "-m", "2000")
    assert "2000 records received" in said and "ack failed 0 msg" in said
    assert "300 records received" in run(perf, "read", "tools-perf-partition-0", *told, "-n", "300")
    topics = "--topics-c", "tools-from", "--topics-p", "tools-to"
    said = run(perf, "transaction", *told, *admin, "-np", "1", *topics, "-ntxn", "20", "-nmp", "2", "-nmc", "0")
    assert "20 transaction executed" in said and "0 transaction open failed" in said
    said = run(client, "produce", "tools-client", "-m", "hello,world", "-k", "key", "-p", "a=b", "-n", "2")
    assert "4 messages successfully produced" in said
    for words in (("consume", "tools-client", "-s", "s", "-p", "Earliest"), ("read", "tools-client", "-m", "earliest")):
        said = run(client, *words, "-n", "4")
        assert said.count("key:[key], properties:[a=b], content:hello") == 2
        assert said.count("key:[key], properties:[a=b], content:world") == 2


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.skipif(real.missing("tools") is not None, reason=real.missing("tools") or "")
def test_pulsar_client_carries_keys_schemas_chunks_and_what_is_encrypted(server: PulsarServer, tmp_path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = serialization.Encoding.PEM
    (tmp_path / "private").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    (tmp_path / "public").write_bytes(
        key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    (tmp_path / "large").write_bytes(b"x" * 12_000_000)
    record = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
    commands = f"""produce tool-plain -m a,b -k key -p x=y -n 2
consume tool-plain -s s -p Earliest -n 4 -t Key_Shared
produce tool-pair -m value -kvk key -kvet separated -ks string -vs string
consume tool-pair -s s -p Earliest -n 1 -st auto_consume
produce tool-avro -m '{{"a":5}}' -s # -vs 'avro:{record}'
consume tool-avro -s s -p Earliest -n 1 -st auto_consume -t Failover
produce tool-secret -m secret -ekn k -ekv file://{tmp_path}/public
consume tool-secret -s s -p Earliest -n 1 -ekv file://{tmp_path}/private
produce tool-large -f {tmp_path}/large -c
consume tool-large -s s -p Earliest -n 1 --hide-content
produce tool-pattern-1 -m found
consume --regex persistent://public/default/tool-pattern-.* -s s -p Earliest -n 1
consume tool-plain -s again -p Earliest -n 1 -m NonDurable -mp
read tool-plain -m earliest -n 4
""".splitlines()
    done = real.shell(f"http://{server.http}", server.url, [f"client {command}" for command in commands])
    said = done.stdout
    assert f"[{len(commands)}/{len(commands)}]" in said, said + done.stderr
    assert said.count("key:[key], properties:[x=y], content:a") == 5
    assert said.count("key:[key], properties:[x=y], content:b") == 4
    assert "value={value=value, type=class java.lang.String}" in said
    assert "content:{a=5}" in said
    assert "content:secret" in said and "content:found" in said
    assert said.count("got message") == 4 + 1 + 1 + 1 + 1 + 1 + 4
