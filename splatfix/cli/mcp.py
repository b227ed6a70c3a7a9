"""For assistants: ``splatfix mcp``."""

from splatfix import app
from splatfix.cli import options


def mcp(python: options.Python = None) -> None:
    """Serve diagnose, plan, explain and report to an assistant, by the Model Context Protocol on standard input and output."""
    app.mcp_server.serve(python)
