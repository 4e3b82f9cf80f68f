"""Baseline hazards and predicted survival of Cox regressions: those of R on the lung data, and written out in numpy."""

import csv
import json

import numpy as np
import pytest
import tomli_w

from p2pfl.cli import main
from p2pfl.core.errors import InputError
from p2pfl.plugins.exact.survival.predicted_survival import predicted_curve, predicted_survival
from plugins.exact.regression.test_cox_extensions import columns_of, fit, heart, lung
from plugins.exact.rscript import computed_by_r

__all__ = ["heart", "lung"]  # fixtures

pytestmark = pytest.mark.filterwarnings("ignore:Starting with pandas version 4")  # inside lifelines

CLOSE = 1e-9
PROFILES = np.array([[60.0, 0.0, 2.0], [75.0, 2.0, 1.0]])  # age, ecog, sex


def at(curve, *times):
    """Return the positions of times of a curve."""
    return np.searchsorted(curve.times, times)


@pytest.mark.parametrize(
    ("ties", "survival", "errors"),
    [
        (
            "efron",
            [[0.992873721472488, 0.735304354233463, 0.262780019787590], [0.963586322505476, 0.202966187344044]],
            [[0.0038191437093061, 0.0610344622445995, 0.2928601263751100], [0.0191858886239842, 0.2872880190509935]],
        ),
        (
            "breslow",
            [[0.992895319551112, 0.735353489718478, 0.262650718665630], [0.963790077823907, 0.203901584538033]],
            [[0.00380782638197674, 0.06101913778971541, 0.2930313768399489], [0.0190731559819577, 0.2864160606400465]],
        ),
    ],
)
def test_predicted_survival_is_that_of_r(lung, ties, survival, errors):
    # survfit(coxph(Surv(time, status) ~ age + sex + ph.ecog, lung, ties), newdata), survival 3.5-3
    tensors, model = fit(lung, time="time", event="status", horizon=1022.0, ties=ties)
    for profile, shares, deviations in zip(PROFILES, survival, errors, strict=True):
        curve = predicted_curve(tensors, model, profile)
        places = at(curve, 11.0, 310.0, 883.0)[: len(shares)]
        assert np.allclose(curve.survival[places], shares, rtol=1e-9)
        assert np.allclose(curve.error[places], deviations, rtol=1e-8)
    groups = predicted_survival(tensors, model, PROFILES, ["one", "two"], interval="log")["groups"]
    assert [groups[0][key] for key in ("median", "median_low", "median_high")] == [613, 455, 814]
    assert groups[1]["median_low"] == 153


def test_the_baseline_hazard_is_breslows_estimate(lung):
    tensors, model = fit(lung, time="time", event="status", horizon=1022.0, ties="breslow")
    x, time = lung[["age", "ecog", "sex"]].to_numpy(float), lung.time.to_numpy()
    beta, died = tensors["weight"][0], lung.status.to_numpy() == 1
    curve = predicted_curve(tensors, model, np.zeros(3))
    oracle = [(died & (time == t)).sum() / np.exp(x[time >= t] @ beta).sum() for t in curve.times]
    assert np.allclose(curve.hazard, np.cumsum(oracle), rtol=CLOSE)


@pytest.mark.slow
def test_strata_and_late_entry_have_the_survival_of_r(heart, tmp_path, against_r):
    frame = heart.assign(surgery=heart.surgery.astype(int))
    options = {"times": "union", "entry": "start", "strata": "surgery", "levels": {"surgery": (0, 1)}, "least": 1}
    tensors, model = fit(frame, time="stop", event="event", **options)
    oracle = computed_by_r(
        """
        k <- coxph.control(eps = 1e-14, iter.max = 50, toler.chol = 1e-15)
        f <- coxph(Surv(start, stop, event) ~ age + transplant + year + strata(surgery), d, control = k)
        show(coef(f)); show(sqrt(diag(vcov(f)))); show(f$loglik); show(cox.zph(f)$table[, 'chisq'])
        p <- data.frame(age = -5, transplant = 1, year = 3, surgery = c(0, 1))
        for (i in 1:2) {
            s <- survfit(f, newdata = p[i, ], conf.type = 'log-log')
            e <- s$n.event > 0
            show(s$time[e]); show(s$surv[e]); show(s$std.err[e]); show(s$lower[e]); show(s$upper[e])
        }
        """,
        {name: heart[name].to_numpy() for name in heart},
        tmp_path,
    )
    own = model.explained(tensors, fields=model.fields, classes=()).regression
    call = "coxph(start, stop, strata)"
    against_r(f"{call}: coefficients", [each.estimate for each in own.coefficients], oracle[0])
    against_r(f"{call}: errors", [each.error for each in own.coefficients], oracle[1])
    against_r(f"{call}: loglik", [own.facts["null_likelihood"], own.facts["likelihood"]], oracle[2])
    against_r("cox.zph of it: statistics", [test.statistic for test in own.tests], oracle[3])
    features, _ = columns_of(frame.drop(columns=["stop", "event"]), surgery=(0, 1))
    for place in (0, 1):
        profile = np.array([-5.0, 0.0, place == 0, place == 1, 1.0, 3.0])
        assert features.shape[1] == len(profile)
        [group] = predicted_survival(tensors, model, profile[None], ["it"], interval="log-log")["groups"]
        times, shares, errors, low, high = oracle[4 + 5 * place : 9 + 5 * place]
        assert group["times"] == times.tolist()
        ours = group["survival"], np.array(group["error"]) / shares, group["low"], group["high"]
        against_r("survfit of it: survival, errors, intervals of profiles", ours, [shares, errors, low, high])


