"""What Lightning starts once a device: the loader is opened where the trainer knows the rank."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import lightning
import torch

import prefetch.torch as ringtorch


class Module(lightning.LightningModule):  # type: ignore[misc] # no types here
    def __init__(self, source: str, shard: str, folder: Path) -> None:
        super().__init__()
        self.model = torch.nn.Linear(16, 4)
        self.source, self.shard, self.folder = source, shard, folder
        self.taken: list[int] = []

    def train_dataloader(self) -> ringtorch.DataLoader:
        shard: Any = {"rank": self.global_rank, "world_size": self.trainer.world_size}
        return ringtorch.DataLoader(
            {"source": self.source, "shuffle": True, "seed": 11, "batch_size": 6},
            shard="auto" if self.shard == "auto" else shard,
        )

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:  # noqa: ARG002 - theirs
        images, labels = batch
        self.taken += labels.tolist()
        return torch.nn.functional.cross_entropy(self.model(images.flatten(1) / 64), labels % 4)

    def on_train_end(self) -> None:
        path = self.folder / f"device{self.global_rank}.json"
        path.write_text(json.dumps(self.taken), encoding="utf-8")

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)


if __name__ == "__main__":
    lightning.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=2,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    ).fit(Module(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
