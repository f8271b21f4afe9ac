"""Code that scripts/gen_proto.py generates from proto/caffe_data.proto; see prefetch.caffe."""
