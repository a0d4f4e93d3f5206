#!/usr/bin/env python3
"""Turns the lines of `heed bench attention --json` into the Markdown tables of docs/attention.md.

    build/bin/heed bench attention --json | python3 bench/scaling_table.py
"""

import json
import sys


def table(title, columns, rows):
    print(f"| {title} | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for name, cells in rows:
        print(f"| `{name}` | " + " | ".join(cells) + " |")
    print()


def main():
    costs, exponents = {}, {}
    for line in map(json.loads, sys.stdin):
        if "time_exponent" in line:
            exponents[line["variant"]] = line
        else:
            costs.setdefault(line["variant"], {})[line["length"]] = line
    lengths = sorted({n for by_length in costs.values() for n in by_length})
    for title, key, unit in (("ms", "ms", 1), ("peak MB", "peak_mb", 1), ("GFLOP", "flops", 1e9)):
        fitted = {"ms": "time_exponent", "peak_mb": "memory_exponent"}.get(key)
        rows = []
        for variant, by_length in costs.items():
            values = [by_length.get(n, {}).get(key) for n in lengths]
            cells = ["-" if v is None else format(v / unit, ".1f" if v / unit < 100 else ".0f") for v in values]
            if fitted:
                exponent = exponents.get(variant, {}).get(fitted)
                cells.append("-" if exponent is None else format(exponent, ".2f"))
            rows.append((variant, cells))
        table(title, [str(n) for n in lengths] + (["p of N^p"] if fitted else []), rows)


main()
