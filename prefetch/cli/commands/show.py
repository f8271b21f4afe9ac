"""``ringfeed show``: a picture of what a network will see."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from prefetch._errors.printable import counted, printable_key, printable_line
from prefetch.cli.arguments.configs import (
    ConfigArgument,
    JsonOption,
    LayerOption,
    PhaseOption,
    RootOption,
    StageOption,
    load,
)
from prefetch.cli.arguments.outputs import (
    ForceOption,
    check_free,
    check_no_input,
    check_picture_name,
    config_files,
)
from prefetch.cli.reports.printing import print_json
from prefetch.cli.terminal.progress import DelayedProgress

if TYPE_CHECKING:
    from prefetch._config.feed_config import FeedConfig
    from prefetch._tools.preview import BatchView


def show(
    config: ConfigArgument,
    output: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="The picture, such as batches.png.", callback=check_picture_name
        ),
    ],
    *,
    batches: Annotated[int, typer.Option(min=1, max=64, help="How many batches.")] = 1,
    channels: Annotated[
        Literal["auto", "bgr", "rgb"],
        typer.Option(
            help="Order of three channels to show as true colours; auto: as transform.channels "
            "says; where that is stored, as channels.txt beside the database does, else bgr."
        ),
    ] = "auto",
    phase: PhaseOption = None,
    layer: LayerOption = None,
    stage: StageOption = None,
    root: RootOption = Path(),
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Draw the first batches that a network will see, with labels and keys.

    Images are shown after crop, mirror and order of channels, and before mean and scale. The
    numbers above them, such as the range of values, are those after mean and scale. Under
    random-resized crops stand the images that they were taken from, with the box of each.
    """
    from prefetch._report.contact_sheet import stack_sheets, write_picture  # noqa: PLC0415 - OpenCV is slow to import
    from prefetch._tools.preview import batch_sheet, view_batches  # noqa: PLC0415 - as above

    check_no_input(output, [config])
    options = load(config, phase=phase, layer=layer, stages=stage, root=root)
    check_no_input(output, config_files(config, options))
    check_free(output, force=force)
    views: list[BatchView] = []
    sheets = []
    with DelayedProgress() as progress:
        for view in view_batches(options, batches):
            progress("reading", len(views), batches)
            views.append(view)
            blue_first = view.blue_first if channels == "auto" else channels == "bgr"
            notes = (_describe(config, options),)
            sheets.append(batch_sheet(view, notes=notes, blue_first=blue_first))
    write_picture(output, stack_sheets(sheets))
    if as_json:
        print_json({"picture": str(output.absolute()), "batches": [_as_json(one) for one in views]})
    else:
        records = counted(sum(len(view.keys) for view in views), "record")
        batches_drawn = counted(len(views), "batch", "batches")
        sys.stdout.write(f"{printable_line(str(output))}: {records} in {batches_drawn}\n")


def _describe(path: Path, options: FeedConfig) -> str:
    transform = options.transform
    done = [f"{path.absolute().name}: phase {options.phase}"]
    if transform.random_resized_crop is not None:
        sides = _sides(transform.random_resized_crop.size)
        done.append(f"random-resized crop to {sides}")
    if transform.resize is not None:
        shorter, size = transform.resize.shorter, transform.resize.size
        to = f"{shorter} on the shorter side" if size is None else _sides(size)
        done.append(f"resized to {to}")
    if transform.pad:
        done.append(f"padded by {transform.pad}")
    if transform.crop_size:
        place = "random" if options.phase == "train" else "centre"
        done.append(f"{place} crop of {_sides(transform.crop_size)}")
    if transform.mirror is True or (transform.mirror == "train" and options.phase == "train"):
        done.append("mirrored at random")
    if transform.color_jitter is not None:
        done.append("colours jittered")
    if transform.random_erasing is not None:
        done.append("erased in at random")
    mixes = [name for name in ("mixup", "cutmix") if getattr(transform, name) is not None]
    if mixes:
        done.append(f"mixed by {' or '.join(mixes)}")
    if options.shuffle:
        done.append("shuffled")
    return ", ".join(done)


def _sides(size: int | tuple[int, int]) -> str:
    return str(size) if isinstance(size, int) else f"{size[0]} x {size[1]}"


def _as_json(view: BatchView) -> dict[str, Any]:
    return {
        "epoch": view.epoch,
        "number": view.number,
        "shape": list(view.shape),
        "dtype": view.dtype,
        "least": view.least,
        "most": view.most,
        "mean": view.mean,
        "deviation": view.deviation,
        "labels": view.labels.get("label"),
        **{name: view.labels[name] for name in ("label2", "lam") if name in view.labels},
        "keys": [printable_key(key) for key in view.keys],
    }
