"""Cox regression with several kinds of events, and robust errors: those of R's finegray, and written out in numpy."""

import csv

import numpy as np
import pytest
import torch

from p2pfl import topology
from p2pfl.core.errors import InputError, ModelError
from p2pfl.data.data_description import Field
from p2pfl.experiment import plan, read
from p2pfl.network.transport import MemoryTransport
from p2pfl.plugins.exact.survival.cox import Cox
from p2pfl.plugins.exact.survival.predicted_survival import predicted_survival
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation import simulate
from plugins.exact.regression.test_cox_extensions import Oracle, explained
from plugins.exact.rscript import computed_by_r
from plugins.exact.tables import masked_as_pooled, shared_out, trained
from swarms import live

CLOSE = 1e-9
FIELDS = (Field("age"), Field("dose"), Field("kind", ("none", "relapse", "death")), Field("site", ("a", "b")))


@pytest.fixture(scope="module")
def trial():
    """Return features, sites, times with many ties and kinds of events of 150 samples."""
    rng = np.random.default_rng(5)
    x = np.column_stack([rng.normal(60, 9, 150), rng.integers(0, 3, 150)])
    times = np.ceil(rng.exponential(12 / np.exp(0.03 * (x[:, 0] - 60)))).clip(1, 40)
    return x, rng.integers(0, 2, 150), times, rng.choice(3, 150, p=[0.3, 0.4, 0.3])


def fit(trial, *, masked=False, **options):
    x, site, times, kind = trial
    model = Cox(features=7, classes=None, horizon=41.0, fields=FIELDS, cause="kind", failure="relapse", **options).alone
    features = np.column_stack([x, np.eye(3)[kind], np.eye(2)[site]])
    if model.strata is None:  # without the site
        model = Cox(
            features=5, classes=None, horizon=41.0, fields=FIELDS[:3], cause="kind", failure="relapse", **options
        )
        model, features = model.alone, features[:, :5]
    targets = np.where(kind > 0, times, -times)
    federation = shared_out(features, targets, classes=None, peers=5, dtype=torch.float64)
    if masked:
        return masked_as_pooled(model, federation, topology.ring(5), rounds=12), model
    return trained(model, federation, rounds=12)[1], model


def fine_gray(trial, *, efron):
    """Return coefficients and robust errors with weighted rows at risk, written out."""
    x, _, times, kind = trial
    x = x - x.mean(0)
    days = np.unique(times)
    lost = np.array(
        [
            ((times == day) & (kind == 0)).sum() / max(1, (times >= day).sum() - ((times == day) & (kind > 0)).sum())
            for day in days
        ]
    )
    staying = np.concatenate([[1.0], np.cumprod(1 - lost)[:-1]])

    def weights(day):
        now = staying[np.searchsorted(days, day)]
        own = staying[np.searchsorted(days, times)]
        return np.where(times >= day, 1.0, np.where(kind == 2, now / own, 0.0))

    beta = np.zeros(2)
    for _ in range(15):
        score, information, residuals = np.zeros(2), np.zeros((2, 2)), np.zeros_like(x)
        for day in np.unique(times[kind == 1]):
            died = (times == day) & (kind == 1)
            risk = np.exp(x @ beta) * weights(day)
            for place in range(died.sum()):
                share = place / died.sum() if efron else 0.0
                weight = risk * (1 - died * share)
                mean = weight @ x / weight.sum()
                score += x[died].sum(0) / died.sum() - mean
                information += (x.T * weight) @ x / weight.sum() - np.outer(mean, mean)
                residuals += died[:, None] * (x - mean) / died.sum() - (weight / weight.sum())[:, None] * (x - mean)
        if np.abs(score).max() > 1e-12:
            beta = beta + np.linalg.solve(information, score)
    bread = np.linalg.inv(information)
    return beta, np.sqrt(np.diag(bread @ residuals.T @ residuals @ bread))


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_subdistribution_hazards_are_those_of_weighted_rows(trial, ties):
    tensors, model = fit(trial, hazard="subdistribution", ties=ties)
    own = explained(tensors, model)
    beta, errors = fine_gray(trial, efron=ties == "efron")
    assert [each.name for each in own.coefficients] == ["age", "dose"]
    assert [each.estimate for each in own.coefficients] == pytest.approx(beta, rel=CLOSE)
    assert [each.error for each in own.coefficients] == pytest.approx(errors, rel=CLOSE)
    assert own.errors == "robust"
    assert "follow from the score residuals" in " ".join(own.notes())


def test_under_a_cause_specific_hazard_other_events_censor(trial):
    tensors, model = fit(trial)
    x, _, times, kind = trial
    oracle = Oracle(x, np.full(150, -1.0), times, kind == 1, np.zeros(150))
    own = explained(tensors, model)
    assert [each.estimate for each in own.coefficients] == pytest.approx(oracle.beta, rel=CLOSE)
    assert [each.error for each in own.coefficients] == pytest.approx(
        np.sqrt(np.diag(np.linalg.inv(oracle.information))), rel=CLOSE
    )


