"""Makes a wheel with libheed.so, the libraries that it needs, and the programs; pyproject.toml has the rest.

The library and the programs are those of the build tree (build/lib/libheed.so, build/wheel_programs), which are built where they
are missing or old, or what HEED_LIBRARY and HEED_PROGRAMS name.
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


def built(variable, path, target):
    """What the environment names, else a part of the build tree, brought up to date."""
    named = os.environ.get(variable)
    if named:
        return pathlib.Path(named)
    if not (root / "build" / "CMakeCache.txt").exists():
        subprocess.run(["cmake", "--preset", "release"], cwd=root, check=True)
    subprocess.run(["cmake", "--build", "build", "--target", target], cwd=root, check=True)
    return root / "build" / path


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


def licence_of(path):
    """The licence of a library, as its Debian package has it; None elsewhere."""
    for name in (path, os.path.realpath(path), re.sub("^/usr", "", os.path.realpath(path))):
        found = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True) if shutil.which("dpkg") else None
        if found and found.returncode == 0:
            text = pathlib.Path("/usr/share/doc", found.stdout.split(":")[0], "copyright")
            return text if text.exists() else None
    return None


class BuildWithLibraries(build_py):
    def run(self):
        super().run()
        package = pathlib.Path(self.build_lib) / "heed"
        for tool in ("ldd", "strip", "patchelf"):
            if not shutil.which(tool):
                raise SystemExit(f"{tool} is not installed; a wheel with libraries needs it")
        library, openblas = built("HEED_LIBRARY", "lib/libheed.so", "heed_shared"), opened_library()
        folder = built("HEED_PROGRAMS", "wheel_programs", "wheel_programs")
        programs = {f"bin/{name}": folder / name for name in scripts(self.distribution)}
        files = {OPENED: openblas}
        for needing in (library, openblas, *programs.values()):
            files.update({name: path for name, path in needed_by(needing).items() if not name.startswith("libheed.")})
        shutil.rmtree(package / "licenses", ignore_errors=True)
        (package / "licenses").mkdir()
        (package / "bin").mkdir(exist_ok=True)
        shutil.copyfile(root / "bindings/c/heed.h", package / "heed.h")
        shutil.copyfile(root / "LICENSE", package / "licenses" / "heed")
        shutil.copyfile(root / "apps/report/page/chart_licence.js", package / "licenses" / "chart.js")
        for name, path in files.items():
            if licence_of(path):
                shutil.copyfile(licence_of(path), package / "licenses" / name)
        files["libheed.so"] = library
        # Programs need the library by the name that says its version; the package opens the same file.
        soname = subprocess.run(["patchelf", "--print-soname", library], check=True, capture_output=True, text=True)
        files.update(programs)
        for name, path in files.items():
            target = package / name.replace("libheed.so", soname.stdout.strip())
            shutil.copyfile(path, target)
            shutil.copymode(path, target)
            subprocess.run(["strip", "--strip-unneeded", target], check=True)
            # They look for libraries beside them. RPATH, unlike RUNPATH, precedes LD_LIBRARY_PATH.
            beside = "$ORIGIN/.." if name.startswith("bin/") else "$ORIGIN"
            subprocess.run(["patchelf", "--force-rpath", "--set-rpath", beside, target], check=True)


def scripts(distribution):
    """The names of the programs, as pyproject.toml has them."""
    return [script.split("=")[0].strip() for script in distribution.entry_points["console_scripts"]]


class PlatformWheel(bdist_wheel):
    def get_tag(self):
        package = pathlib.Path(self.get_finalized_command("build_py").build_lib) / "heed"
        newest = newest_glibc([*package.glob("lib*.so*"), *package.glob("bin/*")])
        return "py3", "none", f"manylinux_2_{newest}_{platform.machine()}"


class WithLibraries(Distribution):
    def has_ext_modules(self):  # makes the wheel platform-specific
        return True


setup(distclass=WithLibraries, cmdclass={"build_py": BuildWithLibraries, "bdist_wheel": PlatformWheel})
