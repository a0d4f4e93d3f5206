"""Makes a wheel with libheed.so and the libraries that it needs; pyproject.toml has the rest.

The library is that of the build tree (build/lib/libheed.so, built if it is missing) or the one that HEED_LIBRARY names.
"""

import os
import pathlib
import platform
import re
import shutil
import subprocess

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
    from wheel.bdist_wheel import bdist_wheel

root = pathlib.Path(__file__).resolve().parent.parent.parent
# Every system has these, and drivers may need newer ones.
OF_THE_SYSTEM = re.compile(r"(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+))\.so")
OPENED = "libopenblas.so.0"  # opened at run time, so ldd does not list it


def built_library():
    named = os.environ.get("HEED_LIBRARY")
    library = pathlib.Path(named) if named else root / "build" / "lib" / "libheed.so"
    if not named and not library.exists():
        subprocess.run(["cmake", "--preset", "release"], cwd=root, check=True)
        subprocess.run(["cmake", "--build", "build", "--target", "heed_shared"], cwd=root, check=True)
    return library


def needed_by(library):
    """The libraries that one needs, by name, without those of every system."""
    listed = subprocess.run(["ldd", library], check=True, capture_output=True, text=True).stdout
    lacking = re.findall(r"(\S+) => not found", listed)
    if lacking:
        raise SystemExit(f"{library} needs {', '.join(lacking)}, which is not installed")
    return {name: path for name, path in re.findall(r"(\S+) => (/\S+)", listed) if not OF_THE_SYSTEM.match(name)}


def opened_library():
    listed = subprocess.run(["/sbin/ldconfig", "-p"], check=True, capture_output=True, text=True).stdout
    found = re.search(rf"{re.escape(OPENED)} .*=> (/\S+)", listed)
    if not found:
        raise SystemExit(f"{OPENED} is not installed (Debian: libopenblas0-pthread)")
    return found.group(1)


def newest_glibc(files):
    """The minor version of the newest glibc that one of them needs."""
    return max(int(number) for file in files for number in re.findall(rb"GLIBC_2\.(\d+)", file.read_bytes()))


class BuildWithLibraries(build_py):
    def run(self):
        super().run()
        for tool in ("ldd", "strip", "patchelf"):
            if not shutil.which(tool):
                raise SystemExit(f"{tool} is not installed; a wheel with libraries needs it")
        library, openblas = built_library(), opened_library()
        files = {"libheed.so": library, OPENED: openblas, **needed_by(library), **needed_by(openblas)}
        for name, path in files.items():
            target = pathlib.Path(self.build_lib) / "heed" / name
            shutil.copyfile(path, target)
            subprocess.run(["strip", "--strip-unneeded", target], check=True)
            # They look for libraries beside them. RPATH, unlike RUNPATH, precedes LD_LIBRARY_PATH.
            subprocess.run(["patchelf", "--force-rpath", "--set-rpath", "$ORIGIN", target], check=True)


class PlatformWheel(bdist_wheel):
    def get_tag(self):
        libraries = (pathlib.Path(self.get_finalized_command("build_py").build_lib) / "heed").glob("lib*.so*")
        return "py3", "none", f"manylinux_2_{newest_glibc(libraries)}_{platform.machine()}"


class WithLibraries(Distribution):
    def has_ext_modules(self):  # makes the wheel platform-specific
        return True


setup(distclass=WithLibraries, cmdclass={"build_py": BuildWithLibraries, "bdist_wheel": PlatformWheel})
