r"""Caffe's messages, as protobuf classes: what databases, mean files and network files hold.

The classes read and write Caffe's own bytes and text. They are registered under the package
``prefetch.caffe``, so that a program may import its own ``caffe_pb2`` before or after this module.

Nothing here is used for each record: records are parsed without protobuf, which copies every
payload and holds the GIL meanwhile.

>>> Datum(channels=1, height=1, width=3, data=b"abc", label=7).SerializeToString()
b'\x08\x01\x10\x01\x18\x03"\x03abc(\x07'
"""

from __future__ import annotations

import prefetch._protobuf_version  # noqa: F401 - before what is generated, which says less
from prefetch._proto.caffe_data_pb2 import (
    BlobProto,
    BlobProtoVector,
    BlobShape,
    DataParameter,
    Datum,
    ImageDataParameter,
    LayerParameter,
    NetParameter,
    NetState,
    NetStateRule,
    Phase,
    SolverParameter,
    TransformationParameter,
    V0LayerParameter,
    V1LayerParameter,
)

__all__ = [
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

for _name in __all__:
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = __name__  # tracebacks and pickles show the public name
