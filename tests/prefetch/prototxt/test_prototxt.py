"""What a network file's Data layer means, what is refused, and what is warned about."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from prefetch import (
    ConfigError,
    ConfigFault,
    ConfigNotFoundError,
    PrefetchWarning,
    UnsupportedSourceError,
)
from prefetch._config.feed_config import FeedConfig
from prefetch._config.models import TransformConfig
from prefetch._prototxt.data_layer import DataLayer, read_data_layer

DATA = """
layer {
  name: "data"
  type: "Data"
  top: "data"
  top: "label"
  %s
  data_param { source: "db" batch_size: 4 backend: LMDB %s }
}
"""
OLD_DATA = DATA.replace("layer {", "layers {").replace('"Data"', "DATA")


def data(fields: str = "", data_fields: str = "", *, form: str = DATA) -> str:
    return form % (fields, data_fields)


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return tmp_path / "net.prototxt"


def read(net: Path, text: str, **arguments: Any) -> DataLayer:
    net.write_text(text, encoding="utf-8")
    return read_data_layer(net, **{"seed": 1701, "root": "/root", **arguments})


def fault_in(net: Path, text: str, **arguments: Any) -> ConfigFault:
    with pytest.raises(ConfigError) as caught:
        read(net, text, **arguments)
    assert caught.value.origin == str(net)
    (fault,) = caught.value.faults
    return fault


def refusal_of(net: Path, text: str, **arguments: Any) -> str:
    with pytest.raises(UnsupportedSourceError) as caught:
        read(net, text, **arguments)
    assert caught.value.path == str(net)
    return str(caught.value)


# --- what the fields mean --------------------------------------------------------------------


def test_a_layer_means_caffes_endless_stream_random_numbers_stride_and_labels(net: Path) -> None:
    layer = read(net, data())

    assert layer.config == FeedConfig(
        source="/root/db",
        batch_size=4,
        prefetch=4,
        phase="train",
        seed=1701,
        rng="caffe",
        last_batch="wrap",
        shard={"rank": 0, "world_size": 1, "policy": "caffe"},
        label_dtype="float32",
    )
    assert (layer.name, layer.tops, layer.ignored) == ("data", ("data", "label"), ())


def test_every_field_of_the_transformation_is_taken_over_in_single_precision(net: Path) -> None:
    config = read(
        net,
        data(
            "transform_param { scale: 0.1 mirror: true crop_size: 5 "
            "mean_value: 1.5 mean_value: 2 force_color: true }"
        ),
    ).config

    # Options that Caffe does not have keep their defaults.
    assert config.transform.model_dump() == TransformConfig().model_dump() | {
        "crop_size": 5,
        "mirror": True,
        "scale": 0.10000000149011612,
        "mean_value": (1.5, 2.0),
        "mean_file": None,
        "force_color": True,
        "force_gray": False,
        "max_pixels_per_byte": 2048,
        "channels": "stored",
        "layout": "nchw",
        "dtype": "float32",
        "where": "auto",
    }
    gray = read(net, data('transform_param { force_gray: true mean_file: "m" }')).config
    assert gray.transform.force_gray
    assert gray.transform.mean_file == Path("/root/m")


def test_paths_are_relative_to_the_root_and_the_root_to_the_working_directory(
    net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = data('transform_param { mean_file: "/abs/m" }')

    config = read(net, text, root="sub").config

    assert config.source == (tmp_path / "sub/db",)
    assert config.transform.mean_file == Path("/abs/m")
    assert read(net, text, root=".").config.source == (tmp_path / "db",)


def test_the_arguments_are_taken_over(net: Path) -> None:
    config = read(
        net, data(), seed=5, rank=2, world_size=3, prefetch=2, threads=8, device="simulated"
    ).config

    assert (config.seed, config.shard.rank, config.shard.world_size) == (5, 2, 3)
    assert (config.prefetch, config.threads, config.device) == (2, 8, "simulated")


def test_prefetch_is_the_files_number_unless_one_is_given(net: Path) -> None:
    text = data("", "prefetch: 3")

    assert read(net, text).config.prefetch == 3
    assert read(net, text, prefetch=1).config.prefetch == 1


def test_a_layer_with_one_top_makes_no_labels(net: Path) -> None:
    layer = read(net, data().replace('top: "label"', ""))

    assert layer.tops == ("data",)
    assert not layer.config.labels


def test_the_layers_own_phase_decides_how_it_crops_not_whether_it_is_there(net: Path) -> None:
    text = data("phase: TEST")

    assert read(net, text, phase="TRAIN").config.phase == "test"
    assert read(net, data(), phase="TEST").config.phase == "test"
    assert read(net, data(), phase="train").config.phase == "train"


def test_fields_unknown_to_caffe_are_passed_over_outside_of_the_layer(net: Path) -> None:
    text = (
        "quantize: { deep < deeper: [1, 'x'] > }\n"
        + data()
        + 'layer { bottom: "data" default_type: FLOAT16 lr: -1 }'
    )

    assert read(net, text).config.batch_size == 4


def test_a_comment_in_another_encoding_does_no_harm(net: Path) -> None:
    net.write_bytes(b"\xef\xbb\xbf# caf\xe9\n" + data().encode())

    assert read_data_layer(net, seed=1).name == "data"


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        ("mean_value: - 1", (-1.0,)),
        ("mean_value: -\n # half\n .5 mean_value: 2", (-0.5, 2.0)),
        ("mean_value: [1, - 2, -\t3e1]", (1.0, -2.0, -30.0)),
    ],
)
def test_a_sign_may_stand_apart_from_its_number(
    net: Path, fields: str, values: tuple[float, ...]
) -> None:
    text = data(f"transform_param {{ {fields} }}") + 'layer { bottom: "x - 1" x: - 1 } # - 1'

    layer = read(net, text.replace('"label"', "'label - 1'"))

    assert layer.config.transform.mean_value == values
    assert layer.tops == ("data", "label - 1")


def test_a_sign_apart_from_its_number_moves_no_line(net: Path) -> None:
    fault = fault_in(
        net, data("transform_param { mean_value: -\n\n 1\n mean_value: - 1 crop_size: x }")
    )

    assert (fault.line, fault.message) == (10, "column 29: expected an integer, found x")


# --- old formats -----------------------------------------------------------------------------


def test_an_old_layer_means_the_same(net: Path) -> None:
    old = read(net, data("include: { phase: TRAIN }", form=OLD_DATA))

    assert old == read(net, data("include: { phase: TRAIN }"))


def test_an_old_layers_data_options_win_over_its_transformation(net: Path) -> None:
    text = data(
        "transform_param { scale: 3 mirror: true crop_size: 2 }",
        'scale: 0.5 crop_size: 7 mirror: false mean_file: "m"',
        form=OLD_DATA,
    )

    layer = read(net, text)

    transform = layer.config.transform
    assert (transform.scale, transform.crop_size, transform.mirror) == (0.5, 7, False)
    assert transform.mean_file == Path("/root/m")
    assert layer.ignored == ()


def test_old_layers_and_those_of_the_present_format_are_refused_together_as_in_caffe(
    net: Path,
) -> None:
    fault = fault_in(net, data(form=OLD_DATA) + data())

    assert (fault.key, fault.line) == ("layer", 11)
    assert "write all of them as layer" in fault.message


@pytest.mark.parametrize(
    ("field", "name"), [('source: "db"', "source"), ("batch_size: 4", "batch_size")]
)
def test_a_field_that_a_layer_needs_is_missing_and_not_0_or_empty(
    net: Path, field: str, name: str
) -> None:
    fault = fault_in(net, data().replace(field, ""))

    assert (fault.key, fault.line) == (f"data_param.{name}", 8)
    assert fault.message.startswith("is missing; write ")


def test_a_batch_size_of_0_is_not_called_missing(net: Path) -> None:
    assert fault_in(net, data().replace("batch_size: 4", "batch_size: 0")).message == (
        "expected 1 or more, found 0"
    )


def test_a_phase_in_an_old_layer_is_refused_as_in_caffe(net: Path) -> None:
    fault = fault_in(net, data("phase: TEST", form=OLD_DATA))

    assert (fault.key, fault.line) == ("phase", 7)
    assert "no field of an old layer (layers) in Caffe" in fault.message
    assert "write include { phase: ... }" in fault.message


@pytest.mark.parametrize(
    ("form", "field"),
    [(DATA, "blobs_lr"), (DATA, "weight_decay"), (OLD_DATA, "propagate_down")],
    ids=["layer", "layer", "layers"],
)
def test_a_field_of_the_other_format_is_warned_about(net: Path, form: str, field: str) -> None:
    with pytest.warns(PrefetchWarning, match=f"{field} on line 7 has no effect"):
        read(net, data(f"{field}: 1", form=form))


def test_the_first_format_is_refused_with_what_to_do(net: Path) -> None:
    text = 'layers { layer { name: "d" type: "data" source: "db" batchsize: 4 } top: "data" }'

    assert "upgrade_net_proto_text" in refusal_of(net, text)


# --- which layer -----------------------------------------------------------------------------

BOTH = data("include { phase: TRAIN }") + data("include { phase: TEST }").replace("4", "2")
STAGES = data('include { phase: TEST stage: "a" }') + data(
    'include { phase: TEST stage: "b" not_stage: "c" }'
).replace("4", "2")
TWO_TOPS = (
    DATA.replace('top: "label"', "").replace('"data"', '"images"') % ("", "")
    + (DATA.replace('top: "data"', "") % ("", "")).replace("4", "2")
    + 'layer { name: "fc" type: "InnerProduct" bottom: "images" top: "fc" }'
)


def test_the_phase_chooses(net: Path) -> None:
    assert read(net, BOTH, phase="TRAIN").config.batch_size == 4
    assert read(net, BOTH, phase="TEST").config.batch_size == 2


def test_the_stages_choose(net: Path) -> None:
    assert read(net, STAGES, phase="TEST", stages=["a"]).config.batch_size == 4
    assert read(net, STAGES, phase="TEST", stages="b").config.batch_size == 2
    assert fault_in(net, STAGES, phase="TEST", stages=["b", "c"]).key == "layer"


def test_the_layers_name_chooses_or_the_name_of_a_top(net: Path) -> None:
    assert read(net, TWO_TOPS, layer="images").config.batch_size == 4
    assert read(net, TWO_TOPS, layer="label").config.batch_size == 2
    assert read(net, TWO_TOPS, layer="data").config.batch_size == 2


@pytest.mark.parametrize(
    ("rules", "present"),
    [
        ("", True),
        ("include { phase: TRAIN }", True),
        ("include { phase: TEST }", False),
        ("include { phase: TEST } include { phase: TRAIN }", True),
        ("exclude { phase: TRAIN }", False),
        ("exclude { phase: TEST }", True),
        ("exclude { phase: TEST } exclude { phase: TRAIN }", False),
        ("include { }", True),
        ("exclude { }", False),
        ("include { min_level: 1 }", False),
        ("include { min_level: 0 max_level: 0 }", True),
        ("include { max_level: -1 }", False),
        ('include { stage: "on" }', True),
        ('include { stage: "on" stage: "off" }', False),
        ('include { not_stage: "on" }', False),
        ('include { not_stage: "off" }', True),
        ('include { phase: TRAIN stage: "off" }', False),
    ],
)
def test_rules_are_caffes(net: Path, rules: str, *, present: bool) -> None:
    text = data(rules)

    if present:
        assert read(net, text, stages=["on"]).name == "data"
    else:
        assert fault_in(net, text, stages=["on"]).key == "layer"


def test_the_networks_own_state_counts(net: Path) -> None:
    text = 'state { level: 3 stage: "x" }' + data('include { min_level: 3 stage: "x" }')

    assert read(net, text).name == "data"


def test_include_and_exclude_in_one_layer_are_a_fault_as_in_caffe(net: Path) -> None:
    fault = fault_in(net, data("include { phase: TRAIN }\n exclude { phase: TEST }"))

    assert (fault.key, fault.line) == ("exclude", 8)


def test_several_layers_are_an_error_that_lists_them(net: Path) -> None:
    fault = fault_in(net, TWO_TOPS)

    assert fault.key == "layer"
    assert fault.message.startswith(
        "expected one Data layer in phase TRAIN, found 2: "
        "'images' (line 2), 'data' (line 11); choose by"
    )


def test_none_in_this_phase_is_an_error_that_lists_the_others_with_their_rules(net: Path) -> None:
    fault = fault_in(net, STAGES)

    assert fault.message.startswith(
        "found no Data layer in phase TRAIN; the file has 'data' (line 2; include TEST, stage a), "
        "'data' (line 11; include TEST, stage b, not stage c): ask for one by"
    )
    named = fault_in(net, data(), layer="labels").message
    assert named.startswith("found no Data layer of the name or with the top 'labels' in phase")


def test_a_network_without_any_is_told_apart(net: Path) -> None:
    assert "the file has none in any phase" in fault_in(net, 'name: "deploy" input: "x"').message


@pytest.mark.parametrize(
    "layer",
    [
        'layer { name: "a" type: "ReLU" }',
        'layer { name: "a" type: "Parameter" top: "w" }',
        'layers { name: "a" type: RELU top: "x" }',
        'layer { name: "a" type: "Convolution" bottom: "data" top: "x" }',
    ],
)
def test_layers_that_compute_are_not_taken_for_data_of_another_kind(net: Path, layer: str) -> None:
    fault = fault_in(net, layer)

    assert fault.message == (
        "found no Data layer in phase TRAIN; the file has none in any phase; one that trains a "
        "network has"
    )


def test_another_phase_than_caffes_is_refused(net: Path) -> None:
    fault = fault_in(net, data(), phase="TRIAN")

    assert fault == ConfigFault(
        "phase", "expected one of TRAIN, TEST; found 'TRIAN' (text); did you mean TRAIN?"
    )


# --- solvers ---------------------------------------------------------------------------------


def solver(name: str, *parts: str) -> str:
    return "base_lr: 0.1\n" + "\n".join([f"{name} {{ {part} }}" for part in parts]) + "\n"


def test_a_network_inside_a_solvers_file_is_read(net: Path) -> None:
    assert read(net, solver("net_param", BOTH), phase="TEST").config.batch_size == 2
    assert read(net, solver("train_net_param", data())).config.batch_size == 4
    assert read(net, solver("test_net_param", data()), phase="TEST").config.phase == "test"
    assert fault_in(net, solver("test_net_param", data())).key == "layer"


def test_a_solvers_states_count_unless_stages_are_given(net: Path) -> None:
    text = solver("net_param", STAGES)

    one = text + 'test_state { stage: "b" }'
    assert read(net, one, phase="TEST").config.batch_size == 2
    both = one + 'test_state { stage: "a" }'
    assert "found 2" in fault_in(net, both, phase="TEST").message
    assert read(net, both, phase="TEST", stages=["a"]).config.batch_size == 4


def test_a_layer_inside_a_solvers_file_has_its_own_line(net: Path) -> None:
    assert fault_in(net, solver("net_param", data("", "prefetch: 0"))).line == 9


def test_a_solver_whose_network_is_in_another_file_names_that_file(net: Path) -> None:
    assert refusal_of(net, 'net: "train_val.prototxt"').endswith("open 'train_val.prototxt'")


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ('layer {\n  name: "x"\n  top: 5\n}', 3, 8),
        ("layer {", 1, 7),
        ("layer { }\n}", 2, 1),
        ("layers { type: CONVOLUTON }", 1, 16),
        ("layer { include { phase: TRIAN } }", 1, 26),
        ("layer {\n data_param { batch_size: -1 } }", 2, 27),
        ("layer {\n pooling_param {\n  kernel_size: }\n}\n" + 500 * "layer { }\n", 3, 16),
        ("layer {\n stride: ?\n}", 2, 10),
        ("stride:", 1, 7),
    ],
)
def test_a_syntax_error_names_file_line_and_column(
    net: Path, text: str, line: int, column: int
) -> None:
    fault = fault_in(net, text)

    assert fault.line == line
    assert fault.message.startswith(f"column {column}: ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            data("include { phase: TSET }"),
            "expected one of TRAIN, TEST; found TSET; did you mean TEST?",
        ),
        (
            data().replace("LMDB", "LMBD"),
            "expected one of LEVELDB, LMDB; found LMBD; did you mean LMDB?",
        ),
        (
            "layers { type: CONVOLUTON }",
            "CONVOLUTON is no type of layer in Caffe; did you mean CONVOLUTION?",
        ),
        (
            data("", "batch_size: 5"),
            "batch_size is given a second time, and Caffe takes one; leave one of them out",
        ),
        (data("transform_param { scale: abc }"), "expected a number, found abc"),
        (data().replace("4", "four"), "expected an integer, found four"),
        ('layer { name: "d" type:', "text in quotes, found the end of the file: was it cut off?"),
        ("layer { name: \"it's: 'x': y\" top: 5 }", "expected text in quotes, found 5"),
    ],
)
def test_what_is_wrong_with_the_text_is_said_without_the_line_and_the_parsers_names(
    net: Path, text: str, words: str
) -> None:
    message = fault_in(net, text).message

    assert message.endswith(words)
    assert "prefetch.caffe" not in message
    assert "layer {" not in message


def test_a_layer_whose_type_is_misspelt_or_missing_is_told_what_is_meant(net: Path) -> None:
    message = refusal_of(net, data().replace('"Data"', '"Dat"'))

    assert "is of type Dat, which Caffe does not have; did you mean Data?" in message
    assert 'has no type; write type: "Data"' in refusal_of(net, data().replace('type: "Data"', ""))


def test_arguments_are_called_what_the_caller_calls_them(net: Path) -> None:
    names = {"layer": "--layer", "phase": "--phase", "stages": "--stage"}

    message = fault_in(net, data() + data(), argument_names=names).message
    assert "(--layer), or by the network's stages (--stage)" in message
    message = fault_in(net, data("include { phase: TEST }"), argument_names=names).message
    assert message.endswith("(--phase, --stage, --layer)")


def test_nesting_without_end_is_refused(net: Path) -> None:
    assert "nested" in fault_in(net, "x {" * 5000 + "}" * 5000).message


@pytest.mark.parametrize(
    ("kind", "cure"),
    [
        ("ImageData", "ringfeed convert"),
        ("HDF5Data", "h5py"),
        ("MemoryData", "the program itself fills it"),
        ("WindowData", "cut its windows out"),
        ("DummyData", "makes up its values"),
        ("Input", "the program itself fills it"),
        ("AnnotatedData", "in an LMDB"),
    ],
)
def test_other_kinds_of_layers_are_refused_by_name_with_what_to_do(
    net: Path, kind: str, cure: str
) -> None:
    message = refusal_of(net, f'layer {{\n name: "in" type: "{kind}" top: "data" }}')

    assert f"layer 'in' (line 1) is of type {kind}, which is not read here" in message
    assert cure in message


@pytest.mark.parametrize("kind", ["IMAGE_DATA", "HDF5_DATA", "MEMORY_DATA", "WINDOW_DATA"])
def test_old_layers_of_other_kinds_are_refused_by_their_present_name(net: Path, kind: str) -> None:
    present = {"IMAGE": "ImageData", "HDF5": "HDF5Data", "MEMORY": "MemoryData"}
    name = present.get(kind.removesuffix("_DATA"), "WindowData")

    assert f"is of type {name}" in refusal_of(net, f'layers {{ type: {kind} top: "data" }}')


def test_a_layer_of_another_kind_is_refused_when_it_is_named_and_passed_over_otherwise(
    net: Path,
) -> None:
    text = data() + 'layer { name: "noise" type: "DummyData" top: "noise" }'

    assert read(net, text).name == "data"
    assert "DummyData" in refusal_of(net, text, layer="noise")


def test_leveldb_is_refused_by_name(net: Path) -> None:
    message = refusal_of(net, data().replace("LMDB", "LEVELDB"))

    assert "layer 'data' (line 2) names backend LEVELDB" in message


def test_no_backend_is_refused_as_caffes_default(net: Path) -> None:
    message = refusal_of(net, data().replace("backend: LMDB", ""))

    assert "names no backend, which is LEVELDB to Caffe" in message
    assert message.endswith("copy the records into an LMDB, and write backend: LMDB")


def test_no_backend_over_an_lmdb_is_refused_with_the_line_to_add(net: Path, tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    (tmp_path / "db/data.mdb").touch()

    message = refusal_of(net, data().replace("backend: LMDB", ""), root=tmp_path)

    assert message.endswith(f"{tmp_path / 'db'} is an LMDB, so write backend: LMDB")


@pytest.mark.parametrize(
    ("text", "key", "line", "message"),
    [
        (data().replace("4", "0"), "data_param.batch_size", 8, "expected 1 or more, found 0"),
        (data("", "\nprefetch: 0"), "data_param.prefetch", 9, "expected 1 or more, found 0"),
        (data().replace('"db"', '""'), "data_param.source", 8, "expected the path"),
        (
            data('transform_param {\n mean_file: "m"\n mean_value: 1 }'),
            "transform_param.mean_value",
            9,
            "mean_value and mean_file are both given",
        ),
        (
            data("transform_param { force_color: true\n force_gray: true }"),
            "transform_param.force_gray",
            8,
            "force_color and force_gray are both true",
        ),
        (data("transform_param { scale: nan }"), "transform_param.scale", 7, "expected a number"),
        (
            data("transform_param { scale: 3.5e38 }"),
            "transform_param.scale",
            7,
            "expected at most 3.4028235e+38, the largest float32, in size; found 3.5e+38",
        ),
        (
            data("transform_param { mean_value: 1 mean_value: -1e39 }"),
            "transform_param.mean_value",
            7,
            "expected at most 3.4028235e+38, the largest float32, in size; found -1e+39",
        ),
        (
            data("transform_param { scale: - inf }"),
            "transform_param.scale",
            7,
            "expected a number, or a list of one a channel; found -inf",
        ),
        (data('top: "more"'), "top", 7, "expected one top, or a second for the labels; found data"),
    ],
)
def test_a_fault_of_the_layer_names_the_field_and_its_line(
    net: Path, text: str, key: str, line: int, message: str
) -> None:
    fault = fault_in(net, text)

    assert (fault.key, fault.line) == (key, line)
    assert fault.message.startswith(message)


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"seed": 2**32}, "seed"),
        ({"seed": None, "world_size": 2}, "seed"),
        ({"rank": 1}, "rank"),
        ({"world_size": 0}, "world_size"),
        ({"threads": 0}, "threads"),
        ({"prefetch": 0}, "prefetch"),
        ({"device": "gpu"}, "device"),
    ],
)
def test_a_fault_of_an_argument_names_the_argument(
    net: Path, arguments: dict[str, Any], key: str
) -> None:
    fault = fault_in(net, data(), **arguments)

    assert (fault.key, fault.line) == (key, None)


def test_all_faults_are_reported_at_once_in_the_order_of_the_file(net: Path) -> None:
    text = data("transform_param { scale: inf }", "prefetch: 0").replace("4", "0")

    with pytest.raises(ConfigError) as caught:
        read(net, text, rank=-1)

    assert [fault.key for fault in caught.value.faults] == [
        "transform_param.scale",
        "data_param.batch_size",
        "data_param.prefetch",
        "rank",
    ]


def test_a_missing_file_is_a_file_not_found_error(net: Path) -> None:
    for path in (net, "net.prototxt\0"):
        with pytest.raises(ConfigNotFoundError, match=r"net\.prototxt.*: .*; give the prototxt"):
            read_data_layer(path)
    assert issubclass(ConfigNotFoundError, FileNotFoundError)


# --- misspelt fields -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key", "line", "guess"),
    [
        (data("transfrom_param { crop_size: 5 }"), "transfrom_param", 7, "transform_param"),
        (data('includde { stage: "a" }'), "includde", 7, "include"),
        (data("transform { mirror: true }"), "transform", 7, "transform_param"),
        (data("Phase: TEST"), "Phase", 7, "phase"),
        (data().replace("type:", "ttype:"), "ttype", 4, "type"),
        (data().replace("data_param {", "dataparam {"), "dataparam", 8, "data_param"),
        (data() + "laayer { }", "laayer", 10, "layer"),
        ("laayer {\n}", "laayer", 1, "layer"),
        (data("", "btach_size: 5"), "data_param.btach_size", 8, "batch_size"),
        (data("transform_param { mirrror: true }"), "transform_param.mirrror", 7, "mirror"),
        (data("transform_param { crop: 5 }"), "transform_param.crop", 7, "crop_size"),
        (data("include { phse: TEST }"), "include.phse", 7, "phase"),
        (data("include { level: 1 }"), "include.level", 7, "min_level"),
        (data('include { stage: "a" }\ninclude { stge: "b" }'), "include.stge", 8, "stage"),
        (data("transfrom_param { }", form=OLD_DATA), "transfrom_param", 7, "transform_param"),
        (data() + 'layer { bottom: "x" includde { } }', "includde", 10, "include"),
        (data() + "state { phas: TEST }", "state.phas", 10, "phase"),
        (solver("net_param", "layrs { }"), "layrs", 2, "layers"),
        ('ent: "train_val.prototxt"', "ent", 1, "net"),
    ],
)
def test_a_misspelt_field_is_an_error_that_names_its_line_and_what_is_meant(
    net: Path, text: str, key: str, line: int, guess: str
) -> None:
    fault = fault_in(net, text)

    assert (fault.key, fault.line) == (key, line)
    assert fault.message.endswith(f"did you mean {guess}?")


def test_any_number_of_unknown_fields_of_any_length_is_looked_at_in_little_time(net: Path) -> None:
    begun = time.process_time()
    with pytest.warns(PrefetchWarning):
        read(net, data(" ".join(f"zzq{number}: 1" for number in range(1000))))
    read(net, f"{data()}\n{'k' * 300000}: 1")
    assert time.process_time() - begun < 5  # it was 15 s, and hours


def test_an_integer_of_thousands_of_digits_is_no_integer(net: Path) -> None:
    fault = fault_in(net, data(data_fields=f"rand_skip: 0x{'f' * 5000}"))
    assert "expected an integer, found one of thousands of digits" in fault.message


def test_every_misspelt_field_is_told_at_once(net: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(net, data("transform_param { mirrror: true }\nincludde { }") + "laayer { }")

    assert [fault.key for fault in caught.value.faults] == [
        "transform_param.mirrror",
        "includde",
        "laayer",
    ]


def test_a_field_of_a_rule_that_resembles_none_is_an_error_too(net: Path) -> None:
    fault = fault_in(net, data("include { xyz: 1 }"))

    assert fault.message == (
        "is no field of a rule in Caffe; Caffe knows max_level, min_level, not_stage, phase, stage"
    )


@pytest.mark.parametrize(
    "layer",
    [
        'layer { bottom: "x" type: "ROIPooling" roi_pooling_param { pooled_h: 7 } }',
        'layer { bottom: "x" type: "BN" bn_param { } crop_parm { } forward_type: FLOAT16 }',
        'layer { top: "x" type: "SegData" seg_data_param { source: "x" } }',
        'layer { top: "x" type: "AnnotatedData" annotated_data_param { batch_sampler { } } }',
        "eltwise_mem_sharing: true default_forward_type: FLOAT16 global_grad_scale: 8",
    ],
)
def test_fields_that_only_forks_of_caffe_have_are_no_fault(net: Path, layer: str) -> None:
    assert read(net, data() + layer).config == read(net, data()).config


# --- what is warned about --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "data_fields", "name"),
    [
        ("", "scale: 0.5", "data_param.scale"),
        ("", 'mean_file: "m"', "data_param.mean_file"),
        ("", "crop_size: 5", "data_param.crop_size"),
        ("", "mirror: true", "data_param.mirror"),
        ("", "rand_skip: 5", "data_param.rand_skip"),
        ("", "force_encoded_color: true", "data_param.force_encoded_color"),
        ("", "shuffle: true", "data_param.shuffle"),
        ("forward_type: FLOAT16", "", "forward_type"),
        ("annotated_data_param { }", "", "annotated_data_param"),
        ("transform_param { use_gpu_transform: true }", "", "transform_param.use_gpu_transform"),
    ],
)
def test_a_field_without_effect_is_named_in_a_warning_and_has_none(
    net: Path, fields: str, data_fields: str, name: str
) -> None:
    with pytest.warns(PrefetchWarning) as caught:
        layer = read(net, data(fields, data_fields))

    (message,) = layer.ignored
    assert [str(warning.message) for warning in caught] == [message]
    assert message.startswith(f"layer 'data' (line 2): {name} ")
    assert "has no effect" in message
    assert layer.config == read(net, data()).config


def test_every_such_field_has_a_warning_of_its_own(net: Path) -> None:
    with pytest.warns(PrefetchWarning) as caught:
        read(net, data("", "scale: 2 rand_skip: 3 cache: true"))

    assert len(caught) == 3


def test_a_field_that_says_what_holds_anyway_is_not_warned_about(net: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = read(
            net,
            data("", "scale: 1 mirror: false rand_skip: 0 crop_size: 0 force_encoded_color: false"),
        )

    assert layer.ignored == ()


def test_a_warning_points_to_the_caller_of_the_function_that_opens(net: Path) -> None:
    def open_prototxt() -> DataLayer:
        return read_data_layer(net, seed=1)

    net.write_text(data("", "rand_skip: 5"), encoding="utf-8")
    with pytest.warns(PrefetchWarning) as caught:
        open_prototxt()

    (warning,) = caught
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert warning.filename == __file__
    assert source[warning.lineno - 1].strip() == "open_prototxt()"


def test_an_old_layer_that_skips_at_random_is_warned_about(net: Path) -> None:
    with pytest.warns(PrefetchWarning, match=r"data_param\.rand_skip"):
        read(net, data("", "rand_skip: 5", form=OLD_DATA))
