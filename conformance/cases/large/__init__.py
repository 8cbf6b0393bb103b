"""Cases of a detector's sizes, whose tensors are computed from formulas."""
