"""``python -m fakecuda script.py arguments...``: run a script on the fake device."""

import runpy
import sys

if len(sys.argv) < 2:
    sys.exit(__doc__)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
