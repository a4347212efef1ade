"""What a nats-server is known to do, each with the tests that play it, of both servers where one is there.

A row is found here by what it says; its tests are scenes, by their names, or functions of a file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.nats.scenes import SCENES
from tests.nats.who_scenes import ACCOUNTS, SHARED, USERS
from tests.rows import check_played

HERE: Final = Path(__file__).parent
SCENE_NAMES: Final = {scene.name for scene in (*SCENES, *USERS, *ACCOUNTS, *SHARED)}

ROWS: Final[dict[str, tuple[str, ...]]] = {
    # --- clients
    "INFO at accept, and again behind the first PONG": ("test_info.py::test_it_says_what_a_nats_server_says",),
    "CONNECT's fields, and CONNECT again": (
        "an empty CONNECT changes nothing", "verbose CONNECT", "an unknown protocol", "no responders without headers",
        "an account is refused", "a new account is refused", "a second CONNECT drops subscriptions",
        "another user later", "a second CONNECT without headers",
    ),
    "+OK before CONNECT and after CONNECT {}": ("everything is confirmed before CONNECT",),
    "words in letters of any kind, blanks, tabs, LF": (
        "letters of both kinds", "blanks and tabs", "lines may end in LF", "a payload may not end in LF",
    ),
    "arguments that are wrong end it without a word": (
        "SUB with one argument", "SUB with four arguments", "PUB without arguments", "PUB with a bad size",
        "UNSUB with three arguments", "HPUB with a bad size", "bad JSON ends it without a word", "-ERR of a client",
    ),
    "words that are wrong": (
        "an unknown word", "half a word goes wrong", "PING with something behind it",
        "-ERR of a client that says no more", "a payload that does not end",
    ),
    "sizes are echoed, headers are not looked at": (
        "a size is echoed as it came", "HPUB whose sizes begin with zeros", "HPUB without headers in it",
        "header bytes are not looked at",
    ),
    "clients without headers": (
        "a client without headers gets the message without", "HPUB without having said headers",
    ),
    "subjects with wildcards and empty tokens": (
        "PUB to a wildcard", "PUB to a wildcard, pedantic", "PUB to an empty token", "SUB with an empty token",
        "SUB with a tail inside", "SUB with wildcards that are none",
    ),
    "sids and UNSUB": (
        "a sid in use", "UNSUB of what is not there", "UNSUB after some", "UNSUB counts from the beginning",
        "UNSUB after what has come already", "UNSUB with a bad number is now", "UNSUB may be said again",
    ),
    "a queue is one over all subjects": (
        "a queue has one of its members", "test_mesh.py::test_a_group_over_several_patterns_is_one",
    ),
    "no responders": (
        "nobody is there", "nobody is there and nobody listens", "nobody is there, and a queue listens",
        "503 does not count", "oneself without echo is nobody", "nobody is at a subject that is none",
    ),
    "order, echo": ("order of one publisher", "without echo", "without echo in a queue"),
    "violations, and what the server has for itself": (
        "a violation takes the place of +OK", "queues", "a reserved reply", "a reserved subject",
        "the other reserved ones", "what only looks reserved", "a subject that has to be quoted",
    ),
    "who does not say CONNECT, or too late": (
        "not CONNECT first", "test_logging_in.py::test_who_says_nothing_is_told_so_in_time",
    ),
    "limits": (
        "PUB too large", "a control line too long", "test_operating.py::test_a_client_too_many_is_told_so",
        "test_logging_in.py::test_limits_are_said",
        "test_accounts.py::test_a_limit_of_an_account_holds_over_all_acceptors_and_after_one_has_died",
    ),
    "pings, stale connections": (
        "test_operating.py::test_a_server_that_is_left_alone_says_so",
        "test_pings.py::test_who_has_said_connect_is_asked_soon_and_others_when_they_have_been_silent_for_long",
    ),
    "slow consumers": ("test_slow.py::test_who_waits_for_more_than_it_may_is_cut_and_others_have_all",),
    "SUB, PONG, then any PUB": ("test_mesh.py::test_who_has_heard_pong_misses_nothing_that_is_said_afterwards",),
    "limits and INFO when the file is read anew": (
        "test_operating.py::test_a_new_limit_holds_for_those_who_are_there",
    ),
    "connect_urls": (
        "test_cluster_telling.py::test_what_a_client_comes_to_want_while_a_server_is_told_of_others_that_want_it_is_told",
        "test_cluster_reload.py::test_clients_are_told_of_other_servers_or_not",
        "test_operating.py::test_all_addresses_are_said_when_it_listens_on_all",
    ),
    "lame duck": (
        "test_operating.py::test_clients_are_told_and_then_cut_off",
        "test_operating.py::test_clients_go_one_after_the_other",
        "test_cluster_stopped.py::test_members_get_what_is_sent_until_it_is_known_that_lame_duck_mode_ends_them",
    ),
    "user and password, token, bcrypt": (
        "a user", "a wrong password", "a password that is kept as bcrypt makes it", "a token where there are users",
        "test_logging_in.py::test_a_token",
    ),
    "permissions": (
        "publishing what is not allowed", "publishing what is denied", "subscribing to what is denied",
        "what is denied is not delivered to wildcards", "a denied queue", "default permissions",
    ),
    "nkeys": ("test_nkeys.py::test_a_key_signs_what_info_says", "test_nkeys.py::test_a_wrong_signature_is_refused"),
    "no_auth_user": ("test_nkeys.py::test_who_says_nothing_is_the_user_for_that",),
    "accounts, exports, imports": (
        "test_accounts.py::test_a_request_is_answered_from_another_account",
        "test_accounts.py::test_many_answers_come_where_the_export_says_so",
        "test_accounts.py::test_a_service_is_told_who_asks",
        "test_imports.py::test_a_request_goes_a_long_way_and_its_answer_comes_back",
    ),
    "operator mode": (
        "test_operator.py::test_a_user_is_let_in", "test_operator.py::test_a_user_is_not_let_in",
        "test_operator.py::test_a_user_whose_time_is_over_is_cut_off",
        "test_resolvers.py::test_accounts_are_fetched_from_a_url",
        "test_resolvers.py::test_a_resolver_may_be_encrypted",
        "test_directories.py::test_an_account_that_is_pushed_is_there_and_stays",
    ),
    "auth callout": ("test_callout.py::test_who_is_let_in", "test_callout.py::test_what_the_service_is_told"),
    "PROXY protocol": ("test_proxied.py::test_who_somebody_is",),
    "TLS": (
        "test_tls.py::test_info_comes_in_the_clear_and_says_that_tls_is_required",
        "test_tls.py::test_clients_may_have_to_show_a_certificate",
        "test_tls.py::test_encryption_may_be_left_to_the_client",
        "test_tls.py::test_the_handshake_may_come_first", "test_tls.py::test_the_handshake_may_come_first_or_later",
        "test_tls.py::test_certificates_may_be_pinned", "test_tls.py::test_a_certificate_may_say_who_it_is",
        "test_tls.py::test_handshakes_that_are_too_many_are_refused_in_the_clear",
        "test_tls.py::test_a_curve_may_be_chosen", "test_tls.py::test_a_clients_certificate_is_shown",
    ),
    "websockets": (
        "test_websocket.py::test_a_request_is_answered_as_a_nats_server_does",
        "test_websocket.py::test_frames_are_answered_as_a_nats_server_does",
        "test_websocket_clients.py::test_users_by_cookies_and_by_nothing",
    ),
    "monitoring": (
        "test_monitoring.py::test_keys_and_types_are_those_of_a_nats_server",
        "test_monitoring.py::test_errors_are_those_of_a_nats_server",
        "test_monitoring_values.py::test_it_shows_what_a_nats_server_shows",
    ),
    "the system account": (
        "test_system.py::test_answers_have_the_keys_of_a_nats_server",
        "test_system.py::test_the_system_account_hears_who_comes_and_goes",
        "test_system.py::test_a_client_is_told_who_it_is",
        "test_cluster_accounts.py::test_what_is_asked_about_ones_own_account_all_servers_answer",
    ),
    "the configuration file": (
        "test_conf.py::test_a_file_is_read_or_refused_as_by_nats_server", "test_conf_keys.py::test_a_key_is_known",
    ),
    # --- routes
    "lines of routes": ("test_cluster_wire.py::test_a_line_is_answered_as_a_real_server_does",),
    "INFO and CONNECT of routes": (
        "test_cluster_wire.py::test_info_says_what_a_real_one_does",
        "test_cluster_wire.py::test_nothing_is_taken_before_connect",
    ),
    "a client at the port of routes, another cluster, one's own ID": (
        "test_cluster_wire.py::test_who_may_not_join_is_told_why",
        "test_cluster_wire.py::test_a_server_that_is_this_one_or_has_its_name_is_closed_without_a_word",
        "test_cluster_wire.py::test_a_second_connection_of_a_server_without_a_pool_is_closed",
    ),
    "interest of routes": (
        "test_cluster_wire.py::test_interest_goes_out_with_the_first_and_the_last_and_with_each_member_of_a_group",
        "test_cluster_wire.py::test_unsubscribing_after_so_many_is_told_when_they_have_come",
    ),
    "messages of routes": (
        "test_cluster_wire.py::test_a_message_goes_once_to_a_server_with_the_groups_it_is_for",
        "test_cluster_wire.py::test_a_message_reaches_those_that_it_is_for",
    ),
    "old servers": (
        "test_cluster_wire.py::test_a_server_that_knows_no_headers_pools_or_names_of_clusters_is_one_of_it",
        "test_cluster_replaced.py::test_each_server_becomes_ours_and_real_again_and_no_work_is_lost",
    ),
    "gossip": ("test_cluster_failures.py::test_members_find_each_other_through_one_and_lose_nobody_when_that_is_gone",),
    "pools and accounts of their own": (
        "test_cluster_pools.py::test_accounts_are_spread_over_connections_and_each_is_carried_by_one",
    ),
    "TLS of routes": (
        "test_cluster_tls.py::test_nothing_is_said_before_the_handshake_and_info_says_that_it_was_due",
    ),
    "import and export of routes": (
        "test_cluster_options.py::test_only_what_is_imported_is_asked_for_and_only_what_is_exported_is_given",
    ),
    "S2": ("test_cluster_compression.py::test_servers_come_to_the_mode_that_both_can",),
    # --- leaf nodes
    "leaf nodes, and hubs": (
        "test_leaf_wire.py::test_a_leaf_node_is_greeted_and_told_of_its_account",
        "test_leaves.py::test_everybody_who_listens_has_all_once_and_in_order",
        "test_hubs.py::test_it_is_shown_on_both_sides", "test_hubs.py::test_a_leaf_node_and_a_hub_may_be_kicked",
    ),
    "leaf nodes by websocket": (
        "test_leaf_websockets.py::test_both_sides_hear_each_other",
        "test_leaf_websockets.py::test_what_is_said_to_it_is_what_other_leaf_nodes_are_told",
    ),
    "a leaf node that takes nothing, or little": (
        "test_leaf_logins.py::test_a_leaf_node_that_takes_nothing_is_cut_off_and_others_go_on",
        "test_leaf_logins.py::test_a_leaf_node_that_takes_little_does_not_hold_publishers_for_ever",
    ),
    "a route that takes nothing": (
        "test_cluster_failures.py::test_a_server_that_takes_nothing_is_cut_off_in_time_and_its_publishers_go_on",
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_played(row: str) -> None:
    check_played(ROWS[row], HERE, SCENE_NAMES)
