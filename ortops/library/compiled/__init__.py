"""The compiled part of a library of operators: it registers them, and makes and infers nodes without Python."""
