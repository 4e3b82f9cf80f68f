"""An experiment on the tables of three wards, the key of their officer, and a policy that asks for approvals."""

from p2pfl.privacy.keys import Identity, SeededSource, key_text

EXPERIMENT = """
name = "ward"
rounds = 2
[topology]
kind = "complete"
peers = 3
[data]
name = "table"
[data.options]
path = "{peer}.csv"
target = "low"
columns = { age = "number", weight = "number", low = [0, 1] }
[model]
name = "MODEL"
[privacy]
mode = "pairwise"
"""

OFFICER = Identity.generate(SeededSource(7), peer="officer")

CARE_POLICY = f"""
officer = "{key_text(OFFICER.public)}"
[purposes.care]
legal_basis = "Art. 9(2)(h) GDPR"
retention = "10 years"
"""
"""Policy of a site whose officer approves each experiment."""


def write_tables(folder, names):
    """Write the table of each ward."""
    for number, name in enumerate(names):
        rows = [f"{20 + (7 * row + number) % 17},{50 + row % 13},{int((row + number) % 3 == 0)}" for row in range(40)]
        (folder / f"{name}.csv").write_text("\n".join(["age,weight,low", *rows]) + "\n")
