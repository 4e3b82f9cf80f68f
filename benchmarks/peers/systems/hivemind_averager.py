"""hivemind: after each round, all peers average their models in one group over sockets of this machine."""

import threading
from importlib.metadata import version

import hivemind
from task import ROUNDS, build, load, now, report, train


def main() -> None:
    """Start the peers, and let each run its rounds in a thread."""
    task = load()
    count = len(task.shards)
    models = [build() for _ in task.shards]
    first = hivemind.DHT(host_maddrs=["/ip4/127.0.0.1/tcp/0"], start=True)
    known = [str(address) for address in first.get_visible_maddrs()]
    hosts = ["/ip4/127.0.0.1/tcp/0"]
    tables = [first, *(hivemind.DHT(host_maddrs=hosts, initial_peers=known, start=True) for _ in range(count - 1))]
    averagers = [
        hivemind.DecentralizedAverager(
            [value.detach() for value in model.state_dict().values()],
            table,
            prefix="digits",
            target_group_size=count,
            min_group_size=count,
            min_matchmaking_time=1.0,
            request_timeout=0.5,
            start=True,
        )
        for model, table in zip(models, tables, strict=True)
    ]

    def peer(index: int) -> None:
        model, averager = models[index], averagers[index]
        for _ in range(ROUNDS):
            train(model, task.shards[index])
            with averager.get_tensors() as tensors:
                for tensor, value in zip(tensors, model.state_dict().values(), strict=True):
                    tensor.copy_(value)
            averager.step(timeout=60)
            with averager.get_tensors() as tensors:
                for tensor, value in zip(tensors, model.state_dict().values(), strict=True):
                    value.copy_(tensor)

    threads = [threading.Thread(target=peer, args=[index]) for index in range(count)]
    begun = now()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ended = now()
    report(task, models, begun=begun, ended=ended, version=version("hivemind"))
    for part in (*averagers, *tables):
        part.shutdown()


if __name__ == "__main__":
    main()
