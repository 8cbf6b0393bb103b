# SPDX-License-Identifier: MIT
"""The compiled kernels of the operators.

A call uses these modules in this order:

- `pool` has two entries, one for all poolings and one for their gradients. An entry checks the data, places the samples of
  the RoIs and calls a driver. `library.drivers` says how operators, modes and element types
  differ. `error_texts` writes errors.
- `axis` computes the sample positions along one axis by each operator's convention: half pixels, borders, sampling ratios.
  `rotated_grid` does so for rotated RoIs. `pixel_bins` computes MaxRoiPool's bins of whole pixels and its gradient.
- `parts` splits the RoIs and calls a driver for each part. `sums` adds up and rounds the drois of all parts.
- `tables` turns the samples along one axis into pixel weights. `roi_tables` fills the tables of all RoIs.
- `schedule` splits the work into tasks. The drivers `gather` and `scatter` run them.
- `pack` interleaves LANES channels. `average`, `maximum` and `argmax` apply the tables to them.
- `rotated_tables` lists the pixels and weights of each bin of a rotated RoI; `rotated` applies them.
- `resample` scales whole tensors.
- `attention` has the entries of deformable attention, and `attention_points` its arithmetic.

Drivers and tables are compiled once, because an `Elements` pointer carries its type. `pack` is specialised for each element
type. Arithmetic is specialised for float and double, and for each element type where it reads single planes. All of them
call each other by address.

`layout` defines the constants and tuples that Python shares with compiled code. `compiler` compiles and stores kernels, and
`native.tasks` runs their tasks.
"""
