"""What people who know NumPy try on a blob: indexing, arithmetic, ``mean()``, ``float()``.

All of it reads, as :meth:`BlobExports.__array__` does. What writes is refused with the call that
does it.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from memory._blob.exports import BlobExports, exporter_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import DTypeLike

_TORCHS: Final = frozenset({"cpu", "cuda", "detach", "expand", "permute", "to", "unsqueeze"})

# Of Caffe's interface what few look for; completion shows what is left.
_SELDOM_USED: Final = """
    asum_data asum_diff async_gpu_push canonical_axis_index channels copy_from count data_at
    diff_at from_proto gpu_shape height legacy_shape num num_axes offset over
    overwrite_cpu_data overwrite_gpu_data push_event reshape_like scale_data scale_diff
    set_cpu_data set_gpu_data shape_equals share_data share_diff sumsq_data sumsq_diff
    to_proto update width
"""


def _operator(operate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def apply(self: ArrayHabits, other: Any) -> Any:
        return operate(self._values(), _values_of(other))

    return apply


def _reflected(operate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def apply(self: ArrayHabits, other: Any) -> Any:
        return operate(other, self._values())

    return apply


def _comparison(operate: Callable[[Any, Any], Any]) -> Callable[[Any, object], Any]:
    def apply(self: ArrayHabits, other: object) -> Any:
        if other is None or isinstance(other, str | bytes):
            return NotImplemented
        if other is self and operate in {operator.eq, operator.ne}:
            # One truth value, which sets and weak references ask of equal hashes.
            return np.bool_(operate is operator.eq)
        return operate(self._values(), _values_of(other))

    return apply


def _in_place(sign: str) -> Callable[[Any, Any], Any]:
    def apply(self: ArrayHabits, other: Any) -> NoReturn:  # noqa: ARG001
        raise TypeError(
            f"a blob is not changed by {sign}=; write blob.numpy()[:] {sign}= ..., or on a GPU "
            f"blob.cupy()[:] {sign}= ..."
        )

    return apply


class ArrayHabits(BlobExports):
    """Reading as from an array: of NumPy; of CuPy, and on the device, where the memory is CUDA's.

    Why it is this large: one method for each of the commonest habits, so that completion has it.
    """

    __slots__ = ()

    def _values(self) -> Any:
        """View the data to be read: as NumPy's array, or on a GPU as CuPy's."""
        if exporter_of(self._device) is None:
            return self.cpu_data()
        return self.cupy(writable=False)

    @property
    def ndim(self) -> int:
        """The number of dimensions, as :attr:`num_axes`."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of elements, as :meth:`count`."""
        return self._count

    @property
    def T(self) -> Any:  # noqa: N802 - NumPy's
        """A read-only view with the axes in reverse."""
        return self._values().T

    def __len__(self) -> int:
        """Return the first dimension.

        Raises:
            TypeError: The blob is a scalar.
        """
        if not self._shape:
            raise TypeError("len() of a blob without axes")
        return self._shape[0]

    def __bool__(self) -> bool:
        """Return whether the only element is not 0.

        Raises:
            ValueError: There are several, or none.
        """
        if self._count != 1:
            raise ValueError(
                f"a blob of shape {self._shape} is neither true nor false; write "
                "blob.numpy().any(), blob.numpy().all() or len(blob), and blob is not None where "
                "that is meant"
            )
        return bool(self._values().item())

    def __getitem__(self, index: Any) -> Any:
        """Index as NumPy does; what is a view there, is a read-only view here."""
        return self._values()[index]

    def __setitem__(self, index: object, value: object) -> NoReturn:
        """Refuse.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            "a blob is not written to by index; write blob.numpy()[i] = ..., or on a GPU "
            "blob.cupy()[i] = ..."
        )

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the first axis; read-only."""
        return iter(self._values())

    def __float__(self) -> float:
        """Return the only element.

        Raises:
            TypeError: There are several, or none.
        """
        return float(self._only("float"))

    def __int__(self) -> int:
        """Return the only element; raises as ``float()`` does."""
        return int(self._only("int"))

    def astype(self, dtype: DTypeLike, **options: Any) -> Any:
        """Return the data as another type, as the array's ``astype``: a new array."""
        return self._values().astype(dtype, **options)

    def copy(self, **options: Any) -> Any:
        """Return a copy of the data that keeps nothing of the blob: an array."""
        return self._values().copy(**options)

    def tolist(self) -> Any:
        """Return the data as nested lists of Python's numbers."""
        return self._values().tolist()

    def item(self, *index: Any) -> Any:
        """Return one element as Python's number, as the array's ``item``."""
        return self._values().item(*index)

    def flatten(self, *order: Any) -> Any:
        """Return a copy of the data with one axis: an array."""
        return self._values().flatten(*order)

    def mean(self, *args: Any, **options: Any) -> Any:
        """Return the mean, as the array's ``mean``. So for the five below."""
        return self._values().mean(*args, **options)

    def std(self, *args: Any, **options: Any) -> Any:
        """Return the standard deviation."""
        return self._values().std(*args, **options)

    def sum(self, *args: Any, **options: Any) -> Any:
        """Return the sum."""
        return self._values().sum(*args, **options)

    def min(self, *args: Any, **options: Any) -> Any:
        """Return the least element."""
        return self._values().min(*args, **options)

    def max(self, *args: Any, **options: Any) -> Any:
        """Return the largest element."""
        return self._values().max(*args, **options)

    def argmax(self, *args: Any, **options: Any) -> Any:
        """Return the place of the largest element."""
        return self._values().argmax(*args, **options)

    __add__ = _operator(operator.add)
    __radd__ = _reflected(operator.add)
    __iadd__ = _in_place("+")
    __sub__ = _operator(operator.sub)
    __rsub__ = _reflected(operator.sub)
    __isub__ = _in_place("-")
    __mul__ = _operator(operator.mul)
    __rmul__ = _reflected(operator.mul)
    __imul__ = _in_place("*")
    __truediv__ = _operator(operator.truediv)
    __rtruediv__ = _reflected(operator.truediv)
    __itruediv__ = _in_place("/")
    __floordiv__ = _operator(operator.floordiv)
    __mod__ = _operator(operator.mod)
    __pow__ = _operator(operator.pow)
    __matmul__ = _operator(operator.matmul)
    __rmatmul__ = _reflected(operator.matmul)
    __lt__ = _comparison(operator.lt)
    __le__ = _comparison(operator.le)
    __gt__ = _comparison(operator.gt)
    __ge__ = _comparison(operator.ge)
    __eq__ = _comparison(operator.eq)
    __ne__ = _comparison(operator.ne)
    # By identity: blobs are keys of dicts, and of weak references.
    __hash__ = object.__hash__

    def __neg__(self) -> Any:
        return -self._values()

    def __abs__(self) -> Any:
        return abs(self._values())

    def __dir__(self) -> list[str]:
        """List the names to complete: without those of Caffe that are seldom used, which work."""
        seldom_used = _SELDOM_USED.split()
        return [name for name in super().__dir__() if name not in seldom_used]

    if not TYPE_CHECKING:  # or any misspelt name would pass for an attribute

        def __getattr__(self, name: str) -> NoReturn:
            """Say of other libraries' names what to call.

            Raises:
                AttributeError: Always.
            """
            cure = None
            if not name.startswith("_"):
                if hasattr(np.ndarray, name):
                    cure = f"blob.numpy().{name}, or on a GPU blob.cupy().{name}"
                elif name in _TORCHS:
                    cure = f"torch.from_dlpack(blob).{name}"
            if cure is None:
                # With the words of Python, or of the property that was asked.
                return super().__getattribute__(name)
            raise AttributeError(f"a blob has no {name!r} of its own: write {cure}")

    def _only(self, wanted: str) -> Any:
        if self._count != 1:
            raise TypeError(
                f"{wanted}() takes one element, and a blob of shape {self._shape} has "
                f"{self._count}; write {wanted}(blob.numpy()[i]), or blob.mean()"
            )
        return self._values().item()


def _values_of(other: Any) -> Any:
    return other._values() if isinstance(other, ArrayHabits) else other  # noqa: SLF001 - its own class
