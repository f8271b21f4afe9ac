"""One part of a batch into rows: the contract, NumPy's way, C's, CUDA's."""
