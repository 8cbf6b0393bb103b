"""The compiled kernels of the operators.

A call uses these modules in this order:

- `pool` has the entry of all poolings and that of their gradients: they check the data, place the samples of the RoIs and
  call a driver. `entries` tells what operators, modes and element types differ in, as records; `refusals` writes errors.
- `axis` computes the sample positions along one axis by each operator's convention: half pixels, borders, sampling ratios.
  `rotated_grid` does so for rotated RoIs. `pixel_bins` has the bins of MaxRoiPool, which are whole pixels, and its gradient.
- `parts` calls a driver for parts of the RoIs, and `sums` rounds the drois of all parts.
- `tables` sums up the samples of one axis as weights of pixels; `roi_tables` does so for all RoIs.
- `schedule` splits the work into tasks. The drivers `gather` and `scatter` have them.
- `pack` interleaves LANES channels; `average`, `maximum` and `argmax` apply the tables to them.
- `rotated_tables` lists the pixels and weights of each bin of a rotated RoI; `rotated` applies them.
- `resample` scales whole tensors.

Drivers and tables are compiled once, since `layout.Elements` carry their type with them. `pack` is compiled for each element
type, arithmetic for float and double, and for each type where it reads single planes. They call each other by address.

`layout` defines the constants and tuples that Python shares with compiled code. `jit` compiles, stores and loads kernels and
runs their tasks.
"""
