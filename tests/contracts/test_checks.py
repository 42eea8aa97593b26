# SPDX-License-Identifier: Apache-2.0
"""Every method keeps the contracts of `feddag.contracts`, and a method that breaks one is found out."""

from collections.abc import Callable

import pytest
import toys_that_break

from feddag.contracts import checks
from feddag.contracts.checks import CHECKS, Verdict, check_algorithm
from feddag.contracts.form import ContractBroken
from tests.contracts.toys import every_algorithm, toy
from tests.support.cli import feddag

# A control variate is the gradient of a client's last round: with half the clients per round it comes late.
MORE_ROUNDS = {"scaffold": 16}
# Here workers are shared by all methods (test_engines.py), and a resume is looked at more closely
# (test_resume.py).
ELSEWHERE = (checks.worker_processes_give_the_same_bits,)

every_check = pytest.mark.parametrize(
    "check", [c for c in CHECKS if c not in ELSEWHERE], ids=lambda check: check.__name__
)


@every_algorithm
@every_check
def test_it_keeps_its_promises(name: str, check: Callable[[str], None]) -> None:
    if check is checks.it_learns and name in MORE_ROUNDS:
        checks.it_learns(name, MORE_ROUNDS[name])
    else:
        check(name)


@every_algorithm
def test_unknown_hyper_parameters_are_refused(name: str) -> None:
    with pytest.raises(Exception, match="'nonsense' is unknown"):
        toy(name, {"nonsense": 1})


@pytest.mark.parametrize(
    ("method", "check", "sentence"),
    [
        (
            "Undeclared",
            checks.every_task_is_listed_and_importable,
            "it asks fit, which `tasks` does not name",
        ),
        ("Peeking", checks.no_tensor_leaves_a_client_undeclared, "declare it sensitive"),
        ("Keeping", checks.it_goes_on_from_a_decoded_state, "other results"),
        ("Lazy", checks.it_learns, "clients are right in"),
        ("Silent", checks.it_tells_in_one_line_what_it_is, r"has \d+ characters"),
    ],
)
def test_a_broken_promise_is_found(method: str, check: Callable[[str], None], sentence: str) -> None:
    with pytest.raises(ContractBroken, match=sentence):
        check(f"{toys_that_break.__name__}:{method}")


def test_the_command_says_what_holds_and_what_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        checks, "CHECKS", (checks.it_is_a_frozen_value, checks.it_tells_in_one_line_what_it_is)
    )
    done = feddag("check-algorithm", "plugged_in:HalfStep")
    assert done.code == 0, done
    assert "all 2 contracts hold" in done.out
    done = feddag("check-algorithm", "toys_that_break:Silent")
    assert done.code == 2
    assert "holds  it is a frozen value" in done.out
    assert "BROKEN it tells in one line what it is" in done.out
    assert "1 of 2 contracts broken" in done.out
    assert feddag("check-algorithm", "nonsense").code == 2


def test_an_error_of_the_users_code_is_a_broken_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "CHECKS", (checks.a_single_client_is_enough,))
    assert check_algorithm("toys_that_break:Crashing") == [
        Verdict("a single client is enough", "ZeroDivisionError: division by zero")
    ]
