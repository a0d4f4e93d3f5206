"""Attention layers against formulas written in NumPy and against finite differences; optimizers; training."""

import copy
import pickle
import unittest

import numpy as np

import heed
from support import Case, Folder, draw64 as draw

BATCH, LENGTH, WIDTH, HEADS = 2, 7, 8, 2


def layer(name, **settings):
    return heed.attention(name, WIDTH, HEADS, dtype="f64", seed=5, **settings)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Outputs(Case):
    def same(self, found, expected):
        super().same(found, expected, 1e-10)

    def test_state_as_arrays(self):
        make = lambda: heed.nn.Sequential(heed.nn.Linear(4, 4), heed.attention("fastformer", 4, heads=2, seed=3))
        first, second = make(), make()
        state = first.state_dict()
        self.assertEqual(set(state), set(first.parameters()))
        state["0.weight"] += 1  # a copy
        second.load_state_dict(state)
        np.testing.assert_array_equal(second.state_dict()["0.weight"], state["0.weight"])
        self.assertTrue((first.state_dict()["0.weight"] != state["0.weight"]).all())
        before = second.state_dict()
        wrong = dict(state, **{"1." + "x": np.ones(1)})
        shape = dict({name: one * 0 for name, one in state.items()}, **{"0.bias": np.ones(3)})
        self.refuses((KeyError, "unknown ..1.x", lambda: second.load_state_dict(wrong)),
                     (KeyError, "missing", lambda: second.load_state_dict({})),
                     (ValueError, "'0.bias' has the shape", lambda: second.load_state_dict(shape)))
        for name, one in second.state_dict().items():
            np.testing.assert_array_equal(one, before[name])

    def test_copies(self):
        net = heed.nn.Sequential(heed.nn.Embedding(5, 4), heed.attention("routing_transformer", 4, heads=2, max_length=8, seed=3), heed.nn.Linear(4, 2))
        net.shared = net[2].weight
        net.to("f64")
        again, x = copy.deepcopy(net), np.arange(5)[None]
        self.same(again(x), net(x).numpy())
        self.assertIs(again.shared, again[2].weight)
        self.assertEqual(dict(again.named_parameters()).keys(), net.parameters().keys())
        again[0].weight.assign(np.ones((5, 4)))
        self.assertFalse(np.allclose(net[0].weight.numpy(), 1))
        self.refuses((TypeError, "cannot be pickled", lambda: pickle.dumps(net[1])))

    def test_dot_product_with_a_bias_and_slopes(self):
        q, k, v, bias = draw(2, 3, 5, 4), draw(2, 3, 6, 4), draw(2, 3, 6, 2), draw(1, 3, 5, 6)
        slopes = np.array([0.5, 0.25, 0.0])
        distance = np.abs(np.arange(5)[:, None] + 1 - np.arange(6))  # i + M - N - j
        logits = q @ k.transpose(0, 1, 3, 2) / 2 + bias - slopes[:, None, None] * distance
        found = heed.dot_product_attention(*map(heed.Tensor, (q, k, v)), bias=heed.Tensor(bias), slopes=slopes)
        self.same(found, softmax(logits) @ v)
        biased = lambda b: heed.dot_product_attention(*map(heed.Tensor, (q, k, v)), bias=b, causal=True)
        self.assertTrue(heed.gradcheck(biased, [bias], tolerance=1e-5))

class Training(Folder):
    def test_auxiliary_loss_and_dropout_of_a_pass(self):
        module = heed.attention("clusterformer", WIDTH, HEADS, clusters=2, dropout=0.5)
        x = draw(BATCH, LENGTH, WIDTH).astype(np.float32)

        def one(step):
            context = heed.Context(seed=1, step=step)
            found = module(x, context=context)
            return found.numpy(), context.auxiliary_loss

        (a, loss), (b, _), (c, _) = one(1), one(1), one(2)
        np.testing.assert_array_equal(a, b)
        self.assertTrue((a != c).any())
        self.assertNotEqual(loss.item(), 0)
        self.assertIsNone(heed.Context().auxiliary_loss)

    def test_optimizers(self):
        w = heed.parameter(np.ones(1, np.float32))
        heed.square(w).sum().backward()
        heed.Optimizer("sgd", w).step(learning_rate=0.25)
        self.assertEqual(w.item(), 0.5)
        self.refuses(
            (heed.SettingsError, "momentum", lambda: heed.Optimizer("sgd", w, momentum=0.9)),
            (heed.Error, "given twice", lambda: heed.Optimizer("sgd", [w, w])),
            (TypeError, "not a string", lambda: heed.Optimizer("sgd", ["weights"])),
        )

    def test_muon(self):
        """What is a matrix that maps one hidden layer to another: not a table, nor what adamw= names."""

        def moments(adamw, copied=False):
            net = {"table": heed.nn.Embedding(5, 4), "layer": heed.attention("dot_product", 4), "out": heed.nn.Linear(4, 3)}
            net = copy.deepcopy(net) if copied else net
            optimizer = heed.Optimizer("muon", net, adamw=adamw(net), momentum=0.9, matrix_rate=0.5, adjust_rate="original")
            heed.save(self.path("state.safetensors"), {"": optimizer})
            with open(self.path("state.safetensors"), "rb") as file:
                return file.read().count(b"second_moment")

        vectors, maps = 1, 4  # the bias of the last map; query, key, value and output
        self.assertEqual(moments(lambda net: ()), vectors + 1)
        self.assertEqual(moments(lambda net: net["out"]), vectors + 2)
        self.assertEqual(moments(lambda net: [net["out"], net["layer"]]), vectors + 2 + maps)
        self.assertEqual(moments(lambda net: (), copied=True), vectors + 1)
        w = heed.parameter(np.ones((2, 2), np.float32))
        self.refuses(
            (TypeError, "adamw=", lambda: heed.Optimizer("adam", w, adamw=w)),
            (heed.SettingsError, "match_rms_adamw", lambda: heed.Optimizer("muon", w, adjust_rate="none")),
            (heed.SettingsError, "momentum", lambda: heed.Optimizer("muon", w, momentum=1.5)),
        )

    def test_settings_are_checked(self):
        self.refuses(
            (heed.SettingsError, "did you mean 'dot_product'", lambda: heed.attention("dotproduct", 8)),
            (heed.SettingsError, "clusters", lambda: heed.attention("clusterformer", 8, clusters=-1)),
            (heed.SettingsError, "windows", lambda: heed.attention("dot_product", 8, windows=3)),
            (heed.SettingsError, "multiple", lambda: heed.attention("dot_product", 8, 3)),
            (heed.SettingsError, "max_length", lambda: heed.attention("linformer", 8)),
            (heed.SettingsError, "dtype", lambda: heed.attention("dot_product", 8, dtype="f16")),
        )


if __name__ == "__main__":
    unittest.main()
