"""The head of a page about one design point."""

from __future__ import annotations

from typing import Any

from rich.text import Text


def heading(document: dict[str, Any]) -> Text:
    """What was run: kernel, model, machine and what changed it; then the sizes of the request."""
    name = document["kernel"] + (f" {document['variant']}" if document["variant"] else "")
    changed = f" with {', '.join(document['overrides'])}" if document["overrides"] else ""
    requests = f"{document['users']} request{'s' if document['users'] > 1 else ''} a group"
    if document["decode_users"]:
        requests += f" behind {document['decode_users']} that decode one token each"
    return Text.assemble(
        (f"{name}: {document['workload']} on {document['machine']}{changed}\n", "bold"),
        f"context {document['context']:,}, C {document['C']}, P {document['P']}, tile ",
        f"{document['tile']}, {requests}\n{_queries(document)}\n",
    )


def _queries(document: dict[str, Any]) -> str:
    """Which tokens ask, unless it is the last one alone; and how far back they look."""
    length, start, window = (
        document[f"{name}"] for name in ("query_length", "query_start", "window")
    )
    back = "" if window is None else f"window {window:,}\n"
    if length == 1 and start == document["context"] - 1:
        return back
    return (
        f"queries {start:,} to {start + length - 1:,}, {document['query_tile']:,} at once\n{back}"
    )
