"""Parts of one's own: functions with a gradient of their own, attention mechanisms, models out of layers."""

import gc
import pathlib
import subprocess
import threading
import unittest
import weakref

import numpy as np

import heed
from support import PROGRAMS, Case, Folder, draw, draw64, in_threads


class Cube(heed.Function):
    """x^3 y, on arrays."""

    arrays = True

    @staticmethod
    def forward(kept, x, y, factor=1.0):
        kept.x, kept.y, kept.factor = x, y, factor
        return factor * x**3 * y

    @staticmethod
    def backward(kept, gradient):
        return kept.factor * 3 * kept.x**2 * kept.y * gradient, kept.factor * kept.x**3 * gradient


class Gate(heed.Function):
    """x sigmoid(x), on tensors, with a deliberate detour: a function may use others."""

    @staticmethod
    def forward(kept, x):
        kept.x, kept.gate = x, heed.sigmoid(x)
        return x * kept.gate

    @staticmethod
    def backward(kept, gradient):
        return gradient * kept.gate * (kept.x * (1 - kept.gate) + 1)


class Wrong(Gate):
    @staticmethod
    def backward(kept, gradient):
        return gradient


def failing(error):
    class Failing(heed.Function):
        @staticmethod
        def forward(kept, x):
            return x * 2

        @staticmethod
        def backward(kept, gradient):
            raise error

    return Failing.apply


class Functions(Case):
    def test_gradients_agree_with_finite_differences(self):
        self.assertTrue(heed.gradcheck(Cube.apply, [draw64(3, 2), draw64(3, 2)]))
        self.assertTrue(heed.gradcheck(lambda x, y: Cube.apply(heed.tanh(x), y, factor=0.5) @ y, [draw64(2, 2), draw64(2, 2)]))
        self.assertTrue(heed.gradcheck(Gate.apply, [draw64(4)]))
        self.assertFalse(heed.gradcheck(Wrong.apply, [draw64(4)]))

    def test_types_follow_the_inputs(self):
        for dtype in (np.float32, np.float64):
            w = heed.parameter(draw(3, dtype=dtype))
            Cube.apply(w, [1.0, 2.0, 3.0] if dtype is np.float32 else draw64(3)).sum().backward()
            self.assertEqual(w.grad.dtype, w.dtype)
        with heed.no_grad():
            self.assertFalse(Cube.apply(w, draw64(3)).tracked)

    def test_some_inputs_have_no_gradient(self):
        class Rows(heed.Function):
            @staticmethod
            def forward(kept, table, ids):
                kept.ids, kept.rows, kept.was_tracked = ids, table.shape[0], kept.tracked
                return heed.embedding(table, ids)

            @staticmethod
            def backward(kept, gradient):
                assert kept.was_tracked == (True, False)
                return heed.one_hot(kept.ids, kept.rows, gradient.dtype).T @ gradient, None

        self.assertTrue(heed.gradcheck(Rows.apply, [draw64(5, 2), np.array([3, 1, 1])]))

    def test_exceptions_come_out_unchanged(self):
        w = heed.parameter([1.0, 2.0])
        for error in (KeyError("mine"), KeyboardInterrupt(), heed.SettingsError("of another call")):
            with self.assertRaises(type(error)) as caught:
                failing(error)(w).sum().backward()
            self.assertIs(caught.exception, error)
        for words, backward in [
            ("2 gradients for 1 inputs", lambda kept, gradient: (gradient, gradient)),
            ("shape", lambda kept, gradient: np.zeros(5)),
            ("type", lambda kept, gradient: gradient.to("f64")),
        ]:
            cls = type("Odd", (Gate,), {"backward": staticmethod(backward)})
            with self.subTest(words):
                self.assertRaisesRegex((ValueError, heed.Error), words, lambda: cls.apply(w).sum().backward())
        with self.assertRaisesRegex(ZeroDivisionError, "forward"):
            type("Odd", (Gate,), {"forward": staticmethod(lambda kept, x: (_ for _ in ()).throw(ZeroDivisionError("forward")))}).apply(w)

    def test_an_input_that_was_overwritten_is_an_error(self):
        w = heed.parameter(draw(3))
        loss = Gate.apply(w).sum()
        w.detach().assign(draw(3))
        with self.assertRaisesRegex(heed.Error, "overwritten"):
            loss.backward()

    def test_nothing_is_left(self):
        def work():
            w, kept = heed.parameter(draw(4)), []

            class Seen(Gate):
                @staticmethod
                def forward(namespace, x):
                    kept.append(weakref.ref(x))
                    return Gate.forward(namespace, x)

            Seen.apply(Seen.apply(w)).sum().backward()  # after a backward pass
            Seen.apply(w)  # without one
            with self.assertRaises(KeyError):
                failing(KeyError("mine"))(w).sum().backward()
            with heed.no_grad():
                Seen.apply(w)
            return kept

        lent, kept = len(heed.tensor._lent), []
        self.leaves_nothing(lambda: kept.extend(work()))
        self.assertEqual(len(heed.tensor._lent), lent)
        self.assertEqual([one() for one in kept], [None] * 4)

    def test_arrays_outlive_the_call_that_lent_them(self):
        kept = []

        class Keeps(heed.Function):
            arrays = True

            @staticmethod
            def forward(namespace, x):
                return x * 2

            @staticmethod
            def backward(namespace, gradient):
                kept.append(gradient)
                return 2 * gradient

        Keeps.apply(heed.parameter(np.ones(1000))).sum().backward()
        heed.gradcheck(lambda x: kept.append(x.numpy()) or x, [np.full(100, 7.0)])
        gc.collect()
        again = [heed.zeros(1000, "f64") for _ in range(10)]
        self.assertEqual(len(again), 10)
        self.assertTrue((kept[0] == 1).all() and (kept[1][:1] != 0).all())

    def test_threads_have_their_own_exceptions(self):
        problems = []

        def work(number):
            for _ in range(20):
                try:
                    failing(KeyError(number))(heed.parameter([1.0])).sum().backward()
                except KeyError as error:
                    if error.args != (number,):
                        problems.append(error)
                if not heed.gradcheck(Cube.apply, [np.ones(3), np.ones(3)]):
                    problems.append("gradient")

        in_threads(4, work)
        self.assertEqual(problems, [])


