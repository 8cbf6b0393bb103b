"""The compiled kernels of the operators.

A call uses these modules in this order:

- `entries` has a function for each operator, which checks its data and passes its attributes on.
- `axis` computes the sample positions along one axis by each operator's convention: half pixels, borders, sampling ratios.
  `rotated_grid` does so for rotated RoIs. `pixel_bins` has the bins of MaxRoiPool, which are whole pixels, and its gradient.
- `roi_pool` chooses the compiled functions of a mode and an element type, and calls a driver with their addresses
  (`drivers`, `functions`).
- `tables` sums up the samples of one axis as weights of pixels; `roi_tables` does so for all RoIs.
- `schedule` splits the work into tasks. The drivers `gather` and `scatter` have them.
- `pack` interleaves LANES channels; `average`, `maximum` and `argmax` apply the tables to them.
- `rotated_tables` lists the pixels and weights of each bin of a rotated RoI; `rotated` applies them. `rotated_pool` splits
  the RoIs into parts whose lists have room.
- `resample` scales whole tensors.

Drivers and tables are compiled once, since `layout.Elements` carry their type with them. `pack` is compiled for each element
type, arithmetic for float and double, and for each type where it reads single planes. They call each other by address.

`layout` defines the constants and tuples that Python shares with compiled code. `jit` compiles, stores and loads kernels and
runs their tasks.
"""
