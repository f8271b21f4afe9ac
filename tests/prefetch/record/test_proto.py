"""The messages are Caffe's on the wire, and live beside a program's own caffe_pb2."""

from __future__ import annotations

import hashlib
import pickle
import runpy
import subprocess
import sys
from pathlib import Path

import google.protobuf
import pytest
from google.protobuf import text_format

from prefetch import caffe
from prefetch.caffe import BlobProto, Datum, LayerParameter, NetParameter, SolverParameter

ROOT = Path(__file__).parents[3]

# Registers a second Datum under Caffe's own file and package name, as a program's caffe_pb2 does.
FOREIGN_CAFFE = """
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
file = descriptor_pb2.FileDescriptorProto(name="caffe.proto", package="caffe", syntax="proto2")
file.message_type.add(name="Datum").field.add(name="channels", number=1, type=5, label=1)
pool = descriptor_pool.Default()
pool.Add(file)
foreign = message_factory.GetMessageClass(pool.FindMessageTypeByName("caffe.Datum"))
"""
OUR_CAFFE = """
from prefetch.caffe import Datum
"""
BOTH_WORK = """
assert foreign(channels=3).SerializeToString() == Datum(channels=3).SerializeToString()
assert foreign.DESCRIPTOR.full_name == "caffe.Datum"
assert Datum.DESCRIPTOR.full_name == "prefetch.caffe.Datum"
"""


def test_the_generated_code_is_that_of_the_schema() -> None:
    """Digests are stored beside the code, so that no generator is needed to see staleness."""
    lines = (ROOT / "prefetch/_proto/SOURCE.sha256").read_text().splitlines()
    named = {name: digest for digest, name in (line.split("  ") for line in lines)}
    found = {name: hashlib.sha256((ROOT / name).read_bytes()).hexdigest() for name in named}
    assert named == found
    assert set(named) == {
        "proto/caffe_data.proto",
        "prefetch/_proto/caffe_data_pb2.py",
        "prefetch/_proto/caffe_data_pb2.pyi",
    }


def test_the_schema_folder_holds_no_python() -> None:
    assert {path.name for path in (ROOT / "proto").iterdir()} == {"README.md", "caffe_data.proto"}


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(FOREIGN_CAFFE + OUR_CAFFE + BOTH_WORK, id="after the program's own"),
        pytest.param(OUR_CAFFE + FOREIGN_CAFFE + BOTH_WORK, id="before the program's own"),
    ],
)
def test_a_programs_own_caffe_messages_may_be_registered(program: str) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, cwd=ROOT)


