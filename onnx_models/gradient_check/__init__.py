"""Checks gradients of models against finite differences."""
