"""Pulsar's commands as protobuf messages. They are made from a table, without a .proto file or protoc.

    name, body = decode(data)
    frame = encode("success", request_id=1)

A line of the table is a message and its fields. A field is its name, a mark (`!`: required, `*`: repeated, `:`:
optional), its kind and its number. Names and numbers are those of version 21 of Pulsar's protocol. `enum3` is a number
of 0 to 3; if a client sends another one the field counts as missing. A command has the name of its field in
BaseCommand, and that field's number is the command's type.

protobuf is imported when the first command comes, because the supervisor imports this module without needing it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final, TypeAlias

PACKAGE: Final = "mq_shards.pulsar"

# A protobuf message, with the fields that the table says.
Message: TypeAlias = Any

# FieldDescriptorProto.Type and .Label
KINDS: Final = {"double": 1, "i64": 3, "u64": 4, "i32": 5, "bool": 8, "text": 9, "bytes": 12, "u32": 13}
A_MESSAGE: Final = 11
AN_ENUM: Final = 14
ENUM: Final = "enum"
LABELS: Final = {":": 1, "!": 2, "*": 3}

TABLE: Final = """
KeyValue key!text=1 value!text=2
IntRange start!i32=1 end!i32=2
Schema name!text=1 schema_data!bytes=3 type!enum21=4 properties*KeyValue=5
MessageId ledgerId!u64=1 entryId!u64=2 partition:i32=3 batch_index:i32=4 ack_set*i64=5 batch_size:i32=6 \
    first_chunk_message_id:MessageId=7
KeyShared keySharedMode!enum1=1 hashRanges*IntRange=3 allowOutOfOrderDelivery:bool=4
AuthData auth_method_name:text=1 auth_data:bytes=2
FeatureFlags supports_auth_refresh:bool=1 supports_broker_entry_metadata:bool=2 supports_partial_producer:bool=3 \
    supports_topic_watchers:bool=4 supports_get_partitioned_metadata_without_auto_creation:bool=5 \
    supports_repl_dedup_by_lid_and_eid:bool=6
Connect client_version!text=1 auth_method:i32=2 auth_data:bytes=3 protocol_version:i32=4 auth_method_name:text=5 \
    proxy_to_broker_url:text=6 original_principal:text=7 original_auth_data:text=8 original_auth_method:text=9 \
    feature_flags:FeatureFlags=10 proxy_version:text=11
Connected server_version!text=1 protocol_version:i32=2 max_message_size:i32=3 feature_flags:FeatureFlags=4
AuthResponse client_version:text=1 response:AuthData=2 protocol_version:i32=3
AuthChallenge server_version:text=1 challenge:AuthData=2 protocol_version:i32=3
Subscribe topic!text=1 subscription!text=2 subType!enum3=3 consumer_id!u64=4 request_id!u64=5 consumer_name:text=6 \
    priority_level:i32=7 durable:bool=8 start_message_id:MessageId=9 metadata*KeyValue=10 read_compacted:bool=11 \
    schema:Schema=12 initialPosition:enum1=13 replicate_subscription_state:bool=14 force_topic_creation:bool=15 \
    start_message_rollback_duration_sec:u64=16 keySharedMeta:KeyShared=17 subscription_properties*KeyValue=18 \
    consumer_epoch:u64=19
Producer topic!text=1 producer_id!u64=2 request_id!u64=3 producer_name:text=4 encrypted:bool=5 \
    metadata*KeyValue=6 schema:Schema=7 epoch:u64=8 user_provided_producer_name:bool=9 \
    producer_access_mode:enum3=10 topic_epoch:u64=11 txn_enabled:bool=12 initial_subscription_name:text=13
Unsubscribe consumer_id!u64=1 request_id!u64=2 force:bool=3
Success request_id!u64=1 schema:Schema=2
Error request_id!u64=1 error!i32=2 message!text=3
CloseProducer producer_id!u64=1 request_id!u64=2
CloseConsumer consumer_id!u64=1 request_id!u64=2
ProducerSuccess request_id!u64=1 producer_name!text=2 last_sequence_id:i64=3 schema_version:bytes=4 \
    topic_epoch:u64=5 producer_ready:bool=6
