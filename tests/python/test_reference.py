"""Generated parts of pages: docs/reference/python.md from docstrings and signatures, and the table of settings in
attention_options.md. HEED_WRITE_DOCS=1 writes both."""

import dataclasses
import functools
import importlib
import importlib.util
import inspect
import json
import os
import pathlib
import re
import textwrap
import unittest

import heed
from support import heeds_attentions

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "reference"
NOTE = "HEED_WRITE_DOCS=1 python3 tests/python/run.py test_reference.py"
SECTIONS = [  # title, module, names
    ("Training", "heed", "train resume cross_validate compare Comparison tasks settings Settings Setting"),
    ("Runs", "heed", "Run from_pretrained Predictions Prediction Alternative Span AnswerQueue AttentionWeights Model Tokenizer GenerationOptions"),
    ("Notebooks", "heed", "report Page ProgressLine"),
    ("Tensors", "heed", "Tensor Parameter from_numpy from_dlpack"),
    ("Layers and modules", "heed", "Module attention Attention attentions Context save load"),
    ("Optimizers", "heed", "Optimizer Schedule Autocast"),
    ("Parts of your own", "heed", "Function register_attention AttentionCall check_attention"),
    ("Errors", "heed", "Error BadArgument SettingsError OutOfMemory DeviceLost CallbackFailed Interrupted"),
    ("The library", "heed", "listing set_threads"),
    ("heed.nn", "heed.nn", "Linear Embedding LayerNorm RMSNorm Dropout MultiheadAttention Sequential ModuleList Activation set_seed"),
]
MADE_BY_HEED = "Comparison Settings Predictions Model AttentionCall Page Tokenizer GenerationOptions".split()  # classes that users do not construct
HAND_MADE = "GELU ReLU SiLU Sigmoid Tanh"  # of heed.nn: Activation of a function


def text_of(function):
    """Returns the docstring with examples in fences."""
    lines, code = [], False
    for line in inspect.cleandoc(function.__doc__ or "").split("\n"):
        is_code = line.startswith((">>>", "..."))
        if is_code != code:
            lines.append("```" if code else "```pycon")
            code = is_code
        lines.append(line if code else line.replace("``", "`").replace("<", "&lt;"))
    text = "\n".join(lines + (["```"] if code else []))
    return re.sub(r"\n+```pycon", "\n\n```pycon", re.sub(r"(?m)^```\n+(?=.)(?!pycon)", "```\n\n", text))


def header_of(function, name, wrap=False, typed=True):
    """Returns name(parameters) -> result, as in the source, optionally without the types of parameters."""
    function = inspect.unwrap(function)
    signature = inspect.signature(function)
    given = list(signature.parameters.values())
    if given and given[0].name in ("self", "cls"):
        given = given[1:]
    said, starred = [], False
    for one in given:
        if one.kind == one.KEYWORD_ONLY and not starred:
            said.append("*")
            starred = True
        starred = starred or one.kind == one.VAR_POSITIONAL
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        kind = "" if one.annotation is one.empty or not typed else f": {one.annotation}"
        default = "" if one.default is one.empty else f"{' = ' if kind else '='}{one.default!r}"
        said.append(f"{stars}{one.name}{kind}{default}")
    back = signature.return_annotation
    back = "" if back in (signature.empty, "None", None) or name[0].isupper() and "." not in name else f" -> {back}"
    back = back.replace("'", "").replace('"', "").replace("AnyModule", "Module")
    inner = [one.replace("'", '"').replace('"Tensor"', "Tensor").replace("<factory>", "[]") for one in said]
    inner = [re.sub(r'\["(\w+)"\]', r"[\1]", one) for one in inner]
    line = f"{name}({', '.join(inner)}){back}"
    if len(line) <= 110 or not wrap:
        return line
    if typed:
        return f"{name}(\n    " + ",\n    ".join(inner) + f",\n){back}"
    return textwrap.fill(line, 110, subsequent_indent="    ", break_long_words=False)


