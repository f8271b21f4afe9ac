"""Crops that are resized: what they are cut from, what only they need, and who takes part.

- ``photographs``: what the records hold; ``rectangles``: whether an image was made of one.
- ``crops``: drawing and normalising, for loaders that do neither.
- ``torchvision_loader``, ``spdl_images``: loaders, as in the room above.
- ``loops``, ``kernel_loop``: bare loops.
"""
