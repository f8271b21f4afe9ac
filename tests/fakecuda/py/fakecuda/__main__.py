"""``python -m fakecuda script.py arguments...``: run a script on the fake device."""

import runpy
import sys
from pathlib import Path

import fakecuda

if len(sys.argv) < 2:
    sys.exit(__doc__)
del sys.argv[0]
sys.path[0] = str(Path(sys.argv[0]).resolve().parent)  # as python script.py has it
fakecuda.give_own_kernels()
runpy.run_path(sys.argv[0], run_name="__main__")