def members_of(cls):
    """Yields the public methods and properties of a class, and attributes with a comment "#:"."""
    if issubclass(cls, Exception):
        return
    for name, kind, said in re.findall(r"(?m)^ +(?:self\.)?(\w+)(?:: ([^=#\n]+?))?(?: = [^#\n]*?)?  #: (.*)$", inspect.getsource(cls)):
        yield f"`{name}{': ' + kind if kind else ''}`", said
    for name, one in vars(cls).items():
        if name.startswith("_") and name not in ("__call__", "__getitem__"):
            continue
        if isinstance(one, property):
            yield f"`{name}: {one.fget.__annotations__['return']}`".replace("'", ""), text_of(one)
        elif isinstance(one, (staticmethod, classmethod)):
            yield f"`{header_of(one.__func__, name, typed=False)}`", text_of(one.__func__)
        elif inspect.isfunction(one) and one.__module__ == cls.__module__:  # not what ops.py adds to Tensor
            yield f"`{header_of(one, name, typed=False).removesuffix(' -> Tensor')}`", text_of(one)


def entry(module, name):
    """Returns the heading, signature, text and members of a name."""
    one = getattr(module, name)
    full = f"{module.__name__}.{name}"
    is_class = inspect.isclass(one)
    parts = [f"### {full}"]
    made = one.__init__ if is_class else one
    given = [*inspect.signature(made).parameters][-1:]  # of a class: "handle" where the library makes it
    if not is_class or inspect.isfunction(made) and given != ["handle"] and name not in MADE_BY_HEED:
        parts.append(f"```python\n{'class ' if is_class else ''}{header_of(made, name, True, typed=dataclasses.is_dataclass(one))}\n```")
    parts.append(text_of(one))
    if is_class:
        members = [f"- {header}: {said}".replace("\n", "\n  ") for header, said in members_of(one)]
        parts += ["\n".join(members)] if members else []
    return re.sub(r"(?m) +$", "", "\n\n".join(parts))


def functions():
    """Returns lists of the functions of tensors: element-wise ones, and others."""
    rows, names, methods = {}, {}, []  # texts and aliases by function; those that are methods of tensors
    for name in heed.ops.__all__:
        one = getattr(heed.ops, name)
        if "self" in inspect.signature(inspect.unwrap(one)).parameters:
            methods.append(f"`{name}`")
            continue
        names.setdefault(one, []).append(name)
        if len(names[one]) == 1:
            header = header_of(one, name, typed=False).removesuffix(" -> Tensor") if not inspect.isclass(one) else name
            rows[one] = header, re.sub(r"\s+", " ", text_of(one).split("\n\n")[0]).removeprefix("Returns ")
    usual, masks, simple, others = [], [], [], []
    for one, (header, said) in rows.items():
        also = "".join(f", also `{alias}`" for alias in names[one][1:])
        formula = said.removesuffix(", element-wise.")
        if formula == header:
            usual.append(f"`{header}`")
        elif formula.startswith("the mask "):
            masks.append(f"`{header}`: `{formula.removeprefix('the mask ').replace('&lt;', '<')}`")
        else:
            (others if formula == said else simple).append(f"- `{header}`{also}: {formula}")
    return [f"Methods of Tensor that are also functions: {', '.join(methods)}. Other functions of `x` or `a` are methods, too,"
            " except `repeat` and `tile`: `t.exp()`, `t.softmax(-1)`. `dim` and `keepdim` are other names of `axis` and `keepdims`.",
            f"Element-wise functions with the usual meaning: {', '.join(usual)}.",
            f"Element-wise masks, i32 0 or 1: {'; '.join(masks)}.",
            "Other element-wise functions:", "\n".join(simple), "Other functions:", "\n".join(others)]


