"""examples/notebook.ipynb runs from top to bottom, and is kept without outputs; 77, for "skipped", where Jupyter is missing."""

import json
import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "examples" / "notebook.ipynb"


def check(condition, words):
    if not condition:
        sys.exit(words)


def main():
    kept = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    for cell in kept["cells"]:
        if cell["cell_type"] == "code":
            check(not cell["outputs"] and cell["execution_count"] is None, f"{NOTEBOOK} is kept without outputs: clear them")
    try:
        import ipykernel  # noqa: F401
        import nbformat
        import numpy  # noqa: F401
        from nbclient import NotebookClient
    except ImportError as missing:
        print(f"skipped: {missing}")
        return 77
    package = os.environ.get("HEED_PACKAGE", str(ROOT / "bindings" / "python"))
    os.environ["PYTHONPATH"] = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}}).execute()  # raises what a cell raises
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = [json.dumps(cell.outputs) for cell in cells]
    for words in ("heed.Run of classify with dot_product", "step 60 of 60", "['good' 'bad']", "(4, 4, 4)", "linear_transformer",
                  "accuracy 1.00"):
        check(any(words in one for one in shown), f"no cell shows {words!r}: {shown}"[:3000])
    pages = sum("<iframe" in one for one in shown)
    check(pages == 2 + ("<iframe" in shown[2]), f"{pages} cells show a page: maps and a report do")
    print(f"{len(cells)} cells ran")
    return 0


if __name__ == "__main__":
    sys.exit(main())
