"""The files that make an environment agree with each other, and name nothing of one machine."""

import logging
import os
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from repo2docker.buildpacks import CondaBuildPack

import mhalesson

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CPU_TORCH = re.search(r"--extra-index-url (https://download\.pytorch\.org[\w/]+)", README)[1]


def pinned(file: str) -> dict[str, str]:
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"==[\w.]+", str(pin.specifier)) for pin in pins)
    return {canonicalize_name(pin.name): str(pin.specifier)[2:] for pin in pins}


def project_files() -> list[Path]:
    """Every file that is not ignored, whether git is here or the project came as an archive."""
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().split()} | {".git"}
    files = []
    for folder, subfolders, names in os.walk(ROOT):
        if "pyvenv.cfg" in names:  # an environment, by whatever name
            subfolders.clear()
            continue
        subfolders[:] = set(subfolders) - ignored
        files += [Path(folder, name) for name in names if name not in ignored]
    return files


def lines_with(pattern: str) -> list[str]:
    """`file:line` of every line of the project's text files that the pattern is found in."""
    found = []
    for path in project_files():
        if path.suffix not in {".npz", ".png"}:
            lines = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
            found += [
                f"{path.relative_to(ROOT).as_posix()}:{n}: {line}"
                for n, line in lines
                if re.search(pattern, line)
            ]
    return found


def test_the_package_says_its_version():
    assert mhalesson.__version__ == PROJECT["version"]


@pytest.mark.parametrize("dependency", [*PROJECT["dependencies"], *EXTRAS["test"], *EXTRAS["wild"]])
def test_every_dependency_is_pinned_to_a_version_it_allows(dependency):
    wanted, pins = Requirement(dependency), pinned("constraints.txt")
    assert wanted.specifier.contains(pins[canonicalize_name(wanted.name)])


def test_the_constraints_fit_every_system():
    pins = pinned("constraints.txt")
    assert pins["torch"] == "2.13.0"
    assert not [name for name in pins if re.match("nvidia|cuda|triton", name)]


def test_conda_brings_only_python_and_pip():
    # pip's torch beside conda's numpy loads two OpenMP runtimes and aborts (pytorch #191367).
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    *from_conda, from_pip = environment["dependencies"]
    assert environment["channels"] == ["conda-forge"]
    assert from_conda == ["python=3.12", "pip"]
    assert from_pip == {"pip": ["-c constraints.txt", "-e .[test]"]}


def test_binder_takes_environment_yml(monkeypatch):
    # repo2docker installs the project only because environment.yml says so (repo2docker #1265).
    monkeypatch.chdir(ROOT)
    logging.disable(logging.WARNING)
    pack = CondaBuildPack(base_image="docker.io/library/buildpack-deps:jammy")
    assert pack.detect()
    assert pack.python_version == "3.12"
    assert not pack._should_preassemble_env  # the whole project is there when pip runs
    logging.disable(logging.NOTSET)


def test_no_registry_is_named():
    # Which registry is used is a matter of whoever installs; only PyTorch's CPU build has to be named.
    hosts = r"pypi\.org|pythonhosted\.|anaconda\.org|download\.pytorch|npmjs\.|debian\.org|huggingface\.co"
    named = lines_with(hosts)
    assert [line for line in named if CPU_TORCH not in line] == []
    assert {line.split(":")[0] for line in named} == {"Makefile", "README.md"}
    assert re.search(r"^TORCH_INDEX \?=\s*$", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_no_path_of_one_machine_is_named():
    assert lines_with(r"(?<![\w.)|])/(?:home|root|Users)/\w|[A-Z]:\\\\?Users") == []


def test_the_readme_knows_every_make_target():
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"lab", "test", "test-all"} <= set(targets)
    assert [target for target in targets if f"`make {target}`" not in README and target != "help"] == []
    assert not set(re.findall(r"`make ([a-z-]+)", README)) - set(targets)


def test_ci_runs_what_the_readme_says():
    script = (ROOT / ".ci/run").read_text()
    chain = re.search(r"^test-all: (.*?) ##", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert f"for target in {chain};" in script
    if os.name != "nt":
        assert os.access(ROOT / ".ci/run", os.X_OK)


def test_github_runs_three_systems_and_two_ends_of_torch():
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    assert [name.split("-")[0] for name in matrix["os"]] == ["ubuntu", "macos", "windows"]
    assert matrix["python"][0] == PROJECT["requires-python"].removeprefix(">=")
    lowest = (
        next(line for line in PROJECT["dependencies"] if line.startswith("torch")).replace(">=", "==") + ".*"
    )
    assert [job["torch"] for job in matrix["include"]] == [lowest, "torch"]
    assert workflow["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())


def test_the_workflow_for_teachers_is_sound():
    workflow = yaml.safe_load(re.search(r"```yaml\n(.*?)```", README, re.DOTALL)[1])
    install, check = (step["run"] for step in workflow["jobs"]["pages"]["steps"] if "run" in step)
    assert install == f'pip install -e ".[test]" -c constraints.txt --extra-index-url {CPU_TORCH}'
    assert README.count(check) == 2  # and by hand, with pip alone
    assert workflow["permissions"] == {"contents": "read"}
