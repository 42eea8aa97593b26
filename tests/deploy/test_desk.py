# SPDX-License-Identifier: Apache-2.0
"""The desk of a node: short-lived callers, deadlines, strangers; and data that lie where the node says."""

import json
import stat
import threading
from collections.abc import Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client as connect
from pathlib import Path

import numpy as np
import pytest
from toys import Done, Order, blob_site, obey

from feddag.core import codec
from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.data.config import DataConfig, PartitionConfig
from feddag.data.own.one_client import own_client
from feddag.deploy.counter import ADDRESS, question_desk, reach_desk, through_the_desk
from feddag.deploy.desk import EXCEEDED, Desk, samples_of
from feddag.deploy.folders import NodeConfig
from feddag.engines.node import Node, in_terms_of
from feddag.engines.wire import AnswerHead, Question
from feddag.experiment.settings import Experiment


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    site = blob_site()
    node = Node("c001", site.federation, {"obey": obey}, "mlp", tmp_path / "memory")
    left: list[int] = []
    opened = Desk(node, tmp_path, leave=left.append)
    opened.left = left
    threading.Thread(target=opened.serve, daemon=True).start()
    yield opened
    opened.close()


def question(**changes: object) -> Question:
    fields = {"number": "n1", "run": "r", "task": "obey", "client": "c001", "round": 1, "model": "mlp"}
    return Question(**(fields | changes))


def test_a_caller_gets_the_answer_of_its_node(desk: Desk, tmp_path: Path) -> None:
    for count in (1.0, 2.0):
        asked = question(memory="" if count == 1 else "n1", number=f"n{count:.0f}")
        head, body = through_the_desk(
            {"folder": str(tmp_path)}, codec.encode(asked), codec.encode(Order(action="", value=5.0))
        )
        assert codec.decode(AnswerHead, head).memory == f"n{count:.0f}"
        assert codec.decode(Done, body).value == 5.0 + count


def test_only_this_user_can_reach_the_desk(desk: Desk, tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / ADDRESS).stat().st_mode) == 0o600
    address = json.loads((tmp_path / ADDRESS).read_text())["address"]
    with pytest.raises((AuthenticationError, EOFError, ConnectionError)):
        connect(address, "AF_UNIX", b"a guess")
    # The desk goes on.
    with reach_desk(tmp_path) as line:
        head, _ = question_desk(line, codec.encode(question(task="format_disk")), b"")
    assert "no task 'format_disk'" in codec.decode(AnswerHead, head).failure


def test_a_caller_that_hangs_up_or_talks_nonsense_costs_nothing(desk: Desk, tmp_path: Path) -> None:
    reach_desk(tmp_path).close()
    with reach_desk(tmp_path) as line, pytest.raises(ConnectionError, match="stopped at its task"):
        question_desk(line, b"nonsense", b"")
    with reach_desk(tmp_path) as line:
        head, _ = question_desk(line, codec.encode(question()), codec.encode(Order(action="")))
    assert not codec.decode(AnswerHead, head).failure


def test_a_task_beyond_its_deadline_ends_the_desk(desk: Desk, tmp_path: Path) -> None:
    ended = threading.Event()
    desk.leave = lambda code: (desk.left.append(code), ended.set())
    release = threading.Event()
    real = desk.node.answer
    desk.node.answer = lambda head, body: (release.wait(60), real(head, body))[1]
    with reach_desk(tmp_path) as line:
        line.send_bytes(codec.encode(question(deadline=0.05)))
        line.send_bytes(codec.encode(Order(action="")))
        assert json.loads(line.recv_bytes()) == {"deadline": 0.05}
        assert ended.wait(60)
        assert desk.left == [EXCEEDED]
        release.set()


def test_a_closed_desk_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="the desk of this node is closed"):
        reach_desk(tmp_path, patience=0.0)


