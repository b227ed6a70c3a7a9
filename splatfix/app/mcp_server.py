"""``splatfix mcp``: the read-only commands as tools of an assistant, by the Model Context Protocol.

Each tool is a function of :mod:`splatfix.api`. It answers with the text that the command prints, and with the document of its
``--json`` as structured content, whose schema the tool carries.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splatfix import __version__, api
from splatfix.app.result import Result
from splatfix.core.data import dataclass
from splatfix.core.errors import SplatfixError

if TYPE_CHECKING:
    from mcp import types
    from mcp.server.lowlevel import Server

_SCHEMAS = Path(__file__).resolve().parent.parent / "report" / "schemas"
_TARGETS = {
    "type": "array",
    "items": {"type": "string"},
    "description": "GPU architectures such as sm_120; without any, the GPUs of this machine",
}
_REPO = {"type": "string", "description": "folder of a splatting stack's checkout to look at as well"}
_SOURCES = {
    "type": "array",
    "items": {"type": "string"},
    "description": "folders of checkouts or extensions, or packages with a drop-in, such as simple_knn",
}
_BACKEND = {"enum": ["native", "nvrtc", "warp", "pure", "auto"], "description": "default: native"}
_INSTRUCTIONS = (
    "splatfix finds out what is wrong with an installation of 3D Gaussian Splatting (CUDA, PyTorch, rasterizers). "
    "Begin with diagnose; give explain the output of a failed build or training. Nothing here changes the machine: "
    "the commands in the answers are for the user to run."
)


@dataclass(frozen=True)
class _Tool:
    """One command as a tool."""

    description: str
    schema: str
    """Name of the schema of its document."""
    properties: Mapping[str, Mapping[str, Any]]
    call: Callable[..., Result]
    required: tuple[str, ...] = ()

    @property
    def input_schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": dict(self.properties),
            "required": list(self.required),
            "additionalProperties": False,
        }

    @property
    def usage(self) -> str:
        lines = ["It takes:"]
        for name, schema in self.properties.items():
            needed = "required" if name in self.required else "optional"
            kind = schema.get("type") or " or ".join(schema["enum"])
            lines.append(f"  {name} ({kind}, {needed}): {schema['description']}")
        return "\n".join(lines)


def _tools(python: str | None) -> dict[str, _Tool]:
    """The tools by name, for one environment: whoever starts the server names it, not whoever calls."""
    return {
        "diagnose": _Tool(
            "What is wrong with this machine and its Python environment, with evidence and the fix.",
            "diagnose",
            {"targets": _TARGETS, "repo": _REPO},
            lambda **given: api.diagnose(python=python, **given),
        ),
        "plan": _Tool(
            "What splatfix install would do to make rasterizers and other extensions run on a GPU, and every option.",
            "install",
            {"sources": _SOURCES, "targets": _TARGETS, "backend": _BACKEND},
            lambda sources=(), **given: api.plan(*sources, python=python, **given),
        ),
        "explain": _Tool(
            "The cause of a failed build or training and its fix, from the text of its log.",
            "explain",
            {"log": {"type": "string", "description": "output from the command on, at best all of it"}},
            api.explain,
            required=("log",),
        ),
        "report": _Tool(
            "What a certificate of splatfix certify or rehearse really shows.",
            "report-show",
            {"path": {"type": "string", "description": "certificate.json, or the folder of the report"}},
            api.report,
            required=("path",),
        ),
    }


def serve(python: str | None) -> None:
    """Answer an assistant on standard input and output until it hangs up.

    Args:
        python: the interpreter or environment that the tools look at.

    Raises:
        SplatfixError: ``mcp-missing`` (exit code 3) without the package mcp, ``no-interpreter`` (exit code 2).
    """
    try:
        import anyio
        from mcp.server.stdio import stdio_server
    except ImportError as error:
        raise SplatfixError.of("app.mcp-missing", error=error) from error
    from splatfix.facts import choose_python

    server = make_server(choose_python(python).interpreter())

    async def serve_streams() -> None:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    anyio.run(serve_streams)


def make_server(python: str) -> Server[Any]:
    """The server, before it has anybody to answer."""
    import anyio.to_thread
    from mcp import types
    from mcp.server.lowlevel import Server

    tools = _tools(python)

    async def listed(_context: Any, _request: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_listed(name, tool) for name, tool in tools.items()])

    async def called(_context: Any, request: types.CallToolRequestParams) -> types.CallToolResult:
        if request.name not in tools:
            return _refused(f"There is no tool {request.name!r}; there are {', '.join(tools)}.")
        tool = tools[request.name]
        return await anyio.to_thread.run_sync(_called, tool, request.arguments or {})

    return Server(
        "splatfix",
        version=__version__,
        instructions=_INSTRUCTIONS,
        on_list_tools=listed,
        on_call_tool=called,
    )


def _listed(name: str, tool: _Tool) -> types.Tool:
    from mcp import types

    return types.Tool(
        name=name,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=output_schema(tool.schema),
        annotations=types.ToolAnnotations(read_only_hint=True, destructive_hint=False),
    )


def _called(tool: _Tool, arguments: Mapping[str, Any]) -> types.CallToolResult:
    """What the tool says; a problem is an answer too, so that the assistant can go on."""
    import fastjsonschema
    from mcp import types

    try:
        fastjsonschema.validate(tool.input_schema, arguments)
        result = tool.call(**arguments)
        document = result.document()
    except fastjsonschema.JsonSchemaValueException as problem:
        return _refused(f"Wrong arguments: {problem.message}.\n{tool.usage}")
    except SplatfixError as problem:
        return _refused(str(Result("splatfix", dict, lambda _: None, problem.exit_code, problem)))
    text = types.TextContent(type="text", text=str(result))
    # through JSON, as --json prints it: tuples are lists there
    return types.CallToolResult(content=[text], structured_content=json.loads(json.dumps(document)))


def _refused(text: str) -> types.CallToolResult:
    from mcp import types

    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


def output_schema(name: str) -> dict[str, Any]:
    """The schema of a command's document without what its definitions hold: whole it has 70 KB, which an assistant reads
    before its first question. The ``$id`` is that of the whole one, in ``splatfix/report/schemas``."""

    def shortened(row: dict[str, Any]) -> dict[str, Any]:
        if "$ref" in row:
            return {"type": "object", "title": row["$ref"].rpartition("/")[2]}
        return row

    schema: dict[str, Any] = json.loads(
        (_SCHEMAS / f"{name}.json").read_text(encoding="utf-8"), object_hook=shortened
    )
    return schema
