"""The CUDA device, on CuPy."""
