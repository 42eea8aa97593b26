# SPDX-License-Identifier: Apache-2.0
"""Means with noise from the server (`mode = "central"`), and secure sums over Flower's messages."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feddag.core.algorithm import Server, broadcast
from feddag.core.deployment import LocalTraining
from feddag.engines.perform import Site
from feddag.learning.train import Train, train
from feddag.privacy.config import PrivacyOptions, UpdatePrivacy
from feddag.privacy.guard import Protection
from feddag.privacy.secagg import advertise, hide, reveal
from feddag.privacy.sums import CentralNoise, SecureSums
from tests.support.toys import blob_site, toy_server

LOCAL = LocalTraining(local_epochs=2, batch_size=8, lr=0.5)
SIZES = (30, 20, 10, 15, 25)
GROUPS = {"c000": 0, "c001": 0, "c002": 0, "c003": 4, "c004": 4}


def central(noise: float, clip: float) -> tuple[Server, Site]:
    options = PrivacyOptions(level="guarded", update=UpdatePrivacy(mode="central", noise=noise, clip=clip))
    site = dataclasses.replace(blob_site(sizes=SIZES), privacy=Protection(options))
    return toy_server(site, averaging=CentralNoise(options)), site


def question(server: Server) -> dict[str, Train]:
    return broadcast(Train(params=server.initial_params(), local=LOCAL), server.clients)


def updates() -> dict[str, np.ndarray]:
    """What every client would send without privacy."""
    server = toy_server(blob_site(sizes=SIZES))
    return {c: r.update.vector.numpy() for c, r in server.ask(train, question(server)).items()}


def clipped_mean(clients: list[str], clip: float) -> np.ndarray:
    """Clients count the same, and none of them by more than the clipping norm."""
    exact = updates()
    return np.mean([exact[c] * min(1.0, clip / np.linalg.norm(exact[c])) for c in clients], axis=0)


def test_without_noise_the_central_mean_is_that_of_clipped_updates() -> None:
    clip = 0.7 * float(np.median([np.linalg.norm(u) for u in updates().values()]))
    server, _ = central(noise=1e-12, clip=clip)
    found = server.ask_mean(train, question(server), GROUPS)
    for group in (0, 4):
        members = [c for c, g in GROUPS.items() if g == group]
        assert found[group].clients == tuple(members)
        np.testing.assert_allclose(
            found[group].reply.update.vector.numpy(), clipped_mean(members, clip), atol=1e-6
        )


def test_central_noise_is_as_large_as_promised_differs_by_group_and_is_the_same_again() -> None:
    noise, clip = 2.0, 0.5
    server, _ = central(noise, clip)
    found = server.ask_mean(train, question(server), GROUPS)
    drawn = {}
    for group in (0, 4):
        members = [c for c, g in GROUPS.items() if g == group]
        drawn[group] = found[group].reply.update.vector.numpy() - clipped_mean(members, clip)
        expected = noise * clip / len(members)
        assert drawn[group].std() == pytest.approx(expected, rel=5 / np.sqrt(2 * drawn[group].size))
    assert abs(np.corrcoef(drawn[0], drawn[4])[0, 1]) < 0.1
    again, _ = central(noise, clip)
    same = again.ask_mean(train, question(again), GROUPS)
    assert same[0].reply.update.digest() == found[0].reply.update.digest()


def test_the_plan_says_what_central_noise_does_not_do() -> None:
    from tests.contracts.toys import toy

    plan = toy("fedavg", privacy={"level": "guarded", "update": {"mode": "central"}}).privacy_plan()
    assert plan is not None
    assert "not from the server" in " ".join(plan.warnings)


class TestOverFlower:
    """The same sums carried by Flower's messages, over a Grid without a network."""

    OPTIONS = PrivacyOptions(level="guarded", update=UpdatePrivacy(mode="secagg"))

    def grid(self, folder: Path) -> Any:
        pytest.importorskip("flwr", reason="the extra feddag[flower] is not installed")
        from loop_grid import LoopGrid, nodes_of

        tasks = [train, advertise, hide, reveal]
        nodes = nodes_of(blob_site(sizes=SIZES), tasks, folder)
        for node in nodes.values():  # every node guards itself, with a ledger of its own
            ledger = folder / node.client / "ledger.jsonl"
            node.privacy = Protection(self.OPTIONS, ledger, tasks=tasks)
        return LoopGrid(nodes, seed=3)

    def server(self, engine: Any = None) -> Server:
        site = dataclasses.replace(blob_site(sizes=SIZES), privacy=Protection(self.OPTIONS))
        return toy_server(site, engine, averaging=SecureSums(self.OPTIONS), quorum=0.0)

    def test_the_sum_has_the_bits_of_one_process_and_every_node_keeps_its_ledger(
        self, tmp_path: Path
    ) -> None:
        from loop_grid import LoopEngine

        inline = self.server()
        expected = inline.ask_mean(train, question(inline))[0]
        server = self.server(LoopEngine(self.grid(tmp_path)))
        found = server.ask_mean(train, question(server))[0]
        assert found.clients == expected.clients == tuple(GROUPS)
        assert found.reply.update.digest() == expected.reply.update.digest()
        for client in GROUPS:
            assert '"masked"' in (tmp_path / client / "ledger.jsonl").read_text()

    def test_a_node_that_hangs_up_is_left_out_of_the_sum(self, tmp_path: Path) -> None:
        from loop_grid import LoopEngine

        grid = self.grid(tmp_path)
        lost = next(number for number, node in grid.nodes.items() if node.client == "c001")

        def spoil(number: int, asked: Any, reply: Any) -> Any:
            return None if number == lost and "hide" in asked.metadata.message_type else reply

        engine = LoopEngine(grid)
        grid.spoil = spoil
        server = self.server(engine)
        server.deadline = 1.0
        found = server.ask_mean(train, question(server))[0]
        plain = toy_server(blob_site(sizes=SIZES))
        some = {c: r for c, r in question(plain).items() if c != "c001"}
        expected = plain.ask_mean(train, some)[0]
        assert found.clients == ("c000", "c002", "c003", "c004")
        np.testing.assert_allclose(
            found.reply.update.vector.numpy(), expected.reply.update.vector.numpy(), atol=1e-7
        )
