"""fedjax: federated averaging, compiled by XLA, one process."""

from importlib.metadata import version

import fedjax
import haiku as hk
import jax
import numpy as np
import torch
from task import TASK, client, now, report, test


def forward(x: jax.Array, *, training: bool) -> jax.Array:
    """Return the scores of the classes, by the network of the task."""
    if TASK.words:
        bias = hk.get_parameter("bias", (TASK.classes,), init=hk.initializers.Constant(0.0))
        return hk.Embed(TASK.words, TASK.classes)(x).mean(1) + bias
    if len(TASK.shape) == 1:
        return hk.Linear(TASK.classes)(x)
    for channels in (32, 64):
        x = jax.nn.relu(hk.Conv2D(channels, 3, padding="VALID")(x))
    x = hk.Flatten()(hk.MaxPool(2, 2, padding="VALID")(x))
    x = hk.dropout(hk.next_rng_key(), 0.25, x) if training else x
    x = jax.nn.relu(hk.Linear(128)(x))
    x = hk.dropout(hk.next_rng_key(), 0.5, x) if training else x
    return hk.Linear(TASK.classes)(x)


def dataset(samples: tuple[torch.Tensor, torch.Tensor]) -> fedjax.ClientDataset:
    """Return samples, pictures with their channels last."""
    x, y = samples
    return fedjax.ClientDataset({"x": x.movedim(1, -1).numpy() if x.dim() == 4 else x.numpy(), "y": y.numpy()})


held, first = dataset(test()), dataset(client(0))
begun = now()
passes = {
    name: hk.transform(lambda batch, on=name == "train": forward(batch["x"], training=on)) for name in ("train", "eval")
}
model = fedjax.Model(
    init=lambda key: passes["train"].init(key, first.all_examples()),
    apply_for_train=lambda params, batch, key: passes["train"].apply(params, key, batch),
    apply_for_eval=lambda params, batch: passes["eval"].apply(params, None, batch),
    train_loss=lambda batch, scores: fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], scores),
    eval_metrics={"accuracy": fedjax.metrics.Accuracy()},
)
algorithm = fedjax.algorithms.fed_avg.federated_averaging(
    fedjax.model_grad(model),
    client_optimizer=fedjax.optimizers.sgd(TASK.rate),
    server_optimizer=fedjax.optimizers.sgd(1.0),
    client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(batch_size=TASK.batch, num_epochs=1),
)
draws, score = np.random.default_rng(1), 0.0
state = algorithm.init(model.init(jax.random.PRNGKey(0)))
for number in range(TASK.rounds):
    keys = jax.random.split(jax.random.PRNGKey(number), TASK.cohort)
    chosen = draws.permutation(TASK.clients)[: TASK.cohort].tolist()
    cohort = [(b"%d" % each, dataset(client(each)), key) for each, key in zip(chosen, keys, strict=True)]
    state, _ = algorithm.apply(state, cohort)
    if (number + 1) % TASK.every == 0:
        scores = fedjax.evaluate_model(model, state.params, held.padded_batch(batch_size=500))
        score = float(scores["accuracy"])
report(score, begun=begun, ended=now(), version=version("fedjax"))
