"""What Python and compiled code share of a call: definitions, nodes and calls (`types`), and a library (`interface`)."""
