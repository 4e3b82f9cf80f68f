"""Modules of Lightning as learners: unchanged, with one optimiser and one schedule over all rounds."""

import logging
from importlib.util import find_spec

import pytest
import torch
from torch import nn

import p2pfl
from p2pfl.core.errors import ModelError
from p2pfl.plugins.language import LightningLearner
from p2pfl.testing import check_learner

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("lightning"),  # one process imports it
    pytest.mark.skipif(find_spec("lightning") is None, reason="lightning is not installed"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]
PEERS = ("ada", "bob", "cas")
BATCHES = 5
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def make_module(*, schedule="step", frequency=1, layers=(), **attributes):
    """Return a module that classifies, the same at each call, with a schedule by steps, epochs or a plateau."""
    import lightning.pytorch as pl  # noqa: PLC0415 -- takes seconds

    class Classifier(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 8), *layers, nn.Tanh(), nn.Linear(8, 3))
            self.rates, self.steps, self.epochs = [], [], []

        def training_step(self, batch, _):
            x, y = batch
            self.rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])
            self.steps.append(self.global_step)
            self.epochs.append(self.current_epoch)
            return nn.functional.cross_entropy(self.layers(x), y)

        def validation_step(self, batch, _):
            x, y = batch
            self.log("val_accuracy", (self.layers(x).argmax(-1) == y).float().mean())
            self.log("val_loss", nn.functional.cross_entropy(self.layers(x), y))

        def configure_optimizers(self):
            optimiser = torch.optim.AdamW(self.parameters(), lr=0.02)
            if schedule == "step":
                whole = self.trainer.estimated_stepping_batches
                made = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=0.05, total_steps=whole + 1)
            elif schedule == "epoch":
                made = torch.optim.lr_scheduler.ExponentialLR(optimiser, gamma=0.7)
            else:
                made = torch.optim.lr_scheduler.ReduceLROnPlateau(optimiser)
            interval = "epoch" if schedule == "plateau" else schedule
            named = {"scheduler": made, "interval": interval, "frequency": frequency, "monitor": "val_loss"}
            return {"optimizer": optimiser, "lr_scheduler": named}

    torch.manual_seed(11)
    module = Classifier()
    for name, value in attributes.items():
        setattr(module, name, value)
    return module


def make_data(peer, *, shuffle=False):
    """Return five batches of a peer, whose classes follow one rule."""
    import lightning.pytorch as pl  # noqa: PLC0415 -- takes seconds
    from torch.utils.data import DataLoader, TensorDataset  # noqa: PLC0415

    class Points(pl.LightningDataModule):
        def points(self, count, seed):
            own = torch.Generator().manual_seed(seed + sum(map(ord, peer)))
            x = torch.randn(count, 4, generator=own)
            return TensorDataset(x, x[:, :3].argmax(-1))

        def train_dataloader(self):
            return DataLoader(self.points(4 * BATCHES, 0), batch_size=4, shuffle=shuffle)

        def val_dataloader(self):
            return DataLoader(self.points(30, 1000), batch_size=30)

    return Points()


def make_trainer(folder, **settings):
    import lightning.pytorch as pl  # noqa: PLC0415 -- takes seconds

    usual = {"max_epochs": 2, "accelerator": "cpu", "logger": False, "enable_checkpointing": False}
    return pl.Trainer(default_root_dir=folder, **{"enable_model_summary": False, **usual, **settings})


def learner_of(folder, *, peers=PEERS, rounds=4, shuffle=False, module=None, **settings):
    module = module or make_module()
    fits = {peer: (make_trainer(folder, **settings), module, make_data(peer, shuffle=shuffle)) for peer in peers}
    return LightningLearner(fits, rounds=rounds, seed=5)


def test_a_module_of_lightning_keeps_the_contract_of_learners(tmp_path):
    check_learner(learner_of(tmp_path, shuffle=True), ["ada", "bob"])


