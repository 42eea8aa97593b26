# SPDX-License-Identifier: Apache-2.0
"""What the ServerApp does, over a Grid without a network: whole runs, newcomers, returns, resume."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra feddag[flower] is not installed")

from loop_grid import LoopGrid

from feddag.core.errors import FederationError, InvalidInput
from feddag.core.seeds import Seed
from feddag.data.build import build_federation
from feddag.deploy.folders import ServerFolder
from feddag.deploy.server import serve
from feddag.deploy.tasks import tasks_of
from feddag.engines.flower import FlowerPost
from feddag.engines.node import Node
from feddag.experiment.settings import Experiment
from feddag.reporting.tables.log import read_events
from feddag.runs.simulate import run

SETTINGS: dict[str, Any] = {
    "data": {"name": "synthetic", "synthetic": {"groups": 2, "dimensions": 6, "train": 640, "test": 80}},
    "num_clients": 6,
    "num_rounds": 4,
    "fraction_train": 1.0,
    "model": "mlp",
    "algorithm": {"name": "feddag", "clustering": {"num_clusters": 2}, "signature": {"vectors": 1}},
    "training": {"local_epochs": 1, "batch_size": 16, "lr": 0.1},
    "evaluation": {"every": 2, "after_training": False},
    "engine": {"name": "flower"},
}


class Site:
    """A server folder and its nodes, all in this process."""

    def __init__(self, tmp_path: Path, clients: int = 6, **changes: Any) -> None:
        self.experiment = Experiment.from_settings(SETTINGS | changes)
        self.server = ServerFolder(tmp_path / "server")
        self.server.folder.mkdir()
        self.server.experiment.write_text(json.dumps(self.experiment.settings()))
        (self.server.folder / "server.toml").write_text(
            f"clients = {clients}\nwait_minutes = 0.02\nrejoin_seconds = 1\ngrace_seconds = 1\n"
        )
        self.run_folder = tmp_path / "run"
        (self.run_folder / "checkpoints").mkdir(parents=True)
        (self.run_folder / "experiment.json").write_text(json.dumps(self.experiment.settings()))
        federation = build_federation(
            self.experiment.data, self.experiment.partition, self.experiment.num_clients, Seed(1)
        )
        tasks = tasks_of(self.experiment)
        self.numbers = {client: 500 + i for i, client in enumerate(federation.ids)}
        nodes = {
            number: Node(client, federation, tasks, "mlp", tmp_path / client / "memory")
            for client, number in self.numbers.items()
        }
        self.grid = LoopGrid(nodes, seed=5)
        names = {str(number): client for client, number in self.numbers.items()}
        self.server.write_state(run="r1", folder=str(self.run_folder), nodes=names)

    def serve(self) -> None:
        serve(FlowerPost(self.grid), self.server.folder)

    def at_round(self, round_: int, happens: Callable[[], None]) -> None:
        """Let something happen when a round's first question is sent."""
        before, done = self.grid.spoil, []

        def spoil(node: int, question: Any, reply: Any) -> Any:
            if question.metadata.group_id == str(round_) and not done:
                done.append(True)
                happens()
            return before(node, question, reply)

        self.grid.spoil = spoil

    @property
    def result(self) -> dict[str, Any]:
        return json.loads((self.run_folder / "result.json").read_text())

    @property
    def events(self) -> list[dict[str, Any]]:
        return list(read_events(self.run_folder / "events.jsonl"))


