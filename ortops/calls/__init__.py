"""What Python and compiled code know together of a call: definitions, nodes and calls as words of 8 bytes.

A *record* (`records`) has words that do not change but for addresses of functions: an operator's definition, an entry with
its stages. A *node* has the checked attributes of one node of a model, and a *call* its tensors (`layout`).
In a process Python makes records and nodes; a library has its records from the linker.
"""
