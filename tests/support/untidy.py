"""Tables of the same people as different owners type them: case, accents, hyphens, dates, gaps and typing errors."""

from dataclasses import dataclass

import numpy as np

from p2pfl.data.tables.cells import TextCells
from p2pfl.data.tables.file_format import FileFormat

SURNAMES = [
    "Müller",
    "Lefèvre",
    "O'Neil",
    "Smith-Jones",
    "Østergård",
    "García",
    "Novák",
    "van der Berg",
    "Kowalski",
    "Ng",
]
SYLLABLES = ["ba", "de", "ki", "lo", "mu", "na", "re", "so", "ti", "va"]
FORENAMES = ["Zoë", "José", "Anne-Marie", "Björn", "Chloé", "Emma", "Li", "Noah", "Olga", "Sam", "Uwe", "Yusuf"]
DATES = ("{y:04}-{m:02}-{d:02}", "{d:02}.{m:02}.{y:04}", "{d}/{m}/{y:04}")
FORMS = "%Y-%m-%d | %d.%m.%Y | %d/%m/%Y"
KEYS = [
    ["nhs:digits"],
    ["born:date", "postcode:digits"],
    ["surname:first:3", "forename:first:2", "born:date"],
    ["surname:first:3", "postcode:digits"],
]


@dataclass(frozen=True)
class Untidy:
    """Tables by owner, and which person each row is."""

    tables: dict[str, TextCells]
    people: dict[str, np.ndarray]


def tables(owners, *, common=750, others=150, missing=0.135, typos=0.045, seed=0):
    """``common`` people whom all owners have, and ``others`` of each owner alone."""
    rng = np.random.default_rng(seed)
    count = common + others * len(owners)
    everybody = {
        "nhs": [f"{number:010}" for number in rng.choice(9 * 10**9, count, replace=False) + 10**9],
        "surname": [_surname(rng) for _ in range(count)],
        "forename": [str(rng.choice(FORENAMES)) for _ in range(count)],
        "born": [
            (int(rng.integers(1930, 2010)), int(rng.integers(1, 13)), int(rng.integers(1, 29))) for _ in range(count)
        ],
        "postcode": [f"{number:05}" for number in rng.integers(1000, 99999, count)],
    }
    made, people = {}, {}
    for number, owner in enumerate(owners):
        own = np.concatenate([np.arange(common), common + others * number + np.arange(others)])
        people[owner] = rng.permutation(own)
        rows = {
            name: [_typed(name, column[person], rng, missing, typos) for person in people[owner]]
            for name, column in everybody.items()
        }
        columns = {name: lambda cells=cells: list(cells) for name, cells in rows.items()}
        made[owner] = TextCells(f"{owner}.csv", columns, rows=len(own), format=FileFormat(dates=FORMS))
    return Untidy(made, people)


def _surname(rng):
    return (
        f"{rng.choice(SURNAMES)}{''.join(rng.choice(SYLLABLES, 2))}".title()
        if rng.random() < 0.8
        else str(rng.choice(SURNAMES))
    )


def _typed(name, value, rng, missing, typos):
    """Return a value as somebody types it."""
    if name == "nhs" and rng.random() < missing:
        return str(rng.choice(["", "NA", "?"]))
    if name == "born":
        year, month, day = value
        if rng.random() < typos:
            day = 1 + day % 28
        return DATES[rng.integers(len(DATES))].format(y=year, m=month, d=day)
    text = _with_error(value, rng) if rng.random() < typos else value
    if name == "nhs":
        return [text, f"{text[:3]} {text[3:6]} {text[6:]}", f"{text[:3]}-{text[3:]}"][rng.integers(3)]
    if name == "postcode":
        return [text, text.lstrip("0")][rng.integers(2)]
    return [text, text.upper(), text.lower(), f" {text} ", text.replace("-", " "), _plain(text)][rng.integers(6)]


def _plain(text):
    return text.translate(str.maketrans("üèåéëöáí", "ueaeeoai"))


def _with_error(text, rng):
    """Return a text with two characters swapped, one left out or one replaced."""
    place = int(rng.integers(1, len(text)))
    kind = rng.integers(3)
    if kind == 0:
        return text[: place - 1] + text[place] + text[place - 1] + text[place + 1 :]
    if kind == 1:
        return text[:place] + text[place + 1 :]
    return text[:place] + str(rng.choice(list("0123456789" if text.isdigit() else "aeiounrst"))) + text[place + 1 :]
