# SPDX-License-Identifier: Apache-2.0
"""`feddag deploy init`: what lies in which folder, who may read it, and careful defaults."""

import json
import ssl
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra feddag[flower] is not installed")

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from feddag.core.errors import InvalidInput
from feddag.deploy.folders import NodeConfig, NodeFolder, ServerConfig, ServerFolder, read_config
from feddag.deploy.init import deployed, make_deployment
from feddag.experiment.settings import Experiment

SETTINGS = {
    "data": {"name": "synthetic", "synthetic": {"groups": 2, "dimensions": 6, "train": 160, "test": 40}},
    "num_clients": 3,
    "model": "mlp",
    "algorithm": "feddag",
}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deploy") / "d"
    names = make_deployment(deployed(SETTINGS), folder, server="10.1.2.3:9099", names=["fed.example.org"])
    assert names == ["c000", "c001", "c002"]
    return folder


def test_every_role_has_a_folder_that_is_complete(deployment: Path) -> None:
    server, nodes = ServerFolder(deployment / "server"), sorted((deployment / "nodes").iterdir())
    assert server.config == ServerConfig(port=9099, clients=3)
    assert sorted(server.public_keys) == [node.name for node in nodes] == ["c000", "c001", "c002"]
    for node in nodes:
        config = NodeFolder(node).config
        assert config == NodeConfig(client=node.name, server="10.1.2.3:9099")
        assert (node / "experiment.json").read_bytes() == server.experiment.read_bytes()
        assert (node / "ca.crt").read_bytes() == server.authority.read_bytes()
    app = tomllib.loads((server.app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    for component in app["components"].values():
        module, _, _name = component.partition(":")
        text = (server.app / Path(*module.split("."))).with_suffix(".py").read_text()
        assert "\napp = " in text
    left = [p for p in deployment.rglob("*") if p.is_file() and "{{" in p.read_text(errors="ignore")]
    assert not left, "a place in a template was not filled"


def test_secret_files_can_be_read_by_their_owner_alone_and_go_to_one_machine_only(deployment: Path) -> None:
    secret = sorted(deployment.rglob("*.key"))
    assert len(secret) == 4
    for path in secret:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len({path.read_bytes() for path in secret}) == 4
    in_server = {path.read_bytes() for path in (deployment / "server").rglob("*") if path.is_file()}
    assert not in_server & {path.read_bytes() for path in deployment.glob("nodes/*/node.key")}


def test_a_nodes_public_key_belongs_to_its_private_key(deployment: Path) -> None:
    for node in (deployment / "nodes").iterdir():
        private = load_ssh_private_key((node / "node.key").read_bytes(), None)
        public = load_ssh_public_key((deployment / "server" / "nodes" / f"{node.name}.pub").read_bytes())
        assert private.public_key() == public
        assert public.curve.name == "secp384r1"


def test_the_certificate_is_for_the_servers_names_and_signed_by_the_authority(deployment: Path) -> None:
    server = deployment / "server"
    certificate = x509.load_pem_x509_certificate((server / "server.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "fed.example.org" in names.get_values_for_type(x509.DNSName)
    addresses = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    assert addresses == {"10.1.2.3", "127.0.0.1"}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server / "server.pem", server / "server.key")
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate((server / "ca.crt").read_bytes()))


def test_what_settings_leave_open_becomes_careful(deployment: Path) -> None:
    settings = json.loads((deployment / "server" / "experiment.json").read_text())
    assert settings["privacy"]["level"] == "guarded"  # no vectors of fewer than 50 samples each
    assert deployed(Experiment.from_settings(SETTINGS).settings()).privacy.level == "guarded"
    assert settings["engine"]["deadline"] == 600.0
    own = deployed(SETTINGS | {"privacy": {"level": "off"}, "engine": {"deadline": 5}})
    assert own.privacy.level == "off"
    assert own.engine.deadline == 5.0
    assert deployed(SETTINGS | {"algorithm": "fedavg"}).algorithm.name == "fedavg"


def test_a_folder_that_exists_is_left_alone(deployment: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="exists"):
        make_deployment(deployed(SETTINGS), deployment)
    with pytest.raises(InvalidInput, match="expected host:port"):
        make_deployment(deployed(SETTINGS), tmp_path / "new", server="nowhere")
    assert not any(tmp_path.iterdir())


def test_plans_of_a_simulation_have_no_place_in_a_deployment(tmp_path: Path) -> None:
    settings = SETTINGS | {"scenario": {"join": [{"at": 2, "clients": ["c001"]}]}}
    with pytest.raises(InvalidInput, match="in a deployment nodes join"):
        make_deployment(deployed(settings), tmp_path / "d")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("client = 3", "'client'"),
        ('client = "../x"\nserver = "a:1"', "'client'"),
        ('client = "a"\nserver = "a:1"\nfolder = "x"', "'folder'"),
        ("client = ", "is not TOML"),
    ],
)
def test_a_wrong_configuration_gets_one_sentence(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=said) as caught:
        read_config(path, NodeConfig)
    assert "\n" not in str(caught.value)


def test_flower_is_imported_in_two_files_only() -> None:
    package = Path(__file__).parents[2] / "feddag"
    using = [
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if any(line.lstrip().startswith(("import flwr", "from flwr ", "from flwr.")) for line in path.open())
    ]
    assert sorted(using) == ["deploy/flower_app.py", "engines/flower.py"]


def test_a_clientapp_starts_without_torch_and_data() -> None:
    code = (
        "import sys, feddag.deploy.flower_app; "
        "print([m for m in ('torch', 'feddag.data', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_flower_one_sentence_names_the_extra(tmp_path: Path) -> None:
    code = "import sys; sys.modules['flwr'] = None; sys.argv = ['feddag', 'deploy', 'init', 'demo']; "
    code += "from feddag.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stderr.strip().startswith("feddag: feddag deploy needs Flower")
    assert "feddag[flower]" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not any(tmp_path.iterdir())


def test_a_simulation_refuses_the_engine_of_many_machines(tmp_path: Path) -> None:
    from feddag.runs.simulate import run

    with pytest.raises(InvalidInput, match="feddag deploy"):
        run(Experiment.from_settings(SETTINGS | {"engine": "flower"}), root=tmp_path)
    assert not any(tmp_path.iterdir())


def test_the_first_command_of_the_page_makes_a_deployment(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text()
    line = next(line for line in page.splitlines() if line.startswith("feddag deploy init"))
    words = line.split("#")[0].split()[1:]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "feddag", *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert len([*(tmp_path / "deployment" / "nodes").iterdir()]) == 4