def test_what_predicts_no_survival_is_refused(lung):
    tensors, model = fit(lung, time="time", event="status", horizon=1022.0, ridge=1.0)
    with pytest.raises(InputError, match=r"has no errors with model\.options\.ridge"):
        predicted_survival(tensors, model, PROFILES, ["one", "two"], interval="log")
    with pytest.raises(InputError, match="has not converged, so it predicts no survival; train more rounds"):
        predicted_survival(model.start(), model, PROFILES, ["one", "two"], interval="log")


@pytest.fixture(scope="module")
def saved(lung, tmp_path_factory):
    """Return the saved regression of three hospitals, with strata, and its folder."""
    folder = tmp_path_factory.mktemp("lung")
    names = ["time", "status", "age", "sex", "ecog"]
    for peer in range(3):
        with (folder / f"peer{peer}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([names, *lung[names].to_numpy().tolist()[peer::3]])
    columns = {"time": "number", "status": [0, 1], "age": "number", "sex": [1, 2], "ecog": "number"}
    options = {"path": str(folder / "{peer}.csv"), "target": "time", "event": "status", "columns": columns}
    table = {
        "rounds": 30,
        "topology": {"kind": "ring", "peers": 3},
        "data": {"name": "table", "options": options},
        "model": {"name": "cox", "options": {"horizon": 1022, "width": 90, "strata": "sex", "least": 1}},
        "privacy": {"mode": "pairwise"},
    }
    (folder / "cox.toml").write_text(tomli_w.dumps(table))
    assert main(["simulate", str(folder / "cox.toml"), "--runs", str(folder / "runs")]) == 0
    [run] = (folder / "runs").iterdir()
    return run / "peers" / "peer0.safetensors", folder


@pytest.mark.slow
def test_the_command_predicts_survival_of_profiles_and_of_the_mean_of_each_stratum(saved, capsys):
    path, folder = saved
    capsys.readouterr()
    assert (
        main(["survival", str(path), "--unit", "days", "--plot", str(folder / "p.svg"), "--tex", str(folder / "t")])
        == 0
    )
    printed = " ".join(capsys.readouterr().out.split())
    assert "mean sample, sex = 1 359 269 to 359" in printed
    assert ">mean sample, sex = 2</text>" in (folder / "p.svg").read_text()
    assert "mean sample, sex = 2" in (folder / "t").read_text()
    (folder / "new.csv").write_text("age,sex,ecog\n60,2,0\n75,1,2\n")
    profiles = ["--profiles", str(folder / "new.csv"), "--csv", str(folder / "c.csv"), "--html", str(folder / "h.html")]
    assert main(["survival", str(path), *profiles, "--json"]) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert groups[0]["survival"][-1] > groups[1]["survival"][-1]
    assert (
        (folder / "c.csv").read_text().startswith("profile,time,cumulative_hazard,survival,std_error,low,high\nrow 1,")
    )
    assert "Predicted median" in (folder / "h.html").read_text()
    assert main(["coefficients", str(path)]) == 0
    assert "Test of proportional hazards column chi2 df p age" in " ".join(capsys.readouterr().out.split())
    (folder / "bad.csv").write_text("age,ecog\n60,0\n")
    assert main(["survival", str(path), "--profiles", str(folder / "bad.csv")]) == 2
    assert 'has no column "sex", whose levels have hazards of their own; add it' in capsys.readouterr().err
    assert main(["survival", str(path), "--horizon", "9"]) == 2
    assert "is a model cox, so --horizon has no effect; leave it out" in capsys.readouterr().err
    (folder / "risks.csv").write_text("age,ecog\n60,0\n")
    assert main(["predict", str(path), str(folder / "risks.csv")]) == 0  # log risks do not depend on strata
