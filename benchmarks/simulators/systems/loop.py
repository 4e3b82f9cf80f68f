"""A loop over the participants with plain torch, one thread."""

import copy

import torch
from task import CLIENTS, COHORT, EVERY, ROUNDS, SAMPLES, accuracy, build, load, now, report, train

(x, y), test = load()
draws = torch.Generator().manual_seed(1)
begun = now()
common, score = build(), 0.0
for number in range(ROUNDS):
    trained = []
    for client in torch.randperm(CLIENTS, generator=draws)[:COHORT].tolist():
        model, own = copy.deepcopy(common), slice(SAMPLES * client, SAMPLES * (client + 1))
        train(model, x[own], y[own])
        trained.append(model.state_dict())
    mean = {name: torch.stack([each[name] for each in trained]).mean(0) for name in trained[0]}
    common.load_state_dict(mean)
    if (number + 1) % EVERY == 0:
        score = accuracy(common, test)
report(score, begun=begun, ended=now(), version=torch.__version__)
