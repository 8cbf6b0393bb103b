"""Shared libraries of the operators, for hosts without Python."""
