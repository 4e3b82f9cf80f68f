"""Seconds of exact Shapley values of ten peers: 1,023 coalitions that have data.

    python -m benchmarks.valuation [--peers 10] [--steps 60]

Digits, a linear model, full batches. Processor time changes less than time on a busy machine.
"""

import argparse
import os
import sys
import time

from p2pfl.experiment import plan, read
from p2pfl.plugins.study.valuation import valuation


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, default=10)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    table = {
        "name": "values",
        "rounds": options.steps,
        "topology": {"kind": "complete", "peers": options.peers},
        "data": {"name": "digits"},
        "model": {"name": "linear"},
        "learning": {"rate": 0.5, "batch": "all", "device": "cpu"},
    }
    resolved = plan(read(table))
    began, busy = time.perf_counter(), time.process_time()
    found = valuation(resolved)
    took, busy = time.perf_counter() - began, time.process_time() - busy
    gap = sum(each.value for each in found.values) - (found.everybody - found.nobody)
    print(f"{found.coalitions} coalitions of {options.peers} peers, {options.steps} steps each")
    print(f"{took:.1f} s, {busy:.1f} s of processor time, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"values add up to the score of everybody less that of nobody within {abs(gap):.0e}")


if __name__ == "__main__":
    sys.exit(main())
