"""One list of the largest relative errors against R: ``pytest -n 0 -m against_r tests/plugins/exact``."""

import numpy as np
import pytest

LARGEST_ERROR = 1e-9
"""Largest relative error against R, on doubles."""


@pytest.fixture
def against_r(record_property):
    """Return a check that numbers are those of R, which the list names by the call of R."""

    def check(call, ours, of_r, *, limit=LARGEST_ERROR):
        ours, of_r = np.asarray(ours, float).ravel(), np.asarray(of_r, float).ravel()
        assert ours.shape == of_r.shape
        scale = np.where(of_r == 0, 1.0, np.abs(of_r))
        error = float(np.max(np.abs(ours - of_r) / scale))
        record_property(call, [error, len(of_r), limit])
        assert error < limit, (call, ours, of_r)

    return check


def pytest_collection_modifyitems(items):
    for item in items:
        if isinstance(item, pytest.Function) and "against_r" in item.fixturenames:
            item.add_marker("against_r")


def pytest_terminal_summary(terminalreporter, config):
    if "against_r" not in config.option.markexpr:
        return
    worst = {}
    for report in terminalreporter.getreports("passed"):
        for call, (error, count, limit) in report.user_properties:
            former = worst.get(call, (0.0, 0, limit))
            worst[call] = max(error, former[0]), count + former[1], limit
    terminalreporter.section("largest relative errors against R")
    terminalreporter.write_line(f"{'R':74} numbers  error  limit")
    for call, (error, count, limit) in sorted(worst.items()):
        terminalreporter.write_line(f"{call:74} {count:7} {error:6.0e} {limit:6.0e}")
