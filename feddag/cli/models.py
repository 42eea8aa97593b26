# SPDX-License-Identifier: Apache-2.0
"""The commands `feddag predict` and `feddag export`: use the trained models."""

from pathlib import Path
from typing import Annotated

import typer

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")]


def predict(
    run: RunFolder,
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="An image, a folder of images, an .npz, .csv or .parquet.")
    ],
    client: Annotated[str, typer.Option(help="The client whose model predicts.")] = "",
    like: Annotated[
        Path | None,
        typer.Option(
            help="For a new client: labelled samples of it; the model that fits them best predicts."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the table to a file.")] = None,
    every_class: Annotated[
        bool, typer.Option("--every-class", help="Also the probability of every class.")
    ] = False,
) -> None:
    """Predict classes and probabilities with a client's model; prints a CSV table."""
    from feddag.core.errors import InvalidInput
    from feddag.core.files import write_durably
    from feddag.core.text import plural
    from feddag.runs.predict import model_like, predictions_csv, read_for, share_right
    from feddag.runs.run import load_run

    if bool(client) == (like is not None):
        raise InvalidInput("give either --client ID, or --like SAMPLES for a client that was not there")
    loaded = load_run(run)
    if like is None:
        model = loaded.model(client)
    else:
        model, sentence = model_like(loaded, like)
        typer.echo(sentence, err=True)
    samples = read_for(loaded, path)
    table = predictions_csv(model, samples, every_class)
    if out is None:
        typer.echo(table, nl=False)
    else:
        try:
            write_durably(out, table.encode())
        except OSError as error:
            raise InvalidInput(f"{out} cannot be written: {error.strerror}") from error
    right = share_right(model, samples)
    if right is not None:
        typer.echo(f"{right:.1%} of {plural(len(samples), 'sample')} right", err=True)


def export(
    run: RunFolder,
    client: Annotated[str, typer.Option(help="The client whose model is exported.")],
    format_: Annotated[str, typer.Option("--format", help="torch (.pt2) or onnx.")] = "torch",
    out: Annotated[Path | None, typer.Option(help="The file; default CLIENT.pt2 or CLIENT.onnx.")] = None,
) -> None:
    """Write a client's model as one file that needs no feddag; its outputs are checked before."""
    from feddag.core.errors import InvalidInput
    from feddag.runs.export import SUFFIX, Format, export_model
    from feddag.runs.run import load_run

    if format_ not in SUFFIX:
        raise InvalidInput(f"--format {format_}: choose one of {', '.join(SUFFIX)}")
    kind: Format = "onnx" if format_ == "onnx" else "torch"
    model = load_run(run).model(client)
    path = out or Path(f"{client}{SUFFIX[kind]}")
    difference = export_model(model, path, kind)
    typer.echo(f"wrote {path}; its probabilities are those of the run (largest difference {difference:.1g})")
