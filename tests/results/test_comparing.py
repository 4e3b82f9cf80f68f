"""Means, paired differences and their correction against scipy; which settings are compared with which."""

import csv
import io
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from p2pfl.results.comparisons import wording
from p2pfl.results.comparisons.comparison import RunOutcome, compare, lower_is_better
from p2pfl.results.comparisons.exports import comparison_csv, comparison_json, comparison_paper, outcomes_csv
from p2pfl.results.comparisons.intervals import compare_paired, estimate, holm

SCORES = st.floats(-1, 1, allow_nan=False).map(lambda value: round(value, 6))


def comparison_tex(found):
    return comparison_paper(found, name="a sweep").tex()


@given(st.lists(SCORES, min_size=2, max_size=30))
def test_an_interval_is_that_of_students_t(values):
    found = estimate(values)
    error = stats.sem(values)
    if len({*values}) == 1:
        assert found.half is None
    else:
        half = stats.t.interval(0.95, len(values) - 1, loc=0, scale=error)[1]
        assert found.half == pytest.approx(half, rel=1e-9, abs=1e-12)
    assert found.count == len(values)


@given(st.lists(st.tuples(SCORES, SCORES), min_size=3, max_size=30))
def test_a_paired_difference_agrees_with_scipy(pairs):
    ones, others = zip(*pairs, strict=True)
    differences = [one - other for one, other in pairs]
    if max(differences) - min(differences) < 1e-9:
        return
    expected = stats.ttest_rel(ones, others)
    low, high = expected.confidence_interval(0.95)
    found, p = compare_paired(ones, others)
    assert p == pytest.approx(expected.pvalue, rel=1e-9, abs=1e-12)
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx((low, high), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("shift", [0.25, 0.1, 0.0])
def test_equal_differences_have_neither_an_interval_nor_a_p_value(shift):
    """0.9 - 0.8 and 0.4 - 0.3 differ in their last bit, which is no deviation to test with."""
    found, p = compare_paired([0.8 + shift, 0.3 + shift, 0.7 + shift], [0.8, 0.3, 0.7])
    assert (found.mean, found.half, p) == (pytest.approx(shift), None, None)


def test_equal_differences_are_no_better_setting_and_a_note_says_why():
    table = {(("rate", "1"),): [0.5, 0.6], (("rate", "2"),): [0.6, 0.7], (("rate", "3"),): [0.5, 0.6]}
    found = compare(outcomes(table), metric="accuracy", against={"rate": "1"})
    assert [wording.verdict(found, each) for each in found.differences] == ["no test", "equal"]
    assert [each.adjusted for each in found.differences] == [None, None]
    assert any("neither an interval nor a test" in sentence for sentence in wording.notes(found))


def test_one_pair_has_neither_an_interval_nor_a_p_value():
    found, p = compare_paired([0.9], [0.8])
    assert (found.half, p) == (None, None)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_rejects_what_the_step_down_procedure_rejects(values):
    adjusted = holm(values)
    for level in (0.01, 0.05, 0.2):
        rejected = set()
        for rank, (value, place) in enumerate(sorted((value, place) for place, value in enumerate(values))):
            if value * (len(values) - rank) >= level:
                break
            rejected.add(place)
        assert {place for place, value in enumerate(adjusted) if value < level} == rejected


def outcomes(table, *, bytes_sent=100, gradients=10):
    return [
        RunOutcome(values=dict(values), seed=seed, score=score, bytes_sent=bytes_sent, gradients=gradients, rounds=3)
        for values, scores in table.items()
        for seed, score in enumerate(scores)
    ]


GRID = {
    (("algorithm", "fedavg"), ("split", "iid")): [0.8, 0.9, 0.7],
    (("algorithm", "fedavg"), ("split", "shards")): [0.5, 0.6, 0.4],
    (("algorithm", "scaffold"), ("split", "iid")): [0.9, 0.99, 0.82],
    (("algorithm", "scaffold"), ("split", "shards")): [0.45, 0.6, 0.3],
}


def test_a_setting_is_compared_with_the_one_that_differs_in_the_reference_alone():
    found = compare(outcomes(GRID), metric="accuracy", against={"algorithm": "fedavg"})
    assert [(each.setting, each.reference) for each in found.differences] == [(2, 0), (3, 1)]
    assert [each.best for each in found.settings] == [False, True, True, False]
    assert found.differences[0].difference.mean == pytest.approx(0.31 / 3)
    assert [wording.verdict(found, each) for each in found.differences] == ["better", "not significant"]


TIES = {
    (("rate", "1"),): [0.8434, 0.8436, 0.8430, 0.8444],
    (("rate", "2"),): [0.8340, 0.8530, 0.8290, 0.8520],
    (("rate", "3"),): [0.84335, 0.84355, 0.84295, 0.84435],
    (("rate", "4"),): [0.7934, 0.7930, 0.7931, 0.7945],
}


def test_settings_that_are_tied_with_the_best_are_all_bold():
    """The second is not significantly worse, the third agrees in the printed digits, the fourth is worse."""
    found = compare(outcomes(TIES), metric="accuracy", against={"rate": "4"})
    assert [each.best for each in found.settings] == [True, False, False, False]
    assert [each.leading for each in found.settings] == [True, True, True, False]
    bold = [r"\mathbf" in line for line in comparison_tex(found).splitlines() if line.endswith(r" \\")][1:]
    assert bold == [True, True, True, False]
    assert comparison_tex(found).startswith(
        "% a sweep\n% Bold is the best mean, and each mean that agrees with it in the printed"
    )


def test_with_one_seed_only_equal_digits_tie():
    found = compare(outcomes({key: scores[:1] for key, scores in TIES.items()}), metric="accuracy")
    assert [each.leading for each in found.settings] == [True, False, True, False]
    assert wording.bold(found).endswith("agrees with it in the printed digits.")
    found = compare(
        outcomes({(("rate", rate),): [score] for rate, score in (("1", 0.84341), ("2", 0.84339))}), metric="a"
    )
    assert [each.leading for each in found.settings] == [True, True]


def test_ties_are_those_of_a_block_and_of_the_direction_of_the_score():
    found = compare(outcomes(GRID), metric="accuracy", against={"algorithm": "fedavg"})
    assert [each.leading for each in found.settings] == [False, True, True, True]
    assert "the best mean of each group that is compared" in wording.bold(found)
    found = compare(outcomes(TIES), metric="loss", against={"rate": "4"})
    assert [each.leading for each in found.settings] == [False, False, False, True]


@pytest.mark.parametrize(
    ("failed", "said"),
    [(1, "1 run failed or had no score and is left out"), (5, "5 runs failed or had no score and are left out")],
)
def test_a_sentence_on_failed_runs_agrees_in_number(failed, said):
    fails = [RunOutcome(values={"rate": "1"}, seed=10 + seed, failure="no") for seed in range(failed)]
    found = compare([*outcomes({(("rate", "1"),): [0.5, 0.6]}), *fails], metric="accuracy")
    assert any(sentence.startswith(said) for sentence in wording.warnings(found))


def test_without_a_reference_all_are_compared_with_the_best_and_the_sentence_says_so():
    found = compare(outcomes(GRID), metric="accuracy")
    assert {each.reference for each in found.differences} == {2}
    assert any("optimistic" in sentence for sentence in wording.notes(found))


def test_a_smaller_loss_is_better():
    found = compare(outcomes(GRID), metric="loss", against={"algorithm": "fedavg"})
    assert [each.best for each in found.settings] == [True, False, False, True]
    assert wording.verdict(found, found.differences[0]) == "worse"


@pytest.mark.parametrize("name", ["validation_loss", "mean_absolute_error", "calibration_error", "brier", "own.rmse"])
def test_errors_and_losses_are_better_smaller(name):
    assert lower_is_better(name)


@pytest.mark.parametrize("name", ["accuracy", "auc", "r2", "average_precision", "balanced_accuracy", "lossless_share"])
def test_all_other_scores_are_better_larger(name):
    assert not lower_is_better(name)


def test_a_line_break_in_a_setting_does_not_end_a_comment_in_latex():
    runs = [
        RunOutcome(values={"name": value}, seed=seed, score=0.5)
        for value in ("a\n\\input{x}", "b")
        for seed in range(2)
    ]
    text = comparison_tex(compare(runs, metric="accuracy", against={"name": "b"}))
    assert "\\input" not in text.replace("\\textbackslash{}", "")


def test_differences_use_the_seeds_that_both_have():
    runs = [each for each in outcomes(GRID) if (each.values["algorithm"], each.seed) != ("scaffold", 1)]
    found = compare(runs, metric="accuracy", against={"algorithm": "fedavg"})
    assert {each.difference.count for each in found.differences} == {2}
    assert found.differences[0].difference.mean == pytest.approx((0.1 + 0.12) / 2)
    assert any("same seeds" in sentence for sentence in wording.warnings(found))


def test_a_warning_names_unequal_costs():
    table = dict(list(GRID.items())[:1])
    more = dict(list(GRID.items())[2:3])
    runs = [*outcomes(table), *outcomes(more, bytes_sent=250)]
    found = compare(runs, metric="accuracy", against={"algorithm": "fedavg"})
    assert found.differences[0].costs == {"bytes_sent": 2.5}
    [sentence] = wording.warnings(found)
    assert "2.5 times the bytes" in sentence
    assert not [*wording.warnings(compare(outcomes(GRID), metric="accuracy", against={"algorithm": "fedavg"}))]


def test_at_equal_cost_the_other_cost_is_a_note_and_no_warning():
    runs = [*outcomes(dict(list(GRID.items())[:1])), *outcomes(dict(list(GRID.items())[2:3]), gradients=5)]
    found = compare(runs, metric="accuracy", against={"algorithm": "fedavg"}, budget="bytes=100B")
    assert not [*wording.warnings(found)]
    assert [*wording.notes(found)][-1] == "Even so, scaffold cost 0.5 times the gradients of fedavg."


def test_a_reference_that_no_setting_shares_the_other_keys_with_is_a_warning():
    found = compare(outcomes(GRID), metric="accuracy", against={"algorithm": "fedsgd"})
    assert found.differences == ()
    [sentence] = wording.warnings(found)
    assert sentence.startswith("No setting is compared with another")


def test_many_unequal_costs_are_one_warning():
    table = {(("rate", str(rate)),): [rate / 10, rate / 9] for rate in range(6)}
    runs = [msgspec.structs.replace(each, gradients=10 * (1 + int(each.values["rate"]))) for each in outcomes(table)]
    [sentence] = wording.warnings(compare(runs, metric="accuracy", against={"rate": "1"}))
    assert sentence.startswith("5 of 5 settings cost 0.5 to 3 times the bytes or gradients of their references")


def test_a_failed_run_is_left_out_and_counted():
    failed = RunOutcome(values={"algorithm": "fedavg", "split": "iid"}, seed=3, failure="the loss is not a number")
    found = compare([*outcomes(GRID), failed], metric="accuracy", against={"algorithm": "fedavg"})
    assert found.settings[0].failed == 1
    assert found.settings[0].score.count == 3
    assert any("1 run failed" in sentence for sentence in wording.warnings(found))


def test_a_setting_without_any_score_has_no_difference():
    runs = [each for each in outcomes(GRID) if each.values["algorithm"] == "fedavg"]
    failed = [
        RunOutcome(values={"algorithm": "scaffold", "split": "iid"}, seed=seed, failure="no") for seed in range(3)
    ]
    found = compare([*runs, *failed], metric="accuracy", against={"algorithm": "fedavg"})
    assert not found.differences
    assert found.settings[2].score is None


def test_csv_and_json_hold_the_numbers_of_the_comparison():
    found = compare(outcomes(GRID), metric="accuracy", against={"algorithm": "fedavg"})
    lines = [*csv.DictReader(io.StringIO(comparison_csv(found)))]
    assert [float(line["accuracy"]) for line in lines] == [each.score.mean for each in found.settings]
    assert float(lines[2]["difference"]) == found.differences[0].difference.mean
    assert float(lines[2]["p_holm"]) == found.differences[0].adjusted
    assert lines[2]["reference algorithm"] == "fedavg"
    assert lines[0]["difference"] == ""
    assert comparison_json(found)["differences"][0]["p"] == found.differences[0].p
    assert len(outcomes_csv(outcomes(GRID), metric="accuracy").splitlines()) == 13
    assert math.isclose(float(lines[0]["half_interval"]), found.settings[0].score.half)


def test_a_table_for_latex_has_the_same_numbers_and_no_bare_special_characters():
    found = compare(outcomes(GRID), metric="accuracy", against={"algorithm": "fedavg"})
    lines = comparison_tex(found).splitlines()
    rows = [line for line in lines if (line.endswith(r" \\") and "fedavg" in line) or "scaffold &" in line]
    assert len(rows) == 4
    mean = found.settings[2].score
    assert rf"$\mathbf{{{mean.mean:.3f} \pm {mean.half:.3f}}}$" in rows[2]
    assert f"${found.differences[0].difference.mean:+.3f} \\pm" in rows[2]
    assert rows[2].count("&") == 6 == lines[lines.index(r"\toprule") + 1].count("&")
    hostile = [msgspec.structs.replace(each, values={"a_b": r"50% \input{x} & $y$"}) for each in outcomes(GRID)]
    [row] = [line for line in comparison_tex(compare(hostile, metric="m_1")).splitlines() if "input" in line]
    assert row.startswith(r"50\% \textbackslash{}input\{x\} \& \$y\$ & ")
