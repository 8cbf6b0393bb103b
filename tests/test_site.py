"""The parts of the site that need no MkDocs: the page of public names, the order of the pages, and their links."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from release.site import DOCS, OUTSIDE, PUBLIC, ROOT, api_page, order, with_links

HERE = "https://example.org/a/b"


@pytest.mark.parametrize("module", [name for name in PUBLIC if not name.endswith(".torch")])
def test_the_page_of_public_names_has_each_name(module: str) -> None:
    page = api_page()
    listed = re.findall(r"^::: (\S+)$", page, re.MULTILINE) + re.findall(r"heading: ([\w.]+)", page)
    assert {f"{module}.{name}" for name in importlib.import_module(module).__all__} <= set(listed)


def test_names_that_need_pytorch_are_on_the_page_without_it() -> None:
    assert "::: ortops.torch.patch_torchvision\n" in api_page()
    assert "::: onnx_models.torch.export\n" in api_page()


def test_a_function_with_the_name_of_its_module_is_not_taken_for_the_module() -> None:
    page, options = api_page(), "    options: {heading: onnx_models.NAME, toc_label: NAME}"
    for path in ("gradient.gradient", "convert.convert", "portable.lower.lower"):
        assert f"::: onnx_models.{path}\n{options.replace('NAME', path.rpartition('.')[2])}\n" in page


def test_every_document_is_listed_once_in_the_order_in_which_the_readme_links_to_them() -> None:
    documents = sorted(path.name for path in DOCS.glob("*.md"))
    listed = order((ROOT / "README.md").read_text("utf-8"), documents)
    assert sorted(listed) == sorted([*documents, *OUTSIDE.values(), "api.md"])
    assert order("[b](docs/b.md#x) [a](docs/a.md)", ["a.md", "b.md", "c.md"])[:4] == [
        "index.md",
        "b.md",
        "a.md",
        "c.md",
    ]


@pytest.mark.parametrize(
    ("folder", "text", "expected"),
    [
        (ROOT, "[a](docs/design.md#x)", "[a](design.md#x)"),
        (ROOT, "[a](CONTRIBUTING.md)", "[a](contributing.md)"),
        (DOCS, "[a](../SECURITY.md)", "[a](security.md)"),
        (DOCS, "[a](../README.md#speed)", "[a](index.md#speed)"),
        (DOCS, "[a](design.md)", "[a](design.md)"),
        (DOCS, "[a](#x) [b](https://c.d/e)", "[a](#x) [b](https://c.d/e)"),
        (DOCS, "[`a[0]`](../examples/fit_box.py)", f"[`a[0]`]({HERE}/blob/main/examples/fit_box.py)"),
        (DOCS, "[a](no_such_file.md)", "[a](no_such_file.md)"),
        (DOCS, "```\n[a](../SECURITY.md)\n```\n", "```\n[a](../SECURITY.md)\n```\n"),
        (ROOT, '<img src="docs/images/speed.svg">', '<img src="images/speed.svg">'),
        (DOCS, '<img src="images/speed.svg">', '<img src="images/speed.svg">'),
    ],
)
def test_a_link_leads_where_it_does_on_disk(folder: Path, text: str, expected: str) -> None:
    assert with_links(text, folder, HERE) == expected


def test_without_an_address_of_the_repository_a_link_to_a_source_is_plain_words() -> None:
    assert with_links("See [the *loss*](../examples/fit_box.py).", DOCS, "") == "See the *loss*."
