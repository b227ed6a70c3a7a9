"""``splatfix mcp``, asked by the protocol's own client over standard input and output, as an assistant does."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest
from mcp import Client, StdioServerParameters

from splatfix.app.mcp_server import output_schema
from tests.conftest import ROOT

SERVER = StdioServerParameters(
    command=sys.executable, args=["-m", "splatfix", "mcp", "--python", sys.executable]
)


def ask(*calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """The list of tools, then the answer to each call, from one server."""

    async def conversation() -> list[Any]:
        async with Client(SERVER, read_timeout_seconds=120) as client:
            answers: list[Any] = [(await client.list_tools()).tools]
            for name, arguments in calls:
                answers.append(await client.call_tool(name, arguments))
            return answers

    return anyio.run(conversation)


def test_an_assistant_lists_and_calls_the_tools(tmp_path: Path) -> None:
    log = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
    tools, diagnosis, explanation, refused, wrong, lacking, mistyped, gone = ask(
        ("diagnose", {"targets": ["sm_120"]}),
        ("explain", {"log": log}),
        ("diagnose", {"targets": ["sm_1"]}),
        ("explain", {"log": log, "words": log}),
        ("explain", {}),
        ("plan", {"sources": "gsplat", "backend": "cuda"}),
        ("report", {"path": str(tmp_path)}),
    )
    assert [tool.name for tool in tools] == ["diagnose", "plan", "explain", "report"]
    assert all(tool.annotations.read_only_hint for tool in tools)

    schemas = {tool.name: tool.output_schema for tool in tools}
    for name, answer in (("diagnose", diagnosis), ("explain", explanation)):
        assert not answer.is_error
        jsonschema.validate(answer.structured_content, schemas[name])
    assert explanation.structured_content["causes"][0]["class"] == "no-kernel-image"
    assert "no-kernel-image" in explanation.content[0].text

    for answer, words in (
        (refused, "sm_120"),
        (wrong, "output from the command on"),
        (lacking, "log (string, required)"),
        (mistyped, "folders of checkouts"),
        (gone, "certificate.json"),
    ):
        assert answer.is_error and words in answer.content[0].text


@pytest.mark.parametrize("name", ["diagnose", "install", "explain", "report-show"])
def test_a_schema_is_small_and_names_the_published_one(name: str) -> None:
    schema = output_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert len(json.dumps(schema)) < 4096 and "$ref" not in json.dumps(schema)
    published = json.loads((ROOT / "splatfix" / "report" / "schemas" / schema["$id"]).read_text("utf-8"))
    assert schema["properties"].keys() == published["properties"].keys()
