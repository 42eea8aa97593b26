# SPDX-License-Identifier: Apache-2.0
"""Flower's client half: a module of its own, so that Ray's actors import it by name and keep its cache."""

from __future__ import annotations

from functools import lru_cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from workload import Plan, train_client

client_app = ClientApp()


@lru_cache(maxsize=1)
def plan_of(path: str) -> Plan:
    """A plan and its memory-mapped data, kept by each actor between clients."""
    return Plan.load(path)


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Train the client named in the message."""
    torch.set_num_threads(1)
    config = message.content["config"]
    plan, client = plan_of(str(config["plan"])), int(config["client"])
    model = plan.initial_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    images, labels = plan.data.client(client)
    train_client(model, images, labels, plan, seed=client)
    content = RecordDict(
        {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": len(labels)}),
        }
    )
    return Message(content=content, reply_to=message)
