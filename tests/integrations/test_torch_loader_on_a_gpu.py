"""prefetch.torch.DataLoader on a GPU: on PyTorch's current stream, without a wait of the host."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: make test-integrations")
if not torch.cuda.is_available():
    pytest.skip("this PyTorch sees no GPU", allow_module_level=True)

CYCLES = 2_000_000  # of the GPU's clock, about a millisecond: the stream stays behind the loader


@pytest.mark.parametrize("is_own", [False, True])
def test_every_tensor_is_its_batch_although_the_stream_is_behind(
    options: dict[str, Any],
    is_own: bool,  # noqa: FBT001 - a parameter
) -> None:
    import prefetch.torch as ringtorch  # noqa: PLC0415 - needs PyTorch

    means = []
    stream = torch.cuda.Stream() if is_own else torch.cuda.default_stream()
    with ringtorch.DataLoader(options) as loader, torch.cuda.stream(stream):
        for _ in range(5):
            for images, labels in loader:
                assert images.device == labels.device == torch.device("cuda:0")
                torch.cuda._sleep(CYCLES)
                means.append(images.mean(dim=(1, 2, 3)) - labels)
                del images
        assert not stream.query()  # nobody has waited for it
        stream.synchronize()
    assert torch.cat(means).tolist() == [0] * 300
