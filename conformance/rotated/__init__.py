"""Geometry, error bounds and well-posedness of RoIAlignRotated, which samples rotated RoIs."""
