# SPDX-License-Identifier: Apache-2.0
"""Tiny federations and tasks that tests, and the worker processes they start, can import."""

import os
import signal
import time
from pathlib import Path

import numpy as np

from feddag.contracts.toys import toy_server as toy_server
from feddag.core.engine import Exchange
from feddag.core.message import message, public
from feddag.core.params import Params
from feddag.core.seeds import Seed
from feddag.core.task import Client, client_task
from feddag.data.federation import Federation, Pool, Share, Source
from feddag.engines.perform import Site, open_site


def blobs(
    sizes: tuple[int, ...] = (30, 20, 10), classes: int = 3, width: int = 6, seed: int = 0
) -> Federation:
    """Clients with samples of well separated classes; client i has sizes[i] training samples."""
    generator = Seed(seed).numpy()
    centres = generator.normal(size=(classes, width)) * 3

    def draw(n: int) -> Pool:
        y = generator.integers(0, classes, size=n)
        return Pool((centres[y] + generator.normal(size=(n, width))).astype(np.float32), y.astype(np.int64))

    train, test = draw(sum(sizes)), draw(40)
    ends = np.cumsum(sizes)
    clients = {
        f"c{i:03d}": Share(
            train=np.arange(end - size, end),
            validation=np.arange(end - size, end)[: size // 5],
            test=np.arange(40),
        )
        for i, (size, end) in enumerate(zip(sizes, ends, strict=True))
    }
    source = Source("blobs", "generated", train_samples=sum(sizes), test_samples=40)
    return Federation(clients=clients, train=train, test=test, num_classes=classes, source=source)


def blob_site(**options: object) -> Site:
    """The toy federation with a small dense network."""
    return open_site(blobs(**options), "mlp")  # type: ignore[arg-type]


def toy_client(site: Site, client: str = "c000", **memory: Params | np.ndarray) -> Client:
    """A client as a task sees it."""
    federation = site.federation
    seed = Exchange(1, Seed(3)).client_seed(client)
    return Client(
        id=client,
        train=federation.examples(client),
        validation=federation.examples(client, "validation"),
        test=federation.examples(client, "test"),
        network=site.network,
        seed=seed,
        shared_seed=Seed(3) / "shared",
        memory=dict(memory),
    )


@message
class Order:
    """What a toy client is told to do, and which one."""

    action: str
    victim: str = ""
    value: float = 0.0
    folder: str = ""


@message
class Done:
    """A toy reply."""

    value: float
    array: np.ndarray = public()


@client_task
def obey(request: Order, client: Client) -> Done:
    """Count in memory; the victim misbehaves as ordered."""
    before = client.memory.get("count", np.zeros(1))
    client.memory["count"] = np.asarray(before) + 1
    if client.id == request.victim:
        if request.action == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if request.action == "hang":
            time.sleep(600)
        if request.action == "raise":
            raise ValueError("the disk of this client is on fire")
        if request.action == "nan":
            return Done(value=1.0, array=np.array([1.0, np.nan]))
        if request.action == "die once" and not Path(request.folder, "died").exists():
            Path(request.folder, "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return Done(
        value=request.value + float(client.memory["count"][0]), array=client.seed.numpy().normal(size=2)
    )
