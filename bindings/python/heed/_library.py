"""Loads the shared library with the functions that heed.h declares, and turns its errors into exceptions."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import math
import operator
import os
import pathlib
import re
import signal
import tempfile
import threading
import weakref
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple, Union

Path = Union[str, "os.PathLike[str]"]

ALL_AXES = 2**31 - 1


class Error(RuntimeError):
    """Wrong shapes, dtypes, names or files. The message says what to do."""


class BadArgument(Error, ValueError):
    """An invalid handle, or a size that does not match the tensor. Also a ValueError."""


class SettingsError(Error, ValueError):
    """An unknown setting, or a value out of range. Also a ValueError."""


class OutOfMemory(Error, MemoryError):
    """A device is out of memory. Also a MemoryError."""


class DeviceLost(Error):
    """A GPU stopped responding; its contents are lost."""


class CallbackFailed(Error):
    """A callback failed without raising an exception."""


class Interrupted(Error):
    """A long call was stopped. Ctrl-C raises KeyboardInterrupt instead."""


_EXCEPTIONS = dict(enumerate((Error, BadArgument, SettingsError, OutOfMemory, DeviceLost, CallbackFailed, Interrupted), 1))
for _class in _EXCEPTIONS.values():
    _class.__module__ = "heed"  # where users find them


# --- the functions and types that heed.h declares


def shown(value: Any) -> str:
    """Returns a value for a message; its type where it is long."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:
        return f"a {type(value).__name__} of the shape {shape}"
    said = repr(value)
    return said if len(said) <= 60 and "\n" not in said else f"a {type(value).__name__}"


def _checked(kind: Any) -> Any:
    """An integer argument that raises OverflowError where ctypes alone would truncate."""

    class Checked:
        @staticmethod
        def from_param(value: Any) -> Any:
            try:
                made = kind(operator.index(value))
            except TypeError:
                raise TypeError(f"expected an integer, not {shown(value)}") from None
            if made.value != value:
                raise OverflowError(f"{value} does not fit {kind.__name__}")
            return made

    return Checked


class _Object:
    """An argument that is an object of this package, or None."""

    @staticmethod
    def from_param(value: Any) -> Any:
        if value is not None and not hasattr(value, "_as_parameter_"):
            raise TypeError(f"expected a heed.Tensor or another heed object, not {type(value).__name__}")
        return None if value is None else ctypes.c_void_p(value._as_parameter_)


class _Real:
    """A floating argument: any number."""

    @staticmethod
    def from_param(value: Any) -> Any:
        try:
            return ctypes.c_double(value)
        except TypeError:
            raise TypeError(f"expected a number, not {shown(value)}") from None


STOP, RELEASE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p), ctypes.CFUNCTYPE(None, ctypes.c_void_p)
#: Types by name: structs, and functions of the caller's.
TYPES: Dict[str, Any] = {"int32_t_of_context": STOP, "void_of_context": RELEASE}
_PLAIN: Dict[str, Any] = {
    "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t, "double": ctypes.c_double, "void": None,
    "heed_status": ctypes.c_int32, "heed_dtype": ctypes.c_int32,
}
_CHECKED: Dict[str, Any] = {name: _checked(kind) for name, kind in _PLAIN.items() if kind}
_CHECKED.update(double=_Real, size_t=ctypes.c_size_t)  # sizes are lengths of what the package made


def _type(declared: str, is_argument: bool) -> Any:
    """The type of "const heed_tensor* x". An argument of a function of the library is checked."""
    base, stars = declared.replace("const ", "").split("*")[0].split()[0], declared.count("*")
    if base in TYPES:
        return ctypes.POINTER(TYPES[base]) if stars else TYPES[base]
    if not stars:
        return (_CHECKED if is_argument else _PLAIN)[base]
    if "* const*" in declared or stars == 2 and not is_argument:
        return ctypes.POINTER(ctypes.c_char_p if base == "char" else ctypes.c_void_p)
    if stars == 1 and is_argument and base.startswith("heed_") and base not in _PLAIN:
        return _Object
    if stars == 1 and base == "char" and "const" in declared:
        return ctypes.c_char_p
    return ctypes.POINTER(ctypes.c_int64) if base == "int64_t" else ctypes.c_void_p


