# SPDX-License-Identifier: Apache-2.0
"""The folders of a deployment: one for the server, one per node; each goes to its own machine as a whole.

Nothing in here is secret but the files whose names end with `.key`.
"""

import json
import tomllib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from feddag.core.errors import InvalidInput
from feddag.core.files import write_durably

MISSING_EXTRA = (
    "feddag deploy needs Flower, which is not installed: pip install 'feddag[flower]' installs the extra"
)
T = TypeVar("T", bound=BaseModel)


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ServerConfig(_Settings):
    """`server.toml`."""

    host: str = Field(default="127.0.0.1", description="address that the SuperLink listens on")
    port: int = Field(default=9092, ge=1, le=65535, description="its port: one for all of Flower's APIs")
    clients: int = Field(ge=1, description="how many nodes must be connected before the run starts")
    wait_minutes: float = Field(default=60.0, gt=0, description="how long the server waits for them")
    rejoin_seconds: float = Field(
        default=120.0, ge=0, description="after a loss of the server: how long it waits for all nodes"
    )
    insecure: bool = Field(default=False, description="without TLS and node keys; for tests on one machine")
    max_reply_megabytes: int = Field(default=256, ge=1, description="larger replies are refused unread")
    grace_seconds: float = Field(
        default=30.0, ge=0, description="beyond a client's deadline, for the way and for starting processes"
    )
    runs: str = Field(default="runs", description="where run folders are made; relative to this file")


class NodeConfig(_Settings):
    """`node.toml`."""

    client: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$", description="this client's id")
    server: str = Field(description="host:port of the SuperLink, or of the proxy before it")
    data: str = Field(
        default="",
        description="file or folder with this client's samples; empty: its share of the experiment's dataset",
    )
    port: int = Field(default=0, ge=0, le=65535, description="of the node's own local API; 0: a free one")
    insecure: bool = Field(default=False, description="without TLS and node key; for tests on one machine")


class Place:
    """A folder with the experiment and a configuration file."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder).absolute()

    @property
    def experiment(self) -> Path:
        """The settings of the run; the same file on the server and on every node."""
        return self.folder / "experiment.json"

    @property
    def flower_home(self) -> Path:
        """Where Flower keeps its own files, instead of the user's home."""
        return self.folder / "flower"

    @property
    def logs(self) -> Path:
        """What the processes say."""
        return self.folder / "logs"

    @property
    def authority(self) -> Path:
        """The certificate that everybody trusts."""
        return self.folder / "ca.crt"


class ServerFolder(Place):
    """What the server's machine holds."""

    @property
    def config(self) -> ServerConfig:
        """The configuration, checked."""
        return read_config(self.folder / "server.toml", ServerConfig)

    @property
    def app(self) -> Path:
        """The Flower app that is submitted."""
        return self.folder / "app"

    @property
    def certificate(self) -> Path:
        """The server's certificate."""
        return self.folder / "server.pem"

    @property
    def key(self) -> Path:
        """The server's private key."""
        return self.folder / "server.key"

    @property
    def public_keys(self) -> dict[str, Path]:
        """Client → the public key of its node."""
        return {path.stem: path for path in sorted((self.folder / "nodes").glob("*.pub"))}

    @property
    def database(self) -> Path:
        """Flower's state; with it nodes survive a restart of the SuperLink."""
        return self.flower_home / "state.db"

    @property
    def watch(self) -> Path:
        """Events of the run as they happen, for the progress bar."""
        return self.folder / "watch.jsonl"

    def state(self) -> dict[str, Any]:
        """The run that is going on: its id, its folder, and which node is which client."""
        try:
            return json.loads((self.folder / "state.json").read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise InvalidInput(f"{self.folder / 'state.json'} cannot be read: {error}") from error

    def write_state(self, **changes: Any) -> None:
        """Change some of it, durably."""
        write_durably(self.folder / "state.json", json.dumps(self.state() | changes, indent=1).encode())


class NodeFolder(Place):
    """What a node's machine holds."""

    @property
    def config(self) -> NodeConfig:
        """The configuration, checked."""
        return read_config(self.folder / "node.toml", NodeConfig)

    @property
    def key(self) -> Path:
        """The node's private key: it makes the node this client."""
        return self.folder / "node.key"

    @property
    def memory(self) -> Path:
        """What the client remembers between tasks. It never leaves the node."""
        return self.folder / "memory"


def read_config(path: Path, kind: type[T]) -> T:
    """A checked configuration file; one sentence names what is wrong in it."""
    try:
        return kind.model_validate(tomllib.loads(path.read_text()))
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{path} is not TOML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise InvalidInput(f"{path}: '{where}': {first['msg']}") from error


def require_flower() -> None:
    """One sentence that names the extra, if Flower is not installed."""
    from importlib.util import find_spec

    if find_spec("flwr") is None or find_spec("cryptography") is None:
        raise InvalidInput(MISSING_EXTRA)
