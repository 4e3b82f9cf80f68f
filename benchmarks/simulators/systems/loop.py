"""A loop over the participants with plain torch, one thread."""

import copy

import torch
from task import TASK, accuracy, build, client, now, report, test, train

test()
client(0)
draws = torch.Generator().manual_seed(1)
begun = now()
common, score = build(), 0.0
for number in range(TASK.rounds):
    trained, counts = [], []
    for chosen in torch.randperm(TASK.clients, generator=draws)[: TASK.cohort].tolist():
        model, (x, y) = copy.deepcopy(common), client(chosen)
        train(model, x, y)
        trained.append(model.state_dict())
        counts.append(len(y))
    share = [count / sum(counts) for count in counts]
    mean = {name: sum(part * each[name] for part, each in zip(share, trained, strict=True)) for name in trained[0]}
    common.load_state_dict(mean)
    if (number + 1) % TASK.every == 0:
        score = accuracy(common)
report(score, begun=begun, ended=now(), version=torch.__version__)
