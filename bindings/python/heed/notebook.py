"""Reports in notebook cells, and a progress line."""

from __future__ import annotations

import html
import os
import sys
from typing import Any, Mapping, Sequence, TextIO, Union

from . import _library as lib
from ._library import Path


class Page:
    """An HTML page: notebooks display it, save() writes it."""

    def __init__(self, text: str, height: int = 600) -> None:
        self.text, self.height = text, height

    def _repr_html_(self) -> str:
        # In a frame of its own, so that neither page nor notebook sees the other's styles.
        style = f"width: 100%; height: {self.height}px; border: 0"
        return f'<iframe srcdoc="{html.escape(self.text)}" style="{style}"></iframe>'

    def __repr__(self) -> str:
        return f"<heed.Page of {len(self.text)} characters: a notebook shows it, save(path) writes it>"

    def save(self, path: Path) -> None:
        """Writes the page to a file that works offline."""
        with open(lib.path_of(path), "w", encoding="utf-8") as file:
            file.write(self.text)


def report(folders: Union[Path, Sequence[Path]], *, device: Union[str, None] = None, verify: bool = True) -> Page:
    """Returns the report of one run, or of several side by side: curves, settings, mistakes, attention maps.

    ``folders`` is a run's folder or a list of them. Raises heed.Error if there is no run.
    """
    named = [folders] if isinstance(folders, (str, os.PathLike)) else list(folders)
    paths = lib.texts_of([lib.encoded(lib.path_of(folder)) for folder in named])
    settings = lib.settings_json(dict(device=device, verify=verify))
    return Page(lib.result_text("heed_report", paths, len(named), settings))


class ProgressLine:
    """A progress line for a terminal or a notebook: ``on_progress=heed.ProgressLine()``.

    Evaluations and remarks stay on lines of their own.
    """

    def __init__(self, out: Union[TextIO, None] = None) -> None:
        self._out = out or sys.stdout
        self._width = 0

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Shows a training record or message."""
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
