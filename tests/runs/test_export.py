# SPDX-License-Identifier: Apache-2.0
"""An exported model gives the probabilities of the run, with torch or onnxruntime and without feddag."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from feddag.core.errors import FederationError, InvalidInput
from feddag.core.examples import Scaling
from feddag.core.params import Params
from feddag.core.problem import Problem
from feddag.models import Networks
from feddag.runs.client_model import ClientModel, SavedModels
from feddag.runs.export import CLOSE, Format, ServedModel, export_model, random_samples

SHAPES = {
    "lenet": (1, 28, 28),
    "conv3": (3, 32, 32),
    "mlp": (6,),
    "conv1d": (9, 32),
    "gru": (10,),
    "normalised_net:make": (1, 8, 8),
}


def saved(folder: Path, name: str, kind: str = "single", mixture: tuple[float, ...] = ()) -> ClientModel:
    """A random model of a family, as a run saves it."""
    shape = SHAPES[name]
    pixels = len(shape) == 3
    scaling = Scaling(255.0, (0.3,) * shape[0], (0.2,) * shape[0]) if pixels else Scaling()
    problem = Problem(shape, 4, ("a", "b", "c", "d"), scaling, integer_codes=name == "gru")
    networks = Networks(name, problem)
    files = [f"model-{i}.safetensors" for i in range(max(len(mixture), 1))]
    for file in files:
        params = Params.from_module(networks.fresh(kind))
        save_file({n: np.ascontiguousarray(t.numpy()) for n, t in params.items()}, folder / file)
    entry = {"network": kind, "files": files, "weights": mixture, "adapt": False}
    entry["uses"] = None if mixture else files[0]
    said = {"model": name, "input_shape": shape, "num_classes": 4, "class_names": problem.class_names}
    said |= {"scaling": vars(scaling), "integer_codes": problem.integer_codes, "clients": {"c0": entry}}
    (folder / "clients.json").write_text(json.dumps(said))
    return SavedModels(folder).of("c0")


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("kind", ["single", "dual"])
def test_the_module_gives_the_probabilities_of_the_model(name: str, kind: str, tmp_path: Path) -> None:
    model = saved(tmp_path, name, kind)
    x = random_samples(model, 5)
    with torch.no_grad():
        outputs = ServedModel(model).eval()(torch.from_numpy(x)).numpy()
    assert outputs == pytest.approx(model.predict_proba(x), abs=1e-5)


@pytest.mark.parametrize("format_", ["torch", "onnx"])
def test_a_mixture_of_networks_with_two_encoders_is_one_file(format_: Format, tmp_path: Path) -> None:
    if format_ == "onnx":
        onnxruntime = pytest.importorskip("onnxruntime")
    model = saved(tmp_path, "lenet", "dual", mixture=(3.0, 1.0))
    path = tmp_path / "out" / f"file.{format_}"
    assert export_model(model, path, format_) <= CLOSE
    x = random_samples(model, 7)
    if format_ == "torch":
        extra = {"about.json": ""}
        loaded = torch.export.load(path, extra_files=extra)
        outputs = loaded.module()(torch.from_numpy(x)).detach().numpy()
        assert json.loads(extra["about.json"])["classes"] == ["a", "b", "c", "d"]
    else:
        session = onnxruntime.InferenceSession(path)
        (outputs,) = session.run(["probability"], {"x": x})
        assert json.loads(session.get_modelmeta().custom_metadata_map["classes"]) == ["a", "b", "c", "d"]
    assert outputs == pytest.approx(model.predict_proba(x), abs=1e-5)


def test_a_file_that_gives_other_probabilities_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = saved(tmp_path, "mlp")
    monkeypatch.setattr(ServedModel, "forward", lambda self, x: self.networks[0](x))  # no softmax
    with pytest.raises(FederationError, match="gives other probabilities"):
        export_model(model, tmp_path / "file.pt2", "torch")
    assert not (tmp_path / "file.pt2").exists()


def test_a_network_that_cannot_be_exported_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = saved(tmp_path, "mlp")

    def forward(self, x):
        return x if float(x.sum()) > 0 else -x  # depends on values: no exporter can follow

    monkeypatch.setattr(ServedModel, "forward", forward)
    with pytest.raises(InvalidInput, match="the network 'mlp' cannot be exported"):
        export_model(model, tmp_path / "file.pt2", "torch")
