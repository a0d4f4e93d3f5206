"""What a notebook shows: the library's pages in a cell, and a line of progress."""

from __future__ import annotations

import html
import os
import sys
from typing import Any, Mapping, Sequence, TextIO, Union

from . import _library as lib
from ._library import Path


class Page:
    """A page of HTML: shown by a notebook, written by save()."""

    def __init__(self, text: str, height: int = 600) -> None:
        self.text, self.height = text, height

    def _repr_html_(self) -> str:
        # In a frame of its own, so that neither page nor notebook sees the other's styles.
        style = f"width: 100%; height: {self.height}px; border: 0"
        return f'<iframe srcdoc="{html.escape(self.text)}" style="{style}"></iframe>'

    def __repr__(self) -> str:
        return f"<heed.Page of {len(self.text)} characters: a notebook shows it, save(path) writes it>"

    def save(self, path: Path) -> None:
        """Writes the page as a file, which works offline."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text)


def report(folders: Union[Path, Sequence[Path]], *, device: Union[str, None] = None, verify: bool = True) -> Page:
    """The report of a run, or several runs side by side: curves, settings, mistakes, attention maps.

    ``folders``: that of a run, or a list of them. Raises heed.Error where there is no run.
    """
    named = [folders] if isinstance(folders, (str, os.PathLike)) else list(folders)
    paths = lib.texts_of([os.fspath(one) for one in named])
    settings = lib.settings_json(dict(device=device, verify=verify))
    return Page(lib.result_text("heed_report", paths, len(named), settings))


class ProgressLine:
    """One line that tells how a training goes, in a terminal or a notebook: ``on_progress=heed.ProgressLine()``.

    It is called with the records of a training. Evaluations and remarks keep their lines.
    """

    def __init__(self, out: Union[TextIO, None] = None) -> None:
        self._out = out or sys.stdout
        self._width = 0

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Shows a record of a training, or its message."""
        if "message" in record:
            return self._write(str(record["message"]), end="\n")
        parts = [f"step {record['step']} of {record['steps']}"]
        found = record.get("evaluation")
        if found is None:
            left = record["elapsed_seconds"] / record["step"] * (record["steps"] - record["step"])
            parts.append(f"loss {record['loss']:.4g}")
            parts.append(f"{record['tokens_per_second']:.0f} {record.get('unit', 'tokens')}/s")
            parts.append(f"{left:.0f} s left")
        else:
            parts += [f"{name} {value:.4g}" for name, value in found.items()]
            parts += ["(kept)"] if record.get("best") else []
        self._write("  ".join(parts), end="" if found is None else "\n")

    def _write(self, text: str, end: str) -> None:
        self._out.write("\r" + text.ljust(self._width) + end)
        self._out.flush()
        self._width = 0 if end else len(text)