@pytest.fixture(scope="module")
def inline(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of the same experiment on one machine."""
    experiment = Experiment.from_settings(SETTINGS | {"engine": "inline"})
    folder = run(experiment, root=tmp_path_factory.mktemp("inline"))
    return json.loads((folder / "result.json").read_text())


def test_a_deployed_run_ends_with_the_digest_and_the_scores_of_inline(
    tmp_path: Path, inline: dict[str, Any]
) -> None:
    site = Site(tmp_path)
    site.serve()
    for key in ("state_digest", "bytes_down", "bytes_up", "final", "chosen", "clusters", "failures"):
        assert site.result[key] == inline[key], key
    seen = [json.loads(line)["event"] for line in site.server.watch.read_text().splitlines()]
    assert seen[-1] == "finished"
    assert {"started", "answer", "round", "evaluation"} <= set(seen)


def test_a_server_that_is_lost_goes_on_to_the_same_digest(tmp_path: Path, inline: dict[str, Any]) -> None:
    site = Site(tmp_path)

    def lost() -> None:
        raise ConnectionError("the SuperLink is gone")

    for round_ in (2, 4):  # in the middle of a round, twice
        site.at_round(round_, lost)
        with pytest.raises(ConnectionError):
            site.serve()
        site.grid._waiting.clear()
    site.serve()
    assert site.result["state_digest"] == inline["state_digest"]
    assert site.result["final"] == inline["final"]
    assert [e["event"] for e in site.events].count("resumed") == 2


def test_a_node_that_joins_in_round_3_is_a_newcomer_and_one_that_returns_keeps_its_cluster(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path, clients=5, num_rounds=6)
    late, away = site.numbers["c005"], site.numbers["c001"]
    site.grid.away = {late}
    site.at_round(2, site.grid.away.clear)
    site.at_round(3, lambda: site.grid.away.add(away))
    site.at_round(4, site.grid.away.clear)
    site.serve()
    changes = {e["round"]: e for e in site.events if e["event"] == "presence"}
    assert (changes[3]["joined"], changes[3]["returned"]) == (["c005"], [])
    assert changes[4]["left"] == ["c001"]
    assert (changes[5]["joined"], changes[5]["returned"]) == ([], ["c001"])
    (joined,) = [e for e in site.events if e["event"] == "newcomers"]
    assert joined["clients"] == ["c005"]
    signed = [e["clients"] for e in site.events if e.get("task") == "sign"]
    assert signed == [5, 1]  # who returns signs no second time


def test_a_server_that_may_not_know_clients_scores_records_sums_and_nodes_keep_their_own(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path, evaluation={"every": 10, "after_training": False, "scores": "clusters"})
    site.serve()
    (final,) = [e for e in site.events if e["event"] == "final_evaluation"]
    assert all(name.startswith("cluster ") for name in final["test_clients"])
    assert final["test"]["clients"] == final["asked"] == 6
    rows = (site.run_folder / "clients.csv").read_text().splitlines()
    assert len(rows) == 7
    for client in site.numbers:
        assert client not in json.dumps(final["test_clients"])
    summed = sum(scores["samples"] for scores in final["test_clients"].values())
    assert summed == sum(_own_total(tmp_path / client) for client in site.numbers)


def _own_total(node: Path) -> int:
    """Test samples of the node's last evaluation, as it wrote them down itself."""
    return sum(json.loads((node / "scores.jsonl").read_text().splitlines()[-1])["test.total"])


def test_too_few_nodes_are_told_in_one_sentence(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.grid.away = {site.numbers["c004"]}
    with pytest.raises(InvalidInput, match="5 of 6 nodes were connected"):
        site.serve()
    last = json.loads(site.server.watch.read_text().splitlines()[-1])
    assert last["event"] == "failed"


def test_a_reply_of_a_wrong_shape_costs_its_client_this_round_and_nobody_else(tmp_path: Path) -> None:
    from feddag.core import codec
    from feddag.engines.flower import BODY, HEAD, RECORD, to_records

    site = Site(tmp_path, algorithm={"name": "fedavg"})
    victim = site.numbers["c002"]

    def spoil(node: int, question: Any, reply: Any) -> Any:
        if node == victim and question.metadata.message_type == "train.train":
            head, body = (reply.content[RECORD][part].data for part in (HEAD, BODY))
            payload = codec.unpack(body)
            payload["update"] = payload["update"][:-1]
            reply.content = to_records(head, codec.pack(payload))
        return reply

    site.grid.spoil = spoil
    site.serve()
    failures = [e["failures"] for e in site.events if e.get("task") == "train"]
    assert all(list(f) == ["c002"] and "update" in f["c002"] for f in failures)
    assert site.result["rounds"] == 4


def test_a_run_with_too_few_answers_stops_with_its_reason(tmp_path: Path) -> None:
    site = Site(tmp_path, engine={"name": "flower", "quorum": 1.0, "deadline": 0.1})
    victim = site.numbers["c002"]
    site.grid.spoil = lambda node, question, reply: (
        None if node == victim and question.metadata.group_id == "3" else reply
    )
    with pytest.raises(FederationError, match="no answer came within"):
        site.serve()


def test_masked_sums_work_over_the_grid(tmp_path: Path) -> None:
    site = Site(
        tmp_path,
        algorithm={"name": "fedavg"},
        privacy={"level": "guarded", "update": {"mode": "secagg"}},
    )
    site.serve()
    assert site.result["rounds"] == 4
