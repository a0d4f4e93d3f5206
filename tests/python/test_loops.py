"""What loops of one's own need: devices, schedules, groups of parameters, mixed precision."""

import asyncio
import inspect
import unittest

import numpy as np

import heed
from support import Case, Folder, heeds_attentions, rng

DEVICE = next((one["device"] for one in heed.listing("devices") if one["device"] != "cpu" and not one["refusal"]), None)
needs_device = unittest.skipUnless(DEVICE, "needs a Vulkan device")
X = rng.normal(size=(2, 5, 8)).astype(np.float32)


class Net(heed.nn.Module):
    """Parameters of its own and of the library, one of them twice."""

    def __init__(self):
        heed.nn.set_seed(3)
        self.first = heed.nn.Linear(8, 8)
        self.layer = heed.attention("dot_product", 8, heads=2, seed=1)
        self.scale = heed.nn.Parameter(np.ones(8, np.float32))
        self.again = [self.first]

    def forward(self, x):
        return self.again[0](self.layer(self.first(x))) * self.scale


def steps_of(net, optimizer, count, x=None, rates=lambda step: None):
    """A few steps of training."""
    x = heed.Tensor(X) if x is None else x
    losses = []
    for step in range(1, count + 1):
        loss = heed.square(net(x) - 1).mean()
        loss.backward()
        optimizer.step(rates(step))
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


class Devices(Folder):
    def test_another_dtype_in_place(self):
        net = Net()
        before, expected = net.state_dict(), net(X).numpy()
        same = net.scale
        self.assertIs(net.to("f64"), net)
        self.assertIs(net.scale, same)
        self.assertEqual({one.dtype for one in net.parameters().values()}, {"f64"})
        self.assertTrue(all(one.tracked for one in net.parameters().values()))
        self.same(net(X.astype(np.float64)), expected, 1e-5)
        net.to("f32")
        for name, value in net.state_dict().items():
            np.testing.assert_array_equal(value, before[name])

    def test_moments_of_another_dtype(self):
        net = Net()
        adam, sgd = heed.Optimizer("adam", net), heed.Optimizer("sgd", net)
        x = heed.Tensor(X).to("f64")
        net.to("f64")
        self.assertRaisesRegex(heed.Error, "make a new optimizer", lambda: steps_of(net, adam, 1, x))
        self.assertGreater(steps_of(net, sgd, 2, x)[0], 0)

    def test_optimizers_follow(self):
        """One that was made before the move takes the same steps as one made after it."""
        for name, settings in {"sgd": {}, "adam": {}, "adamw": {"weight_decay": 0.1}}.items():
            first, second = Net(), Net()
            before = heed.Optimizer(name, first, 0.01, **settings)
            first.to("cpu"), second.to("cpu")
            after = heed.Optimizer(name, second, 0.01, **settings)
            steps_of(first, before, 3), steps_of(second, after, 3)
            for key, value in second.state_dict().items():
                np.testing.assert_array_equal(value, first.state_dict()[key])
                self.assertTrue((value != Net().state_dict()[key]).any())

    @needs_device
    def test_to_a_device_and_back(self):
        here, there = Net(), Net()
        plain, moved = (heed.Optimizer("adamw", one, 0.01) for one in (here, there))
        steps_of(here, plain, 4), steps_of(there, moved, 2)
        there.to(DEVICE)
        self.assertEqual({one.device for one in there.parameters().values()}, {DEVICE})
        steps_of(there, moved, 2, heed.Tensor(X, device=DEVICE))  # with the moments of the first two
        there.save(self.path("there"), moved)
        there.to("cpu")
        for name, value in here.state_dict().items():
            np.testing.assert_allclose(there.state_dict()[name], value, rtol=1e-3, atol=1e-5)
        other = Net()
        other.load(self.path("there"), heed.Optimizer("adamw", other))

    @needs_device
    def test_a_tensor_keeps_its_gradient(self):
        w = heed.parameter([1.0, 2.0])
        (heed.Tensor([3.0, 4.0], device=DEVICE) * w.to(DEVICE)).sum().to("cpu").backward()
        self.assertEqual(w.grad.tolist(), [3, 4])
        x = heed.Tensor([1.0, -2.0])
        self.assertEqual(x[(x > 0).to(DEVICE)].tolist(), [1])
        self.assertIn("on the CPU only", str(self.raised(lambda: Net().to(DEVICE).to("f64"))))

    def raised(self, call):
        with self.assertRaises(heed.Error) as found:
            call()
        return found.exception

    def test_the_same_device(self):
        w = heed.parameter([1.0])
        self.assertTrue(w.to("cpu").tracked)
        net = Net()
        self.refuses((heed.Error, "vulkan:N", lambda: net.to("cuda")), (heed.Error, "autocast", lambda: net.to("bf16")))
        self.same(net(X), Net()(X).numpy())


