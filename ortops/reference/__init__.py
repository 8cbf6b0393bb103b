"""The oracle: what each operator computes, as plain float64 loops."""
