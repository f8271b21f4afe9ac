"""A small convolutional network in NumPy: what the demo trains.

Two 3x3 convolutions and a dense layer, trained by stochastic gradient descent with momentum on the
softmax cross-entropy. Everything is float32 and vectorised over the batch; the same seed gives the
same weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Float32 = npt.NDArray[np.float32]

_TAPS = [(row, column) for row in range(3) for column in range(3)]


class Layer(Protocol):
    """One step of the network, which remembers its last input for the way back."""

    def forward(self, inputs: Float32) -> Float32:
        """Return the outputs for a batch."""
        ...

    def backward(self, slope: Float32) -> Float32:
        """Note the weights' gradient; return the inputs' slope from the outputs' slope."""
        ...

    def step(self, *, learning_rate: float, momentum: float) -> None:
        """Move the weights against the noted gradient."""
        ...


class _Weights:
    """A weight matrix and a bias with their gradients and velocities."""

    def __init__(self, rng: np.random.Generator, num_outputs: int, num_inputs: int) -> None:
        # The variance that keeps the signal's size through rectified layers.
        spread = np.float32(np.sqrt(2.0 / num_inputs))
        self.matrix = rng.standard_normal((num_outputs, num_inputs), np.float32) * spread
        self.bias = np.zeros(num_outputs, np.float32)
        self._velocity = (np.zeros_like(self.matrix), np.zeros_like(self.bias))
        self.gradient = (self.matrix, self.bias)

    def step(self, *, learning_rate: float, momentum: float) -> None:
        for values, velocity, gradient in zip(
            (self.matrix, self.bias), self._velocity, self.gradient, strict=True
        ):
            np.multiply(velocity, np.float32(momentum), out=velocity)
            np.subtract(velocity, np.float32(learning_rate) * gradient, out=velocity)
            np.add(values, velocity, out=values)


class Convolution:
    """A rectified 3x3 convolution over (N, C, H, W), padded by 1."""

    def __init__(
        self, rng: np.random.Generator, num_inputs: int, num_outputs: int, *, stride: int = 1
    ) -> None:
        self._weights = _Weights(rng, num_outputs, num_inputs * len(_TAPS))
        self._stride = stride

    def forward(self, inputs: Float32) -> Float32:
        """Return (N, num_outputs, H / stride, W / stride)."""
        num, channels, height, width = inputs.shape
        self._padded_shape = (num, channels, height + 2, width + 2)
        padded = np.zeros(self._padded_shape, np.float32)
        padded[:, :, 1:-1, 1:-1] = inputs
        self._out_size = (-(-height // self._stride), -(-width // self._stride))
        # One column for each output pixel, so that the convolution is one matrix product.
        columns = np.stack([self._shifted(padded, *tap) for tap in _TAPS], axis=2)
        columns = columns.transpose(1, 2, 0, 3, 4)
        self._columns = columns.reshape(channels * len(_TAPS), -1)
        outputs = self._weights.matrix @ self._columns + self._weights.bias[:, None]
        self._outputs = np.maximum(outputs, np.float32(0.0))
        return self._outputs.reshape(-1, num, *self._out_size).transpose(1, 0, 2, 3)

    def backward(self, slope: Float32) -> Float32:
        """Return the (N, C, H, W) slope of the inputs."""
        num, channels, *_ = self._padded_shape
        flat = slope.transpose(1, 0, 2, 3).reshape(len(self._outputs), -1)
        flat = flat * (self._outputs > 0.0)
        self._weights.gradient = (flat @ self._columns.T, flat.sum(axis=1))
        columns = (self._weights.matrix.T @ flat).reshape(
            channels, len(_TAPS), num, *self._out_size
        )
        padded = np.zeros(self._padded_shape, np.float32)
        for number, tap in enumerate(_TAPS):
            self._shifted(padded, *tap)[...] += columns[:, number].transpose(1, 0, 2, 3)
        return padded[:, :, 1:-1, 1:-1]

    def step(self, *, learning_rate: float, momentum: float) -> None:
        """Move the weights against the noted gradient."""
        self._weights.step(learning_rate=learning_rate, momentum=momentum)

    def _shifted(self, padded: Float32, row: int, column: int) -> Float32:
        """Return a view of the pixels that one of the nine taps sees."""
        height, width = self._out_size
        stride = self._stride
        return padded[
            :, :, row : row + stride * height : stride, column : column + stride * width : stride
        ]


class Dense:
    """A linear layer over flattened samples."""

    def __init__(self, rng: np.random.Generator, num_inputs: int, num_outputs: int) -> None:
        self._weights = _Weights(rng, num_outputs, num_inputs)

    def forward(self, inputs: Float32) -> Float32:
        """Return the (N, num_outputs) scores."""
        self._shape = inputs.shape
        self._flat = inputs.reshape(len(inputs), -1)
        return self._flat @ self._weights.matrix.T + self._weights.bias

    def backward(self, slope: Float32) -> Float32:
        """Return the slope of the inputs, in their shape."""
        self._weights.gradient = (slope.T @ self._flat, slope.sum(axis=0))
        return (slope @ self._weights.matrix).reshape(self._shape)

    def step(self, *, learning_rate: float, momentum: float) -> None:
        """Move the weights against the noted gradient."""
        self._weights.step(learning_rate=learning_rate, momentum=momentum)


class DigitNetwork:
    """Tells ten digits apart on scans of 1x8x8 pixels between 0 and 1."""

    def __init__(self, *, seed: int) -> None:
        """Draw the weights from a seed."""
        rng = np.random.default_rng(seed)
        self._layers: Sequence[Layer] = (
            Convolution(rng, 1, 16),
            Convolution(rng, 16, 32, stride=2),
            Dense(rng, 32 * 4 * 4, 10),
        )

    def train(
        self,
        scans: Float32,
        labels: npt.NDArray[np.int64],
        *,
        learning_rate: float,
        momentum: float = 0.9,
    ) -> float:
        """Take one step down the gradient of a batch.

        Args:
            scans: (N, 1, 8, 8) float32.
            labels: (N,) int64 digits.
            learning_rate: Size of the step.
            momentum: How much of the last step is taken again.

        Returns:
            The batch's mean cross-entropy before the step, in nats.
        """
        scores = self._scores(scans)
        scores -= scores.max(axis=1, keepdims=True)
        exponentials = np.exp(scores)
        sums = exponentials.sum(axis=1, keepdims=True)
        rows = np.arange(len(labels))
        loss = float((np.log(sums[:, 0]) - scores[rows, labels]).mean())

        slope = exponentials / sums
        slope[rows, labels] -= np.float32(1.0)
        slope /= np.float32(len(labels))
        for layer in reversed(self._layers):
            slope = layer.backward(slope)
        for layer in self._layers:
            layer.step(learning_rate=learning_rate, momentum=momentum)
        return loss

    def classify(self, scans: Float32) -> npt.NDArray[np.int64]:
        """Return the (N,) int64 most likely digits of (N, 1, 8, 8) scans."""
        digits: npt.NDArray[np.int64] = self._scores(scans).argmax(axis=1)
        return digits

    def _scores(self, scans: Float32) -> Float32:
        values = scans
        for layer in self._layers:
            values = layer.forward(values)
        return values
