"""What NVIDIA's compilers make of the GPU's kernels computes what NumPy does, to the bit."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Any, Final

import cupy
import numpy as np
import pytest
from nvrtc import Compiled, compile_source
from ptx import Kernel, Memory, PtxError

from memory._cuda import maths
from memory._device.bfloat16 import bfloat16, dtype_of
from prefetch._kernels import device_arithmetic, device_boxes, device_kernel, device_mixing
from prefetch._kernels.box_places import bytes_of_image, bytes_of_window
from prefetch._kernels.contract import Erasing, ErasingMode, Recipe, ResizeKind, Resizing
from prefetch._kernels.erasing import noise_table
from prefetch._plan.mixing import Box, Mix
from prefetch._transform.box_staging import BoxStager
from prefetch._transform.options import Transform
from prefetch._transform.staged_rows import StagedRows

if TYPE_CHECKING:
    from pathlib import Path

SOURCES: Final = {
    "transform": device_kernel.SOURCE,
    "mixing": device_mixing.SOURCE,
    "boxes": device_boxes.SOURCE,
    "maths": maths.SOURCE,
}
ARCHITECTURES: Final = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]
DTYPES: Final = ("float32", "float16", "bfloat16", "uint8")
MOST_REGISTERS: Final = 40


@pytest.fixture(scope="session")
def cupys_options() -> tuple[str, ...]:
    """The options that CuPy really gives NVRTC for a kernel of the project."""
    given: list[tuple[str, ...]] = []
    program = cupy.cuda.compiler._NVRTCProgram
    compile_program = program.compile

    def note(self: Any, options: tuple[str, ...] = (), log_stream: Any = None) -> Any:
        given.append(tuple(options))
        return compile_program(self, options, log_stream)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "compile", note)
        # Another source than any in CuPy's cache.
        source = f"{device_kernel.SOURCE}\n// {zlib.crc32(np.random.default_rng().bytes(8))}\n"
        cupy.RawKernel(source, device_kernel.kernel_name(np.dtype(np.float32))).compile()
    return tuple(option for option in given[-1] if "architecture" not in option)


def compiled(version: int, arch: str, name: str, options: tuple[str, ...]) -> Compiled:
    return compile_source(version, arch, SOURCES[name], options)


def test_cupy_flushes_subnormals_which_these_tests_are_about(
    cupys_options: tuple[str, ...],
) -> None:
    assert "-ftz=true" in cupys_options


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("version", [12, 13])
def test_the_machine_code_flushes_nothing_fuses_nothing_and_spills_nothing(
    version: int, arch: str, name: str, cupys_options: tuple[str, ...], tmp_path: Path
) -> None:
    found = compiled(version, arch, name, cupys_options)
    assert ".ftz" not in found.ptx
    assert not re.findall(r"\bfma\.", found.ptx)
    sass = found.run_tool(tmp_path, "nvdisasm")
    floats = re.findall(r"\b(?:F(?:ADD|MUL|SET|SETP|MNMX)|DADD|DMUL)[\w.]*", sass)
    assert floats
    assert not [instruction for instruction in floats if ".FTZ" in instruction]
    assert not re.findall(r"\b[FD]FMA\b[\w.]*", sass)
    usage = found.run_tool(tmp_path, "cuobjdump", "--dump-resource-usage")
    functions = re.findall(r"Function (\w+):\s*\n\s*(.*)", usage)
    assert len(functions) >= len(DTYPES)
    for function, line in functions:
        used = dict(re.findall(r"(\w+):(\d+)", line))
        assert int(used["REG"]) <= MOST_REGISTERS, (function, line)
        assert (used["STACK"], used["LOCAL"]) == ("0", "0"), (function, line)


def drawn_recipe(
    draw: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, int, int], *, tiny: bool
) -> Recipe:
    """Return a recipe of any kind; with ``tiny``, whose constants are mostly subnormal."""
    channels, height, width = shape
    kind = 0 if dtype == np.uint8 else int(draw.integers(4))

    def constants(*size: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        magnitude = 10.0 ** draw.integers(-44, -30 if tiny else 3)
        return (draw.normal(0, 1, size) * magnitude).astype(np.float32)

    no_scale = dtype == np.uint8 or draw.integers(2)
    return Recipe(
        crop_height=(crop := int(draw.integers(0, min(height, width) + 1))),
        crop_width=crop,
        random_crop=bool(draw.integers(2)),
        mirror=bool(draw.integers(2)),
        modulo=bool(draw.integers(2)),
        swap_channels=bool(draw.integers(2)),
        channels_last=bool(draw.integers(2)),
        unit_range=kind == 1 and bool(draw.integers(2)),
        mean_value=constants((0, 1, channels, 0)[kind]),
        mean_image=constants(*shape) if kind == 3 else None,
        scale=np.ones(1, np.float32) if no_scale else constants((1, channels)[draw.integers(2)]),
        resizing=None,
        pad=0,
        jitter=None,
        erasing=None,
    )


@pytest.mark.parametrize("tiny", [False, True], ids=["ordinary", "subnormal"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("version", "arch"), [(12, "sm_75"), (12, "sm_90"), (13, "sm_120")])
def test_the_transformation_gives_the_twins_bytes(
    version: int, arch: str, dtype: str, cupys_options: tuple[str, ...], *, tiny: bool
) -> None:
    kind = dtype_of(dtype)
    kernel = Kernel(
        compiled(version, arch, "transform", cupys_options).ptx, device_kernel.kernel_name(kind)
    )
    draw = np.random.default_rng(zlib.crc32(f"{version} {arch} {dtype} {tiny}".encode()))
    for _ in range(12):
        shape = int(draw.integers(1, 6)), int(draw.integers(1, 10)), int(draw.integers(1, 10))
        recipe = drawn_recipe(draw, kind, shape, tiny=tiny)
        batch = device_kernel.StagedBatch(int(draw.integers(1, 4)), *shape)
        staged = np.zeros(batch.nbytes, np.uint8)
        batch.pixels(staged)[:] = draw.integers(0, 256, (batch.num, *shape))
        table = batch.table(staged)
        table[:, :3] = draw.integers(0, 2**32, (batch.num, 3))
        has_windows = recipe.crop_height and recipe.mean_image is None
        table[:, 3] = draw.integers(0, 2, batch.num) if has_windows else device_kernel.WHOLE
        rows = Transform(train=False, dtype=kind).row_dtype
        want = np.zeros((batch.num, *recipe.sample_shape(*shape)), rows)
        device_kernel.transform_staged(staged, want, batch, recipe)
        got = np.full_like(want, 99)
        constants = device_arithmetic.constants(recipe)
        memory = Memory()
        kernel.launch(
            memory,
            device_kernel.grid(batch, recipe)[0],
            (int(draw.choice([1, 32, 64])),),  # few threads: each has several elements
            [
                memory.place(staged),
                batch.pixels_at,
                memory.place(got),
                memory.place(constants if constants.size else np.zeros(1, np.float32)),
                *map(int, device_kernel.scalars(batch, recipe)),
            ],
        )
        assert got.tobytes() == want.tobytes(), recipe


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("version", "arch"), [(12, "sm_75"), (12, "sm_90"), (13, "sm_120")])
def test_boxes_give_the_twins_bytes(
    version: int, arch: str, dtype: str, cupys_options: tuple[str, ...]
) -> None:
    kind = dtype_of(dtype)
    ptx = compiled(version, arch, "boxes", cupys_options).ptx
    kernel = Kernel(ptx, device_boxes.kernel_name(kind))
    draw = np.random.default_rng(zlib.crc32(f"{version} {arch} {dtype}".encode()))
    for _ in range(8):
        resizing = drawn_resizing(draw)
        computes = dtype != "uint8"
        channels = int(draw.integers(1, 5))
        transform = Transform(
            train=False,
            resizing=resizing,
            crop_size=int(draw.integers(1, min(resizing.height, resizing.width) + 1)),
            mirror=bool(draw.integers(2)),
            unit_range=computes,
            mean_value=tuple(draw.normal(0, 9, channels * computes)),
            channels=("stored", "rgb")[draw.integers(2)],
            layout=("nchw", "nhwc")[draw.integers(2)],
            erasing=drawn_erasing(draw) if computes else None,
            dtype=kind,
        )
        recipe = transform.recipe
        sizes = draw.integers(1, 15, (3, 2)).tolist()
        window = bytes_of_window((channels, *recipe.window_size(*sizes[0])))
        place_bytes = max(window, bytes_of_image((channels, *sizes[0]), recipe))
        height, width = sizes[0]
        batch = device_kernel.StagedBatch(4, channels, height, width, box_bytes=place_bytes)
        staged = np.zeros(batch.nbytes, np.uint8)
        stager = BoxStager(transform)
        table = batch.table(staged)
        stager.begin(StagedRows(batch.pixels(staged), table, {}, place=batch.image_shape))
        # The last place stays empty.
        for size, place in zip(sizes, batch.pixels(staged), strict=False):
            image = draw.integers(0, 2, (*size, channels)).astype(np.uint8) * np.uint8(255)
            words = draw.integers(0, 2**32, 87, np.uint32)
            assert stager.fill_image(image, words, place, recipe, None) is None
        want = np.zeros((4, *recipe.sample_shape(*batch.image_shape)), transform.row_dtype)
        device_boxes.transform_staged(staged, want, batch, recipe)
        got = np.full_like(want, 99)
        constants = device_arithmetic.constants(recipe)
        memory = Memory()
        kernel.launch(
            memory,
            device_kernel.grid(batch, recipe)[0],
            (int(draw.choice([1, 32, 64])),),
            [
                memory.place(staged),
                batch.box_bytes,
                memory.place(got),
                memory.place(constants if constants.size else np.zeros(1, np.float32)),
                *map(int, device_boxes.scalars(batch, recipe)),
            ],
        )
        assert got.tobytes() == want.tobytes(), recipe


def drawn_erasing(draw: np.random.Generator) -> Erasing:
    mode = ErasingMode(int(draw.integers(len(ErasingMode))))
    noise = None if mode == ErasingMode.CONST else noise_table()
    return Erasing(0.8, 0.05, 0.9, -1.0, 1.0, mode, noise)


def drawn_resizing(draw: np.random.Generator) -> Resizing:
    kind = ResizeKind(int(draw.integers(len(ResizeKind))))
    height, width = draw.integers(1, 9, 2).tolist()
    width = height if kind == ResizeKind.SHORTER_SIDE else width
    bounds = (0.08, 1.0, 0.5, 2.0, -0.7, 0.7)
    return Resizing(kind, height, width, bool(draw.integers(2)), *bounds)


@pytest.mark.parametrize(("version", "arch"), [(12, "sm_75"), (12, "sm_90"), (13, "sm_120")])
def test_the_ptx_rounds_to_bfloat16_at_every_edge(
    version: int, arch: str, cupys_options: tuple[str, ...]
) -> None:
    upper = [0, 1, 0x007F, 0x0080, 0x3F80, 0x3F81, 0x42FE, 0x7F7F, 0x7F80, 0x7FC0, 0x7FFF]
    lower = [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF]
    bits = [sign | high << 16 | low for sign in (0, 1 << 31) for high in upper for low in lower]
    values = np.array(bits, np.uint32).view(np.float32)
    recipe = Transform(train=False, mean_image=values.reshape(1, 1, -1)).recipe
    batch = device_kernel.StagedBatch(1, 1, 1, values.size)
    staged = np.zeros(batch.nbytes, np.uint8)
    want, got = np.zeros((2, 1, 1, 1, values.size), np.uint16)
    device_kernel.transform_staged(staged, want, batch, recipe)
    memory = Memory()
    name = device_kernel.kernel_name(bfloat16())
    Kernel(compiled(version, arch, "transform", cupys_options).ptx, name).launch(
        memory,
        device_kernel.grid(batch, recipe)[0],
        (32,),
        [
            memory.place(staged),
            batch.pixels_at,
            memory.place(got),
            memory.place(device_arithmetic.constants(recipe)),
            *map(int, device_kernel.scalars(batch, recipe)),
        ],
    )
    assert got.tolist() == want.tolist()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("box", [None, Box(1, 4, 2, 5)], ids=["mixup", "cutmix"])
@pytest.mark.parametrize(("version", "arch"), [(12, "sm_75"), (12, "sm_90"), (13, "sm_120")])
def test_the_mixing_gives_the_twins_bytes(
    version: int, arch: str, dtype: str, box: Box | None, cupys_options: tuple[str, ...]
) -> None:
    kind = dtype_of(dtype)
    rows = Transform(train=False, dtype=kind).row_dtype
    if box is None and dtype == "uint8":
        return  # which no weighted sum fits
    name = (device_mixing.mix_name if box is None else device_mixing.cut_name)(kind)
    kernel = Kernel(compiled(version, arch, "mixing", cupys_options).ptx, name)
    draw = np.random.default_rng(zlib.crc32(f"{version} {arch} {dtype}".encode()))
    for num, last in ((1, False), (2, True), (5, False)):
        values = draw.normal(0, 1, (num, 6, 7, 3)) * 10.0 ** draw.integers(-44, 3, (num, 6, 7, 3))
        batch = values.astype(np.float32).astype(kind).view(rows)
        if not last:
            batch = np.ascontiguousarray(np.moveaxis(batch, 3, 1))
        want, got, mix = batch.copy(), batch.copy(), Mix(float(np.float32(0.3)), box)
        device_mixing.mix_staged(want, mix, channels_last=last)
        task = device_mixing.launch_of(mix, batch.shape, channels_last=last)
        assert task is not None
        grid, _, numbers = task
        memory = Memory()
        given = [one if isinstance(one, np.floating) else int(one) for one in numbers]
        kernel.launch(memory, grid, (int(draw.choice([1, 32])),), [memory.place(got), *given])
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize(("version", "arch"), [(12, "sm_75"), (13, "sm_90")])
def test_the_maths_gives_numpys_bytes(
    version: int, arch: str, kind: str, cupys_options: tuple[str, ...]
) -> None:
    ptx = compiled(version, arch, "maths", cupys_options).ptx
    dtype = np.dtype(np.float32 if kind == "float" else np.float64)
    draw = np.random.default_rng(7)
    least = 10.0 ** draw.uniform(-44 if kind == "float" else -320, 1, (2, 50))
    x, y = (draw.choice([-1, 1], least.shape) * least).astype(dtype)
    alpha = dtype.type(0.3)
    memory = Memory()
    out = y.copy()
    values = [memory.place(out), memory.place(x), alpha, len(x)]
    Kernel(ptx, f"ringfeed_axpy_{kind}").launch(memory, (2,), (8,), values)
    assert out.tobytes() == (alpha * x + y).tobytes()
    scaled = x.copy()
    values = [memory.place(scaled), alpha, len(x)]
    Kernel(ptx, f"ringfeed_scale_{kind}").launch(memory, (2,), (8,), values)
    assert scaled.tobytes() == (alpha * x).tobytes()
    for term, expected in (("sum", x), ("asum", np.abs(x)), ("sumsq", x * x)):
        total = np.zeros(1, dtype)
        values = [memory.place(x), memory.place(total), len(x), 1]
        Kernel(ptx, f"ringfeed_{term}_{kind}").launch(memory, (1,), (1,), values)
        want = dtype.type(0)
        for value in expected:
            want = dtype.type(want + value)
        assert total[0] == want


def test_what_is_out_of_bounds_not_aligned_or_fused_is_found() -> None:
    head = ".entry wrong(\n.param .u64 wrong_param_0\n)\n{\n"
    start = "ld.param.u64 %rd1, [wrong_param_0];\n"
    for body, fault in (
        ("ld.global.u32 %r1, [%rd1+16];", "out of bounds"),
        ("ld.global.u32 %r1, [%rd1+2];", "not aligned"),
        ("fma.rn.f32 %f1, 0f3F800000, 0f3F800000, 0f3F800000;", "rounds once less"),
        ("brev.b32 %r1, 7;", "not known"),
    ):
        memory = Memory()
        kernel = Kernel(f"{head}{start}{body}\nret;\n}}\n", "wrong")
        with pytest.raises(PtxError, match=fault):
            kernel.launch(memory, (1,), (1,), [memory.place(np.zeros(16, np.uint8))])
