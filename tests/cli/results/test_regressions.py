"""The coefficients of a regression as tables."""

from p2pfl.cli import tables
from p2pfl.core.explanations import FittedCoefficient, FittedRegression


def test_the_path_of_a_lasso_counts_features_in_whole_numbers(capsys):
    path = ({"lambda": 0.5, "features": 0, "deviance": 2.25}, {"lambda": 0.125, "features": 12, "deviance": 1.5})
    coefficients = (FittedCoefficient("age", 0.75), FittedCoefficient("(intercept)", 1.0))
    tables.regression(FittedRegression("lasso", coefficients, {"chosen": 1.0}, errors="none", path=path))
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["0.5", "0", "2.25"] in rows
    assert ["0.125", "12", "1.5"] in rows