def cosine(call):
    """Attention by the cosine between queries and keys."""
    query, key = (t / (t * t).sum(-1, keepdims=True) ** 0.5 for t in (call.query, call.key))
    logits = query @ key.transpose() * call.parameters["scale"] ** call.config["power"]
    weights = heed.masked_softmax(logits, call.allowed)
    call.show("weights", weights)
    return weights @ call.value


heed.register_attention(
    "angles", cosine, causal=True, cross=True, as_heads=True, settings={"power": 1}, reason="angles",
    parameters={"scale": lambda config: np.full((config["heads"], 1, 1), 4.0)},
)


def mean_so_far(call):
    """Without projections: a map of the mean of x so far, or of all of it; drops and adds a loss."""
    x = call.x if call.mask is None else call.x * call.mask.to(call.x.dtype).unsqueeze(2)
    means = x.cumsum(1) if call.config["causal"] else x.sum(1, keepdims=True) + x * 0
    call.context.add_loss("size", heed.square(means).mean(), 0.25)
    return call.context.dropout(means @ call.parameters["map"], call.config["dropout"])


heed.register_attention(
    "mean_so_far", mean_so_far, causal=True, projections=False,
    parameters={"map": lambda config: heed.normal((config["width"], config["width"]), seed=config["seed"])},
)


