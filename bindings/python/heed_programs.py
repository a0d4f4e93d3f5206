"""Starts heed's programs, which are beside its library: the console scripts of the package."""

import importlib.util
import os
import sys


def main():
    """Becomes the program of this name; heed itself, and NumPy, are not imported for it."""
    folder = importlib.util.find_spec("heed").submodule_search_locations[0]
    program = os.path.join(folder, "bin", os.path.basename(sys.argv[0]))
    if not os.path.exists(program):
        sys.exit(f"{program} is not there: it comes with the wheel of heed, or with cmake --install")
    os.execv(program, [program, *sys.argv[1:]])
