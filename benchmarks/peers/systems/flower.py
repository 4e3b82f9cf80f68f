"""flwr: federated averaging at a server, in its simulation engine on Ray, one worker for each core."""

import os
from importlib.metadata import version

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from task import ROUNDS, build, load, now, report, train

task = load()
client, server = ClientApp(), ServerApp()
shards = task.shards
done = {}


@client.train()
def fit(message: Message, context: Context) -> Message:
    """Train the model of the round on the data of one client."""
    torch.set_num_threads(1)
    model, shard = build(), shards[int(context.node_config["partition-id"])]
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    train(model, shard)
    metrics = MetricRecord({"num-examples": len(shard[1])})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


@server.main()
def rounds(grid: Grid, context: Context) -> None:
    """Run all rounds; clients are not evaluated."""
    del context
    strategy = FedAvg(
        fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=len(shards), min_available_nodes=len(shards)
    )
    done["begun"] = now()
    done["result"] = strategy.start(grid=grid, initial_arrays=ArrayRecord(build().state_dict()), num_rounds=ROUNDS)
    done["ended"] = now()


cores = len(os.sched_getaffinity(0))
run_simulation(
    server_app=server,
    client_app=client,
    num_supernodes=len(shards),
    backend_config={"init_args": {"num_cpus": cores}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
)
model = build()
model.load_state_dict(done["result"].arrays.to_torch_state_dict())
report(task, [model] * len(shards), begun=done["begun"], ended=done["ended"], version=version("flwr"))
