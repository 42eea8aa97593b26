# SPDX-License-Identifier: Apache-2.0
"""Networks: encoders and a head under the names the algorithms use: `primary.`, `secondary.`, `head.`.

single      head(primary(x))
dual        head([primary(x), secondary(x)])                       FedDAG, Eq. 17
projected   single, plus a projector MLP over the features         FedBR
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from feddag.core.errors import InvalidInput

KINDS = ("single", "dual", "projected")


class Network(nn.Module):
    """One or two encoders of the same family and a linear head over their joined features."""

    def __init__(self, encoders: Mapping[str, nn.Module], head: nn.Module) -> None:
        super().__init__()
        self.encoder_names = tuple(encoders)
        for name, encoder in encoders.items():
            self.add_module(name, encoder)
        self.head = head

    def encode(self, name: str, x: Tensor) -> Tensor:
        """Features of one encoder."""
        return self.get_submodule(name)(x)

    def forward(self, x: Tensor, known: Mapping[str, Tensor] | None = None) -> Tensor:
        """Logits; encoders whose features are `known` already are not run."""
        known = known or {}
        features = [known[n] if n in known else self.encode(n, x) for n in self.encoder_names]
        return self.head(features[0] if len(features) == 1 else torch.cat(features, dim=1))


def build_network(
    kind: str, make_encoder: Callable[[], nn.Module], num_features: int, make_head: Callable[[int], nn.Module]
) -> Network:
    """A network of the given kind from an encoder family."""
    if kind not in KINDS:
        raise InvalidInput(f"network kind '{kind}' is unknown: choose one of {', '.join(KINDS)}")
    names = ("primary", "secondary") if kind == "dual" else ("primary",)
    network = Network({name: make_encoder() for name in names}, make_head(num_features * len(names)))
    if kind == "projected":
        n = num_features
        layers = [nn.Linear(n, 2 * n), nn.ReLU(), nn.Linear(2 * n, 2 * n), nn.ReLU(), nn.Linear(2 * n, n)]
        network.add_module("projector", nn.Sequential(*layers))
    return network
