"""Tensors against NumPy: values, gradients, memory that is shared, and what is refused."""

import copy
import gc
import pickle
import re
import unittest

import numpy as np

import heed
from heed import _library
from support import ROOT, Case, draw


class Values(Case):
    def test_operators(self):
        a, b = draw(4, 3), np.abs(draw(3)) + 0.5
        x, y = heed.Tensor(a), heed.Tensor(b)
        for found, expected in [
            (x + y, a + b),
            (x - y, a - b),
            (x * y, a * b),
            (x / y, a / b),
            (y**x, b**a),
            (y**2, b**2),
            (2 - x, 2 - a),
            (1 / y, 1 / b),
            (3 * x + 1, 3 * a + 1),
            (-x, -a),
            (abs(x), np.abs(a)),
            (x @ heed.Tensor(a.T), a @ a.T),
            (a + y, a + b),
            (a @ x.T, a @ a.T),
            (x > 0, (a > 0).astype(np.int32)),
            (x == x, np.ones_like(a, dtype=np.int32)),
            (heed.maximum(x, 0), np.maximum(a, 0)),
            (heed.where(x > 0, x, 0), np.where(a > 0, a, 0)),
            (heed.softmax(x), np.exp(a) / np.exp(a).sum(1, keepdims=True)),
            (heed.log_softmax(x, 0), a - np.log(np.exp(a).sum(0))),
            (heed.clamp(x, -0.5, 0.5), np.clip(a, -0.5, 0.5)),
            (heed.concat([x, x], 1), np.concatenate([a, a], 1)),
            (heed.stack([x, x], -1), np.stack([a, a], -1)),
            (heed.stack([x, x], -3), np.stack([a, a], -3)),
            (x.reshape(np.int64(12)), a.reshape(12)),
            (heed.zeros(np.int64(3)), np.zeros(3)),
            (x.sum(), a.sum()),
            (x.sum(0), a.sum(0)),
            (x.mean(1, keepdims=True), a.mean(1, keepdims=True)),
            (x.max(), a.max()),
            (x.min(-1), a.min(-1)),
            (x.argmax(1), a.argmax(1)),
            (heed.log_sum_exp(x), np.log(np.exp(a).sum())),
            (heed.full((2, 2), 1.5), np.full((2, 2), 1.5)),
            (heed.arange(5) * 2, np.arange(5) * 2),
            (heed.pow(y, 2), b**2),
            (heed.pow(2, x), 2**a),
            (heed.less(x, 0), a < 0),
            (x.var(), a.var()),
            (x.var(0, correction=1), a.var(0, ddof=1)),
            (x.sum((0, 1)), a.sum()),
            (x.sum(keepdims=True), a.sum(keepdims=True)),
            (x.prod(1), a.prod(1)),
            (x.norm(-1), np.linalg.norm(a, axis=-1)),
            (x.max((0, 1), keepdims=True), a.max(keepdims=True)),
            (x.cumsum(0), a.cumsum(0)),
            (heed.fourier(heed.unsqueeze(x, 0)), np.fft.fft2(a)[None].real),
            (heed.cumsum(x, 1, reverse=True), a[:, ::-1].cumsum(1)[:, ::-1]),
            (heed.recurrence(*3 * [heed.reshape(x, (1, 1, *a.shape))])[0], (np.tril(a @ a.T) @ a)[None, None]),
            (x.unsqueeze(1), a[:, None]),
            (x.unsqueeze(1).squeeze(), a),
            (x.unsqueeze(-1).squeeze(-1), a),
            (heed.einsum("ij,kj->ik", x, x), a @ a.T),
            (heed.expand(y, (4, 3)), np.broadcast_to(b, (4, 3))),
            (heed.pad(x, 0, 1, 2, 5), np.pad(a, ((1, 2), (0, 0)), constant_values=5)),
            (heed.flip(x, 1), a[:, ::-1]),
            (heed.flip(x), a[::-1, ::-1]),
            (heed.tril(x, -1), np.tril(a, -1)),
            (heed.triu(x), np.triu(a)),
            (heed.eye(3), np.eye(3)),
            (heed.one_hot([1, -1], 3), [[0, 1, 0], [0, 0, 0]]),
            (heed.masked_fill(x, a > 0, 9), np.where(a > 0, 9, a)),
            (heed.masked_softmax(x, [1, 1, 0])[:, 2], np.zeros(4)),
            (heed.sum_to(x, (3,)), a.sum(0)),
            (heed.sort(x)[0], np.sort(a)),
            (heed.argsort(x, descending=True), np.argsort(-a)),
            (heed.top_k(x, 2)[0], -np.sort(-a)[:, :2]),
            (heed.gather(x, heed.argsort(x)), np.sort(a)),
            (heed.scatter_add(x, np.zeros((4, 3), int), 2)[:, 0], a.sum(1)),
            (heed.index_select(x, [2, 0], 1), a[:, [2, 0]]),
            (heed.gather_rows(x.unsqueeze(0), [[3, 1]]), a[None, [3, 1]]),
            (heed.scatter_add_rows(x.unsqueeze(0), [[0, 0, 1, 1]], 2)[0], [a[:2].sum(0), a[2:].sum(0)]),
            (heed.rms_norm(x, y), a / np.sqrt((a**2).mean(1, keepdims=True) + 1e-5) * b),
            (heed.add_layer_norm(x, x)[0], 2 * a),
            (heed.add_rms_norm(x, x)[1], a / np.sqrt((a**2).mean(1, keepdims=True) + 1e-5 / 4)),
            (heed.dropout_add(x, x, 0, 1, 1), 2 * a),
            (heed.linear_maps(x, [(x, None), (x, heed.ones(4))])[1], a @ a.T + 1),
            (heed.linear_maps(x, [(x, None)])[0], a @ a.T),
            (heed.linear_maps(x, [(x, None), (x, None)])[1], a @ a.T),
            (heed.feed_forward(x, (x, None), "relu", (x.T, None)), np.maximum(a @ a.T, 0) @ a),
            (heed.linear_cross_entropy(x, x, None, [0, 1, 2, -1]), heed.cross_entropy(x @ x.T, [0, 1, 2, -1]).sum().numpy()),
            (heed.permutation(5, seed=1).sum(), 10),
            (heed.concat(heed.split(x, [1, 3])), a),
            (heed.contiguous(x.T), a.T),
        ]:
            self.same(found, expected, 1e-5)

    def test_attention_in_parts(self):
        q, k, v = (heed.Tensor(draw(1, 2, 5, 4)) for _ in range(3))
        whole = heed.dot_product_attention(q, k, v)
        parts = [heed.attention_part(q, k[:, :, part], v[:, :, part]) for part in (slice(0, 2), slice(2, 5))]
        self.same(heed.join_attention(parts), whole.numpy(), 1e-5)
        self.same(heed.join_attention([heed.attention_part(q, k, v)]), whole.numpy(), 1e-5)
        self.same(heed.attention_weights(q, k) @ v, whole.numpy(), 1e-5)
        turned = heed.rotary(q.transpose(1, 2), np.ones((5, 2), np.float32), np.zeros((5, 2), np.float32))
        self.same(turned, q.transpose(1, 2).numpy())

    def test_every_op_of_the_library_is_here(self):
        header = ROOT / "autograd" / "ops.h"
        if not header.exists():
            self.skipTest("the C++ header is not here")
        other_names = {  # what Python calls otherwise
            "attention": "dot_product_attention", "unary": "exp", "binary": "add", "compare": "less",
            "cast": "Tensor.to", "slice": "Tensor.__getitem__", "select": "Tensor.__getitem__", "scalar_like": "full",
        }
        found = set(re.findall(r"^(?:inline )?[A-Z][\w:<>, ]* ([a-z_]+)\(", header.read_text(), re.M))
        self.assertGreater(len(found), 50)
        for name in sorted(found):
            *cls, attribute = other_names.get(name, name).split(".")
            with self.subTest(name):
                self.assertTrue(hasattr(getattr(heed, cls[0]) if cls else heed, attribute))
        for name in _library.listing("ops")["named"]:
            self.assertTrue(hasattr(heed, name))

    def test_elementwise_functions(self):
        """All that the library has are here, and those that NumPy has too agree."""
        a = np.abs(draw(3, 5)) + 0.1
        for name in _library.listing("ops")["unary"]:
            if name in _library.listing("ops")["parametric"]:
                continue
            with self.subTest(name):
                found = getattr(heed, name)(heed.Tensor(a))
                self.assertEqual(found.shape, a.shape)
                numpy = {"neg": np.negative, "erf": None}.get(name, getattr(np, name, None))
                if numpy:
                    self.same(found, numpy(a), 1e-5)

    def test_methods(self):
        """Functions of x are methods, and axes have PyTorch's names, too."""
        a = draw(2, 3, 4)
        t = heed.Tensor(a)
        for name in ("exp", "tanh", "softmax", "log_softmax", "cumulative_sum", "triu", "isnan", "sort", "log_sum_exp", "std", "contiguous"):
            with self.subTest(name):
                found, expected = (one[0] if isinstance(one, tuple) else one for one in (getattr(t, name)(), getattr(heed, name)(t)))
                self.same(found, expected.numpy())
        self.same(t.softmax(1), heed.softmax(t, axis=1).numpy())
        self.same(heed.log_softmax(t, dim=1), t.log_softmax(axis=1).numpy())
        self.same(t.sum(dim=1, keepdim=True), a.sum(1, keepdims=True))
        self.same(heed.mean(t, dim=(0, 2)), a.mean((0, 2)), 1e-5)
        self.same(t.var(dim=-1, keepdim=True), a.var(-1, keepdims=True), 1e-5)
        self.same(t.argmax(dim=1), a.argmax(1))
        self.same(t.unsqueeze(dim=0).squeeze(dim=0).view(6, -1), a.reshape(6, 4))
        self.same(t.maximum(0).masked_fill(t < 0, 3.0), np.where(a < 0, 3, a))
        self.refuses((TypeError, "axis and dim are the same option", lambda: t.softmax(axis=1, dim=1)),
                     (TypeError, "dim", lambda: t.exp(dim=1)))

    def test_copies(self):
        w = heed.parameter(draw(2, 2))
        (w * w).sum().backward()
        again, (one, two) = copy.deepcopy(w), copy.deepcopy([w, w])
        self.assertIs(one, two)
        self.assertIsNone(again.grad)
        again.assign(np.zeros((2, 2)))
        self.assertTrue(w.numpy().all() and isinstance(one, heed.Parameter))
        plain = copy.deepcopy(heed.Tensor([[1, 2]], "i32"))
        self.assertEqual((plain.dtype, plain.tolist(), plain.tracked), ("i32", [[1, 2]], False))
        self.refuses((TypeError, "copy its detach", lambda: copy.deepcopy(w * 2)), (TypeError, "deepcopy", lambda: copy.copy(w)))

    def test_indices(self):
        a = draw(4, 5, 6)
        x = heed.Tensor(a)
        for key in [
            0, -1, (1, 2), (slice(1, 3),), (Ellipsis, 2), (0, slice(None, None, 2)), (None, 1), (slice(3, 1),),
            [0, 2],
            np.array([1, -1]),
            (slice(None), [0, 3, 3]),
            (0, [1, 2]),
            ([0, 1], [2, 3]),
            (slice(1, 3), [[0, 1], [2, 3]]),
            ([[0], [1]], [2, 3], 1),
            (Ellipsis, [5, 0]),
            (None, [1, 2]),
            [],
            a > 0,
            a[:, 0, 0] > 0,
            (slice(None), a[0, :, 0] > 0),
            [True, False, True, True],
        ]:
            with self.subTest(key=key):
                self.same(x[key], a[key])
        self.same(x[x > 0], a[a > 0])
        self.same(x[heed.Tensor(a[:, 0, 0] > 0)], a[a[:, 0, 0] > 0])
        self.same(x[heed.Tensor([3, 1])], a[[3, 1]])
        self.assertTrue(heed.gradcheck(lambda y: y[[0, 2, 2]][:, [1, 1]], [draw(3, 2)]))
        self.assertEqual([row.shape for row in heed.Tensor(a)], [(5, 6)] * 4)
        for key, error in [
            ([9], IndexError), ([1.5], TypeError), (([0], slice(None), [0]), IndexError), ([True, False], IndexError),
            (heed.Tensor([0.5]), TypeError), (4, IndexError), ((0, 0, 0, 0), IndexError), ("a", TypeError),
            (slice(None, None, -1), IndexError), ((Ellipsis, 0, Ellipsis), IndexError),
        ]:
            with self.subTest(key=key), self.assertRaises(error):
                x[key]

    def test_gradients(self):
        a, b = draw(4, 3, dtype=np.float64), draw(3, 2, dtype=np.float64)
        w = heed.parameter(b)
        loss = heed.square(heed.Tensor(a) @ w).sum()
        self.assertIsNone(w.grad)
        loss.backward()
        self.same(w.grad, 2 * a.T @ (a @ b), 1e-12)
        w.zero_grad()
        self.assertIsNone(w.grad)
        with heed.no_grad():
            self.assertFalse((w * 2).tracked)
        self.assertTrue((w * 2).tracked)
        y = w[0] * 3
        y.backward(heed.Tensor(np.ones(2)))
        self.same(w.grad, [[3, 3], [0, 0], [0, 0]])

    def test_gradcheck(self):
        good = heed.gradcheck(lambda x, y: heed.tanh(x @ y), [draw(2, 3), draw(3, 2)])
        self.assertTrue(good)
        self.assertLess(good.worst_error, 1e-8)
        bad = heed.gradcheck(lambda x: x * x.detach(), [draw(3)])
        self.assertFalse(bad)
        ids = np.array([2, 0, -1])
        self.assertTrue(heed.gradcheck(heed.embedding, [draw(3, 4), ids]))
        self.assertTrue(heed.gradcheck(lambda x: x, [draw(3)]))

    def test_gradcheck_passes_exceptions_on(self):
        kept = []

        def breaks(x):
            kept.append(x)
            raise KeyError("mine")

        with self.assertRaisesRegex(KeyError, "mine"):
            heed.gradcheck(breaks, [draw(3)])
        with self.assertRaisesRegex(heed.BadArgument, "freed"):  # valid only during the call
            heed.exp(kept[0])
        with self.assertRaisesRegex(TypeError, "must return a heed.Tensor"):
            heed.gradcheck(lambda x: 3, [draw(3)])
        with self.assertRaises(KeyboardInterrupt):
            heed.gradcheck(lambda x: (_ for _ in ()).throw(KeyboardInterrupt), [draw(3)])

    def test_linear_layers(self):
        x, w, b = draw(2, 3), draw(4, 3), draw(4)
        self.same(heed.linear(heed.Tensor(x), heed.Tensor(w), heed.Tensor(b)), x @ w.T + b)
        self.same(heed.linear(heed.Tensor(x), heed.Tensor(w)), x @ w.T)
        logits = draw(3, 5)
        expected = np.log(np.exp(logits).sum(1)) - logits[np.arange(3), [1, 0, 4]]
        self.same(heed.cross_entropy(heed.Tensor(logits), [1, 0, 4]), expected, 1e-5)
        normal = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
        self.same(heed.layer_norm(heed.Tensor(x)), normal, 1e-5)

    def test_random(self):
        a = heed.uniform((1000,), -1, 1, seed=3, step=4)
        self.same(a, heed.uniform((1000,), -1, 1, seed=3, step=4).numpy())
        self.assertTrue((a.numpy() != heed.uniform((1000,), -1, 1, seed=3, step=5).numpy()).any())
        self.assertLess(abs(heed.normal((10000,), 2, 3, seed=1).numpy().std() - 3), 0.1)
        dropped = heed.dropout(heed.ones(10000), 0.25, seed=1, step=1).numpy()
        self.assertEqual(set(np.unique(dropped)), {0, np.float32(1 / 0.75)})


    def test_numbers_that_json_does_not_have(self):
        inf, a = np.inf, np.array([[1, 2, 3]], np.float64)
        for dtype in (np.float32, np.float64):
            x = heed.Tensor(a.astype(dtype))
            for value in (-inf, inf, np.nan, 0.1, np.float32(0.1), 1e300 if dtype == np.float64 else 1e30, 2**63, 5e-324):
                expected = np.where([[1, 0, 0]], np.float64(value), a).astype(dtype)
                np.testing.assert_array_equal(heed.masked_fill(x, np.array([[1, 0, 0]]), value).numpy(), expected)
                np.testing.assert_array_equal(heed.pad(x, value=value, after=1).numpy(), np.append(a, float(value))[None].astype(dtype))
        self.same(heed.clamp(x, -inf, 2), [[1, 2, 2]])
        p = heed.parameter([1.0])
        self.refuses(
            (heed.SettingsError, "clip_norm is inf; expected a finite number", lambda: heed.Optimizer("adam", p, clip_norm=inf)),
            (heed.SettingsError, "dropout is nan", lambda: heed.attention("dot_product", 8, 2, dropout=np.nan)),
            (heed.SettingsError, "epsilon is nan", lambda: heed.rms_norm(x, epsilon=np.float32(np.nan))),
            (heed.SettingsError, "learning_rate is inf", lambda: heed.Schedule("constant", inf)),
            (TypeError, "masked_fill: value is '1'; expected a number", lambda: heed.masked_fill(x, x > 1, "1")),
            (heed.Error, "cannot be represented as i32", lambda: heed.masked_fill(heed.arange(3), [1, 0, 0], -inf)),
            (heed.Error, "'inf', '-inf' or 'nan', is 'Inf'", lambda: heed.tensor.lib.call(
                "heed_op", b"pad", heed.tensor.lib.handles_of([x]), 1, b'{"value": "Inf"}', heed.tensor.lib.handles_of([None]), 1, None)),
        )

    def test_values_of_numpy_take_the_dtype_of_the_tensor_beside_them(self):
        x, layer, a = heed.ones((2, 4)), heed.nn.Linear(4, 4), np.ones((2, 4))
        self.same(layer(a), layer(x).numpy())
        made = [x + a, a + x, layer(a), heed.nn.Sequential(layer, heed.gelu)(a), heed.layer_norm(a, heed.ones(4)), x @ a.T, heed.where([1, 0, 1, 0], x, a),
                heed.concat([x, a]), heed.stack([a, x]), heed.rms_norm(a, heed.ones(4)), heed.linear_cross_entropy(a, layer.weight, None, [1, 2]),
                heed.nn.MultiheadAttention(4)(a[None]), heed.mean_squared_error(a, x), heed.dot_product_attention(x[None, None], a[None, None], a[None, None])]
        self.assertEqual({one.dtype for one in made}, {"f32"})
        self.assertEqual(heed.nn.MultiheadAttention(4, dtype="f64")(a[None].astype(np.float32)).dtype, "f64")
        self.assertEqual((heed.Tensor(a) + a.astype(np.float32)).dtype, "f64")
        self.assertEqual((np.sum(x), np.mean([x, x]), np.concatenate([x, a]).shape, np.argmax(x)), (8, 1, (4, 4), 0))
        i = heed.arange(2)
        self.refuses(*((TypeError, r'float\d\d values for an i32 tensor.*x.to\("f32"\)', call) for call in (
            lambda: i + np.float32([1, 2]), lambda: np.float32([1, 2]) * i, lambda: heed.maximum(i, [0.5, 1.5]))),
            (heed.Error, '0.5 cannot be represented as i32.*cast', lambda: i * 0.5),
            (TypeError, "not 'a', of NumPy's type", lambda: heed.Tensor("a")), (TypeError, "of NumPy's type object", lambda: heed.Tensor([None])),
            (heed.SettingsError, "tolerance is nan", lambda: heed.gradcheck(heed.exp, [a], np.nan)),
            (TypeError, "the shape is 2.5", lambda: heed.zeros(2.5)), (TypeError, "where is 3; expected a text", lambda: x.to(3)),
            (TypeError, "expected a number, not 'a'", lambda: heed.leaky_relu(x, "a")),
            (TypeError, "axis: expected an integer, not 1.5", lambda: heed.softmax(x, 1.5)))


