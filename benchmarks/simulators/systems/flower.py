"""flwr: federated averaging at a server, in its simulation engine on Ray, one worker for each core."""

import os
from importlib.metadata import version

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from task import TASK, accuracy, build, now, report, test, train
from task import client as samples

client, server = ClientApp(), ServerApp()
done = {}


@client.train()
def fit(message: Message, context: Context) -> Message:
    """Train the model of the round on the data of one client."""
    torch.set_num_threads(1)
    x, y = samples(int(context.node_config["partition-id"]))  # Ray would copy global tensors into each message
    model = build()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    train(model, x, y)
    metrics = MetricRecord({"num-examples": len(y)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


def score(number: int, arrays: ArrayRecord) -> MetricRecord | None:
    """Return the accuracy of the common model after some rounds."""
    if number % TASK.every:
        return None
    model = build()
    model.load_state_dict(arrays.to_torch_state_dict())
    done["score"] = accuracy(model)
    return MetricRecord({"accuracy": done["score"]})


@server.main()
def rounds(grid: Grid, context: Context) -> None:
    """Run all rounds; the server evaluates."""
    del context
    strategy = FedAvg(
        fraction_train=TASK.cohort / TASK.clients,
        fraction_evaluate=0.0,
        min_train_nodes=TASK.cohort,
        min_available_nodes=TASK.clients,
    )
    initial = ArrayRecord(build().state_dict())
    strategy.start(grid=grid, initial_arrays=initial, num_rounds=TASK.rounds, evaluate_fn=score)


test()
begun = now()
run_simulation(
    server_app=server,
    client_app=client,
    num_supernodes=TASK.clients,
    backend_config={
        "init_args": {"num_cpus": len(os.sched_getaffinity(0))},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    },
)
report(done["score"], begun=begun, ended=now(), version=version("flwr"))