def _types(declared: str, is_argument: bool = False) -> List[Any]:
    parts = [] if declared == "void" else declared.split(",")
    return [_type(part.strip(), is_argument) for part in parts]


def _read_header() -> Tuple[Dict[str, int], Dict[str, Tuple[Any, List[Any]]]]:
    """Fills TYPES. Returns the numbers of the header, and the result and arguments of each function."""
    here = pathlib.Path(__file__).parent
    paths = here / "heed.h", here.parents[1] / "c/heed.h"  # of a wheel, and of the source tree
    text = next((path for path in paths if path.exists()), paths[0]).read_text(encoding="utf-8")
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
    text = re.sub(r"(\w+) \(\*\w+\)\(void\* context\)", r"\1_of_context call", text)
    text = re.sub(r"char\* (\w+), size_t", r"void* \1, size_t", text)  # bytes, of which one may be 0
    for back, name, arguments in re.findall(r"typedef (\w+) \(\*(\w+)\)\(([^)]*)\);", text):
        TYPES[name] = ctypes.CFUNCTYPE(_PLAIN[back], *_types(arguments))
    for members, name in re.findall(r"typedef struct \w+ \{([^}]*)\} (\w+);", text):
        fields = [(word.split()[-1].strip("*"), _type(member.strip(), False))
                  for member in members.split(";")[:-1] for word in member.split(",")]
        TYPES[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    functions = {}
    for back, name, arguments in re.findall(r"(?m)^([\w ]+\*?) (heed_\w+)\(([^)]*)\);", text):
        frees = back == "void"  # handles are numbers there
        kind = ctypes.c_char_p if "*" in back else _PLAIN[back]
        functions[name] = kind, _types(arguments, is_argument=not frees)
    return {name: int(value) for name, value in re.findall(r"(HEED_\w+)(?: =)? (\d+)", text)}, functions


# --- the library


def _load() -> ctypes.CDLL:
    """Loads HEED_LIBRARY if set; otherwise the library next to the package or on the loader's path."""
    named = os.environ.get("HEED_LIBRARY")
    beside = sorted(pathlib.Path(__file__).parent.glob("libheed.so*"))
    tried = [named] if named else [str(path) for path in beside[:1]] or ["libheed.so", "libheed.so.0.1"]
    problems = []
    for name in tried:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            problems.append(str(error))
    raise ImportError(
        "heed's shared library was not found: " + "; ".join(problems) + ". Build it (./dev build release heed_shared)"
        " and set HEED_LIBRARY to libheed.so, or install it where the loader looks"
    )


NUMBERS, _functions = _read_header()
library = _load()
if library.heed_abi_version() != NUMBERS["HEED_ABI_VERSION"]:
    raise ImportError(
        f"the shared library has version {library.heed_abi_version()} of the C interface, this package is for"
        f" {NUMBERS['HEED_ABI_VERSION']}: install both from one source"
    )
for _name, (_result, _arguments) in _functions.items():
    getattr(library, _name).argtypes, getattr(library, _name).restype = _arguments, _result


# --- the end of the program

# Python ends a thread that comes back to it during interpreter shutdown (pthread_exit), and C++ aborts when that
# happens to a thread with frames of the library below. So before that all calls of other threads are ended.
_ending = False
_lock = threading.RLock()
_changed = threading.Condition(_lock)
_under_way: Dict[int, int] = {}  # calls within one another, of each thread but the main one
_in_functions: Set[int] = set()  # those of these threads that run a function of the user's
closed_at_end: "weakref.WeakSet[Any]" = weakref.WeakSet()  # what has threads of its own, in which it calls functions


def _is_main(ident: Any = threading.get_ident, main: Any = threading.main_thread) -> bool:
    return ident() == main().ident  # type: ignore[no-any-return]


class _Counted:
    """Counts calls of threads other than the main one."""

    def __enter__(self) -> None:
        thread = threading.get_ident()
        with _lock:
            if _ending:
                raise SystemExit  # ends a thread without a word
            _under_way[thread] = _under_way.get(thread, 0) + 1

    def __exit__(self, kind: Any, _error: Any, _trace: Any) -> None:
        thread = threading.get_ident()
        with _lock:
            _under_way[thread] -= 1
            if not _under_way[thread]:
                del _under_way[thread]
            if not _ending:
                return
            _changed.notify_all()
        if kind is Interrupted:
            raise SystemExit from None


_counted = _Counted()


def _end() -> None:
    """Stops all calls and waits for them, except for user functions that do not return."""
    global _ending
    with _changed:
        _ending = True
        while _under_way:
            if not _changed.wait(5) and _in_functions:
                return
    for closable in list(closed_at_end):
        closable.close()


def ending() -> bool:
    """Returns whether the program is exiting."""
    return _ending


_temporary: "weakref.WeakSet[Any]" = weakref.WeakSet()


def temporary_folder() -> "tempfile.TemporaryDirectory[str]":
    """Makes a folder for a run that goes with its object, in the process that made it."""
    made = tempfile.TemporaryDirectory(prefix="heed-run-")
    _temporary.add(made)
    return made


def _in_child() -> None:
    """Resets the locks after a fork, where other threads do not exist, and leaves folders to the parent."""
    for folder in list(_temporary):
        folder._finalizer.detach()
    global _lock, _changed
    _lock = threading.RLock()
    _changed = threading.Condition(_lock)
    _under_way.clear()
    _in_functions.clear()


weakref.finalize(_end, _end).detach()  # registers the removal of temporary folders, which then comes after _end()
atexit.register(_end)  # runs when all threads but daemons have ended
os.register_at_fork(after_in_child=_in_child)

# --- calls

_callbacks = threading.local()  # `failure`: the last exception of a callback of this thread, and what it said


def callback(kind: str, function: Any) -> Any:
    """A C function of this type. call() raises an exception of `function` in place of the error that it causes."""

    def bridge(*arguments: Any) -> int:
        thread = threading.get_ident()
        outermost = thread in _under_way and thread not in _in_functions
        try:
            if outermost:
                _in_functions.add(thread)
            function(*arguments)
            return 0
        except BaseException as error:  # noqa: B902 - raised again by call()
            said = f"{type(error).__name__}: {error}".encode("utf-8", "replace").replace(b"\0", b" ")
            library.heed_set_last_error(said)
            _callbacks.failure = error, library.heed_last_error()
            return NUMBERS["HEED_CALLBACK_FAILED"]
        finally:
            if outermost:
                _in_functions.discard(thread)

    return TYPES[kind](bridge)


def call(name: str, *arguments: Any) -> None:
    """Calls a function of the library without the interpreter's lock; raises its error.

    Arguments are objects rather than handles, so that they live until the call returns.
    """
    if _is_main():
        return _call(name, *arguments)
    with _counted:
        return _call(name, *arguments)


def _call(name: str, *arguments: Any) -> None:
    try:
        status = getattr(library, name)(*arguments)
    except ctypes.ArgumentError as error:
        kind = OverflowError if "does not fit" in str(error) else TypeError
        said = re.sub(r"(argument \d+): \w+: ", r"\1: ", str(error))  # without the type of the error
        raise kind(f"{name}: {said}") from None
    if status != 0:
        message = library.heed_last_error() or b""
        failure, said = getattr(_callbacks, "failure", (None, b""))
        _callbacks.failure = None, b""
        if failure is None or said not in message:
            failure = _EXCEPTIONS.get(status, Error)(message.decode("utf-8", "replace"))
        try:
            raise failure
        finally:
            failure = None  # the exception refers to this frame


def freeing(name: str) -> Any:
    """Returns a function that frees a handle; freeing may call Python functions."""
    function = getattr(library, name)

    def free(handle: int) -> Any:
        if _is_main():
            return function(handle)
        with contextlib.suppress(SystemExit), _counted:
            function(handle)

    return free


_stops: List[Any] = []  # of the calls that are under way in the main thread, one within another
_stop_at_end = STOP(lambda _context: _ending)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Lets Ctrl-C end a long call of the library, and then raises KeyboardInterrupt as usual.

    Python runs signal handlers only in its main thread, between two bytecode instructions: here those of `stop`. A call
    of another thread stops where the program ends.
    """
    if not _is_main():
        call("heed_set_stop", _stop_at_end, None)
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        yield
        return
    seen: List[Any] = []
    raised: List[BaseException] = []

    def stop(_context: Any) -> int:
        try:
            while seen:
                handler(*seen.pop(0))
        except BaseException as error:  # noqa: B902 - raised again below
            raised.append(error)
        return len(raised)

    signal.signal(signal.SIGINT, lambda number, frame: seen.append((number, frame)))
    try:
        _stops.append(STOP(stop))
        call("heed_set_stop", _stops[-1], None)
        yield
    except Interrupted:
        if not raised:
            raise
    finally:
        _stops.pop()
        call("heed_set_stop", _stops[-1] if _stops else STOP(), None)
        signal.signal(signal.SIGINT, handler)
        if raised:
            raise raised[0]
        for arguments in seen:
            handler(*arguments)


def result(name: str, *arguments: Any, kind: Any = ctypes.c_void_p) -> Any:
    """Calls a function whose last argument is the result, and returns it; None for NULL."""
    out = kind()
    call(name, *arguments, ctypes.byref(out))
    return out.value if hasattr(out, "value") else out


def result_text(name: str, *arguments: Any) -> str:
    """Calls a function that returns text; copies and frees it."""
    address = result(name, *arguments)
    try:
        return ctypes.string_at(address).decode("utf-8")
    finally:
        library.heed_text_free(address)


def result_json(name: str, *arguments: Any) -> Any:
    return json.loads(result_text(name, *arguments))


def encoded(text: str, what: str = "a text for heed") -> bytes:
    """Encodes text for the library. Raises ValueError for a NUL, which would truncate it silently."""
    if not isinstance(text, str):
        raise TypeError(f"{what} is {shown(text)}; expected a text")
    if "\0" in text:
        raise ValueError(f"{what} must not contain a NUL character")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} is not Unicode text: {error.reason}") from None


def one_of(name: str, value: Any, other: str, given: Any) -> Any:
    """Returns an option that has two names."""
    if value is not None and given is not None:
        raise TypeError(f"{name} and {other} are the same option: give one")
    return given if value is None else value


def number_of(value: Any, what: str) -> float:
    """Converts a finite number."""
    try:
        found = ctypes.c_double(value).value
    except TypeError:
        raise TypeError(f"{what} is {shown(value)}; expected a number") from None
    if not math.isfinite(found):
        raise SettingsError(f"{what} is {found}; expected a finite number")
    return found


def path_of(value: Path, what: str = "the path") -> str:
    """Returns a path as text; ~ is the home folder."""
    try:
        return os.path.expanduser(os.fsdecode(value))
    except TypeError:
        raise TypeError(f"{what} is {shown(value)}; expected a path") from None


def setting_of(value: Any, name: str) -> Any:
    """Converts the value of a setting for JSON. Raises an error that names what JSON does not have."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, os.PathLike):
        return path_of(value, name)
    if isinstance(value, Mapping):
        return {str(key): setting_of(member, f"{name}.{key}") for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [setting_of(element, f"{name}[{i}]") for i, element in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise SettingsError(f"{name} is {value}; expected a finite number")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{name} is {shown(value)}; expected a number, a text, a bool, or a list of these")


def settings_json(settings: Mapping[str, Any]) -> Optional[bytes]:
    """Encodes settings as JSON; those that are None keep their defaults."""
    given = {name: setting_of(value, name) for name, value in settings.items() if value is not None}
    return encoded(json.dumps(given)) if given else None


def longs(values: Any) -> Any:
    values = [operator.index(value) for value in values]
    if any(not -(2**63) <= value < 2**63 for value in values):
        raise OverflowError(f"{values} does not fit 64 bits")
    return (ctypes.c_int64 * len(values))(*values)


def handles_of(objects: Any) -> Any:
    """Returns the handles of objects as a C array; None becomes NULL."""
    return (ctypes.c_void_p * len(objects))(*[None if x is None else x._handle for x in objects])


def texts_of(texts: Sequence[bytes]) -> Any:
    """Returns encoded texts as a C array."""
    return (ctypes.c_char_p * len(texts))(*texts)


def listing(what: str) -> Any:
    """Returns a list of "ops", "attention", "optimizers", "tasks" or "devices", with their properties."""
    return result_json("heed_list", encoded(what))
