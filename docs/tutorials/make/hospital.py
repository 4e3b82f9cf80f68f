"""Write a CSV file for each of four hospitals, and one of new patients; they stand in for your own."""

import csv
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

data = load_breast_cancer()
rng = np.random.default_rng(7)
drawn = rng.permutation(len(data.target))
scanner = rng.choice(["A", "B"], len(data.target))
names = ["peer0", "peer1", "peer2", "peer3", "new"]
for name, part in zip(names, np.split(drawn, [60, 150, 300, 509]), strict=True):
    with Path(f"{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["patient", "scanner", *data.feature_names, "benign"])
        writer.writerows([row, scanner[row], *data.data[row], data.target[row]] for row in part)
