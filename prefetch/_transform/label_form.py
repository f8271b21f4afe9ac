"""What becomes of the records' labels where a batch has other fields than one label a record."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from prefetch._record.faults import Fault, Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class Field(NamedTuple):
    """A field that batches have besides their data and the records' labels.

    Attributes:
        name: As in `Batch.fields`.
        dtype: Of its values.
        row_shape: Of what it has for each record.
    """

    name: str
    dtype: np.dtype[Any]
    row_shape: tuple[int, ...] = ()

    @property
    def row_bytes(self) -> int:
        """Bytes for each record."""
        return math.prod(self.row_shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class LabelForm:
    """The form of a batch's labels: pairs, or one-hot.

    Pairs are the records' own labels in the field label, those of their partners in label2, and in
    lam, the same for all records, how much counts for the first. One-hot labels have lam at the
    label's class, and 1 - lam, in float32, at that of its partner.

    Attributes:
        num_classes: Of one-hot labels; None for pairs.
    """

    num_classes: int | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        """Return the fields that are added; one called label takes the place of the labels."""
        if self.num_classes is None:
            label2 = Field("label2", np.dtype(np.int64))
            return (label2, Field("lam", np.dtype(np.float32)))
        return (Field("label", np.dtype(np.float32), (self.num_classes,)),)

    def find_faults(self, labels: NDArray[Any], faults: Sequence[Fault]) -> list[Fault]:
        """Return the faults of a part, with those of labels that are none of the classes.

        Args:
            labels: (n,) the labels of the part's records.
            faults: What else is wrong with them; nothing is said of their labels.
        """
        found = list(faults)
        if self.num_classes is None:
            return found
        outside = (labels < 0) | (labels >= self.num_classes)
        if outside.any():
            known = {fault.position for fault in found}
            last = self.num_classes - 1
            found += [
                Fault(row, Reason.LABEL_OUTSIDE, (int(labels[row]), self.num_classes, last))
                for row in np.flatnonzero(outside).tolist()
                if row not in known
            ]
            found.sort(key=lambda fault: fault.position)
        return found

    def fill(
        self, arrays: Sequence[NDArray[Any]], labels: NDArray[Any], lam: float | None
    ) -> dict[str, NDArray[Any]]:
        """Fill the fields of a batch.

        Args:
            arrays: Memory for each of `fields`.
            labels: (n,) the records' labels.
            lam: How much of each sample its own label stands for; None where nothing is mixed.

        Returns:
            The arrays by name.
        """
        weight = np.float32(1 if lam is None else lam)
        partners = labels if lam is None else labels[::-1]
        if self.num_classes is None:
            arrays[0][:] = partners
            arrays[1][:] = weight
        else:
            (shares,) = arrays
            shares[:] = 0
            rows = np.arange(len(labels))
            shares[rows, labels] = weight
            if lam is not None:
                shares[rows, partners] += np.float32(1) - weight
        return {field.name: array for field, array in zip(self.fields, arrays, strict=True)}
