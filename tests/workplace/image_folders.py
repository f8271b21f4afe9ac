"""Folders of small images, and lists of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import cv2
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def write_grey_images(folder: Path, num: int, *, step: int) -> Path:
    """Make a folder of 0.png, 1.png and so on, 6 x 8 pixels of grey, each lighter by a step."""
    folder.mkdir()
    for index in range(num):
        cv2.imwrite(str(folder / f"{index}.png"), np.full((6, 8, 3), step * index, np.uint8))
    return folder


def write_list(path: Path, names: Iterable[str]) -> Path:
    """Write a list of images whose labels are their places in it."""
    path.write_bytes(b"".join(os.fsencode(f"{name} {at}\n") for at, name in enumerate(names)))
    return path


def write_class_folders(root: Path, num_each: int) -> Path:
    """Make three folders of JPEGs, named as ImageNet's: of noise, 260 x 300 pixels."""
    rng = np.random.default_rng(num_each)
    for name in ("n01440764", "n01443537", "n01484850"):
        (root / name).mkdir(parents=True)
        for number in range(num_each):
            image = rng.integers(0, 256, (13, 15, 3), np.uint8).repeat(20, 0).repeat(20, 1)
            cv2.imwrite(str(root / name / f"{name}_{number}.JPEG"), image)
    return root