PartitionMetadata topic!text=1 request_id!u64=2 original_principal:text=3 original_auth_data:text=4 \
    original_auth_method:text=5 metadata_auto_creation_enabled:bool=6
PartitionMetadataResponse partitions:u32=1 request_id!u64=2 response:i32=3 error:i32=4 message:text=5
Lookup topic!text=1 request_id!u64=2 authoritative:bool=3 original_principal:text=4 original_auth_data:text=5 \
    original_auth_method:text=6 advertised_listener_name:text=7 properties*KeyValue=8
LookupResponse brokerServiceUrl:text=1 brokerServiceUrlTls:text=2 response:i32=3 request_id!u64=4 \
    authoritative:bool=5 error:i32=6 message:text=7 proxy_through_service_url:bool=8
ConsumerStats request_id!u64=1 consumer_id!u64=4
ConsumerStatsResponse request_id!u64=1 error_code:i32=2 error_message:text=3 msgRateOut:double=4 \
    msgThroughputOut:double=5 msgRateRedeliver:double=6 consumerName:text=7 availablePermits:u64=8 \
    unackedMessages:u64=9 blockedConsumerOnUnackedMsgs:bool=10 address:text=11 connectedSince:text=12 \
    type:text=13 msgRateExpired:double=14 msgBacklog:u64=15 messageAckRate:double=16
ReachedEndOfTopic consumer_id!u64=1
Seek consumer_id!u64=1 request_id!u64=2 message_id:MessageId=3 message_publish_time:u64=4
GetLastMessageId consumer_id!u64=1 request_id!u64=2
GetLastMessageIdResponse last_message_id!MessageId=1 request_id!u64=2 consumer_mark_delete_position:MessageId=3
GetTopics request_id!u64=1 namespace!text=2 mode:enum2=3 topics_pattern:text=4 topics_hash:text=5
GetTopicsResponse request_id!u64=1 topics*text=2 filtered:bool=3 topics_hash:text=4 changed:bool=5
GetSchema request_id!u64=1 topic!text=2 schema_version:bytes=3
GetSchemaResponse request_id!u64=1 error_code:i32=2 error_message:text=3 schema:Schema=4 schema_version:bytes=5
GetOrCreateSchema request_id!u64=1 topic!text=2 schema!Schema=3
GetOrCreateSchemaResponse request_id!u64=1 error_code:i32=2 error_message:text=3 schema_version:bytes=4
WatchTopicList request_id!u64=1 watcher_id!u64=2 namespace!text=3 topics_pattern!text=4 topics_hash:text=5
WatchTopicListSuccess request_id!u64=1 watcher_id!u64=2 topic*text=3 topics_hash!text=4
WatchTopicUpdate watcher_id!u64=1 new_topics*text=2 deleted_topics*text=3 topics_hash!text=4
WatchTopicListClose request_id!u64=1 watcher_id!u64=2
TcClientConnect request_id!u64=1 tc_id!u64=2
TcClientConnectResponse request_id!u64=1 error:i32=2 message:text=3
NewTxn request_id!u64=1 txn_ttl_seconds:u64=2 tc_id:u64=3
NewTxnResponse request_id!u64=1 txnid_least_bits:u64=2 txnid_most_bits:u64=3 error:i32=4 message:text=5
TxnSubscription topic!text=1 subscription!text=2
AddPartitionToTxn request_id!u64=1 txnid_least_bits:u64=2 txnid_most_bits:u64=3 partitions*text=4
AddSubscriptionToTxn request_id!u64=1 txnid_least_bits:u64=2 txnid_most_bits:u64=3 subscription*TxnSubscription=4
EndTxn request_id!u64=1 txnid_least_bits:u64=2 txnid_most_bits:u64=3 txn_action:enum1=4
TxnResponse request_id!u64=1 txnid_least_bits:u64=2 txnid_most_bits:u64=3 error:i32=4 message:text=5
MessageMetadata producer_name!text=1 sequence_id!u64=2 publish_time!u64=3 properties*KeyValue=4 \
    replicated_from:text=5 partition_key:text=6 compression:i32=8 uncompressed_size:u32=9 \
    num_messages_in_batch:i32=11 event_time:u64=12 schema_version:bytes=16 partition_key_b64_encoded:bool=17 \
    ordering_key:bytes=18 deliver_at_time:i64=19 marker_type:i32=20 txnid_least_bits:u64=22 \
    txnid_most_bits:u64=23 highest_sequence_id:u64=24 null_value:bool=25 uuid:text=26 num_chunks_from_msg:i32=27 \
    total_chunk_msg_size:i32=28 chunk_id:i32=29 null_partition_key:bool=30
