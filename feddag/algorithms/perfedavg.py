# SPDX-License-Identifier: Apache-2.0
"""Per-FedAvg (Fallah et al., 2020): a global model that is good after one step on a client's own data.

Meta-step on independent batches B₁, B₂ (and B₃), always applied to w as it was before the inner step:
    u = w − α∇f(w; B₁)
    FO:  w ← w − β·∇f(u; B₂)
    HF:  g = ∇f(u; B₂),  h = [∇f(w + δg; B₃) − ∇f(w − δg; B₃)] / 2δ,  w ← w − β·(g − αh)
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Annotated, Literal

from annotated_types import Ge, Gt
from torch import Tensor

from feddag.core.algorithm import Server, algorithm, broadcast
from feddag.core.averaging import add_mean
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.message import message, public
from feddag.core.params import Params
from feddag.core.seeds import Seed
from feddag.core.task import Client, client_task
from feddag.learning.losses import cross_entropy
from feddag.learning.modules import NOTHING_KNOWN, Batch, LoadedNetwork
from feddag.learning.one_model import OneModel, ServesOneModel
from feddag.learning.sgd import EVERYTHING, batches, needs_pairs
from feddag.learning.train import Trained

Gradient = Callable[[Tensor, Tensor], Tensor]  # (where, row numbers of a batch) → ∇f


@message
class MetaTrain:
    """Take meta-steps from this model."""

    params: Params = public()
    alpha: float
    beta: float
    delta: float  # 0: first order (FO), else HF
    local: LocalTraining


@client_task
def meta_train(request: MetaTrain, client: Client) -> Trained:
    """Plain gradient meta-steps over own data; weight decay is part of f, momentum has no place here."""
    model = LoadedNetwork(client.network("single"), request.params, EVERYTHING)
    (learning,), examples = model.spans, model.placed(client.train)

    def gradient(where: Tensor, rows: Tensor) -> Tensor:
        model.vector[learning] = where
        (g,) = model.gradient(cross_entropy(model, Batch(examples, rows.to(model.device), NOTHING_KNOWN)))
        client.work.samples += len(rows)
        return g + request.local.weight_decay * where

    w = model.vector[learning].clone()
    least = 2 if needs_pairs(model) else 1
    with (client.seed / "training").ambient():
        for rows in meta_batches(client, request.local, 3 if request.delta else 2, least):
            w = w - request.beta * meta_gradient(gradient, w, rows, request.alpha, request.delta)
    model.vector[learning] = w
    return Trained(update=model.params() - request.params, examples=len(client.train))


def meta_gradient(gradient: Gradient, w: Tensor, rows: list[Tensor], alpha: float, delta: float) -> Tensor:
    """The direction of one meta-step: first order for δ = 0, else with the Hessian-free correction."""
    u = w - alpha * gradient(w, rows[0])
    g = gradient(u, rows[1])
    if not delta:
        return g
    h = (gradient(w + delta * g, rows[2]) - gradient(w - delta * g, rows[2])) / (2 * delta)
    return g - alpha * h


def meta_batches(client: Client, local: LocalTraining, number: int, least: int = 1) -> Iterator[list[Tensor]]:
    """B₁, B₂, … for every meta-step: as many steps as SGD has batches, each batch from an order of its own.

    B₂, which the model moves along, comes in the order of plain training.
    """
    seed: Seed = client.seed
    orders = [seed if j == 1 else seed / "meta-batches" / j for j in range(number)]
    for group in zip(*(batches(len(client.train), local, order) for order in orders), strict=True):
        rows = [r for _, r in group]
        if all(len(r) >= least for r in rows):
            yield rows


@algorithm
class PerFedAvg(ServesOneModel):
    """A global model made to be adapted: each client takes some steps on its own data before use."""

    local: LocalTraining = LocalTraining()
    variant: Literal["fo", "hf"] = "fo"  # first order, or Hessian-free second order
    alpha: Annotated[float, Ge(0)] | None = None  # inner and adaptation learning rate; default: training.lr
    # Learning rate of the meta-step; default: training.lr. Public re-implementations: 0.001, hardly moves.
    beta: Annotated[float, Gt(0)] | None = None
    delta: Annotated[float, Gt(0)] = 1e-3  # HF: width of the finite difference (public re-implementations)
    # Before use; default: training.local_epochs, as fedavg_ft; 0 scores the meta-model as it is.
    adaptation_epochs: Annotated[int, Ge(0)] | None = None
    weighting: Literal["examples", "uniform"] = "examples"  # of clients in the mean; the paper: uniform

    tasks = (meta_train,)

    @property
    def inner_lr(self) -> float:
        """α."""
        return self.local.lr if self.alpha is None else self.alpha

    def round(self, state: OneModel, server: Server) -> OneModel:
        """Average what the clients' meta-steps changed."""
        delta = self.delta if self.variant == "hf" else 0.0
        request = MetaTrain(
            params=state.params,
            alpha=self.inner_lr,
            beta=self.local.lr if self.beta is None else self.beta,
            delta=delta,
            local=self.local,
        )
        uniform = self.weighting == "uniform"
        means = server.ask_mean(meta_train, broadcast(request, server.cohort), uniform=uniform)
        return OneModel(params=add_mean(state.params, means))

    def deploy(self, state: OneModel, client: str) -> Deployment:
        """The meta-model after one round of training on the client's own data, at rate α."""
        epochs = self.adaptation_epochs
        if epochs == 0 or not self.inner_lr:
            return Deployment(models=(state.params,))
        adapt = replace(self.local, lr=self.inner_lr)
        if epochs is not None:
            adapt = replace(adapt, local_epochs=epochs, local_steps=0)
        return Deployment(models=(state.params,), adapt=adapt)
