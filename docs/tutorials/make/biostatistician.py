"""Write the files of four hospitals, each in its own format."""

from datetime import date, timedelta
from pathlib import Path

import numpy as np

rng = np.random.default_rng(11)
head = "patient;admitted;age;sex;smoker;creatinine;ejection;drug;died90;died;days"


def hospital(
    name: str, people: int, *, separator: str, decimal: str, encoding: str, dates: str, missing: str, unit: float
) -> None:
    """Write the table of one hospital in its own format."""
    rows = [head.split(";")]
    for number in range(people):
        age, ejection, creatinine = rng.normal(68, 10), rng.normal(40, 9), rng.lognormal(0.1, 0.3)
        sex, smoker, drug = (
            rng.choice(["f", "m"]),
            rng.choice(["never", "former", "current"]),
            rng.choice(["standard", "new"]),
        )
        risk = (
            0.05 * (age - 68)
            - 0.04 * (ejection - 40)
            + creatinine
            + 0.4 * (smoker == "current")
            - 0.5 * (drug == "new")
        )
        days, end = rng.exponential(1500 * np.exp(-risk)), rng.uniform(365, 1095)
        admitted = (date(2021, 1, 1) + timedelta(int(rng.integers(700)))).strftime(dates)
        measured = [f"{creatinine * unit:.2f}".replace(".", decimal), f"{ejection:.0f}"]
        measured = [missing if rng.random() < 0.04 else cell for cell in measured]
        rows.append([f"Nº {name[0]}{number:04}", admitted, f"{age:.0f}", sex, smoker, *measured, drug])
        rows[-1] += [int(days <= 90), int(days <= end), int(min(days, end)) + 1]
    Path(name).mkdir(exist_ok=True)
    text = "".join(separator.join(map(str, row)) + "\n" for row in [*rows, rows[1]])  # one patient is there twice
    Path(name, "cohort.csv").write_text(text, encoding)


hospital("north", 320, separator=";", decimal=",", encoding="latin-1", dates="%d.%m.%Y", missing="-9", unit=1)
hospital("south", 260, separator=",", decimal=".", encoding="utf-8", dates="%Y-%m-%d", missing="NA", unit=1)
hospital("east", 210, separator="\t", decimal=".", encoding="utf-8", dates="%m/%d/%Y", missing="", unit=88.4)
hospital("west", 240, separator=",", decimal=".", encoding="utf-8", dates="%Y-%m-%d", missing="NA", unit=1)
