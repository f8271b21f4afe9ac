"""A box that was drawn here gives torchvision's pixels: Pillow's to the bit, a tensor's nearly."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest

import prefetch
from prefetch._kernels.boxes import resized_box
from prefetch.testing import encode_image, write_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from numpy.typing import NDArray

pytestmark = pytest.mark.filterwarnings("ignore")  # of other people's packages

NUM_IMAGES = 24
SIZE = (40, 56)


def draw_images() -> list[NDArray[np.uint8]]:
    """Return images of many sizes, smooth with noise, uint8 (height, width, 3), red first."""
    rng = np.random.default_rng(1)
    images = []
    for _ in range(NUM_IMAGES):
        height, width = rng.integers(30, 200, 2).tolist()
        coarse = rng.integers(0, 256, (height // 10 + 1, width // 10 + 1, 3), np.uint8)
        smooth = cv2.resize(coarse, (width, height)).astype(np.int16)
        noisy = smooth + rng.integers(-30, 30, smooth.shape, np.int16)
        images.append(noisy.clip(0, 255).astype(np.uint8))
    return images


@pytest.fixture(scope="module")
def torchvision() -> Iterator[ModuleType]:
    """torchvision.transforms.v2, from the folder that ``make test-integrations`` puts it in."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("PIL")
    folder = Path(sys.prefix) / "torchvision"
    if not folder.is_dir():
        pytest.skip(f"needs torchvision in {folder}")
    sys.path.insert(0, str(folder))
    library = None
    try:
        try:
            module = importlib.import_module("torchvision.transforms.v2")
        except RuntimeError:
            # Its compiled part was left out: it is for CUDA, and PyTorch here for the CPU. What
            # resizes is PyTorch's and Pillow's own; but the import asks for two operators by name.
            library = torch.library.Library("torchvision", "DEF")
            for name in ("nms", "qnms"):
                library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            module = importlib.import_module("torchvision.transforms.v2")
        yield module
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]  # other tests would take it for importable
        del library  # and the operators with it


@pytest.fixture
def images() -> list[NDArray[np.uint8]]:
    return draw_images()


@pytest.fixture
def source(tmp_path: Path, images: list[NDArray[np.uint8]]) -> Path:
    """The images as raw records, blue first as Caffe stores them."""
    stored = [np.ascontiguousarray(image[:, :, ::-1].transpose(2, 0, 1)) for image in images]
    records = [(b"%02d" % at, encode_image(image, label=0)) for at, image in enumerate(stored)]
    return write_database(tmp_path / "db", records)


def crops(source: Path, **options: Any) -> tuple[NDArray[np.uint8], list[Any]]:
    """Return rows of a feed, (n, height, width, 3), red first, and the words that drew them."""
    transform = {"dtype": "uint8", "layout": "nhwc", "channels": "rgb", **options}
    with prefetch.open(
        {"source": source, "batch_size": NUM_IMAGES, "transform": transform}
    ) as feed:
        batch = next(iter(feed))
        components = feed._prefetcher.components
        planned = components.order.plan(0)
        assert planned is not None
        words = components.augmentation.words(planned).tolist()
        return batch.data.numpy().copy(), words


@pytest.mark.parametrize(("interpolation", "most"), [("bilinear", 2), ("bicubic", 6)])
def test_a_drawn_box_is_resized_as_torchvision_does_it(
    source: Path, images: list[NDArray[np.uint8]], interpolation: str, most: int, torchvision: Any
) -> None:
    torch, pillow = importlib.import_module("torch"), importlib.import_module("PIL.Image")
    functional = torchvision.functional
    mode = torchvision.InterpolationMode(interpolation)
    options = {"size": list(SIZE), "interpolation": interpolation}
    with prefetch.open({"source": source, "transform": {"random_resized_crop": options}}) as feed:
        resizing = feed._prefetcher.components.transform.resizing
    assert resizing is not None
    rows, words = crops(source, random_resized_crop=options)
    boxes = []
    for row, image, drawn in zip(rows, images, words, strict=True):
        box = resized_box(drawn, image.shape[0], image.shape[1], resizing)
        boxes.append(box)
        place = box.top, box.left, box.height, box.width, list(SIZE)
        of_pillow = functional.resized_crop(pillow.fromarray(image), *place, interpolation=mode)
        assert (np.asarray(of_pillow) == row).all()
        tensor = torch.from_numpy(image.transpose(2, 0, 1).copy())
        of_tensor = functional.resized_crop(tensor, *place, interpolation=mode, antialias=True)
        difference = of_tensor.numpy().transpose(1, 2, 0).astype(int) - row
        assert np.abs(difference).max() <= most
    assert len(set(boxes)) == NUM_IMAGES


@pytest.mark.parametrize("shorter", [32, 100])
def test_evaluation_is_torchvisions_resize_centre_crop_and_normalize(
    source: Path, images: list[NDArray[np.uint8]], shorter: int, torchvision: Any
) -> None:
    torch, pillow = importlib.import_module("torch"), importlib.import_module("PIL.Image")
    theirs = torchvision.Compose(
        [
            torchvision.Resize(shorter),
            torchvision.CenterCrop(32),
            torchvision.PILToTensor(),
            torchvision.ToDtype(torch.float32, scale=True),
            torchvision.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )
    # Their centre is rounded to even where a side is odd, and here down, as Caffe's is.
    is_even = [
        all((side * shorter // min(image.shape[:2]) - 32) % 2 == 0 for side in image.shape[:2])
        for image in images
    ]
    assert sum(is_even) > 5
    transform = {"preset": "imagenet-eval", "resize": {"shorter": shorter}, "crop_size": 32}
    with prefetch.open(
        {"source": source, "batch_size": NUM_IMAGES, "phase": "test", "transform": transform}
    ) as feed:
        rows = next(iter(feed)).data.numpy()
        for row, image, counts in zip(rows, images, is_even, strict=True):
            if counts:
                expected = theirs(pillow.fromarray(image)).numpy()
                assert np.abs(row - expected).max() < 1e-5
