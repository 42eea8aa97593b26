# SPDX-License-Identifier: Apache-2.0
"""The commands `feddag deploy …`: the same experiment on many machines, carried by Flower."""

from pathlib import Path
from typing import Annotated

import typer

from feddag.cli.options import Overrides, Quiet, watcher

app = typer.Typer(help="Run an experiment on many machines, over Flower.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="The folder of a deployment, or its server folder.")]


@app.command()
def init(
    what: Annotated[
        str, typer.Argument(metavar="RECIPE|FILE|FOLDER", help="A recipe, a .toml file, or your own data.")
    ],
    clients: Annotated[int | None, typer.Option(help="Number of nodes.")] = None,
    folder: Annotated[Path, typer.Option(help="The deployment's folder; must not exist yet.")] = Path(
        "deployment"
    ),
    server: Annotated[
        str, typer.Option(help="host:port under which nodes reach the server.")
    ] = "127.0.0.1:9092",
    bind: Annotated[str, typer.Option(help="Address that the server listens on.")] = "127.0.0.1",
    name: Annotated[
        list[str] | None, typer.Option(help="Further name or address of the server for its certificate.")
    ] = None,
    client_scores: Annotated[
        bool, typer.Option(help="Record each client's scores on the server, not only sums over clusters.")
    ] = False,
    insecure: Annotated[bool, typer.Option(help="No TLS, no node keys: for tests on one machine.")] = False,
    set_: Overrides = None,
) -> None:
    """Make a folder per role: certificates, keys, configuration, start scripts, the Flower app."""
    from feddag.core.text import plural
    from feddag.deploy.folders import require_flower
    from feddag.experiment.overrides import override
    from feddag.experiment.recipes import plain_settings

    require_flower()
    from feddag.deploy.init import deployed, make_deployment

    settings = override(plain_settings(what), set_ or [])
    if clients is not None:
        settings = {**settings, "num_clients": clients}
    made = make_deployment(
        deployed(settings, client_scores),
        folder,
        server=server,
        bind=bind,
        names=name or (),
        insecure=insecure,
    )
    typer.echo(f"{folder}: server and {plural(len(made), 'node')}; {folder / 'README.md'} says what to do")
    typer.echo(f"try it on this machine: feddag deploy up {folder} --local")


@app.command()
def up(
    folder: Folder = Path("deployment"),
    local: Annotated[
        bool, typer.Option("--local", help="Start the server and all nodes on this machine.")
    ] = False,
    root: Annotated[Path, typer.Option(help="Where run folders are made.")] = Path("runs"),
    quiet: Quiet = False,
) -> None:
    """Start everything on this machine, run to the end, take everything down."""
    from feddag.core.errors import InvalidInput

    if not local:
        raise InvalidInput(
            "feddag deploy up starts everything on this machine and needs --local; on several machines use "
            "feddag deploy serve and feddag deploy node"
        )
    _run(folder, quiet, local=True, root=root)


@app.command()
def serve(folder: Folder = Path(), quiet: Quiet = False) -> None:
    """Be the server: start it, wait for the nodes, run; go on with a run that was not finished."""
    from feddag.deploy.local import server_of, unfinished_run

    open_run = unfinished_run(server_of(folder))
    started = open_run is not None and any((open_run / "checkpoints").glob("*.json"))
    _run(folder, quiet, local=False, resume=started)


@app.command()
def node(folder: Annotated[Path, typer.Argument(help="The folder of a node.")] = Path()) -> None:
    """Be a node: keep it connected until it is stopped."""
    from feddag.deploy.folders import NodeFolder, require_flower
    from feddag.deploy.local import stopped_by_signals
    from feddag.deploy.node import run_node

    require_flower()
    with stopped_by_signals():
        run_node(NodeFolder(folder), lambda text: typer.echo(f"warning: {text}", err=True))


@app.command()
def resume(
    folder: Folder = Path("deployment"),
    quiet: Quiet = False,
) -> None:
    """Go on with the last run from its last checkpoint; with all nodes, if they are on this machine."""
    from feddag.deploy.local import server_of

    _run(folder, quiet, local=bool(server_of(folder).state().get("local")), resume=True)


@app.command()
def stop(folder: Folder = Path("deployment")) -> None:
    """Stop what up, serve or resume started; resume goes on later."""
    from feddag.deploy.local import stop_deployment

    typer.echo("stopped" if stop_deployment(folder) else "nothing is running here")


@app.command()
def status(
    folder: Folder = Path("deployment"),
    json_: Annotated[bool, typer.Option("--json", help="Print plain values.")] = False,
) -> None:
    """Show whether it runs, which round, and how many nodes."""
    import json

    from feddag.deploy.local import status_of

    now = status_of(folder)
    if json_:
        typer.echo(json.dumps(now, indent=1))
        return
    words = "running" if now["running"] else "not running"
    typer.echo(
        f"{words}, SuperLink at {now['address']}, {now['registered']} of {now['wanted']} nodes registered"
    )
    if now["waiting"] is not None:
        typer.echo(f"waiting for nodes: {now['waiting']} of {now['wanted']} are connected")
    if now["run"]:
        where = "finished" if now["finished"] else f"round {now['round'] or 0} of {now['rounds']}"
        typer.echo(f"run {now['run']}: {where}")
    if now["failed"]:
        typer.echo(f"it failed: {now['failed']}")


def _run(folder: Path, quiet: bool, *, local: bool, resume: bool = False, root: Path | None = None) -> None:
    from feddag.deploy.local import run_deployment, server_of
    from feddag.experiment.settings import Experiment

    rounds = Experiment.from_file(server_of(folder).experiment).num_rounds
    with watcher(rounds, quiet) as watch:
        run_deployment(folder, watch, local=local, resume=resume, root=root)