def page(with_sklearn):
    """Returns the generated part of python.md."""
    parts = []
    for title, module, names in SECTIONS:
        parts.append(f"## {title}")
        parts += [entry(heed.nn if module == "heed.nn" else heed, name) for name in names.split()]
        if module == "heed.nn":
            made = ", ".join(f"`{name}()`" for name in HAND_MADE.split())
            parts.append(f"{made} are `Activation`s of these functions. `heed.nn.functional` has all functions of tensors.")
    parts += ["## Functions of tensors",
              "These are in `heed`, `heed.ops` and `heed.nn.functional`. Operands are `Like`; the result is a tensor unless given."
              " Gradients are recorded if an operand is tracked. Masks can be indices.", *functions()]
    if with_sklearn:
        estimators = importlib.import_module("heed.sklearn")
        parts += ["## heed.sklearn", *[entry(estimators, name) for name, one in vars(estimators).items()
                                       if inspect.isclass(one) and one.__module__ == "heed.sklearn" and name[0] != "_"]]
    return "\n\n".join(parts) + "\n"


def settings_of_attention():
    lines = ["| mechanism | setting | default | range | what it does |", "|---|---|---|---|---|"]
    for name, can in heeds_attentions().items():
        for one in can["settings"]:
            beside = "".join(f" (only with `{other}={value if isinstance(value, str) else ', '.join(value)}`)"
                             for other, value in one.get("beside", {}).items())
            default = f"{one['default']:.6g}" if isinstance(one["default"], float) else json.dumps(one["default"]).strip('"')
            lines.append(f"| `{name}` | `{one['name']}` | `{default}` | {one['range'].replace(chr(39), '`')} | {one['help']}{beside} |")
    return "\n".join(lines)


def parts_of(path, name):
    """Returns a page before, within and after the markers of a generated part."""
    pattern = rf"(?s)(.*<!-- {name}: [^\n]*-->\n)(.*?)(<!-- end of {name} -->.*)"
    return re.match(pattern, path.read_text(encoding="utf-8")).groups()


def written(path, text):
    if os.environ.get("HEED_WRITE_DOCS"):
        path.write_text(text, encoding="utf-8")
    return path.read_text(encoding="utf-8")


@unittest.skipUnless(DOCS.exists(), "needs the sources")
class Reference(unittest.TestCase):
    maxDiff = 2000

    def test_the_page_of_the_python_api(self):
        has_sklearn = importlib.util.find_spec("sklearn") is not None
        path = DOCS / "python.md"
        before, now, after = parts_of(path, "python")
        if has_sklearn:
            made = before + page(True) + after
            self.assertEqual(written(path, made), made, NOTE)
        else:
            self.assertEqual(now.partition("## heed.sklearn")[0].strip(), page(False).strip(), NOTE + ", which needs scikit-learn")

    def test_it_has_every_name(self):
        listed = {f"{module}.{name}" for _, module, names in SECTIONS for name in names.split()}
        public = {f"heed.{name}" for name in heed.__all__ if name not in heed.ops.__all__ and name != "nn"}
        public |= {f"heed.nn.{name}" for name in heed.nn.__all__}
        shared = {f"heed.nn.{name}" for name in ("Module", "Parameter", "functional", *HAND_MADE.split())}
        self.assertEqual(listed, public - shared)

    def test_every_name_is_documented(self):
        for module, names in [(heed, heed.__all__), (heed.nn, heed.nn.__all__)]:
            for name in names:
                one = getattr(module, name)
                if inspect.ismodule(one) or isinstance(one, functools.partial):
                    continue
                with self.subTest(name):
                    own = one.__doc__ or ""
                    is_made = dataclasses.is_dataclass(one) and own.startswith(f"{name}(")
                    self.assertTrue(own and not is_made, "no docstring")
                    for header, said in members_of(one) if inspect.isclass(one) else ():
                        self.assertTrue(said, header)

    def test_the_settings_of_attention(self):
        path = DOCS / "attention_options.md"
        before, _, after = parts_of(path, "settings")
        made = before + settings_of_attention() + "\n" + after
        self.assertEqual(written(path, made), made, NOTE)
        self.assertGreater(path.read_text(encoding="utf-8").count("| `"), 60)


if __name__ == "__main__":
    unittest.main()