class Schedules(Case):
    def test_by_name(self):
        linear = heed.Schedule("linear", 1.0, steps=12, warmup_steps=2, final_rate=0.2)
        np.testing.assert_allclose([linear(step) for step in (2, 7, 12, 13)], [1, 0.6, 0.2, 0.2], rtol=1e-12)
        self.refuses(
            (ValueError, "needs steps", lambda: heed.Schedule("cosine")),
            (heed.SettingsError, "'cosine'", lambda: heed.Schedule("cosin")),
            (heed.SettingsError, "learning_rate", lambda: heed.Schedule("constant", -1)),
            (heed.SettingsError, "final_rate", lambda: heed.Schedule("linear", 0.1, steps=3, final_rate=0.2)),
            (heed.SettingsError, "count from 1", lambda: linear(0)),
        )


class Groups(Case):
    def test_rates_and_decays(self):
        a, b, c = (heed.parameter(np.ones((2, 2), np.float32)) for _ in range(3))
        sgd = heed.Optimizer("sgd", [{"params": [a], "learning_rate": 0.2}, {"params": {"b": b}}, {"params": c, "learning_rate": 0}], 0.1)
        for rate, expected in ((None, (0.8, 0.9, 1)), (0.3, (0.2, 0.6, 1))):
            (a + b + c).sum().backward()
            sgd.step(rate)
            sgd.zero_grad()
            for found, one in zip((a, b, c), expected):
                self.same(found, np.full((2, 2), one), 1e-6)
        net = Net()
        self.refuses(
            (TypeError, "no 'lr'", lambda: heed.Optimizer("sgd", [{"params": net, "lr": 1}])),
            (TypeError, "not both", lambda: heed.Optimizer("sgd", [{"params": net.first}, net.layer])),
            (ValueError, "which is 0", lambda: heed.Optimizer("sgd", [{"params": net, "learning_rate": 1}], 0)),
            (heed.Error, "given twice", lambda: heed.Optimizer("sgd", [{"params": net}, {"params": net.first}])),
            (heed.Error, "negative", lambda: heed.Optimizer("sgd", [{"params": net, "weight_decay": -1}])),
            (heed.Error, "no parameters", lambda: heed.Optimizer("sgd", [{"params": []}])),
            (TypeError, "not None", lambda: heed.Optimizer("sgd", None)),
            (TypeError, "an optimizer takes tensors.* of the shape", lambda: heed.Optimizer("sgd", [np.ones(3)])),
            (heed.SettingsError, "weight_decay is nan", lambda: heed.Optimizer("sgd", [{"params": net, "weight_decay": np.nan}])),
            (heed.SettingsError, "loss_scale is nan", lambda: heed.Autocast(net, "bf16", np.nan)),
        )


class Precisions(Case):
    def loss_after(self, precision, device, steps=30, **settings):
        net = Net().to(device)
        autocast, adam = heed.Autocast(net, precision, **settings), heed.Optimizer("adam", net, 0.01, clip_norm=1.0)
        x = heed.Tensor(X, device=device).to(autocast.dtype)
        seen = []

        def loss():
            seen.append(net.scale.dtype)
            return heed.square(net(x).to("f32") - 1).mean()

        losses = []
        for _ in range(steps):
            losses.append(autocast.backward(loss).item())
            autocast.step(adam)
        self.assertEqual({one.dtype for one in net.parameters().values()}, {"f32"})
        self.assertEqual(set(seen), {autocast.dtype})
        return losses, autocast, net

    def test_bf16_on_the_cpu(self):
        exact, _, _ = self.loss_after("f32", "cpu")
        losses, autocast, _ = self.loss_after("bf16", "cpu")
        self.assertEqual(autocast.dtype, "f32")
        np.testing.assert_allclose(losses, exact, rtol=0.05, atol=0.02)

    @needs_device
    def test_on_a_device(self):
        exact, _, _ = self.loss_after("f32", DEVICE, 8)
        for precision in ("bf16", "f16"):
            losses, autocast, _ = self.loss_after(precision, DEVICE, 8)
            self.assertEqual(autocast.dtype, precision)
            self.assertLess(losses[-1], losses[0])
            np.testing.assert_allclose(losses, exact, rtol=0.1, atol=0.02)
        self.assertEqual((autocast.loss_scale, autocast.skipped_steps), (16, 0))
        losses, autocast, net = self.loss_after("f16", DEVICE, 1, loss_scale=2.0**16)

    @needs_device
    def test_an_overflow_leaves_the_weights_alone(self):
        w = heed.parameter([1.0], device=DEVICE)
        autocast, sgd = heed.Autocast(w, "f16", loss_scale=2.0**16), heed.Optimizer("sgd", w, 1.0)
        autocast.backward(lambda: (w * w * 2).to("f32").sum())
        autocast.step(sgd)
        self.assertEqual((w.item(), autocast.skipped_steps, autocast.loss_scale), (1, 1, 2.0**15))

    def test_errors(self):
        net = Net()
        autocast = heed.Autocast([net.first, net.scale], "bf16")

        def fails():
            raise KeyError("mine")

        self.refuses(
            (heed.Error, "needs a Vulkan device", lambda: heed.Autocast(net, "f16")),
            (heed.SettingsError, "bf16", lambda: heed.Autocast(net, "half")),
            (heed.Error, "one element", lambda: autocast.backward(lambda: net.first(X))),
            (TypeError, "must return a heed.Tensor", lambda: autocast.backward(lambda: 1.0)),
            (KeyError, "mine", lambda: autocast.backward(fails)),
            (heed.Error, "within backward", lambda: autocast.backward(lambda: autocast.backward(lambda: net.scale.sum()))),
        )
        autocast.backward(lambda: net.scale.sum())
        self.assertEqual(net.scale.grad.tolist(), [1] * 8)

    def test_nothing_is_left(self):
        def work():
            net = Net()
            autocast, adam = heed.Autocast(net, "bf16"), heed.Optimizer("adam", net)
            autocast.backward(lambda: net(X).sum())
            autocast.step(adam)

        work()
        self.leaves_nothing(work)