class Mechanisms(Folder):
    def test_it_is_one_of_the_mechanisms(self):
        listed = heed.attentions()["angles"]
        self.assertTrue(listed["causal"] and listed["cross"])
        self.assertIn("power", [setting["name"] for setting in listed["settings"]])
        layer = heed.attention("angles", 8, heads=2, seed=1)
        self.assertEqual(list(layer.parameters())[0], "scale")
        self.assertEqual(layer(draw(2, 5, 8)).shape, (2, 5, 8))
        first, again, other = (heed.attention("mean_so_far", 4, seed=seed).parameters()["map"] for seed in (1, 1, 2))
        np.testing.assert_array_equal(first.numpy(), again.numpy())
        self.assertTrue((first.numpy() != other.numpy()).any())

    def test_the_value_is_what_numpy_computes(self):
        layer = heed.attention("angles", 8, heads=2, causal=True, dtype="f64", power=2)
        x = draw64(2, 5, 8)
        w = {name: one.numpy() for name, one in layer.parameters().items()}
        q, k, v = ((x @ w[f"{n}.weight"].T).reshape(2, 5, 2, 4).transpose(0, 2, 1, 3) for n in ("query", "key", "value"))
        logits = np.einsum("bhid,bhjd->bhij", *(t / np.linalg.norm(t, axis=-1, keepdims=True) for t in (q, k))) * 16
        weights = np.exp(logits) * np.tri(5)
        weights /= weights.sum(-1, keepdims=True)
        expected = (weights @ v).transpose(0, 2, 1, 3).reshape(2, 5, 8) @ w["output.weight"].T
        np.testing.assert_allclose(layer(x).numpy(), expected, rtol=1e-12, atol=1e-12)

    def test_mechanisms_are_held_to_their_word(self):
        heed.check_attention("angles", power=2)
        for name in ("mean_so_far", "dot_product", "fastformer"):
            heed.check_attention(name)

        def softmax(call, allowed, scale=1.0):
            return heed.masked_softmax(call.query @ call.key.transpose() * scale, allowed) @ call.value

        def unmasked(call):
            return softmax(call, np.ones((1, 1), np.int32))

        def other_parameter(call):
            scale = call.parameters["scale"]
            return softmax(call, call.allowed, scale.detach() * 2 - scale)

        for name, words, forward in [
            ("sees_padding", "padding", unmasked),
            ("wrong_parameter", "gradient of .*scale", other_parameter),
        ]:
            heed.register_attention(name, forward, causal=True, parameters={"scale": 1.0})
            with self.subTest(name):
                self.assertRaisesRegex(heed.Error, words, lambda: heed.check_attention(name))
        with self.assertRaisesRegex(heed.Error, "did you mean 'sees_padding'"):
            heed.check_attention("see_padding")

    def test_cross_attention_and_parts_of_a_layer(self):
        layer = heed.attention("angles", 8, heads=2, cross=True)
        memory, mask = draw(2, 7, 8), np.array([[1] * 7, [1] * 5 + [0] * 2])
        found = layer(draw(2, 3, 8), memory=memory, memory_mask=mask)
        self.assertEqual(found.shape, (2, 3, 8))
        mixed = heed.attention("mixed_heads", 8, heads=2, parts=["angles", "dot_product"])
        self.assertEqual(mixed(draw(1, 3, 8)).shape, (1, 3, 8))

    def test_the_pass_reaches_it(self):
        layer = heed.attention("mean_so_far", 8, dropout=0.5)
        x = draw(1, 4, 8)
        with heed.Context(seed=1, step=1) as context:
            dropped = layer(x)
        self.assertTrue((dropped.numpy() == 0).any())
        self.assertGreater(context.auxiliary_loss.item(), 0)
        self.assertFalse((layer(x).numpy() == 0).any())

    def test_what_is_refused(self):
        heed.register_attention("wrong", lambda call: call.parameters[call.config["what"]], settings={"what": "none"},
                                parameters={"bad": [1.0]})
        x = draw(1, 3, 8)
        self.refuses(
            (heed.SettingsError, "taken", lambda: heed.register_attention("angles", cosine)),
            (heed.SettingsError, "lower-case", lambda: heed.register_attention("Mine", cosine)),
            (heed.SettingsError, "power", lambda: heed.attention("angles", 8, powr=3)),
            (heed.SettingsError, "causal", lambda: heed.attention("wrong", 8, causal=True)),
            (KeyError, "none", lambda: heed.attention("wrong", 8)(x)),
            (heed.Error, "heads of shape", lambda: heed.attention("wrong", 8, what="bad")(x)),
            (TypeError, "not list", lambda: (heed.register_attention("lists", lambda call: []), heed.attention("lists", 8)(x))),
            (ZeroDivisionError, "division", lambda: (
                heed.register_attention("zero", cosine, parameters={"a": lambda config: 1 / 0}), heed.attention("zero", 8))),
        )

    def test_nothing_is_left(self):
        def work():
            layer = heed.attention("angles", 8, heads=2)
            for _ in range(2):
                layer(draw(1, 3, 8)).sum().backward()

        self.leaves_nothing(work)

    @unittest.skipUnless((PROGRAMS / "classify").exists(), "needs the program classify: set HEED_PROGRAMS")
    def test_runs_use_it(self):
        """A run whose settings name a mechanism of this process is opened, answers, and has its attention maps."""
        train = [PROGRAMS / "classify", "train", "--out", self.path("run"), "--steps", "2", "--set", "model.width=16"]
        subprocess.run(train + ["--set", "model.heads=2", "--attention", "dot_product"], check=True, capture_output=True)
        config = pathlib.Path(self.path("run"), "config.json")
        settings = config.read_text()
        self.assertIn("dot_product", settings)
        config.write_text(settings.replace("dot_product", "angles"))
        run = heed.Run.open(self.path("run"), weights="initial", verify=False)
        answers = run.capture(["[ MAX 2 9 ]"], self.path("maps.html"))
        self.assertEqual(answers[0].error, "")
        self.assertIn("encoder layer 0", pathlib.Path(self.path("maps.html")).read_text())


