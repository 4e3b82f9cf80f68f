"""Every cell of the table of observers in docs/protection.md is held by tests, and none changes without them."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "protection.md").read_text("utf-8").partition("## Who sees what")[2].partition("`tests/")[0]

BYTES = ("peer/attacks/test_security.py::test_a_broker_that_reads_everything_sees_no_row_mass_score_or_round",)
FORGE = (
    "peer/attacks/test_security.py::test_a_broker_that_substitutes_its_own_key_is_reported_by_name_and_receives_nothing",
)
BARE = ("audit/test_game.py::test_what_nothing_hides_is_seen_exactly_and_breaks_no_promise",)
NOISE = (
    "privacy/test_release.py::test_private_noise_has_its_deviation_and_is_new_for_each_peer_round_and_release",
    "cli/planning/test_privacy.py::test_nobody_and_everybody_colluding_are_lines_too",
)
MIXED = (
    "privacy/test_mixtures.py::test_without_masks_a_peer_computes_the_models_of_all_others_on_a_ring",
    "privacy/test_mixtures.py::test_noise_and_masks_hide_models_from_peers_that_are_no_neighbours",
)
MASKS = ("audit/test_game.py::test_masks_alone_hide_whose_an_update_was_and_not_that_it_was",)
KNOWN = ("audit/test_game.py::test_an_observer_subtracts_what_his_colluders_know",)
EXACT = (
    "privacy/test_leakage.py::test_leaks_are_the_diagonal_of_the_inverse_for_any_graph_and_colluders",
    "audit/test_game.py::test_what_is_measured_on_a_ring_of_eight_is_what_is_accounted",
    "cli/planning/test_privacy.py::test_guarantees_are_those_of_the_plan_over_all_rounds",
)
LIES = (
    "privacy/test_isolation.py::test_a_peer_whose_neighbours_mask_with_it_alone_is_the_centre_of_a_star",
    "privacy/test_isolation.py::test_without_an_epsilon_a_broker_that_lies_turns_7_6_into_26_5",
    "privacy/test_isolation.py::test_with_an_epsilon_the_neighbours_own_floor_ends_what_a_broker_that_lies_gains",
    "peer/masking/test_churn.py::test_a_release_that_lacked_half_a_mask_is_charged_as_if_all_others_colluded",
)
FLOOR = ("privacy/test_isolation.py::test_if_all_mask_neighbours_collude_private_noise_is_left",)
PARTNERS = (
    "peer/masking/test_partners.py::test_a_broker_and_one_neighbour_cannot_make_a_peer_mask_with_that_neighbour_alone",
    "peer/masking/test_partners.py::test_a_release_needs_one_partner_more_than_may_collude_unless_a_guarantee_counts_them",
)
DROPPED = (
    "peer/masking/test_verdicts.py::test_survivors_of_a_death_at_any_event_of_a_round_agree_and_keep_no_mask",
    "peer/masking/test_verdicts.py::test_a_peer_that_learns_no_verdict_on_its_model_charges_it_durably_before_it_ends",
)
SUMS = ("privacy/test_release.py::test_the_sum_of_what_is_released_is_that_of_the_unmasked_bit_for_bit",)

HELD = {
    "a broker that only listens, and anybody who reads an unencrypted connection to it": {
        "sizes, times, topics, announcements (public keys, settings)": BYTES,
        "the same bytes": BYTES,
    },
    "a broker that lies": {
        "no model that you release": FORGE,
        "the same guarantee: your noise needs no other peer": NOISE,
        "no model that you release: each is sealed, and leaves under `privacy.partners` masks or not at all": FORGE
        + BYTES
        + PARTNERS,
        "at most the local floor; with an epsilon, your neighbours' budgets end the attack": LIES,
    },
    "one neighbour": {
        "every model that you release": BARE,
        "models under noise: (epsilon, delta)": NOISE,
        "models under the masks of your other neighbours; "
        'with `privacy.departures = "go_on"` your exact update of a round in which your model is dropped': MASKS
        + DROPPED,
        "models under masks and noise: the guarantee for one colluder; with "
        '`privacy.departures = "go_on"` a round in which your model is dropped is charged at the local floor': EXACT
        + DROPPED,
    },
    "any peer, with several gossip steps or rounds": {
        "every model that its mixtures determine: as if it were your neighbour": MIXED[:1],
        "models under noise: (epsilon, delta)": MIXED[1:] + NOISE,
        "at most what a neighbour and the broker see: models under the masks of your other mask partners": MIXED[1:],
        "at most the guarantee for one colluder": MIXED[1:] + EXACT,
    },
    "t neighbours": {
        "everything that those t peers receive": BARE,
        "the same guarantee, whichever peers collude": NOISE,
        "your exact update if they are all of your mask partners": KNOWN,
        "the guarantee for t colluders": EXACT,
    },
    "neighbours with the broker": {
        "no more than those neighbours alone": BYTES,
        "the same guarantee with any broker": NOISE,
        "masks of the other edges hold if the broker only listens; if it lies and fewer than `privacy.partners` "
        "neighbours collude, one mask that they do not know remains, and they learn the sum of two updates": KNOWN
        + PARTNERS,
        "the same guarantee if the broker only listens; at most the local floor if it lies": EXACT + LIES,
    },
    "all other peers together": {
        "everything": BARE,
        "the guarantee holds for one honest peer": NOISE,
        "your exact update": (
            "audit/test_inversion.py::test_masks_hide_the_sample_from_the_broker_and_not_from_all_others_together",
        ),
        "the local floor: your private noise alone": FLOOR,
    },
    "anybody who receives the final model": {
        "the model": BARE,
        "a model with that much noise": NOISE,
        "the exact average": SUMS,
        "the average, (epsilon, delta)": (
            "privacy/test_accountant.py::test_a_guarantee_lies_between_the_trusted_curators_and_local_noise",
        ),
    },
}


def test_every_cell_of_the_table_of_observers_names_what_holds_it():
    rows = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    found = {observer: {*cells} for observer, *cells in rows if observer not in {"observer", "---"}}
    assert found == {observer: {*cells} for observer, cells in HELD.items()}


def test_what_holds_the_table_of_observers_is_there():
    named = {test for cells in HELD.values() for tests in cells.values() for test in tests}
    assert all(re.fullmatch(r"[a-z_/]+\.py::test_\w+", each) for each in named)
    for path in {each.partition("::")[0] for each in named}:
        tree = ast.parse((ROOT / "tests" / path).read_text("utf-8"))
        there = {
            f"{path}::{node.name}" for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert {each for each in named if each.startswith(f"{path}::")} <= there
