"""The random words behind each record's mirror and crop, drawn ahead of the readers.

A planner draws raw 32-bit words, in record order; readers reduce them to a coin and to offsets
once they know an image's size (`reduce_word`). So a seeded run is the same with any number of
threads. Words come in the columns that `Word` names.

There are two sources of words. `CounterDraws` keys them by (seed, epoch, record): any
batch's words stand by themselves, and a record's are the same in all shares, batches and
threads. `CaffeDraws` is Caffe's own generator, bit for bit: one sequential stream.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from prefetch._plan.mersenne import MersenneStream, seeded_state
from prefetch._plan.philox import Domain, check_seed, philox4x32, stream_key, stream_keys
from prefetch._plan.random_words import NUM_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from prefetch._plan.order import PlannedBatch

    Draw = Callable[[int, int, NDArray[np.int64], NDArray[np.int64], NDArray[np.uint32]], None]

_LOW_WORD: Final = 0xFFFFFFFF


def _no_blocks() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


class DrawSource(Protocol):
    """Where the random words of a batch come from."""

    def words(self, planned: PlannedBatch) -> NDArray[np.uint32]:
        """Return the words of a batch's records.

        Returns:
            uint32, shape (n, 3 or more): mirror, row and column word of each record, then those of
            the operations that draw more.
        """
        ...  # pragma: no cover


class NoDraws:
    """Words for a transformation that draws none: all 0, and free."""

    def words(self, planned: PlannedBatch) -> NDArray[np.uint32]:
        """Return zeros.

        Returns:
            uint32, shape (n, 3).
        """
        return np.zeros((len(planned.records), NUM_WORDS), np.uint32)


@dataclass(frozen=True, slots=True)
class CounterDraws:
    """Words keyed by (seed, epoch, record), from Philox4x32-10.

    The key is that of the epoch's augmentation stream (see `prefetch._plan.philox`), the counter
    the record's index and the number of a block of four words: word i of a record is word i % 4
    of block i // 4. Mirror, row and column are words 0, 1 and 2. They are drawn whether or not a
    transformation uses them, so that switching mirroring on or off leaves the crops as they were;
    blocks behind the first are drawn for the operations that need them.

    Attributes:
        seed: The run's seed, 0 to 2^64 - 1.
        draw: Does the same for records of one epoch in less time: is given the key's two words, the
            records, the blocks, and the words to fill in. None: NumPy does it.
        blocks: int64 (b,), the blocks that are drawn behind the first.

    Raises:
        ValueError: On construction, for a seed that is out of range.
    """

    seed: int
    draw: Draw | None = field(default=None, repr=False, compare=False)
    blocks: NDArray[np.int64] = field(default_factory=_no_blocks, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_seed(self.seed)

    def words(self, planned: PlannedBatch) -> NDArray[np.uint32]:
        """Return the words of a batch's records: uint32, shape (n, 3 + 4b); see `DrawSource`."""
        epoch = int(planned.epochs[0])
        if self.draw is None or planned.epochs[-1] != epoch:
            return self.words_at(planned.epochs, planned.records)
        key = stream_key(self.seed, epoch, Domain.AUGMENTATION)
        blocks = self.blocks
        words = np.empty((len(planned.records), NUM_WORDS + 4 * blocks.size), np.uint32)
        self.draw(int(key[0, 0]), int(key[1, 0]), planned.records, blocks, words)
        return words

    def words_at(self, epochs: NDArray[np.int64], records: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Return the words of records in epochs; a substitute for a bad record has its own.

        Args:
            epochs: Shape (n,).
            records: Shape (n,), the records' indices.

        Returns:
            uint32, shape (n, 3 + 4b), C-contiguous: mirror, row and column word of each record,
            then the words of the blocks behind the first.
        """
        words = np.empty((records.size, NUM_WORDS + 4 * self.blocks.size), np.uint32)
        if not records.size:
            return words
        wide = records.astype(np.uint64)
        counters = np.zeros((4, wide.size), np.uint64)
        np.bitwise_and(wide, _LOW_WORD, out=counters[0])
        np.right_shift(wide, 32, out=counters[1])
        keys = self._keys(epochs)
        words[:, :NUM_WORDS] = philox4x32(counters, keys)[:NUM_WORDS].T
        for column, block in enumerate(self.blocks.tolist()):
            counters[2] = block
            start = NUM_WORDS + 4 * column
            words[:, start : start + 4] = philox4x32(counters, keys).T
        return words

    def _keys(self, epochs: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the key of each epoch, shape (2, n), or of the only one, shape (2, 1)."""
        if (epochs == epochs[0]).all():
            return stream_key(self.seed, int(epochs[0]), Domain.AUGMENTATION)
        distinct, which = np.unique(epochs, return_inverse=True)
        return stream_keys(self.seed, distinct, domain=Domain.AUGMENTATION)[:, which]


class CaffeDraws:
    """The words that Caffe's data layer draws, bit for bit.

    Caffe seeds a Mersenne twister with the random seed, and the layer's transformer another one
    with a word of the first, the layer's second: its ``InitRand`` runs once in ``BaseDataLayer``
    and again before the layer's thread starts. For each image in turn the transformer draws a word
    for the mirror coin if it mirrors, then one for the row and one for the column offset if it
    crops at random, for any size of the image.

    The stream is sequential. Batches normally come in order; one further ahead costs 4 ns a word,
    one further back starts again from the beginning. Not thread-safe.

    Attributes:
        mirror: Whether images are mirrored at random, in either phase.
        crop: Whether images are cropped at random: the phase is TRAIN and there is a crop size.
    """

    __slots__ = ("_columns", "_next_word", "_stream", "crop", "mirror")

    def __init__(
        self,
        seed: int,
        *,
        mirror: bool,
        crop: bool,
        draws_before: int = 0,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """Start at the first image of a run, or continue a saved one.

        Args:
            seed: What Caffe would be given as random seed, the solver's rank added: 0 to 2^32 - 1.
            mirror: See the class.
            crop: See the class.
            draws_before: Words that the network's layers before this one draw.
            state: What `state` or `state_before` returned, perhaps by way of JSON: the words of
                sample 0 are those that came next then; `seed` and `draws_before` are ignored.
                None: a new run.

        Raises:
            ValueError: `seed` is out of range, or `state` is no such state.
        """
        outer = MersenneStream(seeded_state(seed))
        if state is None:
            state = seeded_state(int(outer.take(draws_before + 1, 1)[0]))
        self.mirror = mirror
        self.crop = crop
        self._columns = [column for column, drawn in enumerate((mirror, crop, crop)) if drawn]
        self._stream = MersenneStream(state)
        self._next_word = 0

    def words(self, planned: PlannedBatch) -> NDArray[np.uint32]:
        """Return the words of a batch's records, from its first sample's place in the stream.

        Returns:
            uint32, shape (n, 3): mirror, row and column word of each record; 0 where not drawn.
        """
        shape = len(planned.records), len(self._columns)
        count = shape[0] * shape[1]
        words = np.zeros((shape[0], NUM_WORDS), np.uint32)
        if count:
            first = self._first_word(planned)
            words[:, self._columns] = self._stream.take(first, count).reshape(shape)
            self._next_word = first + count
        return words

    @property
    def state(self) -> dict[str, Any]:
        """Where the stream stands after the words last drawn; see `state_before`."""
        return self._stream.state_at(self._next_word)

    def state_before(self, planned: PlannedBatch) -> dict[str, Any]:
        """Return where the stream stands before a batch's first word.

        Returns:
            A mapping that JSON can hold: ``generator``, 625 integers, and ``position``, how many
            words to discard after it. Costs a few us where batches come in order, each before its
            words are drawn.
        """
        return self._stream.state_at(self._first_word(planned))

    def __repr__(self) -> str:
        where = f"at word {self._next_word}"
        return f"<CaffeDraws mirror={self.mirror} crop={self.crop} {where}>"

    def _first_word(self, planned: PlannedBatch) -> int:
        return planned.first_sample * len(self._columns)
