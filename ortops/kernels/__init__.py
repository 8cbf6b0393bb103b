"""The kernels, in the order in which a call of an operator meets them.

- `roi_align`, `dml_roi_align`, `roi_align_rotated`, `max_roi_pool`, `dml_resample` are the operators. Each checks its
  data (`validate`) and has a convention.
- `axis` places the samples: each convention, half pixels, borders and counts of samples. `grid` turns two axes about the
  centre of a rotated RoI; `pixels` has bins of whole pixels instead of samples.
- `tables` turns the samples of one axis into weights of pixels; `roi_tables` does so for all RoIs.
- `schedule` cuts the work into tasks, `forward` and `gradient` are the tasks.
- `rotated_tables` has a table of pixels for each bin of a rotated RoI, and `rotated` the tasks that apply them.
- `pack` lays channels side by side; `average` and `maximum` apply the tables to them. `resample` scales whole tensors.

`layout` has what Python and compiled code agree on. `jit` compiles, keeps and loads kernels, and runs their tasks.
"""
