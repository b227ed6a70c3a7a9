"""``splatfix mcp``, asked by the protocol's own client over standard input and output, as an assistant does."""

import sys
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest
from mcp import Client, StdioServerParameters

from splatfix.app.mcp_server import document_schema

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
    tools, diagnosis, explanation, refused, wrong, gone = ask(
        ("diagnose", {"targets": ["sm_120"]}),
        ("explain", {"log": log}),
        ("diagnose", {"targets": ["sm_1"]}),
        ("explain", {"log": log, "words": log}),
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

    for answer, words in ((refused, "sm_120"), (wrong, "words"), (gone, "certificate.json")):
        assert answer.is_error and words in answer.content[0].text


@pytest.mark.parametrize("name", ["diagnose", "install", "explain", "report-show"])
def test_a_schema_is_whole(name: str) -> None:
    schema = document_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    for key in schema["$defs"]:
        jsonschema.Draft202012Validator(schema).evolve(
            schema={"$ref": f"#/$defs/{key}", "$defs": schema["$defs"]}
        )
