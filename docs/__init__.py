"""The documents of this project. `python -m docs` writes those that are generated: operators.md, and all of images/."""
