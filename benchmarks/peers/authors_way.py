# SPDX-License-Identifier: Apache-2.0
"""The usual research-prototype loop: one process, a DataLoader per client, deep copies, default threads."""

from __future__ import annotations

import copy
import sys
from importlib.metadata import version

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from workload import Plan, Reporter


class Images(Dataset):
    """One client's share; each image is decoded and normalised every time it is asked for."""

    def __init__(self, plan: Plan, client: int):
        rows = plan.data.indices(client)
        self.images, self.labels = np.asarray(plan.data.images[rows]), plan.data.labels[rows]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = self.images[index]
        picture = Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))
        # What torchvision's ToTensor and Normalize do, without needing torchvision.
        array = np.array(picture)
        tensor = torch.from_numpy(array.reshape(*array.shape[:2], -1)).permute(2, 0, 1).contiguous()
        return tensor.float().div(255).sub_(0.5).div_(0.5), int(self.labels[index])


class PrototypeClient:
    """Keeps its own network and its own loader for the whole run."""

    def __init__(self, plan: Plan, client: int, model: nn.Module):
        self.plan, self.model = plan, copy.deepcopy(model)
        self.loader = DataLoader(Images(plan, client), batch_size=plan.batch_size, shuffle=True)

    def train(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Train from the given state and return a copy of the new one."""
        plan = self.plan
        self.model.load_state_dict(copy.deepcopy(state))
        self.model.train()
        optimizer = torch.optim.SGD(
            self.model.parameters(), lr=plan.lr, momentum=plan.momentum, weight_decay=plan.weight_decay
        )
        loss_function = nn.CrossEntropyLoss()
        losses = []
        for _ in range(plan.local_epochs):
            for images, labels in self.loader:
                self.model.zero_grad()
                loss = loss_function(self.model(images), labels)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return copy.deepcopy(self.model.state_dict())


def average(states: list[dict[str, Tensor]], weights: list[float]) -> dict[str, Tensor]:
    """Mean of the states, by number of samples."""
    result = copy.deepcopy(states[0])
    for name in result:
        result[name] = sum(weight * state[name] for weight, state in zip(weights, states, strict=True))
    return result


def main(path: str) -> None:
    """Run the plan."""
    plan = Plan.load(path)
    reporter = Reporter(plan)
    model = plan.initial_model()
    clients = [PrototypeClient(plan, client, model) for client in range(plan.data.num_clients)]
    reporter.ready(torch=version("torch"))
    for cohort in plan.data.cohorts[: plan.rounds]:
        states = [clients[client].train(model.state_dict()) for client in cohort]
        sizes = [plan.data.size(client) for client in cohort]
        model.load_state_dict(average(states, [size / sum(sizes) for size in sizes]))
        reporter.round_done()
    reporter.finished(model)


if __name__ == "__main__":
    main(sys.argv[1])
