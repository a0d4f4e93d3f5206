// An op of one's own, with its own loop forward and its own gradient: snake, which learns periods (Ziyin,
// Hartwig and Ueda, NeurIPS 2020, arXiv 2006.08195, eq. 3). Its gradient is checked, and a network of it
// carries a wave on beyond the points that it has learned from.

#include <heed/heed.h>

#include <cmath>
#include <iostream>
#include <vector>

namespace {

/// f(x, a) of each element x of a row and the a of its column.
template <class F>
heed::Tensor by_element(const heed::Tensor& x, const heed::Tensor& a, F f) {
  std::vector<double> xs = x.to_doubles(), as = a.to_doubles();
  for (std::size_t i = 0; i < xs.size(); ++i) xs[i] = f(xs[i], as[i % as.size()]);
  return heed::Tensor::from(xs, x.shape(), x.device()).to(x.dtype());
}

/// y = x + sin^2(a x) / a of x [..., n] and a [n].
heed::Tensor snake(const heed::Tensor& x, const heed::Tensor& a) {
  const auto swing = [](double v, double b) { return std::pow(std::sin(b * v), 2) / b; };
  const auto y = [=](double v, double b) { return v + swing(v, b); };
  const auto dx = [](double v, double b) { return 1 + std::sin(2 * b * v); };
  const auto da = [=](double v, double b) { return (v * std::sin(2 * b * v) - swing(v, b)) / b; };
  const heed::Tensor kept = x.detach(), period = a.detach();  // all that the gradient needs
  return heed::record("snake", by_element(kept, period, y), {x, a},
                      [=](const heed::Tensor& grad) {
                        return heed::Gradients{grad * by_element(kept, period, dx),
                                               heed::sum_to(grad * by_element(kept, period, da), a.shape())};
                      },
                      {&kept, &period});
}

class Network : public heed::Module {
 public:
  heed::Tensor operator()(const heed::Tensor& x) const { return output_(snake(hidden_(x), period_)); }

 private:
  heed::Initialiser initialiser_{1, heed::LinearInit::fan_in};
  heed::Part<heed::Linear> hidden_{*this, "hidden", 1, 32, true, initialiser_};
  heed::Parameter period_{*this, "period", heed::Tensor::full({32}, 4)};
  heed::Part<heed::Linear> output_{*this, "output", 32, 1, true, initialiser_};
};

heed::Tensor wave(const heed::Tensor& x) {
  return heed::sin(x * 3.0);
}

}  // namespace

int main() {
  const auto checked = heed::gradcheck([](auto in) { return snake(in[0], in[1]); },
                                       {heed::normal({4, 3}, 0, 1, {1, 0, 0}, heed::DType::f64),
                                        heed::uniform({3}, 0.5, 2, {1, 0, 1}, heed::DType::f64)});
  std::cout << "gradient check of snake: worst error " << checked.worst_error << '\n';

  Network network;
  heed::Optimizer adam(network.parameters(), {});
  const heed::Tensor x = heed::uniform({256, 1}, -3, 3, {2});
  for (int step = 1; step <= 1500; ++step) {
    heed::backward(heed::mean_squared_error(network(x), wave(x)));
    adam.step(1e-2);
    adam.zero_gradients();
  }
  const heed::NoGrad no_grad;
  const heed::Tensor beyond = heed::uniform({256, 1}, 3, 6, {3});
  const double within = heed::mean_squared_error(network(x), wave(x)).item();
  const double error = heed::mean_squared_error(network(beyond), wave(beyond)).item();
  std::cout << "squared error within [-3, 3]: " << within << ", beyond it in [3, 6]: " << error << '\n';
  return checked.passed && error < 0.1 ? 0 : 1;
}