@pytest.mark.parametrize(
    ("schedule", "settings"),
    [
        ({"schedule": "step"}, {}),
        ({"schedule": "step", "frequency": 2}, {"accumulate_grad_batches": 2}),
        ({"schedule": "epoch", "frequency": 3}, {"limit_train_batches": 3}),
    ],
)
def test_four_rounds_of_one_peer_are_one_long_training_bit_for_bit(tmp_path, schedule, settings):
    """Each round has a new trainer and a new module, as after a restart: nothing is kept but row and memory."""
    rows, memory, rates, steps, epochs = None, None, [], [], []
    for round in range(4):
        module = make_module(**schedule)
        learner = learner_of(tmp_path, peers=("ada",), module=module, **settings)
        rows = learner.start(["ada"]) if rows is None else rows
        fitted = learner.fit(rows, peers=["ada"], round=round, memory=memory)
        rows, memory = fitted.rows, fitted.memory
        rates, steps, epochs = rates + module.rates, steps + module.steps, epochs + module.epochs
    long = make_module(**schedule)
    make_trainer(tmp_path, **settings, max_epochs=8).fit(long, datamodule=make_data("ada"))
    assert (rates, steps, epochs) == (long.rates, long.steps, long.epochs)
    assert torch.equal(rows[0], torch.cat([value.detach().flatten() for value in long.parameters()]))
    assert 4 * int(fitted.report.steps[0]) == long.trainer.global_step


def test_one_trainer_for_all_rounds_is_as_good_as_a_new_one(tmp_path):
    learner = learner_of(tmp_path, peers=("ada",), shuffle=True)
    row = learner.start(["ada"])
    first = learner.fit(row, peers=["ada"], round=0)
    second = learner.fit(first.rows, peers=["ada"], round=1, memory=first.memory)
    new = learner_of(tmp_path, peers=("ada",), shuffle=True)
    again = new.fit(first.rows, peers=["ada"], round=1, memory=first.memory)
    assert torch.equal(second.rows, again.rows)
    assert torch.equal(learner.fit(row, peers=["ada"], round=0).rows, first.rows)
    fresh = learner.fit(first.rows, peers=["ada"], round=1).rows
    assert (second.rows - fresh).abs().max() > 1e-3  # an optimiser that began again


async def test_live_peers_end_where_the_simulation_ends_and_together_is_better(tmp_path):
    graph = p2pfl.topology.complete(3).named(PEERS)
    run = p2pfl.simulate(p2pfl.FedAvg(), learner_of(tmp_path, shuffle=True), graph, rounds=4)
    lived = await p2pfl.live(p2pfl.FedAvg(), learner_of(tmp_path, shuffle=True), graph, rounds=4)
    for peer in PEERS:
        for name, value in run.models[peer].items():
            torch.testing.assert_close(lived.models[peer][name], value, atol=1e-5, rtol=1e-4)
    before = learner_of(tmp_path).evaluate(learner_of(tmp_path).start(["ada"]), peers=["ada"])
    assert list(before) == ["loss", "accuracy"]
    assert run.summary["together"] < float(before["loss"]) - 0.1


@pytest.mark.parametrize(
    ("module", "settings", "sentence"),
    [
        ({}, {"max_epochs": -1}, "ada has max_steps or no max_epochs, but a round is a number of epochs; set max"),
        ({}, {"max_steps": 3}, "set max_epochs, and limit_train_batches for a part of one"),
        ({"automatic_optimization": False}, {}, "the module of ada optimises by hand"),
        ({"layers": (nn.BatchNorm1d(8),)}, {}, "layers.1 of ada keeps running statistics, which no row contains"),
    ],
)
def test_what_cannot_go_on_from_round_to_round_is_named(tmp_path, module, settings, sentence):
    with pytest.raises(ModelError, match=sentence):
        learner_of(tmp_path, peers=("ada",), module=make_module(**module), **settings)


def test_early_stopping_and_plateaus_are_named(tmp_path):
    from lightning.pytorch.callbacks import EarlyStopping  # noqa: PLC0415 -- takes seconds

    with pytest.raises(ModelError, match="EarlyStopping of ada would end rounds of one peer early; leave it out"):
        learner_of(tmp_path, peers=("ada",), callbacks=[EarlyStopping("val_loss")])
    learner = learner_of(tmp_path, peers=("ada",), module=make_module(schedule="plateau"))
    with pytest.raises(ModelError, match="the module of ada reduces its rate on a plateau"):
        learner.fit(learner.start(["ada"]), peers=["ada"], round=0)


def test_trainers_of_lightning_write_nothing_to_standard_output(tmp_path, capsys):
    learner = learner_of(tmp_path, peers=("ada",), enable_progress_bar=True)
    rows = learner.fit(learner.start(["ada"]), peers=["ada"], round=0).rows
    learner.evaluate(rows, peers=["ada"])
    assert capsys.readouterr().out == ""
