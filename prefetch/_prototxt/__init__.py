"""Caffe's network files, to options."""
