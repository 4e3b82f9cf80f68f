"""What holds each paragraph of docs/protection.md: its first words, its sentences, and the tests or computations.

``python -m`` names a computation whose output the page quotes; ``cited`` is what a paper named there proves; ``advice``
claims nothing that a program could hold.
"""

HELD: dict[tuple[str, int], str] = {
    ("Read this page before you", 3): """
        cli/planning/test_privacy.py::test_guarantees_are_those_of_the_plan_over_all_rounds
        audit/test_mutants.py::test_the_whole_audit_attacks_a_live_swarm""",
    ("- **Decentralisation alone protects nothing.**", 4): """
        cited
        audit/test_game.py::test_what_nothing_hides_is_seen_exactly_and_breaks_no_promise
        audit/test_inversion.py::test_without_noise_the_first_layer_gives_the_sample_away_to_rounding""",
    ("- **Masks alone** (`mode =", 2): """
        audit/test_game.py::test_masks_alone_hide_whose_an_update_was_and_not_that_it_was
        peer/masking/test_partners.py::test_a_broker_and_one_neighbour_cannot_make_a_peer_mask_with_that_neighbour_alone""",
    ("- **Masks with noise and", 1): """
        privacy/test_calibration.py::test_noises_of_well_mixed_graphs_are_the_published_ones
        privacy/test_release.py::test_each_tensor_is_clipped_by_itself_and_the_whole_is_at_most_the_clip
        privacy/test_masks.py::test_masks_cancel_bit_for_bit_on_any_connected_graph
        privacy/test_leakage.py::test_leaks_are_the_diagonal_of_the_inverse_for_any_graph_and_colluders
        privacy/test_leakage.py::test_fresh_noise_and_masks_compose_as_two_releases""",
    ("- **Secure sums** (`mode =", 1): """
        secagg/test_live.py::test_live_peers_in_memory_end_in_the_rows_of_the_simulation_to_the_last_bit
        secagg/test_protocol.py::test_shares_are_uniform_whatever_the_term_and_differ_for_every_sum_and_peer
        secagg/test_protocol.py::test_the_receiver_gets_the_sum_of_those_whose_share_it_has_to_the_last_bit""",
    ("- **The unit is a", 1): """
        privacy/test_accountant.py::test_replacing_an_update_moves_it_twice_as_far_and_rounding_a_little_further
        privacy/test_colluders.py::test_the_worst_set_is_the_one_that_trying_all_finds""",
    ("- **p2pfl does not protect**", 1): """
        python -m benchmarks.attacks
        advice
        learning/test_models.py::test_what_is_not_a_class_of_models_is_refused_before_it_is_called""",
    ("`tests/pages/test_observers_page.py` names the tests that", 1): """
        pages/test_observers_page.py::test_every_cell_of_the_table_of_observers_names_what_holds_it""",
    ("Four terms accompany every figure:", 1): """
        privacy/test_accountant.py::test_replacing_an_update_moves_it_twice_as_far_and_rounding_a_little_further
        privacy/test_colluders.py::test_the_worst_set_is_the_one_that_trying_all_finds""",
    ("- **Adjacency** is what may", 2): """
        privacy/test_accountant.py::test_replacing_an_update_moves_it_twice_as_far_and_rounding_a_little_further""",
    ("- **Observer** is the party", 2): """
        privacy/test_colluders.py::test_the_worst_set_is_the_one_that_trying_all_finds
        privacy/test_accountant.py::test_each_observer_of_the_table_knows_more_than_the_one_before""",
    ("- **Colluders** are peers that", 2): """
        privacy/test_colluders.py::test_the_worst_set_is_the_one_that_trying_all_finds""",
    ("- **Local floor** is what", 1): """
        privacy/test_accountant.py::test_replacing_an_update_moves_it_twice_as_far_and_rounding_a_little_further
        privacy/test_isolation.py::test_if_all_mask_neighbours_collude_private_noise_is_left""",
    ("The protected unit is a", 6): """
        learning/test_example_private.py::test_one_sample_moves_the_sum_by_at_most_the_clip
        learning/test_example_private.py::test_a_summary_says_what_single_samples_are_promised_beside_the_peer""",
    ("A guarantee needs draws that", 7): """
        simulation/test_secret_noise.py::test_two_simulations_of_one_file_differ_wherever_a_claim_is_made
        simulation/test_secret_noise.py::test_no_published_model_becomes_exact_by_subtracting_what_the_file_gives
        simulation/test_secret_noise.py::test_the_seeds_of_a_stack_draw_private_noise_of_the_operating_system
        simulation/test_secret_noise.py::test_a_forecast_under_a_claim_draws_from_the_operating_system
        simulation/test_secret_noise.py::test_simulations_without_a_claim_repeat_to_the_last_bit
        simulation/test_sharding.py::test_the_worker_that_leads_hands_one_secret_key_to_the_others""",
    ("In Python, `p2pfl.simulate(..., source=p2pfl.identity.SeededSource(7))` repeats", 5): """
        simulation/test_secret_noise.py::test_with_a_seeded_source_everything_states_no_epsilon_and_why
        simulation/test_secret_noise.py::test_a_resumed_simulation_claims_only_what_all_of_its_rounds_support
        simulation/test_secret_noise.py::test_a_checkpoint_holds_no_key_of_the_noise_and_only_its_owner_can_read_it
        simulation/test_secret_noise.py::test_a_run_whose_noise_follows_from_a_seed_is_refused_by_an_account_and_counted_in_none""",
    ("Mean and deviation over the", 3): """
        data/test_bounds.py::test_under_a_claim_the_rows_of_one_peer_move_no_other_peers_features""",
    ("- `data.scale` is refused;", 0): """
        data/test_bounds.py::test_under_a_claim_statistics_of_all_peers_are_refused""",
    ("- a shared table (`data.name", 2): """
        data/test_bounds.py::test_under_a_claim_the_rows_of_one_peer_move_no_other_peers_features
        data/test_bounds.py::test_bounds_become_minus_one_and_one_and_missing_cells_their_middle""",
    ("- on the public data", 0): """
        data/test_bounds.py::test_a_guarantee_on_a_public_data_set_names_the_scaling_that_it_does_not_cover""",
    ("- p2pfl cannot know what", 2): "advice",
    ("A broker that lies drops", 5): """
        privacy/test_isolation.py::test_a_peer_whose_neighbours_mask_with_it_alone_is_the_centre_of_a_star
        privacy/test_isolation.py::test_without_an_epsilon_a_broker_that_lies_turns_7_6_into_26_5
        privacy/test_isolation.py::test_with_an_epsilon_the_neighbours_own_floor_ends_what_a_broker_that_lies_gains
        privacy/test_isolation.py::test_a_broker_that_lies_gains_nothing_on_a_complete_graph
        peer/masking/test_churn.py::test_a_release_that_lacked_half_a_mask_is_charged_as_if_all_others_colluded
        peer/masking/test_partners.py::test_a_broker_and_one_neighbour_cannot_make_a_peer_mask_with_that_neighbour_alone
        cli/planning/test_privacy.py::test_every_observer_has_a_line_and_the_budget_is_met""",
    ("For example, take 100 peers", 6): """
        privacy/test_isolation.py::test_without_an_epsilon_a_broker_that_lies_turns_7_6_into_26_5
        privacy/test_isolation.py::test_with_an_epsilon_the_neighbours_own_floor_ends_what_a_broker_that_lies_gains
        privacy/test_isolation.py::test_a_broker_that_lies_gains_nothing_on_a_complete_graph
        cli/planning/test_privacy.py::test_every_observer_has_a_line_and_the_budget_is_met""",
    ("Without noise there is no", 2): """
        peer/masking/test_partners.py::test_a_broker_and_one_neighbour_cannot_make_a_peer_mask_with_that_neighbour_alone""",
    ("One neighbour alone learns no", 1): """
        privacy/test_accountant.py::test_each_observer_of_the_table_knows_more_than_the_one_before""",
    ("**A peer that is no", 5): """
        cited
        privacy/test_mixtures.py::test_without_masks_a_peer_computes_the_models_of_all_others_on_a_ring
        privacy/test_mixtures.py::test_noise_and_masks_hide_models_from_peers_that_are_no_neighbours
        privacy/test_accountant.py::test_each_observer_of_the_table_knows_more_than_the_one_before""",
    ("Models, acknowledgements, heartbeats and ledger", 6): """
        protocol/wire/test_envelope.py::test_a_neighbour_that_holds_the_sender_key_speaks_for_nobody_else
        protocol/wire/test_trailer.py::test_whoever_seals_in_anothers_name_cannot_sign_for_it
        identity/test_exchange.py::test_an_epoch_is_named_by_both_incarnations_and_both_nonces_and_by_neither_end_first""",
    ("A neighbour can still make", 2): """
        protocol/wire/test_bounds.py::test_every_field_has_a_finite_bound
        peer/attacks/test_forgery.py::test_what_a_neighbour_cannot_have_done_is_refused_and_has_no_effect""",
    ("The accountant does **not** rely", 5): """
        protocol/wire/test_envelope.py::test_a_neighbour_that_holds_the_sender_key_speaks_for_nobody_else
        secagg/test_live.py::test_a_broker_sees_nothing_of_a_sum_but_sealed_bytes
        privacy/test_accountant.py::test_each_observer_of_the_table_knows_more_than_the_one_before""",
    ("- The broker, and anybody", 2): """
        experiment/test_facts.py::test_telemetry_that_would_show_the_size_of_secret_batches_is_refused
        peer/attacks/test_security.py::test_a_broker_that_reads_everything_sees_no_row_mass_score_or_round""",
    ("- The topology and public", 2): """
        peer/attacks/test_security.py::test_a_broker_that_reads_everything_sees_no_row_mass_score_or_round""",
    ("- With `data.scale` all peers", 8): """
        peer/failures/test_departures.py::test_whenever_a_peer_is_killed_the_others_go_on_with_the_same_totals
        experiment/test_agreement.py::test_scaled_features_are_refused_where_noise_promises_more
        experiment/test_agreement.py::test_with_a_guarantee_one_model_is_agreed_on_and_no_score
        privacy/test_totals.py::test_transcripts_of_three_peers_are_the_same_exactly_where_totals_are
        privacy/test_totals.py::test_what_a_parent_sees_of_a_leaf_is_uniform_and_a_key_used_twice_is_not
        peer/neighbourhoods/test_totals.py::test_under_masks_no_total_is_taken_without_a_peer_that_was_in_one_before
        protocol/totals/test_attacks.py::test_a_report_about_a_later_round_neither_spreads_nor_ends_the_present_one""",
    ("- With a [model from", 4): """
        experiment/test_exact.py::test_what_has_no_effect_or_no_meaning_is_refused
        experiment/test_exact.py::test_the_promise_says_what_totals_show
        experiment/test_exact.py::test_the_command_privacy_says_who_learns_what
        privacy/test_totals.py::test_transcripts_of_three_peers_are_the_same_exactly_where_totals_are""",
    ("- Names of settings and", 2): """
        peer/test_live.py::test_a_neighbour_whose_experiment_differs_is_refused_with_the_difference_at_both_ends""",
    ("- How often a peer", 1): "peer/joining/test_incarnation.py::test_a_start_is_numbered_by_a_clock_that_is_right",
    ("- The version of p2pfl", 2): """
        protocol/membership/test_versions.py::test_peers_of_different_releases_learn_together_and_both_report_the_other_once""",
    ("- Which peers took part", 2): "privacy/test_release.py::test_the_mass_of_who_sits_out_in_secret_tells_nothing",
    ("- **Poisoned updates.** A peer", 3): "python -m benchmarks.attacks",
    ("- **Settings chosen on the", 1): "advice",
    ("- **A peer whose mask", 5): """
        privacy/test_isolation.py::test_if_all_mask_neighbours_collude_private_noise_is_left
        privacy/test_colluders.py::test_who_can_be_parted_from_all_others_is_left_among_fewer_than_three_by_some_colluders
        experiment/test_protection.py::test_as_many_colluders_as_a_peer_has_mask_neighbours_are_refused
        cli/planning/test_privacy.py::test_masks_that_colluders_could_take_off_a_row_are_said_to_be""",
    ("- **Equivocation.** A peer can", 5): """
        peer/attacks/test_equivocation.py::test_a_peer_that_shows_two_rows_is_excluded_and_the_proof_is_kept
        protocol/incoming/test_equivocation.py::test_two_rolls_of_one_sum_convict_who_signed_them_and_nobody_else""",
    ("- **Peers that come late", 3): """
        peer/masking/test_churn.py::test_masks_cancel_although_a_neighbour_did_not_hear_us
        peer/masking/test_churn.py::test_the_mean_of_the_rows_is_what_was_released_whoever_did_not_hear_whom""",
    ("- **Peers that die for", 2): "peer/masking/test_churn.py::test_what_a_peer_that_died_leaves_uncancelled_is_said",
    ("- **A mask that only", 5): """
        peer/masking/test_churn.py::test_a_release_that_lacked_half_a_mask_is_charged_as_if_all_others_colluded
        report/test_meter.py::test_a_last_release_that_turns_out_uncovered_is_recorded_although_nothing_is_left
        report/test_meter.py::test_after_a_correction_the_next_release_is_refused_if_it_does_not_fit""",
    ("- **Absences elsewhere in the", 4): """
        privacy/test_accountant.py::test_who_drops_out_leaves_his_neighbours_and_himself_less_cover
        report/test_budget.py::test_a_round_without_all_mask_neighbours_costs_what_private_noise_alone_gives""",
    ("- **Published models.** Files of", 4): """
        report/test_run_directory.py::test_what_a_model_takes_as_input_is_kept_once_for_its_owner_and_with_each_model
        report/test_run_directory.py::test_only_their_owner_reads_the_files_that_hold_exact_statistics""",
    ("- **Two exact results.** Two", 2): """
        experiment/test_exact.py::test_the_statement_of_every_model_from_totals_says_what_two_results_show""",
    ("- **Keys at the first", 1): """
        peer/attacks/test_security.py::test_without_an_earlier_meeting_the_first_key_is_trusted_and_people_are_told""",
    ("- **Names on an open", 6): """
        peer/joining/test_first_use.py::test_a_name_that_is_in_use_is_an_error_where_neighbours_could_not_tell_the_two_apart
        peer/attacks/test_forgery.py::test_an_announcement_that_a_stranger_left_on_the_broker_keeps_nobody_out_for_good
        peer/attacks/test_forgery.py::test_a_flood_under_a_neighbours_name_does_not_use_up_what_the_neighbour_may_say""",
    ("- **A peer with one", 4): """
        protocol/timing/test_pace.py::test_one_neighbour_alone_moves_nobody_by_more_than_a_few_rounds
        protocol/timing/test_pace.py::test_who_comes_late_begins_where_half_of_its_neighbours_are
        peer/storage/test_credentials.py::test_a_key_is_written_at_the_first_meeting_before_the_first_model_leaves""",
    ("- **Experiment files run code.**", 4): """
        learning/test_models.py::test_what_is_not_a_class_of_models_is_refused_before_it_is_called""",
    ("- **Your machine.** Anybody who", 1): "advice",
    ("Epsilon bounds every attack. Take", 3): "privacy/test_divergence.py::test_no_attack_does_better_than_its_ceiling",
    ("`mu(epsilon, delta=1e-5)` and `ceilings(mu)` of", 5): """
        privacy/test_divergence.py::test_mu_of_epsilon_is_the_published_one
        privacy/test_divergence.py::test_no_attack_does_better_than_its_ceiling""",
    ("`python -m benchmarks.privacy decor digits", 4): "python -m benchmarks.privacy",
    ("The clip (1), rounds (16),", 5): "python -m benchmarks.privacy",
    ("The next table shows the", 2): """
        pages/test_protection_page.py::test_one_seed_has_no_spread
        python -m benchmarks.privacy""",
    ("Four hospitals want one model", 4): """
        pages/test_protection_page.py::test_the_command_says_of_the_hospitals_what_the_page_quotes""",
    ("`python -m benchmarks.privacy hospitals --seeds", 4): "python -m benchmarks.privacy",
    ("*Gain* is the accuracy together", 5): "python -m benchmarks.privacy",
    ("Rounds, rate, epochs and clip", 5): "python -m benchmarks.privacy",
    ("1. **Which observers matter?** They", 9): """
        audit/test_game.py::test_an_observer_subtracts_what_his_colluders_know
        python -m benchmarks.privacy""",
    ("2. **What does epsilon 8", 5): """
        pages/test_protection_page.py::test_the_command_says_of_the_hospitals_what_the_page_quotes
        experiment/test_protection.py::test_as_many_colluders_as_a_peer_has_mask_neighbours_are_refused""",
    ("3. **Does it pay?** At", 8): """
        pages/test_protection_page.py::test_the_page_has_the_scores_of_the_shipped_promise_over_ten_seeds
        python -m benchmarks.privacy""",
    ("4. **What next?** Try these", 5): "python -m benchmarks.privacy",
    ("5. **Who is who?** Run", 3): """
        peer/attacks/test_security.py::test_a_broker_that_substitutes_its_own_key_is_reported_by_name_and_receives_nothing""",
    ("6. **Keep the account.** Set", 3): """
        report/test_budget.py::test_two_runs_on_the_same_data_add_up_and_the_second_stops_at_the_budget""",
    ("A peer writes the cost", 5): """
        experiment/test_accounts.py::test_a_data_file_has_one_account_however_its_path_is_spelled
        privacy/test_release.py::test_a_release_is_charged_before_anything_is_drawn
        report/test_budget.py::test_two_runs_on_the_same_data_add_up_and_the_second_stops_at_the_budget
        report/test_budget.py::test_a_run_that_its_budget_ends_says_so""",
    ("- **One door.** `p2pfl.plan` looks", 3): """
        experiment/test_accounts.py::test_data_with_an_account_reach_no_plan_that_it_cannot_count
        experiment/test_accounts.py::test_a_run_that_is_put_together_in_python_passes_the_same_door
        cli/results/test_using.py::test_exact_results_on_a_table_with_an_account_need_to_be_asked_for""",
    ("- **One adjacency, one number", 2): """
        report/test_budget.py::test_costs_under_another_adjacency_or_for_other_colluders_are_not_added_up""",
    ("- **A name stands for", 4): """
        report/test_budget.py::test_a_name_stands_for_the_same_data_in_every_run_of_the_same_peers
        report/test_budget.py::test_among_other_peers_the_data_may_have_been_anybodys""",
    ("- **Only a finite cost", 2): "experiment/test_protection.py::test_a_budget_without_a_clip_is_refused",
    ("- **All releases count.** A", 2): """
        report/test_meter.py::test_a_last_release_that_turns_out_uncovered_is_recorded_although_nothing_is_left
        peer/masking/test_spending.py::test_rounds_that_are_played_again_after_a_crash_count_for_each_sample""",
    ("- **Single samples have entries", 4): """
        cli/running/test_accounts.py::test_a_run_that_promises_something_to_samples_is_in_the_account
        cli/running/test_accounts.py::test_a_run_that_has_both_prices_is_counted_by_both_accounts""",
    ("- **A use without a", 3): """
        experiment/test_accounts.py::test_the_values_of_peers_have_no_price_whatever_protects_the_models
        cli/running/test_accounts.py::test_a_run_without_a_price_on_data_with_an_account_is_refused_unless_it_is_unaccounted
        cli/running/test_accounts.py::test_the_summary_says_whether_an_account_lacks_the_run
        cli/running/test_accounts.py::test_the_privacy_command_only_reads_the_account""",
    ("- **Some data have no", 4): """
        experiment/test_accounts.py::test_a_claim_that_no_account_counts_says_so_before_and_after_the_run
        experiment/test_accounts.py::test_an_account_beside_the_data_is_not_left_by_naming_another""",
    ("- **Accounts of earlier versions", 2): """
        experiment/test_accounts.py::test_what_earlier_versions_kept_for_all_peers_still_counts
        experiment/test_accounts.py::test_what_earlier_versions_kept_beside_a_link_still_counts""",
    ("- **A copy of a", 2): "report/test_budget.py::test_a_table_of_data_has_its_budget_beside_it",
    ("- **`p2pfl privacy`** shows this", 1): """
        cli/planning/test_privacy.py::test_the_rows_are_of_this_run_alone_and_the_curve_of_the_budget_ends_where_it_does""",
    ("p2pfl computes these statistics from", 7): """
        report/test_run_directory.py::test_only_their_owner_reads_the_files_that_hold_exact_statistics
        report/test_card.py::test_a_card_leaves_out_what_is_exact_of_the_training_data_unless_it_is_asked_for
        audit/test_page.py::test_no_sample_and_no_reconstruction_is_in_the_page_unless_it_is_asked_for""",
    ("The list is `EXACT_STATISTICS` in", 1): """
        pages/test_exact_statistics_page.py::test_the_page_has_the_list_of_the_code
        pages/test_exact_statistics_page.py::test_every_key_of_a_description_is_public_or_an_exact_statistic""",
    ("Without noise, one mask is", 5): """
        peer/masking/test_partners.py::test_a_broker_and_one_neighbour_cannot_make_a_peer_mask_with_that_neighbour_alone
        peer/masking/test_partners.py::test_a_release_needs_one_partner_more_than_may_collude_unless_a_guarantee_counts_them
        peer/masking/test_partners.py::test_the_wait_for_partners_ends_when_one_comes_or_the_timeout_passes
        peer/masking/test_partners.py::test_masks_of_sums_have_the_same_floor
        peer/masking/test_partners.py::test_a_mask_graph_with_too_few_partners_is_refused
        peer/masking/test_partners.py::test_one_partner_is_enough_where_the_experiment_says_so""",
    ("p2pfl refuses a mask graph", 4): """
        peer/masking/test_partners.py::test_a_broker_and_one_neighbour_cannot_make_a_peer_mask_with_that_neighbour_alone
        peer/masking/test_partners.py::test_a_release_needs_one_partner_more_than_may_collude_unless_a_guarantee_counts_them
        peer/masking/test_partners.py::test_the_wait_for_partners_ends_when_one_comes_or_the_timeout_passes
        peer/masking/test_partners.py::test_masks_of_sums_have_the_same_floor
        peer/masking/test_partners.py::test_a_mask_graph_with_too_few_partners_is_refused
        peer/masking/test_partners.py::test_one_partner_is_enough_where_the_experiment_says_so""",
    ("A large mask hides an", 11): """
        privacy/test_mask_size.py::test_what_a_death_leaves_is_measured_by_mixing_masked_rows_without_the_dead_peer
        privacy/test_mask_size.py::test_the_default_leaves_one_update_of_a_death_where_many_average_and_hides_where_few_do
        privacy/test_mask_size.py::test_the_default_follows_from_public_numbers_and_a_given_one_stays""",
    ("Masks alone are not differential", 3): """
        audit/test_game.py::test_masks_alone_hide_whose_an_update_was_and_not_that_it_was""",
    ("If a peer shared masks", 7): """
        cli/running/test_death.py::test_the_survivors_raise_an_alarm_and_the_dead_one_learns_later_that_it_missed_the_end
        peer/masking/test_alarming.py::test_masks_that_cancel_later_are_reported_once_and_end_the_alarm
        peer/storage/test_best.py::test_training_samples_judge_where_there_is_no_validation_part_and_never_test_samples
        peer/joining/test_resume.py::test_masks_of_a_round_that_is_released_again_cancel""",
    ("`p2pfl explain` shows the deviation", 3): """
        cli/planning/test_explain.py::test_the_size_of_a_mask_is_told_and_where_it_comes_from
        privacy/test_mask_size.py::test_a_learner_that_takes_the_place_of_the_model_does_not_keep_a_mask_that_was_sized_for_the_model""",
    ("`python -m benchmarks.mask_size` prints this", 7): "python -m benchmarks.mask_size",
    ("Each peer receives the exact", 7): """
        secagg/test_live.py::test_live_peers_in_memory_end_in_the_rows_of_the_simulation_to_the_last_bit
        secagg/test_protocol.py::test_shares_are_uniform_whatever_the_term_and_differ_for_every_sum_and_peer
        secagg/test_protocol.py::test_the_receiver_gets_the_sum_of_those_whose_share_it_has_to_the_last_bit""",
    ("**What it hides.** The broker,", 5): """
        secagg/test_live.py::test_a_broker_sees_nothing_of_a_sum_but_sealed_bytes
        privacy/test_sum_leakage.py::test_one_sum_of_unequal_weights_leaks_the_share_of_each_square
        experiment/test_neighbourhood_sums.py::test_on_the_complete_graph_noise_is_the_curators_of_all_honest_peers""",
    ("**What it leaks.** A receiver", 9): """
        cited
        privacy/test_sum_leakage.py::test_as_many_exchanges_as_there_are_honest_peers_leave_nothing_but_private_noise
        privacy/test_sum_leakage.py::test_a_view_that_is_too_large_says_the_local_floor
        secagg/test_protocol.py::test_two_rolls_that_differ_by_one_peer_unmask_nobody
        secagg/test_live.py::test_who_signs_two_rolls_is_excluded_and_both_are_kept""",
    ("**How live peers compute a", 3): """
        secagg/test_live.py::test_nobody_but_its_receiver_can_read_a_term_nor_speak_for_its_sender
        secagg/test_live.py::test_a_word_that_a_broker_drops_is_said_again""",
    ("**When a message or a", 6): """
        secagg/test_live.py::test_the_weight_of_a_sender_that_vanished_falls_to_the_own_row
        secagg/test_live.py::test_rows_stay_as_they_are_where_somebody_on_the_roll_does_not_answer
        secagg/test_live.py::test_a_sum_that_lacks_a_term_makes_all_rounds_cost_what_private_noise_alone_hides
        secagg/test_live.py::test_where_that_would_cost_more_than_is_allowed_nothing_is_unmasked_and_the_run_ends""",
    ("**Settings and cost.** `transport.quorum` must", 3): """
        secagg/test_live.py::test_what_live_peers_cannot_add_up_is_refused_before_anything_starts""",
    ("**Without noise there is no", 1): "privacy/test_sum_leakage.py::test_without_noise_nothing_is_promised",
    ("**What p2pfl refuses.** It refuses", 4): """
        experiment/test_neighbourhood_sums.py::test_what_sums_cannot_hide_is_refused_with_its_reason
        experiment/test_neighbourhood_sums.py::test_two_receivers_whose_neighbourhoods_differ_by_one_peer_are_refused_where_they_may_collude
        experiment/test_neighbourhood_sums.py::test_with_several_colluders_a_sum_needs_all_neighbours""",
    ("A peer releases `y =", 7): """
        privacy/test_release.py::test_each_tensor_is_clipped_by_itself_and_the_whole_is_at_most_the_clip
        privacy/test_masks.py::test_masks_cancel_bit_for_bit_on_any_connected_graph
        privacy/test_leakage.py::test_leaks_are_the_diagonal_of_the_inverse_for_any_graph_and_colluders
        privacy/test_leakage.py::test_fresh_noise_and_masks_compose_as_two_releases""",
    ("With enough masks, private noise", 2): """
        privacy/test_calibration.py::test_noises_of_well_mixed_graphs_are_the_published_ones""",
    ("Released values are points of", 4): """
        cited
        privacy/test_noise.py::test_no_released_number_proves_which_of_two_updates_it_hides""",
    ("**The law.** A peer clips", 7): """
        cited
        privacy/test_noise.py::test_noise_is_distributed_as_a_rounded_normal_number
        privacy/test_divergence.py::test_epsilon_of_mu_is_the_published_one
        privacy/test_accountant.py::test_replacing_an_update_moves_it_twice_as_far_and_rounding_a_little_further""",
    ("**The sampler.** It draws noise", 4): """
        privacy/test_noise.py::test_the_sampler_gives_what_its_definition_gives_number_by_number
        privacy/test_noise.py::test_words_choose_each_cell_as_often_as_its_weight_says
        privacy/test_noise.py::test_decisions_that_are_close_agree_with_those_in_doubles""",
    ("**The share of delta.** The", 6): """
        privacy/test_noise.py::test_the_cut_of_the_noise_takes_its_share_of_delta
        privacy/test_noise.py::test_noise_finer_than_the_sampler_resolves_is_refused_with_the_bits_that_fit
        privacy/test_spending.py::test_a_round_that_is_calibrated_keeps_its_epsilon_beside_the_cut_of_the_noise""",
    ("**Masks and the local floor.**", 2): """
        privacy/test_isolation.py::test_if_all_mask_neighbours_collude_private_noise_is_left""",
    ("**Masks and the smaller mu.**", 9): """
        cited
        privacy/test_mask_stream.py::test_the_tails_agree_with_scipy_to_their_ends
        privacy/test_mask_stream.py::test_no_parabola_is_farther_from_the_quantiles_than_is_claimed""",
    ("**DP-SGD.** `learning.example_noise` uses the same", 7): """
        learning/test_example_private.py::test_a_step_adds_the_points_of_the_exact_sampler_to_whole_numbers
        learning/test_example_private.py::test_learners_of_experiments_draw_noise_from_the_exact_sampler
        learning/test_example_private.py::test_under_noise_sums_are_exact_on_the_grid_and_one_sample_moves_them_by_no_more_than_the_clip
        learning/test_example_private.py::test_noise_that_ends_within_reach_of_one_sample_guarantees_nothing
        learning/test_example_private.py::test_the_noise_has_its_deviation_and_is_drawn_anew_in_each_step""",
    ("`p2pfl audit EXPERIMENT` attacks the", 3): """
        audit/test_mutants.py::test_the_whole_audit_attacks_a_live_swarm
        audit/test_mutants.py::test_arithmetic_notices_a_mutant_at_once""",
    ("- **The release.** Observers play", 5): """
        audit/test_game.py::test_what_is_measured_on_a_ring_of_eight_is_what_is_accounted
        audit/test_claims.py::test_every_claim_of_the_build_as_it_is_holds""",
    ("- **Stacked peers.** Training leaves", 3): """
        audit/test_mutants.py::test_a_mutant_is_noticed_by_its_part_of_the_audit""",
    ("- **Live peers.** The same", 6): """
        audit/test_mutants.py::test_a_mutant_is_noticed_by_its_part_of_the_audit
        audit/test_mutants.py::test_the_whole_audit_attacks_a_live_swarm""",
    ("- **Live sums** (`secagg`). Every", 3): """
        audit/test_mutants.py::test_an_experiment_whose_peers_are_given_sums_is_attacked_as_well""",
    ("- **The totals** of models", 6): """
        audit/test_mutants.py::test_a_mutant_is_noticed_by_its_part_of_the_audit
        audit/test_total_attacks.py::test_what_a_sample_changes_of_a_private_regression_is_found
        audit/test_total_attacks.py::test_exact_totals_are_audited_without_a_promise
        audit/test_total_attacks.py::test_totals_with_noise_keep_their_guarantee
        audit/test_first_tree.py::test_the_totals_show_how_many_samples_of_each_class_a_bin_has""",
    ("- **Training on samples** (`learning.example_noise`).", 4): """
        audit/test_arithmetic.py::test_training_as_it_is_breaks_no_claim
        audit/test_mutants.py::test_training_that_hides_samples_is_not_certified_unseen""",
    ("- **The accounting.** Other formulas", 2): """
        audit/test_arithmetic.py::test_epsilon_of_a_gaussian_mechanism_is_that_of_the_accountant
        audit/test_arithmetic.py::test_the_worst_colluders_are_those_of_the_accountant
        audit/test_mutants.py::test_arithmetic_notices_a_mutant_at_once""",
    ("A correct build exceeds each", 2): """
        audit/test_statistics.py::test_one_false_alarm_in_a_hundred_thousand_is_what_a_limit_allows""",
    ("The audit misses noise and", 5): "python -m benchmarks.audit",
    ("`python -m benchmarks.audit` breaks the", 2): "python -m benchmarks.audit",
}
