"""The loader in the hands of Lightning, Accelerate, timm's loop and Hugging Face's Trainer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: make test-integrations")
ringtorch: Any = pytest.importorskip("prefetch.torch")

pytestmark = pytest.mark.filterwarnings("ignore")  # of other people's packages

NUM_STEPS = 8  # of an epoch


class ProcessEnd(Exception):  # noqa: N818 - a turn of events
    """What a process dies of, for those who train in it."""


@pytest.fixture
def make_loader(options: dict[str, Any]) -> Iterator[Callable[..., Any]]:
    loaders: list[Any] = []

    def make(**more: Any) -> Any:
        loaders.append(ringtorch.DataLoader(options, **more))
        return loaders[-1]

    yield make
    for loader in loaders:
        loader.close()


@pytest.fixture
def expected(make_loader: Callable[[], Any]) -> list[list[int]]:
    """The records of three epochs, batch by batch."""
    loader = make_loader()
    return [labels.tolist() for _ in range(3) for _, labels in loader]


@pytest.fixture
def records() -> list[list[int]]:
    """The records of every step that a test trains."""
    return []


def _model() -> Any:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 4))


def _loss(model: Any, images: Any, labels: Any) -> Any:
    return torch.nn.functional.cross_entropy(model(images / 60), labels % 4)


# Lightning ---------------------------------------------------------------------------------------


@pytest.fixture
def lightning() -> Any:
    return pytest.importorskip("lightning")


@pytest.fixture
def fit(lightning: Any, records: list[list[int]]) -> Callable[..., Any]:
    """Return a function that trains with Lightning, and notes the records of every step."""

    class Module(lightning.LightningModule):  # type: ignore[misc] # no types here
        def __init__(self) -> None:
            super().__init__()
            self.model = _model()

        def training_step(self, batch: Any, batch_idx: int) -> Any:  # noqa: ARG002 - theirs
            records.append(batch[1].tolist())
            return _loss(self.model, *batch)

        def validation_step(self, batch: Any, batch_idx: int) -> None:  # noqa: ARG002 - theirs
            self.log("loss", _loss(self.model, *batch), batch_size=len(batch[1]))

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    def fit(*loaders: Any, resume: Path | None = None, **options: Any) -> Any:
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = lightning.Trainer(accelerator="cpu", **quiet | options)
        with suppress(ProcessEnd):
            trainer.fit(Module(), *loaders, ckpt_path=resume)
        return trainer

    return fit


@pytest.mark.parametrize("num_taken", [3, 8, 11, 16])
def test_lightning_goes_on_where_its_checkpoint_was_written(
    lightning: Any,
    fit: Callable[..., Any],
    make_loader: Callable[[], Any],
    records: list[list[int]],
    expected: list[list[int]],
    tmp_path: Path,
    num_taken: int,
) -> None:
    path = tmp_path / "lightning.ckpt"

    class Saver(lightning.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if len(records) == num_taken and not path.exists():
                trainer.save_checkpoint(path)
                raise ProcessEnd

    for resume in (None, path):
        fit(
            make_loader(),
            resume=resume,
            max_epochs=3,
            callbacks=[Saver()],
            enable_checkpointing=False,
        )
    assert records == expected


def test_lightning_goes_on_after_a_checkpoint_of_its_own_at_the_end_of_an_epoch(
    fit: Callable[..., Any],
    make_loader: Callable[[], Any],
    records: list[list[int]],
    expected: list[list[int]],
    tmp_path: Path,
) -> None:
    callbacks = pytest.importorskip("lightning.pytorch.callbacks")

    def saver() -> Any:
        return callbacks.ModelCheckpoint(tmp_path, save_last=True)

    fit(make_loader(), max_epochs=1, callbacks=[saver()])
    fit(make_loader(), max_epochs=3, callbacks=[saver()], resume=tmp_path / "last.ckpt")
    assert records == expected


def test_lightning_validates_and_cuts_epochs_short(
    fit: Callable[..., Any],
    make_loader: Callable[..., Any],
    records: list[list[int]],
    expected: list[list[int]],
) -> None:
    trainer = fit(
        make_loader(),
        make_loader(shuffle=False),
        max_epochs=2,
        limit_train_batches=3,
        val_check_interval=1,
        enable_checkpointing=False,
    )
    assert records == expected[:3] + expected[NUM_STEPS : NUM_STEPS + 3]
    assert "loss" in trainer.callback_metrics


@pytest.mark.timeout(200)
@pytest.mark.parametrize("shard", ["explicit", "auto"])
@pytest.mark.usefixtures("lightning")
def test_lightning_starts_devices_by_itself_and_each_gets_its_share(
    shard: str, source: Path, tmp_path: Path
) -> None:
    script = Path(__file__).with_name("train_devices.py")
    command: list[str | Path] = [sys.executable, script, source, shard, tmp_path]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == 0, done.stderr
    taken = [json.loads((tmp_path / f"device{rank}.json").read_text()) for rank in (0, 1)]
    assert [len(records) for records in taken] == [30, 30]
    assert sorted(taken[0] + taken[1]) == list(range(60))


def test_fabric_saves_and_loads_the_loader_as_it_is(
    lightning: Any,
    make_loader: Callable[[], Any],
    records: list[list[int]],
    expected: list[list[int]],
    tmp_path: Path,
) -> None:
    fabric = lightning.Fabric(accelerator="cpu", devices=1)
    loader, other = make_loader(), make_loader()
    for _, (_, labels) in zip(range(3), loader, strict=False):
        records.append(labels.tolist())
    fabric.save(tmp_path / "fabric.ckpt", {"loader": loader})
    fabric.load(tmp_path / "fabric.ckpt", {"loader": other})
    records += [labels.tolist() for _ in range(3) for _, labels in other]
    assert records == expected


# Accelerate --------------------------------------------------------------------------------------


def test_accelerate_prepares_the_loader_as_it_is_and_saves_its_state(
    make_loader: Callable[[], Any], expected: list[list[int]], tmp_path: Path
) -> None:
    accelerate = pytest.importorskip("accelerate")

    def train(loader: Any, num_steps: int, *, resume: bool) -> list[list[int]]:
        accelerator = accelerate.Accelerator(cpu=True)
        model = _model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        model, optimizer, prepared = accelerator.prepare(model, optimizer, loader)
        assert prepared is loader
        accelerator.register_for_checkpointing(prepared)
        if resume:
            accelerator.load_state(str(tmp_path / "state"))
        records: list[list[int]] = []
        while len(records) < num_steps:
            for images, labels in prepared:
                with accelerator.accumulate(model):
                    accelerator.backward(_loss(model, images, labels))
                    optimizer.step()
                    optimizer.zero_grad()
                records.append(labels.tolist())
                if len(records) == num_steps:
                    break
        if not resume:
            accelerator.save_state(str(tmp_path / "state"))
        return records

    first = train(make_loader(), 11, resume=False)
    assert first + train(make_loader(), 13, resume=True) == expected


def test_skipping_batches_for_accelerate_is_answered_with_what_to_do(
    make_loader: Callable[[], Any],
) -> None:
    accelerate = pytest.importorskip("accelerate")
    with pytest.raises(TypeError, match=r"loader\.state_dict\(\)"):
        list(accelerate.skip_first_batches(make_loader(), 2))


# timm --------------------------------------------------------------------------------------------


def test_what_timms_loop_does_with_a_loader_works(
    make_loader: Callable[[], Any], records: list[list[int]], expected: list[list[int]]
) -> None:
    """Touch what train.py and train_one_epoch do, in our words: timm needs torchvision."""
    loader, model = make_loader(), _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    updates_per_epoch = (len(loader) + 2 - 1) // 2  # each of the gradients of two batches
    for epoch in range(3):
        if hasattr(loader.dataset, "set_epoch"):
            loader.dataset.set_epoch(epoch)
        elif hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        if getattr(loader, "mixup_enabled", False):
            loader.mixup_enabled = False
        num_samples, num_updates, last = 0, 0, len(loader) - 1
        for number, (images, labels) in enumerate(loader):
            images = images.to("cpu", torch.float32, non_blocking=True)  # noqa: PLW2901 - as it does
            _loss(model, images, labels.to("cpu")).backward()
            num_samples += images.shape[0]
            records.append(labels.tolist())
            if number % 2 or number == last:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                num_updates += 1
        assert (num_samples, num_updates) == (len(loader.dataset), updates_per_epoch)
    assert records == expected


# Hugging Face ------------------------------------------------------------------------------------


def test_hugging_faces_trainer_goes_on_within_an_epoch(
    make_loader: Callable[[], Any], expected: list[list[int]], tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")

    def train(loader: Any, *, until: int, resume: bool) -> list[list[int]]:
        records: list[list[int]] = []

        class Trainer(transformers.Trainer):  # type: ignore[misc, name-defined]
            def get_train_dataloader(self) -> Any:
                return loader

            def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
                records.append(inputs[1].tolist())
                return _loss(model, *inputs)

        class SaveLoader(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
            def on_save(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
                torch.save(loader.state_dict(), tmp_path / f"loader-{state.global_step}.pt")

            def on_step_end(self, _: Any, state: Any, control: Any, **__: Any) -> None:
                control.should_save = state.global_step == until
                control.should_training_stop = state.global_step == until

        options = transformers.TrainingArguments(
            tmp_path / "out",
            num_train_epochs=3,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            ignore_data_skip=True,
            remove_unused_columns=False,
        )
        trainer = Trainer(_model(), options, callbacks=[SaveLoader()])
        if resume:
            (path,) = tmp_path.glob("loader-*.pt")
            loader.load_state_dict(torch.load(path))
        trainer.train(resume_from_checkpoint=resume)
        return records

    first = train(make_loader(), until=11, resume=False)
    assert first == expected[:11]
    assert train(make_loader(), until=24, resume=True) == expected[11:]
