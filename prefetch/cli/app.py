"""The program: its commands, and the exit status and message of each error."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from memory import SyncedMemoryError
from prefetch._errors.classes import PrefetchError
from prefetch._errors.printable import printable_path
from prefetch.cli.arguments.usage import Command, UsageError, program_options_first, reword
from prefetch.cli.commands.bench import bench
from prefetch.cli.commands.check import check
from prefetch.cli.commands.convert import convert
from prefetch.cli.commands.export import export
from prefetch.cli.commands.from_prototxt import from_prototxt
from prefetch.cli.commands.get import get
from prefetch.cli.commands.inspect import inspect
from prefetch.cli.commands.labels import labels
from prefetch.cli.commands.mean import mean
from prefetch.cli.commands.merge import merge
from prefetch.cli.commands.reencode import reencode
from prefetch.cli.commands.schema import schema
from prefetch.cli.commands.show import show
from prefetch.cli.commands.split import split
from prefetch.cli.terminal.messages import forward_messages, without_repeats
from prefetch.cli.terminal.streams import OutputLostError, print_message, standard_streams

if TYPE_CHECKING:
    from collections.abc import Sequence

_INTERRUPTED = 130
_NO_WORKING_DIRECTORY = (
    "the working directory has been removed; change into another one, or give absolute paths"
)


class _Commands(TyperGroup):
    """Runs a command; an expected error becomes a message and an exit status."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest: list[str] = super().parse_args(ctx, program_options_first(args))
        return rest

    def invoke(self, ctx: Any) -> Any:
        level = logging.INFO if ctx.params.get("verbose") else logging.WARNING
        try:
            with forward_messages(without_repeats(print_message), level=level):
                return super().invoke(ctx)
        except KeyboardInterrupt:
            print_message("interrupted", "nothing more was done")
            raise typer.Exit(_INTERRUPTED) from None
        except UsageError as error:
            reword(error)
            raise
        except OutputLostError:
            raise  # `Streams.status` reports it, once all has ended
        except (PrefetchError, SyncedMemoryError, OSError, MemoryError) as error:
            if ctx.params.get("debug"):
                traceback.print_exc()
            else:
                print_message("error", _describe_error(error))
            raise typer.Exit(1) from None


def _describe_error(error: Exception) -> str:
    """Return an error's message, with the file that it is about and without errno."""
    if isinstance(error, OSError) and error.strerror:
        if error.filename is None:
            # A command makes relative paths absolute, and of these calls only that fails so.
            is_cwd = isinstance(error, FileNotFoundError)
            return _NO_WORKING_DIRECTORY if is_cwd else error.strerror
        path = os.path.abspath(os.fsdecode(error.filename))  # noqa: PTH100 - it may be of bytes
        return f"{printable_path(path)}: {error.strerror}"
    words = str(error)
    if isinstance(error, MemoryError) and not isinstance(error, PrefetchError):
        words = f"there is not enough memory {error}".rstrip()
    return "\n".join([words, *getattr(error, "__notes__", ())])


app = typer.Typer(
    name="ringfeed",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer's callbacks take the value
    if wanted:
        import importlib.metadata  # noqa: PLC0415 - 13 ms, and for this alone

        sys.stdout.write(f"ringfeed {importlib.metadata.version('ringfeed')}\n")
        raise typer.Exit


@app.callback(
    epilog="ringfeed COMMAND --help shows each command with examples. Exit status: 0 done; 1 an "
    "error, which is printed to the standard error; 2 the arguments are wrong; 130 interrupted by "
    "Ctrl-C; 141 the output goes into a pipe that was closed before all of it was written."
)
def _ringfeed(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say what was chosen, such as by auto.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where an error comes from (a traceback).")
    ] = False,
) -> None:
    """Feed training loops from LMDBs of Caffe Datum records: the tools around it."""


def _examples(*lines: str) -> str:
    # A line of \b keeps the lines of a paragraph as they are.
    return "\b\nExamples:\n" + "\n".join(f"  ringfeed {line}" for line in lines)