SingleMessageMetadata properties*KeyValue=1 partition_key:text=2 payload_size!i32=3 compacted_out:bool=4 \
    event_time:u64=5 partition_key_b64_encoded:bool=6 ordering_key:bytes=7 sequence_id:u64=8 null_value:bool=9 \
    null_partition_key:bool=10
Send producer_id!u64=1 sequence_id!u64=2 num_messages:i32=3 txnid_least_bits:u64=4 txnid_most_bits:u64=5 \
    highest_sequence_id:u64=6 is_chunk:bool=7 marker:bool=8
SendReceipt producer_id!u64=1 sequence_id!u64=2 message_id:MessageId=3 highest_sequence_id:u64=4
SendError producer_id!u64=1 sequence_id!u64=2 error!i32=3 message!text=4
Delivery consumer_id!u64=1 message_id!MessageId=2 redelivery_count:u32=3 ack_set*i64=4 consumer_epoch:u64=5
Ack consumer_id!u64=1 ack_type!enum1=2 message_id*MessageId=3 validation_error:enum4=4 txnid_least_bits:u64=6 \
    txnid_most_bits:u64=7 request_id:u64=8
AckResponse consumer_id!u64=1 txnid_least_bits:u64=2 txnid_most_bits:u64=3 error:i32=4 message:text=5 \
    request_id:u64=6
Flow consumer_id!u64=1 messagePermits!u32=2
Ping
Pong
Redeliver consumer_id!u64=1 message_ids*MessageId=2 consumer_epoch:u64=3
ActiveConsumerChange consumer_id!u64=1 is_active:bool=2
BaseCommand type!i32=1 connect:Connect=2 connected:Connected=3 subscribe:Subscribe=4 producer:Producer=5 \
    send:Send=6 send_receipt:SendReceipt=7 send_error:SendError=8 message:Delivery=9 ack:Ack=10 flow:Flow=11 \
    unsubscribe:Unsubscribe=12 success:Success=13 error:Error=14 close_producer:CloseProducer=15 \
    close_consumer:CloseConsumer=16 producer_success:ProducerSuccess=17 ping:Ping=18 pong:Pong=19 \
    redeliverUnacknowledgedMessages:Redeliver=20 partitionMetadata:PartitionMetadata=21 \
    partitionMetadataResponse:PartitionMetadataResponse=22 lookupTopic:Lookup=23 \
    lookupTopicResponse:LookupResponse=24 consumerStats:ConsumerStats=25 \
    consumerStatsResponse:ConsumerStatsResponse=26 reachedEndOfTopic:ReachedEndOfTopic=27 seek:Seek=28 \
    getLastMessageId:GetLastMessageId=29 getLastMessageIdResponse:GetLastMessageIdResponse=30 \
    active_consumer_change:ActiveConsumerChange=31 getTopicsOfNamespace:GetTopics=32 \
    getTopicsOfNamespaceResponse:GetTopicsResponse=33 getSchema:GetSchema=34 \
    getSchemaResponse:GetSchemaResponse=35 authChallenge:AuthChallenge=36 authResponse:AuthResponse=37 \
    ackResponse:AckResponse=38 getOrCreateSchema:GetOrCreateSchema=39 \
    getOrCreateSchemaResponse:GetOrCreateSchemaResponse=40 newTxn:NewTxn=50 newTxnResponse:NewTxnResponse=51 \
    addPartitionToTxn:AddPartitionToTxn=52 addPartitionToTxnResponse:TxnResponse=53 \
    addSubscriptionToTxn:AddSubscriptionToTxn=54 addSubscriptionToTxnResponse:TxnResponse=55 \
    endTxn:EndTxn=56 endTxnResponse:TxnResponse=57 \
    tcClientConnectRequest:TcClientConnect=62 tcClientConnectResponse:TcClientConnectResponse=63 \
    watchTopicList:WatchTopicList=64 watchTopicListSuccess:WatchTopicListSuccess=65 \
    watchTopicUpdate:WatchTopicUpdate=66 watchTopicListClose:WatchTopicListClose=67
