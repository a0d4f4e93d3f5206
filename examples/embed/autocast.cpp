// A training loop of one's own in mixed precision: on a GPU a network with attention computes in f16 or bf16,
// while its weights, and what the optimizer does with them, stay f32.
//
//   autocast [DEVICE [PRECISION]]      such as: autocast vulkan bf16; without arguments: the CPU, in f32

#include <heed/heed.h>

#include <iostream>

namespace {

constexpr std::int64_t sequences = 64, length = 6, features = 8;

/// Of each sequence the second feature at the place where the first is largest: something to look up by
/// attention.
heed::Tensor targets(const heed::Tensor& x) {
  const heed::Tensor first = heed::slice(x, 2, 0, 1), second = heed::slice(x, 2, 1, 2);
  const heed::Tensor chosen = (first >= heed::max(first, 1, true)).to(x.dtype());
  return heed::sum(second * chosen, 1);  // [sequences, 1]
}

class Network : public heed::Module {
 public:
  explicit Network(heed::Initialiser& initialiser)
      : query_(features, 16, false, initialiser),
        key_(features, 16, false, initialiser),
        value_(features, 16, false, initialiser),
        output_(16, 1, true, initialiser) {
    add_module("query", query_);
    add_module("key", key_);
    add_module("value", value_);
    add_module("output", output_);
  }
  /// [B, N, features] -> [B, 1], in the type of the weights.
  heed::Tensor operator()(const heed::Tensor& x) const {
    const auto heads = [](const heed::Tensor& y) { return heed::split_heads(y, 2); };
    const heed::Tensor found =
        heed::attention(heads(query_(x)), heads(key_(x)), heads(value_(x)), heed::AttentionOptions{});
    return output_(heed::gelu(heed::mean(heed::merge_heads(found), 1)));
  }

 private:
  heed::Linear query_, key_, value_, output_;
};

/// Trains, and gives the losses of the first and of the last step.
std::pair<double, double> train(heed::Device device, heed::Precision precision) {
  heed::Initialiser initialiser(1);
  Network network(initialiser);
  network.to(heed::DType::f32, device);
  heed::Optimizer adam(network.parameters(), {});
  const heed::Tensor x =
      heed::uniform({sequences, length, features}, -1, 1, {2, 0, 0}, heed::DType::f32, device);
  const heed::Tensor y = targets(x);

  heed::Autocast autocast(network, precision, {.scale = 256});
  double first = 0, last = 0;
  for (int step = 1; step <= 200; ++step) {
    const heed::Tensor loss = autocast.backward([&] {
      const heed::Tensor found = network(x.to(autocast.dtype()));  // products and attention: f16 or bf16
      return heed::mean(heed::square(found.to(heed::DType::f32) - y));
    });
    adam.clip(1.0);
    autocast.step(adam, 3e-2);  // in f16 no step where a gradient overflowed
    if (step == 1) first = loss.item();
    if (step == 200) last = loss.item();
  }
  std::cout << "computed in " << autocast.dtype() << ": loss " << first << " at first, " << last
            << " at the end; weights are " << network.parameters()[0].tensor->dtype();
  if (precision == heed::Precision::f16)
    std::cout << "; steps left out: " << autocast.loss_scale_state().skipped;
  std::cout << '\n';
  return {first, last};
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const heed::Device device = heed::find_device(argc > 1 ? argv[1] : "cpu");
    const auto [first, last] = train(device, heed::precision_from_name(argc > 2 ? argv[2] : "f32"));
    return last < 0.5 * first ? 0 : 1;
  } catch (const heed::Error& error) {
    std::cerr << "autocast: " << error.what() << '\n';
    return 1;
  }
}
