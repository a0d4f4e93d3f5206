"""Holds the parts of the tree to the limits in tests/budget.txt. Without arguments: prints each count beside its limit,
and fails if one is exceeded."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE = re.compile(r"\.(cpp|h|c|inc|def|glsl|comp|py|sh|cmake)$")
PARTS = {
    "engine": r"(base|core|autograd|backends|shaders|models|text|training)/",
    "apps": r"apps/",
    "bindings": r"bindings/",
    "bench": r"bench/",
    "examples": r"examples/",
    "product": r"(?!tests/)",
    "tests": r"tests/",
}


def count(texts):
    """The counts of a tree: {name in budget.txt: number}."""
    product = {path: text for path, text in texts.items() if not path.startswith("tests/")}
    cpp = {path: text for path, text in product.items() if re.search(r"\.(cpp|h)$", path)}
    below_cli = {path: text for path, text in cpp.items() if not path.startswith(("apps/cli/", "bench/", "examples/"))}

    def found(pattern, files):
        return [match for text in files.values() for match in re.findall(pattern, text)]

    counts = {name: sum(text.count("\n") for path, text in texts.items() if re.match(pattern, path))
              for name, pattern in PARTS.items()}
    return {
        **counts,
        "files": len(product),
        "short_files": sum(text.count("\n") <= 40 for text in product.values()),
        "flags_below_cli": len(found(r'"[^"\n]*--[a-z][a-z-]+', below_cli)),
        "includes_of_tests": len(found(r'#include "heed/tests/', cpp)),
        "untyped_settings": len(found(r'get<[^>]+>\("', cpp)),
        "thread_local": len(found(r"\bthread_local\b", cpp)),
        "functions_in_of": len(set(found(r"\b([a-z_]+_of)\(", cpp))),
    }


def main():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        print("skipped: the sources are no git checkout")
        return 77
    paths = [path for path in listed.stdout.split("\n") if CODE.search(path) and not path.startswith("docs/")]
    counts = count({path: (ROOT / path).read_text(errors="replace") for path in paths if (ROOT / path).exists()})
    limits = dict(line.split()[:2] for line in (ROOT / "tests/budget.txt").read_text().splitlines()
                  if line and not line.startswith("#"))
    if limits.keys() != counts.keys():
        sys.exit(f"tests/budget.txt and this test name different parts: {limits.keys() ^ counts.keys()}")
    over = [name for name, number in counts.items() if number > int(limits[name])]
    for name, number in counts.items():
        print(f"{name:18}{number:7} of {limits[name]:>7}{'   too many: take something away' * (name in over)}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