@pytest.mark.slow
def test_subdistribution_hazards_strata_and_robust_errors_are_those_of_r(trial, tmp_path, against_r):
    x, site, times, kind = trial
    oracle = computed_by_r(
        """
        k <- coxph.control(eps = 1e-14, iter.max = 50, toler.chol = 1e-15)
        d$id <- seq_len(nrow(d))
        g <- finegray(Surv(time, factor(kind, 0:2)) ~ ., data = d, etype = '1', id = id)
        f <- coxph(Surv(fgstart, fgstop, fgstatus) ~ age + dose, g, weights = fgwt, cluster = id, control = k)
        show(coef(f)); show(sqrt(diag(vcov(f)))); show(f$loglik)
        s <- Surv(fgstart, fgstop, fgstatus) ~ age + dose + strata(site)
        f <- coxph(s, g, weights = fgwt, cluster = id, control = k)
        show(coef(f)); show(sqrt(diag(vcov(f))))
        f <- coxph(Surv(time, kind == 1) ~ age + dose + strata(site), d, robust = TRUE, control = k)
        show(coef(f)); show(sqrt(diag(vcov(f))))
        """,
        {"age": x[:, 0], "dose": x[:, 1], "site": site, "time": times.astype(int), "kind": kind},
        tmp_path,
    )
    variants = [{"hazard": "subdistribution"}, {"hazard": "subdistribution", "strata": "site"}]
    variants.append({"strata": "site", "errors": "robust"})
    rows = iter(oracle)
    for options in variants:
        own = explained(*fit(trial, **options))
        call = "coxph(strata, robust)" if "errors" in options else "finegray, coxph(strata, cluster)"
        against_r(f"{call}: coefficients", [each.estimate for each in own.coefficients], next(rows))
        against_r(f"{call}: errors", [each.error for each in own.coefficients], next(rows))
        if options == variants[0]:
            against_r(f"{call}: loglik", [own.facts["null_likelihood"], own.facts["likelihood"]], next(rows))


@pytest.mark.slow
def test_peers_under_masks_end_with_the_model_of_pooled_data(trial):
    fit(trial, masked=True, hazard="subdistribution", strata="site")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cause": "age"}, 'cause: there is no column with levels "age"'),
        ({"failure": "cure"}, 'failure: there is no kind of event "cure"; choose from relapse, death'),
        ({"failure": "none"}, 'failure: there is no kind of event "none"'),
        ({"hazard": "both"}, 'hazard is "both"; set it to "cause_specific" or "subdistribution"'),
        ({"hazard": "subdistribution", "entry": "dose"}, r"entry does not work with hazard = .subdistribution."),
        ({"errors": "HC0"}, 'errors is "HC0"; set it to "classical", "robust" or "cluster"'),
        ({"errors": "robust", "ridge": 1.0}, "ridge does not work with robust errors"),
        ({"hazard": "subdistribution", "cause": None, "failure": None}, "needs kinds of events; set cause and failure"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    usual = {"cause": "kind", "failure": "relapse"}
    with pytest.raises(ModelError, match=message):
        Cox(**{"features": 7, "classes": None, "horizon": 9.0, "fields": FIELDS} | usual | options)


def test_the_statement_names_strata_other_events_and_residuals():
    shown = Cox.shown({"strata": "site", "hazard": "subdistribution"})
    assert "how many samples leave of each stratum or have another event in each cell of time" in shown
    assert shown.endswith("; and the sums of products of score residuals")
    assert "leave or enter in each cell of time" in Cox.shown({"entry": "start"})
    assert "how many samples leave in each cell of time" in Cox.shown({"cause": "kind", "hazard": "cause_specific"})


def test_survival_is_not_predicted_from_one_of_several_events(trial):
    tensors, model = fit(trial, hazard="subdistribution")
    with pytest.raises(InputError, match="see the cumulative incidence of p2pfl survival --cause"):
        predicted_survival(tensors, model, np.zeros((1, 5)), ["one"], interval="log")


@pytest.mark.slow
async def test_live_peers_end_with_the_subdistribution_hazards_of_the_simulation(trial, tmp_path):
    x, site, times, kind = trial
    samples = zip(x.tolist(), site, times, kind, strict=True)
    rows = [[*row, FIELDS[2].levels[which], "ab"[where], time] for row, where, time, which in samples]
    for peer in range(3):
        with (tmp_path / f"peer{peer}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["age", "dose", "kind", "site", "time"], *rows[peer::3]])
    columns = {"age": "number", "dose": "number", "kind": [*FIELDS[2].levels], "site": ["a", "b"], "time": "number"}
    options = {"path": str(tmp_path / "{peer}.csv"), "target": "time", "event": "kind", "columns": columns}
    wanted = {"horizon": 41, "cause": "kind", "failure": "relapse", "hazard": "subdistribution", "strata": "site"}
    experiment = read(
        {
            "rounds": 20,
            "topology": {"kind": "ring", "peers": 3},
            "data": {"name": "table", "options": options},
            "model": {"name": "cox", "options": wanted | {"least": 1}},
            "privacy": {"mode": "pairwise", "mask_graph": "complete"},
        }
    )
    simulated = simulate(experiment, baselines=False).models["peer0"]
    assert simulated["converged"][0] == 1
    resolved = plan(experiment)
    ends = await live(experiment, MemoryTransport(), source=SeededSource(3), resolved=resolved)
    assert len(ends) == 3
    for end in ends.values():
        own = resolved.learner.state_dict(end.state.rows[0])
        assert all(torch.equal(own[name], tensor) for name, tensor in simulated.items())
