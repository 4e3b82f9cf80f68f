"""R as an oracle, where Rscript and the package survival are installed."""

import csv
import shutil
import subprocess
from functools import cache

import numpy as np
import pytest


@cache
def installed(*packages):
    """Return whether R has some packages."""
    if shutil.which("Rscript") is None:
        return False
    code = ";".join(f"library({name})" for name in packages)
    return subprocess.run(["Rscript", "-e", code], capture_output=True, check=False).returncode == 0


def computed_by_r(code, columns, folder, *, packages=("survival",)):
    """Return the numbers that R code prints with ``show``; the test skips without R.

    The columns are the data frame ``d``.
    """
    if not installed(*packages):
        pytest.skip(f"Rscript with {', '.join(packages)} is not installed")
    with (folder / "d.csv").open("w", newline="") as file:
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        csv.writer(file).writerows([columns, *rows])
    loaded = "\n".join(f"suppressMessages(library({name}))" for name in packages)
    script = f"{loaded}\nd <- read.csv('d.csv')\nshow <- function(x) cat(sprintf('%.17g', x), '\\n')\n{code}\n"
    (folder / "code.R").write_text(script)
    done = subprocess.run(["Rscript", "code.R"], cwd=folder, capture_output=True, text=True, check=True)
    return [np.array([float(each) for each in line.replace("NA", "nan").split()]) for line in done.stdout.splitlines()]