async def fails():
    raise KeyError


class Recording(Case):
    def test_no_grad_as_a_block_and_as_a_decorator(self):
        w = heed.parameter([2.0])

        @heed.no_grad()
        def twice():
            return w * 2

        with heed.no_grad():
            self.assertFalse((w * 2).tracked)
        self.assertFalse(twice().tracked)
        self.assertTrue((w * 2).tracked)
        with self.assertRaises(KeyError), heed.no_grad():
            raise KeyError
        self.assertTrue((w * 2).tracked)
        scope = heed.no_grad()
        with scope, scope:
            pass
        self.assertTrue((w * 2).tracked)

    def test_no_grad_decorates_generators_and_coroutines(self):
        """Their bodies do not record, and what runs between their steps does."""
        w = heed.parameter([2.0])
        tracked = lambda: (w * 2).tracked

        @heed.no_grad()
        def generator(n):
            for _ in range(n):
                try:
                    sent = yield tracked()
                    self.assertIn(sent, (None, "sent"))
                except KeyError:
                    yield "thrown"
            return tracked()

        steps = generator(2)
        found = [next(steps), tracked(), steps.send("sent"), tracked(), steps.throw(KeyError()), tracked()]
        self.assertEqual(found, [False, True, False, True, "thrown", True])
        with self.assertRaises(StopIteration) as end:
            next(steps)
        self.assertIs(end.exception.value, False)
        next(left := generator(2))
        left.close()
        self.assertTrue(inspect.isgeneratorfunction(generator))

        @heed.no_grad()
        async def coroutine():
            before = tracked()
            await asyncio.sleep(0)
            return before, tracked()

        @heed.no_grad()
        async def waiting(n):
            for _ in range(n):
                await asyncio.sleep(0)
                yield tracked()

        async def main():
            seen = []

            async def beside():
                for _ in range(4):
                    seen.append(tracked())
                    await asyncio.sleep(0)

            found = await asyncio.gather(coroutine(), beside())
            return [*found[0], *[(one, tracked()) async for one in waiting(2)], set(seen)]

        self.assertEqual(asyncio.run(main()), [False, False, (False, True), (False, True), {True}])
        with self.assertRaises(KeyError):
            asyncio.run(heed.no_grad()(fails)())
        self.assertTrue(tracked())


class Positions(Case):

    def test_who_has_them(self):
        found = heeds_attentions()
        self.assertEqual(found["dot_product"]["positions"], ["rotary", "alibi", "relative"])
        for name, can in found.items():
            for kind in ("rotary", "alibi", "relative"):
                make = lambda: heed.attention(name, 16, 2, positions=kind, max_length=16)
                if kind in can["positions"]:
                    self.assertEqual(make()(np.ones((1, 4, 16), np.float32)).shape, (1, 4, 16))
                else:
                    self.assertRaises(heed.SettingsError, make)
        self.refuses((heed.SettingsError, "'rotary'", lambda: heed.attention("dot_product", 8, positions="rope")))


class Options(Case):
    def test_every_setting_has_a_line_of_help_and_can_be_given(self):
        count = 0
        found = heeds_attentions()
        for name, can in found.items():
            for setting in can["settings"]:
                with self.subTest(f"{name}: {setting['name']}"):
                    self.assertGreater(len(setting["help"]), 15)
                    self.assertFalse(setting["help"].endswith("."))
                    if name == "clusterformer" and setting["name"] == "block":
                        continue  # of the causal form
                    given = {**setting.get("beside", {}), setting["name"]: setting["default"]}
                    heed.attention(name, 64, 4, max_length=256, **given)
                    count += 1
        self.assertGreater(count, 60)
        beside = {one["name"]: one.get("beside") for one in found["attention_free_transformer"]["settings"]}
        self.assertEqual(beside, {"form": None, "rank": {"form": "local"}, "window": {"form": "local"}})
        self.assertIn("tiling", [one["name"] for one in found["synthesizer_mixture"]["settings"]])


if __name__ == "__main__":
    unittest.main()