class Net(heed.nn.Module):
    def __init__(self):
        self.table = heed.nn.Embedding(10, 8)
        self.layers = [heed.nn.MultiheadAttention(8, 2, "routing_transformer", clusters=2) for _ in range(2)]
        self.head = {"out": heed.nn.Sequential(heed.nn.LayerNorm(8), heed.nn.Dropout(0.1), heed.nn.Linear(8, 3))}
        self.tied = self.table.weight

    def forward(self, ids):
        x = self.table(ids)
        for layer in self.layers:
            x = x + layer(x)
        return self.head["out"](x.mean(1))


class Models(Folder):
    def step(self, net, optimizer, number):
        ids = np.random.default_rng(number).integers(0, 10, size=(4, 6))
        with heed.Context(seed=1, step=number) as context:
            loss = heed.cross_entropy(net(ids), ids[:, 0] % 3).mean()
            extra = context.auxiliary_loss
        (loss if extra is None else loss + extra).backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    def made(self, kind="adamw"):
        net = Net()
        return net, heed.Optimizer(kind, net, 0.01, clip_norm=1.0)

    def test_names(self):
        names = list(Net().parameters())
        self.assertEqual(names[0], "table.weight")
        self.assertIn("layers.1.query.weight", names)
        self.assertIn("head.out.2.bias", names)
        self.assertNotIn("tied", names)
        self.assertIn("Net", repr(Net()))

    def test_training_goes_on_to_the_same_bits(self):
        for kind in ("adamw", "adam", "sgd", "muon"):
            with self.subTest(kind):
                folder = self.new_folder()
                net, optimizer = self.made(kind)
                for number in range(1, 4):
                    self.step(net, optimizer, number)
                net.save(f"{folder}/both.safetensors", optimizer)
                optimizer.save(f"{folder}/optimizer.safetensors")
                expected = [self.step(net, optimizer, number) for number in range(4, 8)]
                other, resumed = self.made(kind)
                self.step(other, resumed, 1)
                other.load(f"{folder}/both.safetensors", resumed)
                self.assertEqual([self.step(other, resumed, number) for number in range(4, 8)], expected)
                resumed.load(f"{folder}/optimizer.safetensors")
                heed.save(f"{folder}/all.safetensors", {"model": other, "w": heed.ones(3), "steps": resumed})
                with self.assertRaisesRegex(heed.Error, "optimizer"):
                    other.load(f"{folder}/both.safetensors")  # the file has more

    def test_what_does_not_fit_changes_nothing(self):
        net, optimizer = self.made()
        self.step(net, optimizer, 1)
        net.save(f"{self.folder}/net.safetensors", optimizer)
        before = {name: one.numpy(copy=True) for name, one in net.parameters().items()}
        self.step(net, optimizer, 2)
        after = {name: one.numpy(copy=True) for name, one in net.parameters().items()}
        other = heed.nn.Linear(8, 3)
        for objects in ({"": net, "optimizer": heed.Optimizer("sgd", net)}, {"": net, "x": other, "optimizer": optimizer}):
            with self.assertRaisesRegex(heed.Error, "net.safetensors"):
                heed.load(f"{self.folder}/net.safetensors", objects)
        for name, one in net.parameters().items():
            np.testing.assert_array_equal(one.numpy(), after[name])
        net.load(f"{self.folder}/net.safetensors", optimizer)
        for name, one in net.parameters().items():
            np.testing.assert_array_equal(one.numpy(), before[name])
        with self.assertRaisesRegex(heed.Error, "two tensors"):
            heed.save(f"{self.folder}/x", {"a": heed.nn.Linear(2, 2), "a.weight": heed.ones(2)})
        with self.assertRaisesRegex(heed.BadArgument, "NULL"):
            heed.save(f"{self.folder}/x", {"a": None})

    def test_seeds(self):
        heed.nn.set_seed(5)
        first = heed.nn.Linear(3, 2).weight.numpy(copy=True)
        second = heed.nn.Linear(3, 2).weight.numpy(copy=True)
        heed.nn.set_seed(5)
        np.testing.assert_array_equal(heed.nn.Linear(3, 2).weight.numpy(), first)
        self.assertTrue((first != second).any())

    def test_contexts_are_per_thread_and_nest(self):
        seen = []
        with heed.Context() as outer:
            with heed.Context() as inner:
                self.assertIs(heed.Context.current(), inner)
            self.assertIs(heed.Context.current(), outer)
            thread = threading.Thread(target=lambda: seen.append(heed.Context.current()))
            thread.start()
            thread.join()
        self.assertEqual(seen + [heed.Context.current()], [None, None])

    def test_every_layer(self):
        x = heed.Tensor(draw(2, 3, 4))
        nn = heed.nn
        for layer, shape in [
            (nn.Linear(4, 5, bias=False), (2, 3, 5)), (nn.LayerNorm(4), x.shape), (nn.RMSNorm(4), x.shape),
            (nn.Dropout(0.5), x.shape), (nn.ReLU(), x.shape), (nn.GELU(), x.shape), (nn.SiLU(), x.shape),
            (nn.Sigmoid(), x.shape), (nn.Tanh(), x.shape), (nn.Sequential(), x.shape),
        ]:
            self.assertEqual(layer(x).shape, shape)
        parts = nn.ModuleList([nn.Linear(4, 4)])
        parts.append(nn.Linear(4, 4))
        self.assertEqual((len(parts), list(parts.parameters())), (2, ["0.weight", "0.bias", "1.weight", "1.bias"]))
        import heed.nn.functional as F

        self.assertIs(F.relu, heed.relu)
        self.assertIs(heed.nn.functional, F)


if __name__ == "__main__":
    unittest.main()