class Memory(Case):
    def test_to_numpy_without_a_copy(self):
        x = heed.Tensor(draw(3, 4))
        turned = x.T.numpy()
        self.assertTrue(np.shares_memory(turned, x.numpy()))
        self.assertFalse(turned.flags.writeable)
        self.assertTrue(x.numpy(copy=True).flags.writeable)
        expected = x.numpy(copy=True)
        del x
        gc.collect()
        np.testing.assert_array_equal(turned, expected.T)  # the array keeps the memory

    def test_from_numpy_without_a_copy(self):
        a = draw(3, 4)
        before = len(heed.tensor._lent)
        x = heed.from_numpy(a)
        again = heed.from_numpy(a)
        a[0, 0] = 7
        self.assertEqual(x[0, 0].item(), 7)
        view = x.reshape(12)
        del x, again
        self.assertEqual(len(heed.tensor._lent), before + 1)  # the view sees it still
        del view
        self.assertEqual(len(heed.tensor._lent), before)
        locked = draw(3)
        locked.flags.writeable = False
        with self.assertRaisesRegex(TypeError, "read-only"):
            heed.from_numpy(locked)
        for refused in (a.T, a.astype(np.float16), a[:, ::2], a.astype(">f4")):
            with self.assertRaises(TypeError):
                heed.from_numpy(refused)

    def test_lent_memory_is_not_overwritten(self):
        array = np.arange(6, dtype=np.float32).reshape(2, 3)
        before = array.copy()
        # The graph alone holds the logits.
        heed.cross_entropy(heed.parameter(heed.from_numpy(array)), [0, 2]).sum().backward()
        np.testing.assert_array_equal(array, before)

    def test_a_copy_is_a_copy(self):
        a = draw(3)
        x = heed.Tensor(a)
        a[0] = 9
        self.assertNotEqual(x[0].item(), 9)

    def test_what_is_assigned_to_a_view_gets_to_the_tensor(self):
        a = draw(4, 3, 2)
        for index in (np.s_[:, 1], np.s_[1], np.s_[::2], np.s_[..., 0], np.s_[:, 1:, 0], np.s_[:, None, 1], np.s_[2, :, 1]):
            x, expected = heed.Tensor(a), a.copy()
            x[index].assign(np.full_like(expected[index], 7))
            expected[index] = 7
            self.same(x, expected)
        for view in (lambda t: t.T, lambda t: t[:, 1:2].squeeze(1), lambda t: t[:, 1:2, 0].reshape(-1), lambda t: t.permute(1, 0, 2),
                     lambda t: t[:, 0].T[1], lambda t: t.unsqueeze(1)[:, 0, 2], lambda t: t.reshape(12, 2)[:, 1]):
            x = heed.Tensor(a)
            view(x).assign(np.zeros(view(x).shape))
            self.assertEqual((x.numpy() == 0).sum(), view(x).size)
        w = heed.parameter(a)
        loss = (w * w).sum()
        w[:, 1].assign(np.ones((4, 2)))
        self.same(w[:, 1], np.ones((4, 2)))
        self.refuses((heed.Error, "overwritten", loss.backward))

    def test_what_is_assigned_to_a_copy_is_refused(self):
        x = heed.Tensor(draw(4, 3))
        for copy in (x[[0, 2]], x[x > 0], x[[0, 2]][0], x[[0, 2]].T, x[np.array([True, False, True, True])], x.T.reshape(12), x.T.flatten()):
            self.refuses((heed.Error, "assign: .* a copy", lambda: copy.assign(np.zeros(copy.shape))))
        self.refuses((heed.Error, "one and the same", lambda: heed.expand(heed.Tensor([[1.0], [2.0]]), (2, 3)).assign(np.zeros((2, 3)))))
        heed.Tensor(x[[0, 2]]).assign(np.zeros((2, 3)))

    def test_array_without_a_copy_or_not_at_all(self):
        x = heed.Tensor(draw(3))
        self.assertTrue(np.shares_memory(x.__array__(copy=False), x.numpy()))
        with self.assertRaises(ValueError):
            x.__array__(np.dtype(np.int16), copy=False)
        self.assertEqual(np.asarray(x, np.int16).dtype, np.int16)

    def test_dlpack(self):
        x = heed.Tensor(draw(2, 3))
        other = np.from_dlpack(x)
        self.assertTrue(np.shares_memory(other, x.numpy()))
        self.assertEqual(x.__dlpack_device__(), (1, 0))
        a = draw(2, 3)
        np.testing.assert_array_equal(heed.from_dlpack(a).numpy(), a)
        np.testing.assert_array_equal(heed.from_dlpack(a.T).numpy(), a.T)

    def test_nothing_is_left(self):
        def work():
            w = heed.parameter(draw(4, 4))
            optimizer = heed.Optimizer("adam", [w])
            for _ in range(3):
                heed.square(heed.attention("dot_product", 4)(draw(1, 3, 4)) @ w).mean().backward()
                optimizer.step()

        self.leaves_nothing(work)

    def test_bytes_in_another_order(self):
        array = np.array([1 / 3, -2.0], dtype=np.dtype(np.float64).newbyteorder())
        tensor = heed.Tensor(array)
        self.assertEqual(tensor.dtype, "f64")
        np.testing.assert_array_equal(tensor.numpy(), array)

    def test_dtypes(self):
        for data, dtype in [
            ([1, 2], "i32"),
            ([1.5], "f32"),
            (np.zeros(2), "f64"),
            (np.zeros(2, np.float16), "f32"),
            (True, "i32"),
            (np.zeros(2, np.int64), "i32"),
            (3.5, "f32"),
        ]:
            self.assertEqual(heed.Tensor(data).dtype, dtype)
        self.assertEqual(heed.Tensor([1, 2]).to("f64").dtype, "f64")
        empty = heed.Tensor(np.zeros((0, 3), np.float32))
        self.assertEqual(empty.numpy().shape, (0, 3))
        self.assertIn("f32", repr(heed.Tensor([1.0])))


