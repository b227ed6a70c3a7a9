"""How small files of our own call rasterizers and other extensions, as the text says it."""

import ast
import textwrap
import time

import pytest

from splatfix.facts.source.extension_calls import extension_calls
from splatfix.model import ExtensionCall, RenderCall
from tests.tables import data

TABLE = data(__file__)
FAMILY: str = TABLE["texts"]["family"]


def calls(text: str, most: int = 100) -> tuple[tuple[RenderCall, ...], tuple[ExtensionCall, ...]]:
    return extension_calls("a.py", tuple(ast.walk(ast.parse(text))), most)


def rendering(body: str) -> RenderCall:
    (call,) = calls(FAMILY + textwrap.indent(textwrap.dedent(body), "    "))[0]
    return call


@pytest.mark.parametrize(("body", "unpacks", "at_least"), TABLE["results"])
def test_what_is_taken_of_the_results(body: str, unpacks: int | None, at_least: int) -> None:
    found = rendering(body)
    assert (found.unpacks, found.at_least) == (unpacks, at_least)


def test_arguments() -> None:
    found = rendering("return rasterizer(pc.a, pc.b, shs=None, scores=pc.s)")
    assert (found.forward, found.forward_positional) == (("shs", "scores"), 2)
    hidden = rendering("return rasterizer(**pc)")
    assert (hidden.forward, hidden.forward_positional) == ((), -1)
    unsettled = calls("from diff_gauss import GaussianRasterizer as R\ndef f(s):\n    R(s)(1)\n")[0][0]
    assert unsettled.settings_positional == -1
    assert (found.file, found.line, found.function) == ("a.py", 5, "render")


@pytest.mark.parametrize(("added", "arguments"), [("", (("means3D", "shs"), 0)), ("['dc'] = 1", ((), -1))])
def test_settings_of_a_function_beside_and_arguments_of_a_dict(added: str, arguments: object) -> None:
    """Gaussian-SLAM's way; a key that is added later may be there or not."""
    ((found,), _) = calls(TABLE["texts"]["beside"].replace("given[...]", f"given{added}"))
    assert found.settings == ("bg", "debug") and (found.forward, found.forward_positional) == arguments
    assert found.results == ("color", "depth", "alpha", "radii")


def test_calls_in_branches() -> None:
    """Each is a fact, with the settings it can have been given."""
    found = calls(TABLE["texts"]["branches"])[0]
    assert found[0].results == ("image", "radii", "depth")
    assert [(item.settings, item.forward, item.unpacks) for item in found] == [
        (("bg", "antialiasing"), ("dc",), 3),
        (("bg",), ("dc",), 3),
        (("bg", "antialiasing"), ("shs",), 2),
        (("bg",), ("shs",), 2),
        (("debug",), ("shs",), None),
    ]


def test_a_rasterizer_kept_by_an_object() -> None:
    ((found,), others) = calls(TABLE["texts"]["kept"])
    assert (found.module, found.settings, found.unpacks) == ("diff_surfel_rasterization", ("bg",), 3)
    assert found.function == "draw" and not others


@pytest.mark.parametrize(
    ("module", "told"), [("diff_gauss", 1), ("some_package.rasterizer", 1), ("pytorch3d.renderer", 0)]
)
def test_by_whatever_name_the_module_goes(module: str, told: int) -> None:
    kind = "Points" if "pytorch3d" in module else "Gaussian"
    imports = f"from {module} import {kind}RasterizationSettings as S, {kind}Rasterizer as R\n"
    found = calls(f"{imports}a, b = R(S(x=1))(1)\n")[0]
    assert [(item.module, item.function, item.unpacks) for item in found] == [(module, "", 2)] * told


@pytest.mark.parametrize(("text", "want"), TABLE["other"])
def test_other_calls(text: str, want: tuple[object, ...]) -> None:
    none, (found,) = calls(text)
    told = (found.module, found.name, found.keywords, found.positional, found.unpacks, found.at_least)
    assert told == want and not none


def test_what_is_no_extension() -> None:
    assert calls("from utils.knn import distCUDA2\ndistCUDA2(p)\nrasterizer(x)\n") == ((), ())


@pytest.mark.parametrize(
    "line", ["    rasterizer(1)\n", "    if a:\n        rasterizer = GaussianRasterizer(settings)\n"]
)
def test_it_ends_soon(line: str) -> None:
    started = time.process_time()
    assert len(calls(FAMILY + line * 3000 + "    rasterizer(1)\n", most=50)[0]) <= 50
    assert time.process_time() - started < 5
