"""The data that Python and compiled code share for a call: definitions, nodes and calls as 8-byte words.

A *record* (`records`) holds words that do not change, except for addresses of functions: an operator's definition, an entry
with its stages. A *node* holds the checked attributes of a model's node, and a *call* holds its tensors (`layout`). In a
process, Python makes records and nodes. In a library, the linker provides the records.
"""
