"""Write the untidy tables of a hospital, a laboratory and an insurer, and of new people."""

import csv
from datetime import date, timedelta
from pathlib import Path

import numpy as np

rng = np.random.default_rng(7)
PEOPLE, NEW = 900, 60
SURNAMES = ["Müller", "Lefèvre", "O'Neil", "Smith-Jones", "García", "Novák", "Ng", "Berg"]
surname = [f"{rng.choice(SURNAMES)}{''.join(rng.choice(list('aeiost'), 3))}" for _ in range(PEOPLE)]
born = [date(1930, 1, 1) + timedelta(int(day)) for day in rng.integers(0, 25_000, PEOPLE)]
number = rng.choice(9 * 10**9, PEOPLE, replace=False) + 10**9
age, crp = np.array([(date(2025, 1, 1) - day).days / 365.25 for day in born]), rng.gamma(2, 8, PEOPLE)
haemoglobin, days = rng.normal(13.5, 1.5, PEOPLE), rng.poisson(5, PEOPLE)
claims, visits = rng.poisson(2, PEOPLE), rng.poisson(4, PEOPLE)
risk = 0.03 * (age - 60) + 0.05 * (crp - 16) - 0.5 * (haemoglobin - 13.5) + 0.6 * (claims - 2) + 0.1 * (days - 5)
back = np.where(rng.random(PEOPLE) < 1 / (1 + np.exp(-risk)), "yes", "no")
values = {
    "hospital": {"age": age.round(1), "days": days, "back": back},
    "laboratory": {"crp": crp.round(1), "haemoglobin": haemoglobin.round(1)},
    "insurer": {"claims": claims, "visits": visits},
}
forms = {"hospital": "%Y-%m-%d", "laboratory": "%d.%m.%Y", "insurer": "%d/%m/%Y"}
for share, (name, columns) in zip((1, 0.9, 0.85), values.items(), strict=True):
    for folder, people in ("", np.arange(PEOPLE - NEW)), ("new/", np.arange(PEOPLE - NEW, PEOPLE)):
        Path(f"{folder}{name}.csv.toml").write_text(f'dates = "{forms[name]}"', "utf-8")
        known = rng.permutation(people[rng.random(len(people)) < share])
        with Path(f"{folder}{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["number", "surname", "born", *columns])
            for who in known.tolist():
                typed = f"{number[who]}" if rng.random() < 0.85 else ""
                written = surname[who].upper() if rng.random() < 0.3 else surname[who]
                writer.writerow(
                    [typed, written, born[who].strftime(forms[name]), *(each[who] for each in columns.values())]
                )
