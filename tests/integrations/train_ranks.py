"""What torchrun starts on every rank: trains, saves, perhaps is killed, and goes on another time.

Each rank writes a line for every batch: the run, its step in the run, the epoch, and the records.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.distributed import checkpoint

import prefetch.torch as ringtorch

NUM_EPOCHS = 3
SAVE_EVERY = 2


class Journal:
    """What this rank has trained on; kills the rank at a step."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.attempt, self.rank = arguments.attempt, int(os.environ["RANK"])
        self.folder = arguments.folder
        self.kill_at = arguments.kill_at if self.rank == arguments.kill_rank else None
        self.step = 0
        self._file = (self.folder / f"run{self.attempt}-rank{self.rank}.jsonl").open("w")

    def note(self, epoch: int, labels: Any) -> None:
        self.step += 1
        self._file.write(json.dumps({"step": self.step, "epoch": epoch, "labels": labels.tolist()}))
        self._file.write("\n")
        self._file.flush()
        if self.step == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def path(self) -> Path:
        return Path(self.folder / f"saved-run{self.attempt}-step{self.step}")


def loader_of(arguments: argparse.Namespace) -> ringtorch.DataLoader:
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    options: dict[str, Any] = {"shard": {"rank": rank, "world_size": world_size}}
    if arguments.shard == "auto":
        options = {}
    return ringtorch.DataLoader(
        {"source": arguments.source, "shuffle": True, "seed": 11},
        batch_size=arguments.batch_size,
        **options,
    )


def loss_of(model: Any, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(model(images.flatten(1) / 64), labels % 4)


def by_hand(arguments: argparse.Namespace, journal: Journal) -> None:
    """A loop of one's own with torch.distributed.checkpoint: the loader is saved as it is."""
    distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with loader_of(arguments) as loader:
        if arguments.resume:
            saved = {"model": model.state_dict(), "loader": loader}
            checkpoint.load(saved, checkpoint_id=arguments.resume)
            model.load_state_dict(saved["model"])
        while loader.feed.epoch < NUM_EPOCHS:
            epoch = loader.feed.epoch
            loader.set_epoch(epoch)
            for images, labels in loader:
                optimizer.zero_grad()
                loss_of(model, images, labels).backward()
                optimizer.step()
                journal.note(epoch, labels)
                if journal.step % SAVE_EVERY == 0:
                    saved = {"model": model.state_dict(), "loader": loader}
                    checkpoint.save(saved, checkpoint_id=str(journal.path()))
    distributed.destroy_process_group()


def by_accelerate(arguments: argparse.Namespace, journal: Journal) -> None:
    from accelerate import Accelerator  # noqa: PLC0415 - one library a run

    accelerator = Accelerator(cpu=True)
    model: Any = torch.nn.Linear(16, 4)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.01)
    with loader_of(arguments) as loader:
        model, optimizer, prepared = accelerator.prepare(model, optimizer, loader)
        assert prepared is loader  # not sharded once more
        accelerator.register_for_checkpointing(loader)
        if arguments.resume:
            accelerator.load_state(arguments.resume)
        while loader.feed.epoch < NUM_EPOCHS:
            epoch = loader.feed.epoch
            for images, labels in loader:
                optimizer.zero_grad()
                accelerator.backward(loss_of(model, images, labels))
                optimizer.step()
                journal.note(epoch, labels)
                if journal.step % SAVE_EVERY == 0:
                    accelerator.save_state(str(journal.path()))
                    accelerator.wait_for_everyone()
                    (journal.path() / "whole").touch()
    accelerator.end_training()


def by_lightning(arguments: argparse.Namespace, journal: Journal) -> None:
    import lightning  # noqa: PLC0415 - one library a run

    class Module(lightning.LightningModule):  # type: ignore[misc] # no types here
        def __init__(self) -> None:
            super().__init__()
            self.model = torch.nn.Linear(16, 4)

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:  # noqa: ARG002 - theirs
            self.taken = batch[1]
            return loss_of(self.model, *batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    class Saver(lightning.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
            journal.note(trainer.current_epoch, module.taken)
            if journal.step % SAVE_EVERY == 0:
                trainer.save_checkpoint(journal.path() / "lightning.ckpt")
                trainer.strategy.barrier()

    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=int(os.environ["WORLD_SIZE"]),
        max_epochs=NUM_EPOCHS,
        callbacks=[Saver()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    resume = Path(arguments.resume) / "lightning.ckpt" if arguments.resume else None
    with loader_of(arguments) as loader:
        trainer.fit(Module(), loader, ckpt_path=resume)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("by", choices=["hand", "accelerate", "lightning"])
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--attempt", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--shard")
    parser.add_argument("--kill-at", type=int)
    parser.add_argument("--kill-rank", type=int)
    parser.add_argument("--resume")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    train = {"hand": by_hand, "accelerate": by_accelerate, "lightning": by_lightning}
    train[arguments.by](arguments, Journal(arguments))


if __name__ == "__main__":
    main()