def _imports(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("version", ["5.29.0", "6.31.1", "7.36.2"])
def test_the_import_is_quiet_under_every_protobuf_that_is_claimed(version: str) -> None:
    """Of the versions, with what their own check of generated code would be told."""
    major, minor, patch = version.split(".")
    found = _imports(f"""
import google.protobuf
from google.protobuf import runtime_version
google.protobuf.__version__ = "{version}"
runtime_version.MAJOR, runtime_version.MINOR, runtime_version.PATCH = {major}, {minor}, {patch}
import prefetch.caffe
assert prefetch.caffe.Datum(label=3).SerializeToString() == b"(\\x03"
""")
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize("version", ["3.20.3", "4.25.8", "5.28.3", "5.9", "8.0.0", "8.1-dev"])
def test_another_protobuf_is_refused_by_the_version_that_is_needed(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(google.protobuf, "__version__", version)
    with pytest.raises(ImportError) as caught:
        runpy.run_path(str(ROOT / "prefetch/_protobuf_version.py"))
    assert str(caught.value) == (
        f"prefetch.caffe needs protobuf 5.29 or newer, below 8, and found {version}; run pip "
        "install 'protobuf>=5.29,<8'"
    )


def test_an_old_protobuf_is_refused_before_what_it_does_not_have_is_looked_for() -> None:
    found = _imports("""
import sys
import google.protobuf
google.protobuf.__version__ = "4.25.8"
sys.modules["google.protobuf.runtime_version"] = None
import prefetch.caffe
""")
    assert "prefetch.caffe needs protobuf 5.29 or newer" in found.stderr.splitlines()[-1]


def test_no_protobuf_at_all_is_refused_likewise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(ImportError, match="below 8, and there is none; run pip"):
        runpy.run_path(str(ROOT / "prefetch/_protobuf_version.py"))


def test_the_public_names_are_these() -> None:
    assert caffe.__all__ == [
        "BlobProto",
        "BlobProtoVector",
        "BlobShape",
        "DataParameter",
        "Datum",
        "ImageDataParameter",
        "LayerParameter",
        "NetParameter",
        "NetState",
        "NetStateRule",
        "Phase",
        "SolverParameter",
        "TransformationParameter",
        "V0LayerParameter",
        "V1LayerParameter",
    ]


def test_a_message_shows_and_pickles_under_its_public_name() -> None:
    assert Datum.__module__ == "prefetch.caffe"
    assert pickle.loads(pickle.dumps(Datum(label=3))) == Datum(label=3)  # noqa: S301 - our own


@pytest.mark.parametrize(
    ("message", "tags"),
    [
        (caffe.Datum, "channels 1 height 2 width 3 data 4 label 5 float_data 6 encoded 7"),
        (caffe.BlobShape, "dim 1"),
        (
            caffe.BlobProto,
            "num 1 channels 2 height 3 width 4 data 5 diff 6 shape 7 double_data 8 double_diff 9",
        ),
        (caffe.BlobProtoVector, "blobs 1"),
        (caffe.NetState, "phase 1 level 2 stage 3"),
        (caffe.NetStateRule, "phase 1 min_level 2 max_level 3 stage 4 not_stage 5"),
        (
            caffe.TransformationParameter,
            "scale 1 mirror 2 crop_size 3 mean_file 4 mean_value 5 force_color 6 force_gray 7",
        ),
        (
            caffe.DataParameter,
            (
                "source 1 scale 2 mean_file 3 batch_size 4 crop_size 5 mirror 6 rand_skip 7 "
                "backend 8 force_encoded_color 9 prefetch 10"
            ),
        ),
        (
            caffe.ImageDataParameter,
            (
                "source 1 scale 2 mean_file 3 batch_size 4 crop_size 5 mirror 6 rand_skip 7 "
                "shuffle 8 new_height 9 new_width 10 is_color 11 root_folder 12"
            ),
        ),
        (
            caffe.LayerParameter,
            (
                "name 1 type 2 bottom 3 top 4 include 8 exclude 9 phase 10 transform_param 100 "
                "data_param 107 image_data_param 115"
            ),
        ),
        (
            caffe.V1LayerParameter,
            (
                "layer 1 bottom 2 top 3 name 4 type 5 data_param 11 image_data_param 15 include 32 "
                "exclude 33 transform_param 36"
            ),
        ),
        (
            caffe.V0LayerParameter,
            (
                "name 1 type 2 source 16 scale 17 meanfile 18 batchsize 19 cropsize 20 mirror 21 "
                "rand_skip 53"
            ),
        ),
        (caffe.NetParameter, "name 1 layers 2 state 6 layer 100"),
        (
            caffe.SolverParameter,
            (
                "train_net 1 test_net 2 train_net_param 21 test_net_param 22 net 24 net_param 25 "
                "train_state 26 test_state 27"
            ),
        ),
    ],
)
def test_field_numbers_are_caffes(message: type, tags: str) -> None:
    fields = message.DESCRIPTOR.fields  # type: ignore[attr-defined]
    assert " ".join(f"{field.name} {field.number}" for field in fields) == tags


def test_defaults_are_caffes() -> None:
    layer = LayerParameter()
    assert layer.phase == caffe.Phase.TRAIN
    assert caffe.NetState().phase == caffe.Phase.TEST
    assert layer.data_param.backend == layer.data_param.LEVELDB
    assert (layer.data_param.batch_size, layer.data_param.prefetch) == (0, 4)
    assert layer.image_data_param.batch_size == 1
    assert layer.transform_param.scale == 1
    assert layer.image_data_param.is_color


def test_a_datums_floats_are_written_unpacked_and_a_blobs_packed() -> None:
    assert Datum(float_data=[1, 2]).SerializeToString().hex() == "350000803f3500000040"
    assert BlobProto(data=[1, 2]).SerializeToString().hex() == "2a080000803f00000040"


def test_old_layers_of_every_type_of_caffes_are_read() -> None:
    types = caffe.V1LayerParameter.LayerType.keys()
    assert len(types) == 40
    text = "".join(f"layers {{ type: {name} }}\n" for name in types)
    assert len(text_format.Parse(text, NetParameter()).layers) == 40


def test_what_the_schema_does_not_know_is_skipped() -> None:
    text = """
        name: "net"
        input_dim: [1, 3, 227, 227]
        layer {
          name: "conv" type: "Convolution" unknown_enum: MAX unknown_float: 1e-3 flag: true
          convolution_param { pad: [1, 2] weight_filler { type: "gaussian" std: 0.01 } }
          param { lr_mult: 1 } param < lr_mult: 2 >
          python_param { param_str: '{"a": 1}' "continued" list: [-1, 2.5, WORD] }
        }
        layer { name: "data" type: "Data" data_param { source: "db" cache: true backend: LMDB } }
    """
    network = text_format.Parse(text, NetParameter(), allow_unknown_field=True)
    assert [layer.name for layer in network.layer] == ["conv", "data"]
    assert network.layer[1].data_param.source == "db"


def test_a_solver_file_is_told_by_the_networks_it_names() -> None:
    solver = text_format.Parse(
        'net: "train_val.prototxt" base_lr: 0.01 solver_mode: GPU',
        SolverParameter(),
        allow_unknown_field=True,
    )
    assert solver.net == "train_val.prototxt"
