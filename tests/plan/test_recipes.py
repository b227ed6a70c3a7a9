import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.context import make_context
from splatfix.core.errors import SplatfixError
from splatfix.core.step import commands
from splatfix.facts.checkout import read_checkout
from splatfix.knowledge.stacks import Stack, stack, stacks, variant
from splatfix.model import Fact
from splatfix.model.option import BUILDING
from splatfix.plan import summarise
from splatfix.plan.dropins import choose_dropins
from tests.archs import goal
from tests.files import put

from .machines import (
    CUDA_12,
    CUDA_13,
    advised_options,
    changed,
    cuda_source,
    machine,
    refused,
    sources_in,
    with_submodules,
)


def known(key: str) -> Stack:
    """The stack of this key."""
    found = stack(key)
    assert found is not None
    return found


def test_recipes_speak_of_things_that_exist() -> None:
    for item in stacks():
        assert item.parts or (item.program and item.build_note), item.key
        for part in item.parts:
            assert part.path or part.note, f"{item.key}: nothing to build and nothing said"
            assert not part.variant or variant(part.variant), part.variant
        named = {part.variant for part in item.parts}
        assert {key for key in item.needs if variant(key)} <= named, item.key
        for path in item.submodules:
            inside = [part for part in item.parts if f"{part.path}/".startswith(("./", f"{path}/"))]
            assert inside, path


def checkout_of(key: str, folder: Path) -> Path:
    """What a checkout of this stack has by which it is known, and every source of its recipe."""
    for path in known(key).recognise:
        if re.search(r"\.\w+$", path):
            put(folder, {path: ""})
        else:
            (folder / path).mkdir(parents=True, exist_ok=True)
    for path in built(key):
        cuda_source(folder / path, Path(path).name.replace("-", "_") or "gsplat")
    return folder


def built(key: str) -> list[str]:
    """The folders of a recipe that setup.py builds, in order."""
    return [part.path for part in known(key).parts if part.path and part.builder == "setup.py"]


BUILDABLE = [item.key for item in stacks() if built(item.key)]


# What is known by its own setup.py, and has no submodule that could be missing.
IN_THE_TOP_FOLDER = {item.key for item in stacks() if any(part.path == "." for part in item.parts)}
IN_THE_TOP_FOLDER.add("faster-gs")


@pytest.mark.parametrize("key", BUILDABLE)
def test_a_checkout_is_built_in_the_order_of_its_recipe(key: str, tmp_path: Path) -> None:
    stack = known(key)
    sources, notes = sources_in([str(checkout_of(key, tmp_path))])
    assert [Path(source.folder) for source in sources] == [(tmp_path / path).resolve() for path in built(key)]
    assert stack.name in notes[0]
    for part in stack.parts:
        assert not part.note or any(part.note in note for note in notes)


@pytest.mark.parametrize("key", [key for key in BUILDABLE if key not in IN_THE_TOP_FOLDER])
def test_a_missing_source_stops_it_and_says_what_to_do(key: str, tmp_path: Path) -> None:
    folder, last = checkout_of(key, tmp_path), built(key)[-1]
    (folder / last / "setup.py").unlink()
    caught = refused(sources_in, [str(folder)])
    assert caught.code == "source-incomplete" and last in caught.what
    assert "--recursive" in caught.todo[0].text, "neither git nor .gitmodules is there"
    (folder / ".git").mkdir()
    assert fetching(folder) == ("git", "-C", str(folder.resolve()), "checkout"), "these are the commit's own"
    for file in (folder / last).iterdir():
        file.unlink()
    with_submodules(folder, last)
    assert fetching(folder) == ("git", "-C", str(folder.resolve()), "submodule")
    (folder / ".git").rmdir()
    assert fetching(folder) == ("git", "clone", "--recursive", f"https://x.org/{Path(last).name}")


def fetching(folder: Path) -> tuple[str, ...]:
    """The beginning of the first command that is advised."""
    return commands(refused(sources_in, [str(folder)]).todo)[0].argv[:4]


@pytest.mark.parametrize("key", ["nerfstudio", "3dgrut", "trellis", "comfyui-3d-pack", "vggt"])
def test_diagnose_advises_what_install_says(key: str, tmp_path: Path) -> None:
    """It said "rebuild SOURCE" where install refuses, and kept the way that works to itself. Names in a note stay as they
    are: "Requirements_extra.txt pins", "Threedgut_tracer" and "Diffoctreerast" were said."""
    folder = checkout_of(key, tmp_path)
    if key == "nerfstudio":
        (folder / "pyproject.toml").write_text('[project]\nname = "nerfstudio"\n')
    caught = refused(sources_in, [str(folder)])
    assert caught.code == "no-extension-of-its-own"
    assert commands(caught.todo)[-1].argv == ("splatfix", "diagnose", "--repo", str(folder))
    assert all(part.note in caught.meaning for part in known(key).parts)
    facts = replace(machine(toolkits=(CUDA_13,)), checkout=read_checkout(folder, ()))
    sources = summarise((str(folder),), make_context(facts), named=(str(folder),))
    options = advised_options((), make_context(facts, goal("sm_120")), sources=sources)
    assert not {item.kind for item in options.available} & set(BUILDING)
    assert options.advice
    said = [step.command.argv for step in options.advice.also_needed[0].steps if step.command]
    wanted = [part.install for part in known(key).parts if part.install]
    assert wanted and [argv[2] for argv in said if argv[:2] == ("splatfix", "install")] == wanted
    assert all("sm_120" in argv for argv in said if argv[0] == "splatfix")


@pytest.mark.parametrize("key", ["lichtfeld", "opensplat", "brush"])
def test_a_program_is_refused_with_what_the_machine_has_for_it(key: str, tmp_path: Path) -> None:
    folder = checkout_of(key, tmp_path)

    def said(*toolkits: object, tools: dict[str, str]) -> SplatfixError:
        facts = machine(toolkits=toolkits)  # type: ignore[arg-type]
        facts = changed(facts, tools=tools, adapters=Fact(None, "", "no loader"))
        return refused(sources_in, [str(folder)], facts)

    assert refused(choose_dropins, [str(folder)]).code == "no-extension-of-its-own"
    good = said(CUDA_13, CUDA_12, tools={"cmake": "3.30.1", "ninja": "1.11", "cargo": "1.90"})
    bad = said(tools={})
    assert good.code == bad.code == "not-a-python-extension"
    needs = known(key).program
    assert needs is not None
    count = len(needs.tools) + bool(needs.cuda)
    assert (good.meaning or "").count("✓") == count and (bad.meaning or "").count("✗") == count
    assert (good.meaning or "").count("? a graphics adapter") == bool(needs.adapters)
