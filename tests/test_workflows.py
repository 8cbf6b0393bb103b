# SPDX-License-Identifier: MIT
"""The shell of the action and of the release workflow, outside of GitHub: without its programs and the network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from suite_runs import INSIDE

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))

PROGRAMS = {
    "python": f'if [ "$2" = pip ]; then printf "%s\\n" "$@" > pip.txt; else exec {sys.executable} "$@"; fi',
    # The artifact of run 7 is the base's report.
    "gh": 'case "$*" in run\\ list*) echo 5 7;; run\\ download\\ 7*) cp base.json "${!#}/report.json";; *) exit 1;; esac',
}
BACKEND = """
def answer(op_type, inputs, attributes, outputs):
    return inputs["X"].mean(keepdims=True) + WRONG
"""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs in place of others are of a POSIX shell")


class Job:
    """A job that runs the steps of the action in a folder, as GitHub does."""

    def __init__(self, folder: Path) -> None:
        for name, text in PROGRAMS.items():
            (folder / name).write_text(f"#!/usr/bin/env bash\n{text}\n", "utf-8")
            (folder / name).chmod(0o755)
        self.folder, self.summary, self.output = folder, folder / "summary", folder / "output"
        self.inputs = {name: str(value.get("default", "")) for name, value in ACTION["inputs"].items()}

    def run(self, step: dict[str, Any]) -> int:
        """The exit status of a step."""
        values = {f"inputs.{name}": value for name, value in self.inputs.items()}
        if self.output.exists():
            values["steps.run.outputs.reports"] = self.output.read_text("utf-8").strip().partition("=")[2]
        own = {
            key: re.sub(r"\$\{\{ (.*?) \}\}", lambda m: values.get(m[1], m[1]), text)
            for key, text in step["env"].items()
        }
        github = {"GITHUB_BASE_REF": "main", "GITHUB_WORKFLOW_REF": "a/b/.github/workflows/c.yml@refs/pull/1/merge"}
        github |= {"GITHUB_REPOSITORY": "a/b", "GITHUB_ACTION_PATH": str(ROOT), "RUNNER_TEMP": str(self.folder)}
        github |= {"GITHUB_STEP_SUMMARY": str(self.summary), "GITHUB_OUTPUT": str(self.output)}
        paths = {"PATH": f"{self.folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        return subprocess.run(bash, cwd=self.folder, env=os.environ | github | paths | own, check=False).returncode  # noqa: S603


def test_the_action_runs_the_suite_and_shows_what_a_pull_request_changes(tmp_path: Path) -> None:
    job = Job(tmp_path)
    install, ask, compare, keep = ACTION["runs"]["steps"]
    job.inputs |= {"backend": "own:answer", "select": INSIDE, "requirements": "one==1\ntwo>=2", "jobs": "1"}
    assert job.run(install) == 0
    assert (tmp_path / "pip.txt").read_text("utf-8").split() == [
        "-m",
        "pip",
        "install",
        f"{ROOT}[conformance]",
        "one==1",
        "two>=2",
    ]
    (tmp_path / "own.py").write_text(BACKEND.replace("WRONG", "100"), "utf-8")
    assert job.run(ask) == 1
    assert "\n    does not conform at level standard: 1 rule broken: " in job.summary.read_text("utf-8")
    assert "\n    0 passed, 1 failed" in job.summary.read_text("utf-8")
    (reports,) = tmp_path.glob("conformance.*")
    assert {path.name for path in reports.iterdir()} == {"report.json", "junit.xml", "page.html", "output.txt"}
    assert job.run(compare) == 0
    assert "No report to compare with" in job.summary.read_text("utf-8")
    base = (reports / "report.json").read_text("utf-8").replace('"failed"', '"passed"')
    (tmp_path / "base.json").write_text(base, "utf-8")
    assert job.run(compare) == 0
    assert f"    1 newly failing\n      {INSIDE}: passed -> failed" in job.summary.read_text("utf-8")
    assert keep["with"]["path"] == "${{ steps.run.outputs.reports }}"


@pytest.mark.parametrize(("name", "value"), [("at-least", "2"), ("jobs", "0"), ("level", "all"), ("strict", "core")])
def test_the_action_passes_its_inputs_on(
    tmp_path: Path, name: str, value: str, capfd: pytest.CaptureFixture[str]
) -> None:
    job = Job(tmp_path)
    job.inputs |= {"backend": "own:answer", "select": INSIDE, name: value}
    assert job.run(ACTION["runs"]["steps"][1]) == 2
    assert f"--{name}" in capfd.readouterr().err


def test_a_release_says_where_its_sources_are(tmp_path: Path) -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text("utf-8"))
    commands = [step["run"] for step in workflow["jobs"]["build"]["steps"] if "HOME_PAGE" in step.get("env", {})]
    for name in ("pyproject.toml", "zensical.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    environment = {"PATH": os.environ["PATH"], "HOME_PAGE": "https://example.org/a/b"}
    for command in commands:
        subprocess.run(["bash", "-ec", command], cwd=tmp_path, env=environment, check=True)  # noqa: S603, S607
    readme, site = ((tmp_path / name).read_text("utf-8") for name in ("README.md", "zensical.toml"))
    links = re.findall(r'\]\(([^)]+)\)|(?:src|srcset)="([^"]+)"', readme)
    assert [link for link in links if not "".join(link).startswith("https://example.org/a/b/")] == []
    assert tomllib.loads(site)["project"]["repo_url"] == "https://example.org/a/b"
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["urls"]["Issues"] == "https://example.org/a/b/issues"


def test_a_release_pushes_the_site_to_its_branch(tmp_path: Path) -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text("utf-8"))
    (step,) = (step for step in workflow["jobs"]["site"]["steps"] if "run" in step)
    site, programs = tmp_path / "site", tmp_path / "programs"
    for folder in (site, programs):
        folder.mkdir()
    (site / "index.html").write_text("words")
    (programs / "gh").write_text("#!/bin/sh\n")
    (programs / "gh").chmod(0o755)
    subprocess.run(["git", "init", "--quiet", "--bare", "a/b"], cwd=tmp_path, check=True)  # noqa: S607
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(tmp_path), "GITHUB_REF_NAME": "v1"}
    environment |= {"GITHUB_SERVER_URL": str(tmp_path), "GITHUB_REPOSITORY": "a/b"}
    subprocess.run(["bash", "-ec", step["run"]], cwd=site, env=environment, check=True)  # noqa: S603, S607
    listed = ["git", "--git-dir", "a/b", "ls-tree", "--name-only", "gh-pages"]
    names = subprocess.run(listed, cwd=tmp_path, capture_output=True, text=True, check=True).stdout  # noqa: S603
    assert names.split() == [".nojekyll", "index.html"]


def test_the_readme_has_the_pythons_of_continuous_integration() -> None:
    jobs, readme = (ROOT / ".github/workflows/ci.yml").read_text("utf-8"), (ROOT / "README.md").read_text("utf-8")
    for systems, job in (("Linux, macOS", "python"), ("Windows", "windows")):
        versions = re.search(rf"\n  {job}:\n(?:    .*\n)*?        python: \[(.*)\]\n", jobs)
        assert versions is not None
        assert f"| {systems} | {versions[1].replace(chr(34), '')} |" in readme
