"""The compiled kernels of the operators.

A call uses these modules in this order:

- `roi_align`, `dml_roi_align`, `roi_align_rotated`, `max_roi_pool` and `dml_resample` are the entry points. Each validates
  its data (`validate`) and passes its attributes on.
- `axis` computes the sample positions along one axis by each operator's convention: half pixels, borders, sampling ratios.
  `rotated_grid` does so for rotated RoIs. `pixel_bins` has the bins of MaxRoiPool, which are whole pixels.
- `tables` sums up the samples of one axis as weights of pixels; `roi_tables` does so for all RoIs.
- `schedule` splits the work into tasks; `forward` and `gradient` have the tasks.
- `rotated_tables` lists the pixels and weights of each bin of a rotated RoI; `rotated` has the tasks that apply them.
- `pack` interleaves LANES channels; `average` and `maximum` apply the tables to them. `resample` scales whole tensors.

`layout` defines the constants and tuples that Python shares with compiled code. `jit` compiles, stores and loads kernels and
runs their tasks.
"""
