"""What a real broker is known to do, each with the tests that play it.

A row is found here by what it says; its tests are scenes of the wire, by their names (what a real 4.0.7 says to each is
recorded), or functions of a file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.pulsar.wire_scenes import SCENES
from tests.rows import check_played

HERE: Final = Path(__file__).parent

ROWS: Final[dict[str, tuple[str, ...]]] = {
    # --- what clients say
    "CONNECT and feature flags": (
        "test_connection.py::test_a_client_is_told_what_is_there",
        "test_connection.py::test_what_comes_with_connect_is_done_behind_it",
    ),
    "PARTITIONED_METADATA": (
        "the name of a partitioned topic", "a partition beyond the last", "topics that nobody makes",
        "test_topics.py::test_a_topic_without_partitions_has_none",
        "test_topics.py::test_a_topic_that_is_not_there_is_not_made_for_who_does_not_want_it",
    ),
    "LOOKUP, with a listener's name": (
        "a listener that nobody has", "test_connection.py::test_a_topic_is_where_its_client_is",
    ),
    "PRODUCER: names, epochs, access modes, schemas, an initial subscription": (
        "producers of one name", "an older epoch", "an initial subscription",
        "test_producing.py::test_a_producer_is_given_a_name_or_keeps_its_own",
        "test_producing.py::test_a_producer_comes_back_with_a_higher_epoch_and_takes_no_other_ones_name",
        "test_producing.py::test_a_producer_brings_a_subscription_along",
    ),
    "SEND: batches, highest sequence ids, chunks": (
        "test_producing.py::test_receipts_come_in_the_order_of_each_producers_messages",
        "test_deduplication.py::test_of_a_batch_the_highest_counts_and_the_first_is_compared",
        "test_client.py::test_a_large_message_goes_in_chunks",
    ),
    "SUBSCRIBE: four types": (
        "an exclusive consumer", "failover and shared", "keys",
        "test_client.py::test_what_is_sent_is_received_and_acknowledged",
    ),
    "readers, not durable": (
        "names of subscriptions", "where one that is not durable begins",
        "test_consumers.py::test_a_reader_begins_with_the_message_it_names",
        "test_stats.py::test_a_readers_subscription_is_there_as_long_as_it_is",
    ),
    "FLOW": (
        "permits",
        "test_consuming.py::test_as_many_come_as_there_are_permits",
        "test_consuming.py::test_permits_count_messages_of_batches",
    ),
    "ACK: one, cumulative, ack sets, answers": (
        "acknowledging", "test_consuming.py::test_what_is_acknowledged_does_not_come_again",
        "test_consuming.py::test_a_cumulative_acknowledgement_is_of_all_before_it",
        "test_consuming.py::test_sets_of_a_batch_are_put_together_until_nothing_is_left",
        "test_consuming.py::test_any_consumer_of_the_subscription_may_acknowledge_and_any_number_of_times",
        "test_consuming.py::test_a_cumulative_acknowledgement_of_a_shared_subscription_is_answered_and_ignored",
    ),
    "CLOSE_PRODUCER, CLOSE_CONSUMER": (
        "test_producing.py::test_a_producer_is_closed_behind_its_receipts",
        "test_consumers.py::test_a_consumer_that_is_closed_hears_no_more",
        "test_producing.py::test_a_producer_that_is_closed_before_it_is_there_is_not_made",
        "test_consumers.py::test_a_consumer_that_is_closed_before_it_is_there_is_not_made",
    ),
    "PING and PONG both ways, each 30 s": (
        "test_connection.py::test_a_ping_is_answered_before_and_after_connect",
        "test_keep_alive.py::test_who_does_not_answer_a_ping_is_cut_off_at_the_next_tick",
        "test_keep_alive.py::test_who_has_not_said_connect_by_the_first_tick_is_cut_off",
    ),
    "GET_LAST_MESSAGE_ID": (
        "the last message", "test_consuming.py::test_the_last_message_id_is_that_of_the_end",
    ),
    "SEEK by id and time": (
        "seeking", "test_consumers.py::test_a_seek_closes_the_consumers_and_is_answered",
        "test_client.py::test_a_subscription_is_moved_by_id_and_by_time",
        "test_consumers.py::test_what_was_acknowledged_comes_back_after_a_seek",
    ),
    "REDELIVER": (
        "test_consuming.py::test_what_a_shared_consumer_asks_for_comes_again_and_is_counted",
        "test_consuming.py::test_an_exclusive_consumer_is_set_back_with_its_new_epoch_and_without_counts",
    ),
    "UNSUBSCRIBE, with force": (
        "unsubscribing", "test_consumers.py::test_unsubscribe_deletes_a_subscription_that_nobody_else_uses",
    ),
    "GET_TOPICS_OF_NAMESPACE with pattern and hash": (
        "topics of a namespace", "a namespace that is none", "no namespace", "a pattern that cannot be",
        "test_topics.py::test_topics_of_a_namespace_are_listed_by_pattern_and_hash",
    ),
    "GET_SCHEMA, GET_OR_CREATE_SCHEMA": (
        "schemas", "schemas that are deleted", "schemas that are none", "schemas of no type",
        "schemas of consumers of what has none", "schemas of messages in protobuf",
    ),
    "WATCH_TOPIC_LIST": (
        "a watched pattern that cannot be", "a watched pattern of another domain", "a watched namespace that is none",
        "test_topics.py::test_who_watches_a_namespace_is_told_of_topics_that_come",
    ),
    "AUTH_CHALLENGE and AUTH_RESPONSE": (
        "test_security.py::test_a_token_that_expires_is_asked_for_anew",
        "test_connection.py::test_credentials_that_nobody_asked_for_are_refused",
    ),
    "CONSUMER_STATS": (
        "figures of a consumer",
        "test_consumers.py::test_a_consumer_is_told_how_it_stands_and_who_asks_about_none_is_cut_off",
    ),
    "transactions": (
        "transactions", "transactions that are not there", "messages that several transactions acknowledge",
        "test_transactions.py::test_nobody_gets_what_is_not_committed_nor_what_comes_behind_it",
        "test_transactions.py::test_an_acknowledgement_counts_when_its_transaction_does",
    ),
    "ACTIVE_CONSUMER_CHANGE": (
        "test_consumers.py::test_failover_consumers_are_told_who_is_active",
        "test_consumers.py::test_a_failover_consumer_hears_behind_the_answer_whether_it_is_the_active_one",
    ),
    "CLOSE_PRODUCER and CLOSE_CONSUMER of the broker's": (
        "test_crashes.py::test_what_was_acknowledged_stays_so_over_a_killed_worker",
    ),
    "REACHED_END_OF_TOPIC": (
        "a topic that has ended",
        "test_partitions.py::test_a_terminated_topic_takes_nothing_and_ends_for_its_consumers",
    ),
    # --- frames
    "sizes, and what lies behind a command": (
        "test_connection.py::test_bytes_behind_a_simple_command_mean_nothing",
        "test_producing.py::test_a_frame_of_the_largest_size_is_stored_and_one_more_ends_the_connection",
        "test_lies.py::test_a_frame_may_come_in_any_pieces",
    ),
    "checksums": ("a checksum that is wrong", "test_producing.py::test_a_wrong_checksum_is_told_and_nothing_is_stored"),
    "an entry comes back as it came, without a checksum too": (
        "test_producing.py::test_an_entry_comes_back_byte_for_byte",
    ),
    "what ends a connection without a word": (
        "a producer that is not there", "test_connection.py::test_only_connect_and_ping_may_come_first",
        "test_connection.py::test_what_is_no_conversation_ends_without_a_word",
        "test_connection.py::test_what_must_be_given_and_is_none_of_its_kind_ends_the_connection",
        "test_connection.py::test_what_a_real_broker_stumbles_over_ends_the_connection",
        "test_connection.py::test_an_entry_that_is_cut_off_in_its_checksum_ends_the_connection",
    ),
    "FLOW and ACK of an unknown consumer": (
        "test_connection.py::test_what_is_said_of_an_unknown_consumer_is_ignored",
    ),
    "metadata that are none": ("test_producing.py::test_what_is_no_metadata_is_stored_and_seen_by_nobody",),
    "a receipt has no partition, a message its own": (
        "test_producing.py::test_a_receipt_has_no_partition_and_a_message_has_its_own",
    ),
    # --- time
    "a PING before somebody is refused": (
        "test_acceptors.py::test_a_client_that_is_dead_is_found_out_over_there",
        "test_consumers.py::test_an_exclusive_place_is_given_away_only_if_its_connection_is_dead",
    ),
    "delayed messages": (
        "test_cross_protocol.py::test_a_message_is_delivered_when_its_time_has_come",
        "test_clock.py::test_delays_and_transactions_take_as_long_as_they_did",
        "test_policies.py::test_what_is_delayed_comes_at_once_where_delays_are_off_and_too_long_ones_are_refused",
    ),
    # --- errors
    "names that are none": (
        "no name", "a bad name", "a name of two parts", "a bad domain", "a name that ends early", "a name with a space",
        "a name of a space",
    ),
    "tenants, namespaces and partitions that are not there": (
        "a tenant that is not there", "a namespace that is not there", "a partition beyond the last",
    ),
    "who is alone": (
        "an exclusive producer", "an exclusive producer beside a shared one", "one that waits",
        "one that was fenced off and waits",
        "test_acceptors.py::test_who_waits_gets_in_when_the_others_have_gone",
        "test_acceptors.py::test_who_fences_throws_out_all_others",
    ),
    "ids in use and ids that are not": ("producers of one name", "an exclusive consumer"),
    "subscriptions that are refused": (
        "names of subscriptions", "a topic that must be there", "keys", "a range that begins before the first",
        "a range that ends behind the last", "test_consumers.py::test_what_cannot_be_subscribed_is_refused",
    ),
    "which schema may follow": (
        "schemas", "test_catalog_schemas.py::test_each_strategy_lets_in_what_it_should",
        "test_catalog_schemas.py::test_who_reads_what_is_as_in_java",
    ),
    "defaults of another type than their field": ("defaults of another type",),
    "deleting a schema that is not there": ("a schema that is not there",),
    "duplicates": ("test_deduplication.py::test_a_sequence_id_is_published_once",),
    # --- flow
    "permits, and batches that hold more than are left": (
        "test_consuming.py::test_where_the_order_counts_permits_read_as_many_batches",
        "test_consuming.py::test_where_consumers_take_turns_permits_are_counted_before_each_batch",
    ),
    "shares of Shared consumers, priorities": (
        "test_consumers.py::test_shared_consumers_have_their_shares",
        "test_dealing.py::test_a_lower_priority_gets_only_what_a_higher_one_has_no_permits_for",
        "test_dealing.py::test_those_of_one_priority_take_turns",
    ),
    "chunks go to one consumer": (
        "test_consuming.py::test_all_chunks_of_a_message_are_one_shared_consumers_and_one_without_permits_holds_up_no_other",
    ),
    "unacknowledged messages": (
        "test_policies.py::test_a_shared_consumer_gets_no_more_than_it_may_leave_unacknowledged_until_half_is",
    ),
    "what is left of a batch costs its permits": (
        "test_consuming.py::test_no_permit_takes_a_message_of_what_is_finished_in_part",
    ),
    "who goes adds nothing to counts": ("test_consumers.py::test_what_a_consumer_that_goes_had_is_not_counted",),
    "Failover: who is active": (
        "test_consumers.py::test_failover_consumers_are_told_who_is_active",
        "test_consumers.py::test_of_a_topic_without_partitions_a_ring_of_hashes_says_who_is_active",
    ),
    "Key_Shared: one consumer a key, in order, held back while another has it": (
        "test_consumers.py::test_a_key_is_one_consumers",
        "test_consumers.py::test_ranges_of_keys_are_taken_as_they_are_asked_for",
        "test_dealing.py::test_a_key_that_somebody_has_unacknowledged_goes_to_no_other",
        "the order of keys",
    ),
    # --- REST
    "lookup": ("test_security.py::test_a_lookup_by_rest_names_addresses_that_its_client_can_reach",),
    "figures": (
        "test_stats.py::test_producers_and_consumers_are_told_of_as_by_a_real_broker",
        "test_metrics.py::test_stats_are_true",
        "test_admin_clients.py::test_a_partitioned_topic_made_by_rest_is_produced_to_and_read_by_partitions",
    ),
    "compaction": ("test_compaction.py::test_what_a_real_broker_keeps_is_kept",),
    "single messages": (
        "test_admin_clients.py::test_single_messages_are_shown_with_what_they_say_of_themselves",
        "test_admin_clients.py::test_compressed_and_batched_messages_are_shown",
    ),
    "cursors": ("test_admin_clients.py::test_a_cursor_is_moved_by_rest",),
    "unloading, terminating": (
        "test_admin_clients.py::test_what_consumers_have_not_acknowledged_comes_again_when_their_topic_is_unloaded",
        "test_admin_clients.py::test_a_terminated_topic_says_so",
    ),
    "transactions' figures": ("test_transactions.py::test_figures_of_transactions_are_as_a_real_brokers",),
    "policies": ("test_policies.py::test_policies_are_answered_and_obeyed_as_by_a_real_broker",),
    "roles": ("test_roles.py::test_roles_are_answered_as_by_a_real_broker",),
    "the anonymous role": ("test_roles.py::test_who_does_not_say_who_it_is_has_the_anonymous_role",),
    "commas in lists of roles": (
        "../moving/test_pulsar.py::test_who_may_come_is_as_it_was_or_nobody_may",
        "test_roles.py::test_a_list_of_roles_has_no_role_with_a_comma",
    ),
    "metrics": ("test_metrics.py::test_metrics_have_a_real_brokers_names_with_what_is_so",),
    "pulsar-admin": ("test_admin_tools.py::test_everyday_commands_of_pulsar_admin_work",),
    "names with a cluster": (
        "namespaces that cannot be", "a namespace of four parts", "topics of a namespace that is not there",
        "a cluster's topic", "a cluster's topic with a slash", "a cluster's topic of a tenant",
        "a topic in what could be a namespace of a default cluster", "a cluster's topic that is not persistent",
        "a topic of several clusters whose namespace is not there", "a topic of several clusters",
        "partitions of a cluster's topic", "topics of a cluster's namespace", "schemas of a cluster's topic",
        "a cluster's namespace that makes no topics", "a transaction with a cluster's topic",
        "test_cluster_names.py::test_clients_publish_and_consume_also_after_a_restart",
        "test_cluster_names.py::test_a_pattern_finds_topics_with_a_cluster",
    ),
    "status codes and reasons": ("test_admin.py::test_requests_are_answered_as_by_a_real_broker",),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_played(row: str) -> None:
    check_played(ROWS[row], HERE, SCENES)


def test_each_scene_is_of_a_row() -> None:
    assert set(SCENES) - {name for names in ROWS.values() for name in names} == set()
