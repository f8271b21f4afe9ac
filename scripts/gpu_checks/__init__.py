"""What gpu_check.py checks on a GPU, a kind of check a module, and what the checks share.

`bench` is what a check is given and what it finds; `packed` finds the library on a bare machine,
and is imported before anything else.
"""
