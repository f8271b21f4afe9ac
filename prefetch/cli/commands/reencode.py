"""``ringfeed reencode``: the records of a database in another form."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer looks it up
from typing import Annotated

import typer

from prefetch.cli.arguments.configs import JsonOption, ThreadsOption  # noqa: TC001 - as above
from prefetch.cli.arguments.databases import (
    DatabaseArgument,
    ReplaceOption,
    ResumeOption,
    SkipOption,
    place_of,
)
from prefetch.cli.arguments.images import (  # noqa: TC001 - as above
    CropOption,
    HeightOption,
    QualityOption,
    RoiOption,
    ShorterOption,
    WidthOption,
)
from prefetch.cli.reports.copies import Copier
from prefetch.cli.terminal.progress import DelayedProgress


def reencode(
    database: DatabaseArgument,
    output: Annotated[Path, typer.Argument(metavar="NEW", help="The database to make.")],
    *,
    form: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORM",
            help="raw: pixels; or a type of image files, such as png or jpg; without it each "
            "record keeps its form.",
        ),
    ] = "",
    quality: QualityOption = None,
    roi: RoiOption = False,
    resize_width: WidthOption = 0,
    resize_height: HeightOption = 0,
    resize_shorter: ShorterOption = 0,
    center_crop: CropOption = 0,
    skip_unreadable: SkipOption = False,
    resume: ResumeOption = False,
    force: ReplaceOption = False,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Store the records of a database in another form: pixels, image files, another size.

    Keys and labels stay; so does a record, bit for bit, that has the form already. Pixels are those
    that a feed serves without force_color and force_gray. Raw records keep their order of channels;
    image files have true colours, also those made of RGB.
    """
    from prefetch._source.sidecar_files import raw_channel_order  # noqa: PLC0415 - slow to import
    from prefetch._source.source import RecordSource  # noqa: PLC0415 - as above
    from prefetch._tools import convert as conversion  # noqa: PLC0415 - as above
    from prefetch._tools.stored import reencode as forms  # noqa: PLC0415 - as above
    from prefetch._tools.stored.carried_files import carried_files  # noqa: PLC0415 - as above
    from prefetch._tools.stored.copies import StoredExamples  # noqa: PLC0415 - as above

    form = form.lower().removeprefix(".")
    if roi and form == forms.RAW:
        raise typer.BadParameter("--roi is about JPEGs, and --to is raw")
    try:
        treatment = conversion.Treatment(
            encoded=form != forms.RAW,
            encode_type="" if form == forms.RAW else form,
            quality=quality,
            resize_width=resize_width,
            resize_height=resize_height,
            resize_shorter=resize_shorter,
            center_crop=center_crop,
            roi=roi,
        )
    except conversion.OptionsError as error:
        raise typer.BadParameter(str(error).replace("--encode-type", "--to")) from None
    if not form and treatment.may_keep and quality is None and not roi:
        raise typer.BadParameter("nothing is asked for: give --to, --quality, --roi or a size")
    place = place_of(output, [database])
    copier = Copier(threads=threads, resume=resume, force=force, skip_unreadable=skip_unreadable)
    copier.check_free(place)
    has_image_files = form not in {"", forms.RAW}
    files = carried_files([database], has_image_files=has_image_files)
    is_rgb = raw_channel_order(database) == "rgb"
    # Databases of before there was the option are known by what they were made with.
    asked = str(treatment).replace(", roi=False", "")
    with DelayedProgress() as progress, RecordSource.open(database) as source:
        examples = StoredExamples(
            source,
            [database],
            change=forms.reencode(form, treatment, is_rgb=is_rgb),
            change_name=f"reencode to {form!r} {asked}{' of RGB' if is_rgb else ''}",
        )
        copier.make(examples, place, progress, files=files)
    copier.report({"reencoded": str(database.absolute())}, as_json=as_json)