"""

# Default values other than 0.
_DEFAULTS: Final = {
    ("MessageId", "partition"): "-1", ("MessageId", "batch_index"): "-1",
    ("Subscribe", "durable"): "true", ("Subscribe", "force_topic_creation"): "true",
    ("Producer", "user_provided_producer_name"): "true",
    ("PartitionMetadata", "metadata_auto_creation_enabled"): "true",
}  # fmt: skip


def _add_field(message: Message, text: str) -> None:
    """`text`: a field as in the table."""
    declared, _, number = text.partition("=")
    mark = next(mark for mark in declared if mark in LABELS)
    name, _, kind = declared.partition(mark)
    type = AN_ENUM if kind.startswith(ENUM) else KINDS.get(kind, A_MESSAGE)
    field = message.field.add(name=name, number=int(number), label=LABELS[mark], type=type)
    if kind not in KINDS:
        field.type_name = f".{PACKAGE}.{kind}"
    default = _DEFAULTS.get((message.name, name))
    if default is not None:
        field.default_value = default


@cache
def base_command() -> Message:
    """The class BaseCommand."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="pulsar", package=PACKAGE, syntax="proto2")
    for kind in sorted(set(re.findall(rf"\b{ENUM}\d+", TABLE))):
        enumeration = file.enum_type.add(name=kind)
        for number in range(int(kind.removeprefix(ENUM)) + 1):
            enumeration.value.add(name=f"{kind}_{number}", number=number)
    for line in TABLE.strip().splitlines():
        name, *fields = line.split()
        message = file.message_type.add(name=name)
        for field in fields:
            _add_field(message, field)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.BaseCommand"))


def decode(data: bytes) -> tuple[str, Message] | None:
    """The name of a command and its message; None if it is not valid or lacks a required field."""
    from google.protobuf.message import DecodeError

    try:
        command = base_command().FromString(data)
    except DecodeError:
        return None
    field = base_command().DESCRIPTOR.fields_by_number.get(command.type)
    if field is None or field.message_type is None or not command.HasField(field.name) or not command.IsInitialized():
        return None
    return field.name, getattr(command, field.name)


def publish_time_ms(entry: bytes) -> int | None:
    """When an entry was published, as its producer says. None: its metadata cannot be read."""
    from google.protobuf.message import DecodeError

    rest = entry[6:] if entry[:2] == b"\x0e\x01" else entry
    size = int.from_bytes(rest[:4], "big")
    try:
        return int(_metadata().FromString(rest[4 : 4 + size]).publish_time)
    except DecodeError:
        return None


@cache
def _metadata() -> Message:
    """The class MessageMetadata."""
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(base_command().DESCRIPTOR.file.message_types_by_name["MessageMetadata"])


def encode(name: str, **fields: object) -> bytes:
    """The frame of a command. A field that is a dict is a message; one that is None is left out."""
    command = base_command()(type=base_command().DESCRIPTOR.fields_by_name[name].number)
    body = getattr(command, name)
    body.SetInParent()
    _fill(body, fields)
    data = bytes(command.SerializeToString())
    return (len(data) + 4).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data


def _fill(message: Message, fields: dict[str, object]) -> None:
    for field, value in fields.items():
        _set(message, field, value)


def _set(message: Message, field: str, value: object) -> None:
    if isinstance(value, list):
        there = getattr(message, field)
        for each in value:
            if isinstance(each, dict):
                _fill(there.add(), each)
            else:
                there.append(each)
    elif isinstance(value, dict):
        getattr(message, field).SetInParent()
        _fill(getattr(message, field), value)
    elif value is not None:
        setattr(message, field, value)
