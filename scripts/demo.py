"""Train a small network on real digit scans, fed from an LMDB by ringfeed.

Writes scikit-learn's 1,797 scans into an LMDB of Caffe Datums, once; trains on 1,437 of them
through background readers, a ring of batches and asynchronous pushes to the device; tests on the
other 360. Without a GPU the device is the simulated one: a second memory with copies in flight, so
that nothing of the path is left out.

Exit status: 0 if the test accuracy is above 0.95, 1 if not, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmdb
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from threadpoolctl import threadpool_limits

import memory
import prefetch
from digit_network import DigitNetwork
from make_digits import DEFAULT_FOLDER, NUM_TRAIN, make_digits

if TYPE_CHECKING:
    import numpy.typing as npt

    from memory import Device

CONFIG = Path(__file__).resolve().parent.parent / "configs" / "digits.yaml"
WANTED_ACCURACY = 0.95
LEARNING_RATE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What there is to tell about the training.

    Attributes:
        elapsed_s: Wall time of the loop.
        pushed_bytes: What was copied to the device in the loop; 0 where there is none.
        stats: The feed's counters at its end.
    """

    elapsed_s: float
    pushed_bytes: int
    stats: prefetch.FeedStats


def open_demo_device(name: str) -> Device:
    """Open the named device; for auto a GPU, or else the simulated device rather than the cpu."""
    device = memory.open_device(name)
    if name == "auto" and not device.has_device_memory:
        device.close()
        device = memory.open_device("simulated")
    return device


def train(
    network: DigitNetwork,
    database: Path,
    device: Device,
    *,
    epochs: int,
    threads: int | None,
    progress: Progress,
) -> Training:
    """Train on the first NUM_TRAIN records, in a new order every epoch."""
    options: dict[str, Any] = {} if threads is None else {"threads": threads}
    with prefetch.open(
        CONFIG,
        source=database,
        subset={"start": 0, "stop": NUM_TRAIN},
        device=device,
        epochs=epochs,
        **options,
    ) as feed:
        task = progress.add_task("training", total=epochs * len(feed), loss=float("nan"))
        pushed_bytes = 0
        began = time.perf_counter()
        for epoch in range(epochs):
            learning_rate = LEARNING_RATE * (1.0 - epoch / epochs)
            for batch in feed:
                loss = network.train(
                    batch.data.numpy(writable=False),
                    batch.label.numpy(writable=False),
                    learning_rate=learning_rate,
                )
                if device.has_device_memory:
                    pushed_bytes += batch.data.nbytes + batch.label.nbytes
                progress.update(task, advance=1, loss=loss)
        elapsed_s = time.perf_counter() - began
        return Training(elapsed_s=elapsed_s, pushed_bytes=pushed_bytes, stats=feed.stats())


def evaluate(network: DigitNetwork, database: Path, device: Device) -> float:
    """Return the accuracy on the records that the network has not seen.

    The scans are read back from the device's memory, so that what is tested with is what arrived.
    """
    num_right = num_tested = 0
    with prefetch.open(
        CONFIG,
        source=database,
        subset={"start": NUM_TRAIN},
        phase="test",
        shuffle=False,
        device=device,
        epochs=1,
    ) as feed:
        for batch in feed:
            scans = arrived(batch.data)
            labels = batch.label.numpy(writable=False)
            num_right += int(np.count_nonzero(network.classify(scans) == labels))
            num_tested += len(labels)
    return num_right / num_tested


def arrived(blob: memory.Blob) -> npt.NDArray[np.float32]:
    """Return a blob's values, as the device's memory holds them where it has one."""
    if not blob.device.has_device_memory:
        return blob.numpy(writable=False)
    values = np.empty(blob.shape, np.float32)
    stream = blob.device.current_stream()  # next() has made it wait for the push
    blob.device.copy_to_host(values.reshape(-1).view(np.uint8), blob.gpu_data(), stream=stream)
    stream.synchronize()
    return values


def report(training: Training, accuracy: float, console: Console) -> None:
    """Print what came of it, and what the feed had to do with it."""
    stats = training.stats
    lines = {
        "test accuracy": f"{accuracy:.2%} (wanted: above {WANTED_ACCURACY:.0%})",
        "speed": f"{stats.samples / training.elapsed_s:,.0f} images/s: "
        f"{stats.samples:,} images in {training.elapsed_s:.2f} s",
        "waited for data": f"{stats.wait_s / training.elapsed_s:.1%} of the time "
        f"({stats.wait_s:.3f} s), at {stats.waits} of {stats.batches} batches",
        "ring": f"{stats.mean_ready:.1f} of {stats.prefetch} batches ready on average "
        f"when the loop came for one",
        "device": f"{stats.device}, {training.pushed_bytes / 1e6:.1f} MB pushed in "
        f"{stats.batches} batches by {stats.threads} reader thread{'s' * (stats.threads > 1)}"
        if training.pushed_bytes
        else f"{stats.device}: it has no memory of its own, so nothing was pushed",
    }
    console.print()
    for name, text in lines.items():
        console.print(f"  [bold]{name:<16}[/bold]{text}", highlight=False, soft_wrap=True)


def run(options: argparse.Namespace, console: Console) -> int:
    """Run the demo; return the exit status."""
    if make_digits(options.data):
        console.print(f"Wrote {options.data}")
    network = DigitNetwork(seed=0)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("batches, loss {task.fields[loss]:.3f}"),
        TimeElapsedColumn(),
        console=console,
    )
    # One thread for the matrix products: so small a network gains nothing from more, and on a busy
    # machine threads that wait for each other take 10 times as long (8 ms a batch against 110 ms).
    with threadpool_limits(1), open_demo_device(options.device) as device:
        with progress:
            training = train(
                network,
                options.data,
                device,
                epochs=options.epochs,
                threads=options.threads,
                progress=progress,
            )
        accuracy = evaluate(network, options.data, device)
    report(training, accuracy, console)
    return 0 if accuracy > WANTED_ACCURACY else 1


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").strip(), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--epochs", type=_positive, default=12, help="passes over the scans (default: %(default)s)"
    )
    parser.add_argument(
        "--device",
        default="auto",
        help="auto, cpu, simulated, cuda or cuda:N; auto: a GPU, else simulated (default: auto)",
    )
    parser.add_argument(
        "--threads", type=_positive, help="reader threads (default: as the configuration says)"
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=DEFAULT_FOLDER,
        metavar="FOLDER",
        help="where the database is, or is written (default: %(default)s)",
    )
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    options = parse_options(arguments)
    try:
        return run(options, Console())
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return 130
    except (memory.SyncedMemoryError, prefetch.PrefetchError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    except (OSError, lmdb.Error) as error:
        print(
            f"The digits cannot be written to {options.data}: {error}. "
            f"Free some space, or name another folder with --data.",
            file=sys.stderr,
        )
        return 2


if __name__ == "__main__":
    sys.exit(main())
