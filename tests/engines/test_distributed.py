# SPDX-License-Identifier: Apache-2.0
"""The distributed engine over a Grid without a network: the same bits as inline, and every fault named."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra feddag[flower] is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from loop_grid import LoopEngine, LoopGrid, nodes_of
from toys import Done, Order, blob_site, obey

from feddag.contracts.checks import same_as_inline
from feddag.core import codec
from feddag.core.engine import Answer, Exchange
from feddag.core.errors import InvalidMessage
from feddag.core.seeds import Seed
from feddag.engines.flower import BODY, HEAD, RECORD, from_records, to_records
from feddag.engines.inline import InlineEngine
from feddag.engines.wire import AnswerHead
from tests.contracts.toys import every_algorithm, toy, toy_site

SHORT = 0.2  # seconds: nothing in this process takes longer, a reply that never comes is given up then


@every_algorithm
def test_states_memories_scores_and_bytes_are_the_same_as_inline(name: str, tmp_path: Path) -> None:
    same_as_inline(
        name, LoopEngine(LoopGrid(nodes_of(toy_site(), toy(name).algorithm.tasks, tmp_path), seed=3))
    )


@pytest.fixture
def grid(tmp_path: Path) -> LoopGrid:
    return LoopGrid(nodes_of(blob_site(), [obey], tmp_path))


def ask(engine: LoopEngine, round_: int = 1, deadline: float = SHORT, **order: object) -> dict[str, Answer]:
    request = Order(**{"action": "", **order})
    asked = dict.fromkeys(("c000", "c001", "c002"), request)
    return dict(engine.ask(obey, asked, Exchange(round_, Seed(1) / round_, deadline)))


def value(answer: Answer) -> float:
    assert not answer.failure, answer.failure
    return answer.reply.value


def victim_of(grid: LoopGrid, client: str = "c001") -> int:
    return next(number for number, node in grid.nodes.items() if node.client == client)


def forged(reply: Message, question: Message, body: bytes, **changes: object) -> Message:
    """The reply with another body, and with other entries in its head."""
    head = codec.decode(AnswerHead, reply.content[RECORD][HEAD].data)
    fields = {**vars(head), **changes}
    return Message(to_records(codec.encode(AnswerHead(**fields)), body), reply_to=question)


def test_a_crash_in_a_task_is_told_with_its_reason_and_leaves_no_trace(grid: LoopGrid) -> None:
    engine = LoopEngine(grid)
    answers = ask(engine, action="raise", victim="c001")
    assert answers["c001"].failure == "ValueError: the disk of this client is on fire"
    assert value(answers["c000"]) == 1.0
    assert value(ask(engine, 2)["c001"]) == 1.0  # it counts from nothing: the failed task is forgotten


def test_an_app_that_raises_becomes_a_failure_with_flowers_reason(grid: LoopGrid) -> None:
    engine = LoopEngine(grid)

    def fire(head: bytes, body: bytes) -> tuple[bytes, bytes]:
        raise TimeoutError("the task exceeded its deadline of 3 s")

    grid.nodes[victim_of(grid)].answer = fire
    failure = ask(engine)["c001"].failure
    assert "error 3" in failure
    assert "the task exceeded its deadline of 3 s" in failure


def test_a_node_that_hangs_is_given_up_at_the_deadline(grid: LoopGrid) -> None:
    engine, victim = LoopEngine(grid), victim_of(grid)
    grid.spoil = lambda node, question, reply: None if node == victim else reply
    answers = ask(engine)
    assert answers["c001"].failure == f"no answer came within {SHORT:g} s"
    assert value(answers["c002"]) == 1.0


def test_a_late_reply_is_never_used_and_its_memory_is_forgotten(grid: LoopGrid) -> None:
    engine, victim = LoopEngine(grid), victim_of(grid)
    kept: list[Message] = []

    def hold(node: int, question: Message, reply: Message) -> Message | None:
        if node == victim:
            kept.append(reply)
            return None
        return reply

    grid.spoil = hold
    assert ask(engine, value=100.0)["c001"].failure
    grid.spoil = lambda node, question, reply: reply
    grid.late = kept  # it arrives while the next question is open
    answers = ask(engine, 2, value=200.0)
    assert value(answers["c001"]) == 201.0  # of this question, counted from what the server has used: nothing
    assert value(answers["c000"]) == 202.0


def test_a_reply_to_another_question_is_refused(grid: LoopGrid) -> None:
    engine, victim = LoopEngine(grid), victim_of(grid)
    body = codec.encode(Done(value=1.0, array=np.zeros(2)))
    grid.spoil = lambda node, question, reply: (
        forged(reply, question, body, number="0" * 16) if node == victim else reply
    )
    assert "an answer to this question" in ask(engine)["c001"].failure


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (codec.pack({"value": 1.0, "array": np.array([1.0, np.nan])}), "field 'array': expected finite"),
        (codec.pack({"value": float("inf"), "array": np.zeros(2)}), "field 'value': expected a finite"),
        (codec.pack({"value": 1.0, "array": np.zeros(2, dtype=np.complex64)}), "an array of numbers"),
        (codec.pack({"value": 1.0}), "field 'array': expected an array, got nothing"),
        (codec.pack({"value": 1.0, "array": np.zeros(2), "code": "os:system"}), "'code': expected no such"),
        (b"\xff" * 64, "expected a packed message"),
        (b"", "expected a packed message"),
    ],
    ids=["NaN", "infinity", "type", "missing", "unknown", "garbage", "empty"],
)
def test_a_broken_reply_is_refused_by_name(body: bytes, said: str, grid: LoopGrid) -> None:
    engine, victim = LoopEngine(grid), victim_of(grid)
    grid.spoil = lambda node, question, reply: forged(reply, question, body) if node == victim else reply
    answers = ask(engine)
    assert said in answers["c001"].failure
    assert value(answers["c000"]) == 1.0


def test_a_reply_that_is_too_large_is_refused_before_it_is_read(grid: LoopGrid) -> None:
    engine, victim = LoopEngine(grid), victim_of(grid)
    engine.post.most_bytes = 10_000
    large = codec.encode(Done(value=1.0, array=np.zeros(5000)))
    grid.spoil = lambda node, question, reply: forged(reply, question, large) if node == victim else reply
    assert "expected at most 0.0 MB, got 0.0 MB" in ask(engine)["c001"].failure


def test_a_declared_size_must_be_the_real_one(grid: LoopGrid) -> None:
    lying = RecordDict({RECORD: ArrayRecord({HEAD: Array("uint8", (2**31,), "feddag", b"short")})})
    with pytest.raises(InvalidMessage, match="5 bytes as declared"):
        from_records(lying, 2**40)
    # Inside our own encoding too: a header that promises two gigabytes over a few bytes.
    promise = b'{"":{"dtype":"U8","shape":[2147483648],"data_offsets":[0,2147483648]}}'
    with pytest.raises(InvalidMessage, match="a packed message"):
        codec.unpack(len(promise).to_bytes(8, "little") + promise + b"{}")


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({"other": ArrayRecord()}),
        RecordDict({RECORD: ConfigRecord({"head": b"x"})}),
        RecordDict({RECORD: ArrayRecord({BODY: Array("uint8", (1,), "feddag", b"x")})}),
    ],
    ids=["empty", "another record", "another kind", "no head"],
)
def test_records_of_another_form_are_refused(content: RecordDict, grid: LoopGrid) -> None:
    engine, victim = LoopEngine(grid), victim_of(grid)
    grid.spoil = lambda node, question, reply: (
        Message(content, reply_to=question) if node == victim else reply
    )
    assert "(message)" in ask(engine)["c001"].failure


def test_a_node_that_is_gone_fails_and_keeps_its_memory_for_its_return(grid: LoopGrid) -> None:
    engine, victim = LoopEngine(grid), victim_of(grid)
    assert value(ask(engine)["c001"]) == 1.0
    grid.away = {victim}
    assert engine.clients() == ("c000", "c002")
    assert ask(engine, 2)["c001"].failure == "its node is not connected"
    grid.away = set()
    assert engine.clients() == ("c000", "c001", "c002")
    assert value(ask(engine, 3)["c001"]) == 2.0


def test_memories_are_restored_by_the_names_of_their_versions(grid: LoopGrid, tmp_path: Path) -> None:
    engine = LoopEngine(grid, receipts=tmp_path / "memories")
    ask(engine)
    engine.save_memories("round-000001")
    ask(engine, 2)
    engine.prune_memories(["round-000001"])
    assert value(ask(engine, 3)["c000"]) == 3.0
    again = LoopEngine(grid, receipts=tmp_path / "memories")  # the server was killed, and starts anew
    again.restore_memories("round-000001")
    assert value(ask(again, 2)["c000"]) == 2.0
    with pytest.raises(InvalidMessage):
        again.restore_memories("round-000009")
    stored = b"".join(path.read_bytes() for path in (tmp_path / "memories").iterdir())
    assert b"count" not in stored  # nothing of what clients remember is on the server


def test_nodes_forget_versions_that_nobody_needs(grid: LoopGrid, tmp_path: Path) -> None:
    engine = LoopEngine(grid)
    for round_ in range(1, 6):
        ask(engine, round_)
        engine.save_memories(f"round-{round_}")
        engine.prune_memories([f"round-{round_}"])
    folder = grid.nodes[victim_of(grid)].memory.folder / "r0"
    assert len(list(folder.glob("*.safetensors"))) <= 3  # before, after, and what the label needs


def test_a_node_that_lost_its_memory_starts_anew_after_one_failure(grid: LoopGrid) -> None:
    engine = LoopEngine(grid)
    ask(engine)
    for path in (grid.nodes[victim_of(grid)].memory.folder / "r0").iterdir():
        path.unlink()
    assert "what this client remembered" in ask(engine, 2)["c001"].failure
    assert value(ask(engine, 3)["c001"]) == 1.0


def test_a_key_decides_which_client_a_node_is(grid: LoopGrid) -> None:
    said: list[str] = []
    names = {number: node.client for number, node in grid.nodes.items()}
    liar = victim_of(grid, "c001")
    names[liar] = "c777"
    stranger = victim_of(grid, "c002")
    del names[stranger]
    engine = LoopEngine(grid, registered=names, warn=said.append)
    assert engine.clients() == ("c000",)
    assert any("'c777', as its key says" in text for text in said)
    assert any(f"node {stranger} is not registered" in text for text in said)


def test_a_node_answers_only_what_its_method_asks(grid: LoopGrid) -> None:
    node = grid.nodes[victim_of(grid)]
    node.tasks = {}
    engine = LoopEngine(grid)
    assert "No train function registered" in ask(engine)["c001"].failure


def test_the_inline_engine_gives_the_same_answers(grid: LoopGrid) -> None:
    inline, engine = InlineEngine(blob_site()), LoopEngine(grid)
    for round_ in (1, 2):
        asked = dict.fromkeys(("c000", "c001", "c002"), Order(action="", value=5.0))
        exchange = Exchange(round_, Seed(1) / round_)
        ours, theirs = engine.ask(obey, asked, exchange), inline.ask(obey, asked, exchange)
        assert {c: codec.digest(a.reply) for c, a in ours.items()} == {
            c: codec.digest(a.reply) for c, a in theirs.items()
        }
    inline.close()
