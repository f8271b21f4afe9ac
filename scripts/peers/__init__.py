"""Data loaders measured side by side, on the same database and the same work.

Every loader runs in a process of its own, so that imports, memory and threads do not mix; all of
them stay open while the rounds of a work are measured in turns. A module a noun:

- ``works``: what is to be done, and ``databases``: what it is done on.
- ``roster``: which loaders there are; ``feed``, ``pytorch``, ``spdl_pipeline``, ``grain_threads``,
  ``dali_pipeline``: one each, and ``bare``: loops to compare them with. Each offers ``candidates``,
  the settings worth trying on this machine, and ``open_stream``, an endless stream of batches.
- ``resizing``: a room for what only crops that are resized need.
- ``records`` and ``filling``: reading and transforming with NumPy, for loaders that bring neither.
- ``serve``: the process around one loader; ``contestant``: its other end; ``process_tree``: what it
  costs, with its children; ``verification``: whether it did the work.
- ``contest``: the order of the measurements; ``comparison``: what they say.

Invariants:

- A stream never ends and takes the records in the order of their keys, again and again. The number
  of records is a multiple of the batch size, so
  any piece as long as an epoch has every record once.
- The arrays of a batch are valid until the next one is asked for, and no longer.
- A process opens one loader, once, and ends. Databases are closed by that: some loaders' threads
  still work when they have been told to stop, and must not find the map gone.
"""
