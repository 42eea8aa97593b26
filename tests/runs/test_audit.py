# SPDX-License-Identifier: Apache-2.0
"""The audit from end to end: it passes where noise protects, and fails where the noise was taken away."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from feddag.cli.main import app
from feddag.privacy import guard as guards
from feddag.runs.audit import Audit, Finding, _attack_canaries, attacker_of, audit, write_audit
from feddag.runs.simulate import Simulation, build
from tests.contracts.toys import experiment


def setting(level: str) -> Simulation:
    data = {"name": "synthetic", "synthetic": {"groups": 1, "classes": 2, "dimensions": 20, "train": 1200}}
    return build(experiment("feddag", {}, data=data, partition="iid", num_clients=4, privacy=level))


@pytest.fixture(scope="module")
def private() -> Audit:
    return audit(setting("private"), effort=0.1)


def by_name(found: Audit) -> dict[str, bool]:
    return {finding.attack: finding.passed for finding in found.findings}


def test_every_attack_is_told_in_one_sentence(private: Audit) -> None:
    attacks = ["membership", "tail", "re-identification", "counts", "canaries"]
    assert [finding.attack for finding in private.findings] == attacks
    assert all(f.sentence.endswith(".") and "\n" not in f.sentence for f in private.findings)


def test_at_level_private_the_audit_passes(private: Audit) -> None:
    assert by_name(private) == dict.fromkeys(by_name(private), True)


def silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the noise away; ledgers say what they said before."""
    real = guards.noisy_vectors

    def silent(x, y, present, basis, sigma, vectors, generator, sums):
        return real(x, y, np.unique(y), basis, 0.0, vectors, generator, sums)

    monkeypatch.setattr(guards, "noisy_vectors", silent)
    monkeypatch.setattr(guards, "noisy_counts", lambda counts, epsilon, generator: counts)


def test_with_the_noise_taken_away_the_audit_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    silence(monkeypatch)
    found = by_name(audit(setting("private"), effort=0.1))
    assert not found["membership"]
    assert not found["counts"]
    assert not found["canaries"]


def canaries(seed: int) -> Finding:
    """Planted samples, in a client whose own guard makes the releases and keeps the ledger."""
    attacker = attacker_of(setting("private"))
    return _attack_canaries(replace(attacker, seed=attacker.seed / "run" / seed), trials=100)


def test_in_twenty_runs_planted_samples_never_prove_more_than_the_ledger_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [canaries(seed) for seed in range(20)]
    assert all(f.value <= f.target for f in found)
    assert all(2 < f.target < 2.45 for f in found)  # counts 0.5 and vectors 2, or a bit less
    # The same attack without the noise proves more than was paid.
    silence(monkeypatch)
    bare = canaries(0)
    assert bare.value > bare.target == found[0].target


def test_without_privacy_the_audit_fails() -> None:
    found = by_name(audit(setting("off"), effort=0.1))
    assert not found["membership"]
    assert not found["re-identification"]


def test_the_result_is_written_as_values_and_as_a_picture(private: Audit, tmp_path: Path) -> None:
    picture = write_audit(private, tmp_path / "audit")
    assert picture.read_bytes()[:4] == b"\x89PNG"
    told = json.loads((tmp_path / "audit" / "audit.json").read_text())
    assert told["passed"]
    assert len(told["findings"]) == 5


def test_a_failed_audit_is_seen_in_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = Finding("membership", "It is bad.", 1.0, 0.5, "above", 0.1, ((1, 1.0, 0.1),))
    bad = Audit("toy", "off", (finding, replace(finding, sentence="It is unclear.", verdict="unclear")))
    monkeypatch.setattr("feddag.runs.audit.audit", lambda simulation: bad)
    done = CliRunner().invoke(app, ["privacy", "audit", "digits", "--folder", str(tmp_path / "a")])
    assert done.exit_code == 1
    assert "FAIL  It is bad." in done.output
    assert "near  It is unclear." in done.output


def test_the_plan_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    done = CliRunner().invoke(app, ["privacy", "plan", "digits", "--set", "privacy=private"])
    assert done.exit_code == 0, done.output
    assert "discrete Laplace noise" in done.output
    assert "not covered" in done.output
