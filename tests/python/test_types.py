"""What `mypy --strict` and pyright accept, where they are installed: this program, which also runs, and examples/python."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from typing import Any

import numpy as np

import heed
import heed.nn.functional as F

Array = np.ndarray[Any, Any]
PACKAGE = str(pathlib.Path(heed.__file__).parents[1])
PROGRAMS = [pathlib.Path(__file__), *sorted((pathlib.Path(__file__).parents[2] / "examples/python").glob("*.py"))]


class Net(heed.nn.Module):
    def __init__(self) -> None:
        self.hidden = heed.nn.Linear(2, 16)
        self.body = heed.nn.Sequential(heed.nn.LayerNorm(16), heed.nn.GELU(), heed.nn.Dropout(0.1))
        self.scale = heed.nn.Parameter([1.0])

    def forward(self, x: heed.Tensor) -> heed.Tensor:
        return self.body(F.relu(self.hidden(x))) * self.scale


class Cube(heed.Function):
    arrays = True

    @staticmethod
    def forward(kept: Any, x: Array) -> Array:
        kept.x = x
        return x**3

    @staticmethod
    def backward(kept: Any, gradient: Array) -> Array:
        found: Array = 3 * kept.x**2 * gradient
        return found


def similar(call: heed.AttentionCall) -> heed.Tensor:
    weights = heed.masked_softmax(call.query @ call.key.transpose() * call.parameters["scale"], call.allowed)
    call.show("weights", weights)
    return weights @ call.value


heed.register_attention("similar", similar, causal=True, parameters={"scale": lambda config: [1 / config["heads"]]})


def typed(folder: str, frame: Any) -> str:
    """For the type checker alone."""
    run = heed.train("classify", frame, text="review", label="stars", missing="drop", steps=3, learning_rate=1e-3)
    run.save(folder + "/run.heed")
    run = heed.Run.open(folder + "/run.heed", settings={"decoding": {"beam": 1}})
    found: Array = run.attention("a film")["encoder.layers.0.attention.weights"]
    net = Net()
    net.load_state_dict(net.state_dict())
    return f"{run.generate('a', max_tokens=3, samples=2)[0].text} {found.shape} {net!r}"


def train(folder: str) -> float:
    net = Net()
    groups = [{"params": net.hidden, "learning_rate": 1e-4}, {"params": [net.body, net.scale]}]
    adam = heed.Optimizer("adamw", groups, 1e-3, weight_decay=0.1)
    schedule, autocast = heed.Schedule("cosine", steps=10), heed.Autocast([net.to("cpu")], "f32")
    x = heed.Tensor(np.zeros((4, 2), np.float32))
    with heed.Context(seed=1, step=1) as context:
        loss = heed.square(net(x) - 1).mean()
        extra = context.auxiliary_loss
    if extra is not None:
        loss = loss + extra
    loss.backward()
    adam.step(schedule(1))
    adam.zero_grad()
    autocast.backward(lambda: heed.square(net(x.to(autocast.dtype)) - 1).mean())
    autocast.step(adam)
    net.save(os.path.join(folder, "net.safetensors"), adam)
    heed.save(os.path.join(folder, "all.safetensors"), {"net": net, "adam": adam, "x": x})
    return loss.item()


def everyday(x: heed.Tensor) -> Array:
    y: heed.Tensor = 2 * x @ x.T - 1 / (1 + abs(x @ x.T)) ** 2
    values, ids = heed.top_k(heed.round(y), 1)
    picked = x[[0, 1]].sum((0, 1)) + heed.exp(x)[x > 0].mean() + values.var() + heed.einsum("ij,kj->", x, x)
    if bool(heed.less(ids, 0).max()):
        raise AssertionError(ids.tolist())
    result: Array = picked.numpy()
    return result


def stub() -> str:
    """What heed/ops.pyi must say."""
    names = ", ".join(f'"{one}"' for one in heed.ops.__all__)
    made = [f'def {name}{header}: """{getattr(heed.ops, name).__doc__}"""' for name, header in vars(heed.ops)["_HEADERS"].items()]
    return "\n".join([
        "# For type checkers, made from the library's list of ops: HEED_WRITE_DOCS=1 python3 tests/python/run.py test_types.py",
        "from typing import Optional, Sequence", "from ._functions import *", "from .tensor import Axis, Like, Pair, Tensor",
        f"__all__ = [{names}]", *made, "",
    ])


class Types(unittest.TestCase):
    def test_type_checkers_see_every_op(self) -> None:
        path = pathlib.Path(heed.ops.__file__).with_suffix(".pyi")
        if os.environ.get("HEED_WRITE_DOCS"):
            path.write_text(stub())
        self.assertEqual(path.read_text(), stub())

    def test_it_runs(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.assertGreater(train(folder), 0)
        self.assertEqual(everyday(heed.Tensor(np.ones((3, 2), np.float32))).shape, ())
        self.assertTrue(heed.gradcheck(Cube.apply, [np.ones(3)]).passed)
        self.assertEqual(heed.attention("similar", 8, heads=2)(np.ones((1, 3, 8), np.float32)).shape, (1, 3, 8))

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "needs mypy")
    def test_mypy_accepts_it(self) -> None:
        with tempfile.TemporaryDirectory() as cache:
            command = [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "--no-error-summary",
                       "--cache-dir", cache, *map(str, PROGRAMS)]
            path = {} if "site-packages" in PACKAGE else {"MYPYPATH": PACKAGE}  # mypy finds what is installed
            found = subprocess.run(command, env=dict(os.environ, **path), capture_output=True, text=True)
        names = [one.name for one in PROGRAMS]
        lines = [one for one in found.stdout.splitlines() if any(name in one for name in names)]
        self.assertEqual((lines, found.stderr), ([], ""))

    @unittest.skipUnless(importlib.util.find_spec("pyright"), "needs pyright")
    def test_pyright_accepts_it(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for one in PROGRAMS:
                shutil.copy(one, folder)
            settings = {"include": ["."], "extraPaths": [PACKAGE], "reportMissingImports": False,
                        "reportMissingModuleSource": False}
            pathlib.Path(folder, "pyrightconfig.json").write_text(json.dumps(settings))
            command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", folder]
            found = subprocess.run(command, capture_output=True, text=True)
        if not found.stdout.startswith("{"):
            self.skipTest(f"pyright does not start: {found.stderr[-200:]}")
        told = json.loads(found.stdout)
        self.assertEqual(told["summary"]["filesAnalyzed"], len(PROGRAMS))
        self.assertEqual([f"{one['file']}:{one['range']['start']['line'] + 1}: {one['message']}"
                          for one in told["generalDiagnostics"] if one["severity"] == "error"], [])


if __name__ == "__main__":
    unittest.main()
