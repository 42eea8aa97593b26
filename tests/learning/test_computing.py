"""Mixed precision, torch.compile, and what of it is refused."""

import shutil
from dataclasses import replace

import pytest
import torch
from toys import blob_site, toy_client

from feddag.core.deployment import LocalTraining
from feddag.core.errors import InvalidInput
from feddag.core.params import Params
from feddag.core.seeds import Seed
from feddag.core.task import Client
from feddag.engines.perform import Site
from feddag.experiment.settings import Experiment
from feddag.learning.devices import Computing, check_compiler
from feddag.learning.sgd import sgd
from feddag.learning.together import Cohort

LOCAL = LocalTraining(local_epochs=3, batch_size=7, lr=0.05, momentum=0.5)


def site_of(**computing: object) -> Site:
    return replace(blob_site(), computing=Computing(**computing))  # type: ignore[arg-type]


def trained(site: Site, client: str = "c000") -> tuple[Params, Params]:
    with Seed(2).ambient():
        start = Params.from_module(site.network.fresh("single"))
    here = replace(toy_client(site, client), network=site.placed_network)
    return start, sgd(here, start, LOCAL)


def test_bfloat16_is_near_float32_and_the_same_every_time() -> None:
    start, full = trained(replace(site_of(), backend="torch"))
    mixed = [trained(site_of(precision="bfloat16"))[1] for _ in range(2)]
    assert mixed[0].digest() == mixed[1].digest()
    assert mixed[0].vector.dtype == torch.float32  # master weights, momentum and messages
    apart = (mixed[0] - full).norm() / (full - start).norm()
    assert 1e-5 < apart < 0.05


def test_bfloat16_clients_at_once_end_near_those_alone() -> None:
    site = site_of(precision="bfloat16")
    wanted = []

    class Taken(Exception):
        pass

    def take(training: object) -> Params:
        wanted.append(training)
        raise Taken

    for client in site.federation.ids:
        here: Client = replace(toy_client(site, client), network=site.placed_network, together=take)
        with Seed(2).ambient(), pytest.raises(Taken):
            sgd(here, Params.from_module(site.network.fresh("single")), LOCAL)
    said: list[str] = []
    results = Cohort(said.append).train(wanted)  # type: ignore[arg-type]
    assert said == []
    for client, result in zip(site.federation.ids, results, strict=True):
        start, alone = trained(site, client)
        assert isinstance(result, Params)
        assert (result - alone).norm() < 0.02 * (alone - start).norm()


@pytest.mark.hard  # compiling takes half a minute
@pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="torch.compile needs a C++ compiler"
)
def test_a_compiled_network_trains_as_the_plain_one() -> None:
    start, plain = trained(replace(site_of(), backend="torch"))
    _, compiled = trained(site_of(compile=True))
    assert (compiled - plain).norm() < 1e-4 * (plain - start).norm()


@pytest.mark.parametrize("setting", [{"precision": "bfloat16"}, {"compile": True}])
def test_the_kernels_leave_it_to_torch_and_say_why(setting: dict) -> None:
    if "compile" in setting and not any(map(shutil.which, ("g++", "clang++", "c++"))):
        pytest.skip("torch.compile needs a C++ compiler")
    (name,) = setting
    assert site_of(**setting).backends()["single"].startswith("torch: ")
    with pytest.raises(InvalidInput, match=r"engine.*native.*precision, compile and batched_clients"):
        Experiment.from_settings({"engine": {"backend": "native", **setting}})
    assert getattr(Experiment.from_settings({"engine": setting}).engine, name) == setting[name]


def test_compile_is_refused_where_it_cannot_work(monkeypatch: pytest.MonkeyPatch) -> None:
    check_compiler.cache_clear()
    with pytest.raises(InvalidInput, match=r"engine.compile = true: torch.compile does not support mps"):
        check_compiler(torch.device("mps"))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(InvalidInput, match=r"engine.compile = true: no C\+\+ compiler"):
        check_compiler(torch.device("cpu"))
    check_compiler.cache_clear()
    with pytest.raises(InvalidInput, match="compile and batched_clients exclude each other"):
        Experiment.from_settings({"engine": {"compile": True, "batched_clients": 8}})
    strict = {"level": "private", "update": {"mode": "dpsgd"}}
    with pytest.raises(InvalidInput, match=r"engine.precision = .bfloat16.: noisy gradients"):
        Experiment.from_settings({"engine": {"precision": "bfloat16"}, "privacy": strict})


def test_only_a_gpu_is_filled_with_several_clients_and_few_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (Computing().num_at_once, Computing(batched_clients=5).num_at_once) == (1, 5)
    monkeypatch.setattr("feddag.learning.devices.find_device", lambda name: torch.device("cuda", 0))
    gpu = Computing(device="auto")
    assert (gpu.num_at_once, gpu.num_workers, replace(gpu, compile=True).num_at_once) == (16, 2, 1)
    assert replace(blob_site(), computing=gpu, backend="native").num_at_once == 1


def test_settings_that_change_nothing_leave_the_digest_of_a_run_as_it_was() -> None:
    plain = Experiment()
    assert plain.engine.unused == (
        "max_update_norm", "norm_action", "batched_clients", "precision", "compile"
    )  # fmt: skip
    other = Experiment.from_settings({"engine": {"precision": "bfloat16"}})
    assert other.digest != plain.digest
