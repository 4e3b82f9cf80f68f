"""p2pfl, live: ``p2pfl run``, a process for each peer, over mosquitto, with signed and sealed models.

No baselines are trained, as no other system trains any.
"""

import json
import subprocess
import sys
from pathlib import Path

from task import BATCH, EPOCHS, RATE, ROUNDS

EXPERIMENT = f"""
name = "digits"
rounds = {ROUNDS}
[topology]
kind = "ring"
peers = 8
[data]
name = "digits"
split = "iid"
[model]
name = "mlp"
hidden = [32]
[learning]
rate = {RATE}
batch = {BATCH}
epochs = {EPOCHS}
[gossip]
steps = 1
"""

Path("digits.toml").write_text(EXPERIMENT, encoding="utf-8")
subprocess.run(
    [sys.executable, "-m", "p2pfl", "run", "digits.toml", "--runs", "runs", "--no-baselines"],
    check=True,
)
(found,) = Path("runs").glob("*/summary.json")
summary = json.loads(found.read_text(encoding="utf-8"))
scores = [peer["together"] for peer in summary["per_peer"].values()]
report = {"learning": summary["wall_s"], "mean": summary["together"], "least": min(scores)}
Path(sys.argv[2]).write_text(json.dumps(report | {"version": summary["versions"]["p2pfl"]}), encoding="utf-8")