app.command(
    cls=Command,
    short_help="Images into a database: from a list, folders, arrays, LevelDB, MNIST or CIFAR.",
    epilog=_examples(
        "convert photos photos.txt photos_lmdb --resize-width 64 --resize-height 64 --shuffle",
        "convert photos photos.txt jpeg_lmdb --encoded",
        "convert classes classes_lmdb --gray --check-size",
        "convert images.npy labels.npy arrays_lmdb",
        "convert photos photos.txt cropped_lmdb --resize-shorter 48 --center-crop 40",
    ),
)(convert)
app.command(
    cls=Command,
    short_help="The mean image of a database, as Caffe's compute_image_mean makes it.",
    epilog=_examples(
        "mean data/digits_lmdb mean.binaryproto",
        "mean data/digits_lmdb mean.npy --exact --json",
        "mean data/digits_lmdb --show mean.png",
    ),
)(mean)
app.command(
    cls=Command,
    short_help="What is in a database, and what is wrong with it.",
    epilog=_examples(
        "inspect data/digits_lmdb",
        "inspect data/digits_lmdb --full --json",
        "inspect data/digits_lmdb --show digits.png",
    ),
)(inspect)
app.command(
    cls=Command,
    short_help="One record: its image file, or what it is.",
    epilog=_examples(
        "get data/digits_lmdb 00000007 --out seven.png",
        "get data/digits_lmdb 7 --json",
        "get data/digits_lmdb 7 > record.png",
    ),
)(get)
app.command(
    cls=Command,
    short_help="The records of a database as files, with their list.",
    epilog=_examples(
        "export data/digits_lmdb digits",
        "export data/digits_lmdb digits_by_class --by-class",
    ),
)(export)
app.command(
    cls=Command,
    short_help="Several databases as one.",
    epilog=_examples(
        "merge data/digits_lmdb data/more_digits_lmdb all_digits_lmdb --renumber",
    ),
)(merge)
app.command(
    cls=Command,
    short_help="One database as two, such as for training and testing.",
    epilog=_examples(
        "split data/digits_lmdb train_lmdb test_lmdb --fraction 0.9 --stratify",
        "split data/digits_lmdb first_lmdb rest_lmdb --at 1000",
    ),
)(split)
app.command(
    cls=Command,
    short_help="The records of a database in another form or size.",
    epilog=_examples(
        "reencode data/digits_lmdb png_lmdb --to png",
        "reencode data/digits_lmdb small_lmdb --resize-shorter 6 --center-crop 5",
    ),
)(reencode)
app.command(
    cls=Command,
    short_help="Count labels, change them, name the classes.",
    epilog=_examples(
        "labels data/digits_lmdb",
        "labels data/digits_lmdb relabelled_lmdb --set new_labels.txt",
        "labels data/digits_lmdb --names names.txt",
    ),
)(labels)
app.command(
    cls=Command,
    short_help="Draw the batches that a network will see.",
    epilog=_examples(
        "show configs/digits.yaml batches.png",
        "show configs/digits.yaml --batches 2 batches.png --force",
        "show lenet.prototxt --phase test test_batches.png",
    ),
)(show)
app.command(
    cls=Command,
    short_help="Whether a configuration works, and what it comes to.",
    epilog=_examples(
        "check configs/digits.yaml",
        "check lenet.prototxt --phase test --json",
    ),
)(check)
app.command(
    cls=Command,
    short_help="The JSON schema of configuration files, for editors.",
    epilog=_examples("schema > schema.json"),
)(schema)
app.command(
    "from-prototxt",
    cls=Command,
    short_help="A network's Data layer as a YAML file.",
    epilog=_examples(
        "from-prototxt lenet.prototxt",
        "from-prototxt lenet.prototxt train.yaml --seed 1701",
        "from-prototxt lenet.prototxt test.yaml --phase test",
    ),
)(from_prototxt)
app.command(
    cls=Command,
    short_help="How fast a configuration is on this machine.",
    epilog=_examples(
        "bench configs/digits.yaml",
        "bench configs/digits.yaml --threads 1 --prefetch 2 --rounds 3 --json",
    ),
)(bench)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status."""
    os.environ.setdefault("OPENCV_LOG_LEVEL", "ERROR")  # a damaged image is reported by us
    with standard_streams() as streams:
        if streams.is_closed:
            print_message(
                "error", "the standard output is closed; redirect it, such as to /dev/null"
            )
            return 1
        try:
            app(args=None if arguments is None else list(arguments), prog_name="ringfeed")
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except KeyboardInterrupt:
            status = _INTERRUPTED
        except OutputLostError:
            status = 1
        else:
            status = 0
        return streams.status(status)