def test_questions_for_others_and_wicked_names_are_refused(tmp_path: Path) -> None:
    site = blob_site()
    node = Node("c001", site.federation, {"obey": obey}, "mlp", tmp_path / "memory")
    assert node.federation.ids == ("c001",)  # nobody else's samples are kept
    body = codec.encode(Order(action=""))
    for changes, said in (
        ({"client": "c000"}, "the question is for another one"),
        ({"model": "cnn"}, "the server has another one"),
        ({"run": "../../etc"}, "a plain name"),
        ({"memory": "../x"}, "a plain name"),
        ({"memory": "abc"}, "what this client remembered"),
    ):
        head, _ = node.answer(codec.encode(question(**changes)), body)
        assert said in codec.decode(AnswerHead, head).failure
    assert not list(tmp_path.rglob("*.safetensors"))


# -- data where the node says --------------------------------------------------------------------------------


def write_csv(path: Path, labels: list[str], shift: float = 0.0) -> Path:
    rows = [f"{i + shift},{2 * i},{labels[i % len(labels)]}" for i in range(40)]
    path.write_text("\n".join(["age,bmi,label", *rows]) + "\n")
    return path


def own(path: Path, client: str, tmp_path: Path):
    return own_client(path, client, DataConfig(cache=tmp_path / "cache"), PartitionConfig(), Seed(1))


def test_a_table_an_array_file_and_image_folders_are_one_client_each(tmp_path: Path) -> None:
    from PIL import Image

    table = own(write_csv(tmp_path / "records.csv", ["ill", "well"]), "anna", tmp_path)
    assert table.ids == ("anna",)
    assert table.class_names == ("ill", "well")
    np.savez(tmp_path / "bert.npz", x=np.zeros((30, 4), np.float32), y=np.arange(30) % 3)
    arrays = own(tmp_path / "bert.npz", "bert", tmp_path)
    assert (arrays.ids, arrays.input_shape, arrays.num_classes) == (("bert",), (4,), 3)
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(6):
            Image.fromarray(np.full((8, 8), 20 * i, np.uint8)).save(tmp_path / "photos" / name / f"{i}.png")
    photos = own(tmp_path / "photos", "carl", tmp_path)
    assert (photos.ids, photos.class_names, photos.input_shape) == (("carl",), ("cat", "dog"), (1, 8, 8))


def test_a_folder_of_many_clients_gives_this_clients_file(tmp_path: Path) -> None:
    folder = tmp_path / "clinics"
    folder.mkdir()
    write_csv(folder / "a.csv", ["x", "y"])
    write_csv(folder / "b.csv", ["x", "z"])
    assert own(folder, "b", tmp_path).class_names == ("x", "z")
    with pytest.raises(InvalidInput, match="it has several files"):
        own(folder, "c", tmp_path)
    with pytest.raises(InvalidInput, match="does not exist"):
        own(tmp_path / "nowhere", "c", tmp_path)


def test_a_node_speaks_in_the_classes_that_all_agreed_on(tmp_path: Path) -> None:
    from feddag.engines.wire import Newcomer, agree

    anna = own(write_csv(tmp_path / "anna.csv", ["ill", "well"]), "anna", tmp_path)
    bert = own(write_csv(tmp_path / "bert.csv", ["cured", "ill"], shift=3.0), "bert", tmp_path)
    agreed = agree([Newcomer(1, "anna", anna.problem, 32), Newcomer(2, "bert", bert.problem, 32)])
    assert agreed.class_names == ("cured", "ill", "well")
    for federation in (anna, bert):
        spoken = in_terms_of(federation, agreed)
        before, after = federation.examples(federation.ids[0]), spoken.examples(federation.ids[0])
        said = [federation.class_names[y] for y in before.y]
        assert [agreed.class_names[y] for y in after.y] == said
        assert after.scaling == agreed.scaling
        assert spoken.problem == agreed


def test_a_node_without_data_is_told_where_to_say_so(tmp_path: Path) -> None:
    experiment = Experiment.from_settings({"data": {"name": "own"}, "num_clients": 2})
    with pytest.raises(InvalidInput, match=r"node.toml must say where the data are"):
        samples_of(experiment, NodeConfig(client="c000", server="127.0.0.1:1"))
    path = write_csv(tmp_path / "mine.csv", ["ill", "well"])
    with_cache = experiment.with_overrides([f"data.cache={tmp_path / 'cache'}"])
    config = NodeConfig(client="c000", server="127.0.0.1:1", data=str(path))
    assert samples_of(with_cache, config).ids == ("c000",)