class Misuse(Case):
    def test_what_is_refused(self):
        x = heed.Tensor(draw(2, 3))
        layer = heed.attention("dot_product", 4)
        self.refuses(  # and what c_api.c has
            (heed.Error, r"\[2, 3\]", lambda: x @ x),
            (OverflowError, "does not fit", lambda: x.sum(2**40)),
            (OverflowError, "does not fit", lambda: heed.uniform(2, seed=-1)),
            (OverflowError, "i32", lambda: heed.Tensor([2**31])),
            (TypeError, "unsupported operand", lambda: x + "text"),
            (TypeError, "operand", lambda: x * np.complex64(1 + 2j)),
            (IndexError, "axis -4", lambda: heed.stack([x, x], -4)),
            (IndexError, "axis 3", lambda: heed.stack([x, x], 3)),
            (TypeError, "object", lambda: heed.exp(None)),
            (TypeError, "f32, f64 or i32", lambda: heed.Tensor([1.0], "f16")),
            (TypeError, "i32", lambda: heed.Tensor([1.5], "i32")),
            (TypeError, "not int", lambda: heed.parameter(x).sum().backward(77)),
            (heed.BadArgument, "heed_module where", lambda: heed.linear(x, layer)),
            (heed.Error, "does not have exactly one", lambda: bool(x)),
            (ValueError, "shape", lambda: x.assign([1.0])),
            (ValueError, "NUL", lambda: x.to("c\0pu")),
            (heed.Error, "types", lambda: x + heed.Tensor(draw(2, 3, dtype=np.float64))),
            (heed.Error, "0.5", lambda: heed.arange(3) + 0.5),
            (heed.Error, "memory", lambda: heed.zeros((2**40, 2**40))),
            (TypeError, "pickle", lambda: pickle.dumps(x)),
            (IndexError, "extent 1", lambda: x.squeeze(0)),
            (TypeError, "float", lambda: heed.expand(x, (2.5, 3))),
            (heed.Error, "equation|letter|operand", lambda: heed.einsum("ij->", x, x)),
            (heed.BadArgument, "1 tensors", lambda: heed.tensor._op("masked_softmax", [x])),
            (heed.BadArgument, "NULL", lambda: heed.tensor._op("masked_softmax", [x, None])),
            (heed.BadArgument, "3 tensors", lambda: heed.tensor._op("masked_softmax", [x, x, x])),
            (heed.BadArgument, r"inputs\[3\] is NULL", lambda: heed.tensor._op("linear_maps", [x, x, x, None])),
            (heed.BadArgument, "pairs of tensors, but got 3", lambda: heed.tensor._op("join_attention", [x, x, x])),
            (TypeError, "missing 1 required", lambda: heed.gather(x)),
            (heed.Error, "axs", lambda: heed.tensor._op("flip", [x], axs=[0])),
            (heed.Error, "cumulative_sum", lambda: heed.tensor._op("cumulativ_sum", [x])),
            (heed.BadArgument, "room", lambda: heed.tensor._op("sort", [x])),
        )

    def test_the_version_is_that_of_the_library(self):
        project = ROOT / "bindings/python/pyproject.toml"
        self.assertIn(f'version = "{heed.__version__}"', project.read_text())


if __name__ == "__main__":
    unittest.main()
