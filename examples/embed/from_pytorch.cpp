// C++ equivalents of common PyTorch code. docs/guides/from_pytorch.md and docs/guides/cpp.md quote it; a test
// compares them.
//
//   from_pytorch [DEVICE [PRECISION]]      of the loop in mixed precision, such as: from_pytorch vulkan bf16

#include <heed/heed.h>

#include <filesystem>
#include <iostream>

namespace {

void autograd() {
  const heed::Tensor x = heed::parameter(heed::Tensor::from<float>({{1, 2}, {3, 4}}));
  heed::backward(heed::sum(x * x * x));
  std::cout << heed::gradient(x) << '\n';  // 3 x^2
  heed::zero_gradient(x);
  {
    const heed::NoGrad no_grad;
    heed::check(!(x * 2).tracked(), "autograd");
  }
  const heed::Tensor constant = x.detach();
  heed::check(!constant.tracked(), "autograd");
}

class Network : public heed::Module {
 public:
  explicit Network(heed::Initialiser& initialiser)
      : hidden_(*this, "hidden", 4, 32, true, initialiser),
        norm_(*this, "norm", 32),
        output_(*this, "output", 32, 3, true, initialiser) {}
  heed::Tensor operator()(const heed::Tensor& x, heed::Context& context) const {
    return output_(heed::maybe_dropout(heed::gelu(norm_(hidden_(x))), 0.1, context));
  }

 private:
  heed::Part<heed::Linear> hidden_;
  heed::Part<heed::LayerNorm> norm_;
  heed::Part<heed::Linear> output_;
};

void modules() {
  heed::Initialiser initialiser(1);  // the seed of the first weights
  Network network(initialiser);
  network.to(heed::DType::f32, heed::find_device("cpu"));
  for (const heed::NamedTensor& one : network.parameters())
    std::cout << one.name << ' ' << one.tensor->shape() << '\n';
}

/// max(x, 0)^2 with a gradient by hand.
heed::Tensor squared_relu(const heed::Tensor& x) {
  const heed::Tensor kept = heed::relu(x.detach());
  return heed::record("squared_relu", heed::square(kept), {x},
                      [kept](const heed::Tensor& grad) { return heed::Gradients{grad * kept * 2.0}; },
                      {&kept});
}

void own_layer() {
  const heed::Tensor x = heed::uniform({3, 4}, -1, 1, {1, 0, 0}, heed::DType::f64);
  const auto result = heed::gradcheck([](auto in) { return squared_relu(in[0]); }, {x});
  heed::check(result.passed, "own_layer: ", result.worst_error);
}

void optimizers(Network& network) {
  heed::ParameterGroup weights{{}, 1, 0.01}, others{{}, 1, 0};  // rate, weight decay
  for (const heed::NamedTensor& one : network.parameters())
    (one.tensor->rank() >= 2 ? weights : others).parameters.push_back(one);
  heed::Optimizer adamw(std::vector{weights, others}, {.kind = heed::OptimizerKind::adamw});
  heed::check(adamw.parameters().size() == 6, "optimizers");
}

/// What there is to learn: three classes of points.
heed::Tensor some_points() {
  return heed::normal({96, 4}, 0, 1, {2, 0, 0});
}
heed::Tensor their_classes(const heed::Tensor& x) {
  return heed::argmax(heed::slice(x, 1, 0, 3), 1);
}

double train(Network& network) {
  const heed::Tensor x = some_points(), classes = their_classes(x);
  heed::Optimizer adam(network.parameters(), {});
  heed::StepContexts contexts(1);
  heed::Tensor last;
  for (int step = 1; step <= 60; ++step) {
    heed::Context context = contexts.next();  // training, with the masks of this step
    const heed::Tensor loss = heed::mean(heed::cross_entropy(network(x, context), classes));
    heed::backward(loss);
    adam.clip(1.0);
    adam.step(1e-2);
    adam.zero_gradients();
    last = loss.detach();
  }
  return last.item();
}

/// Trains in f16 or bf16 on a GPU, and returns the loss before the last step; weights stay f32.
double mixed_precision(Network& network, heed::Device device, heed::Precision precision) {
  network.to(heed::DType::f32, device);
  const heed::Tensor x = some_points().to(device), classes = their_classes(x);
  heed::Optimizer adam(network.parameters(), {});
  heed::StepContexts contexts(1);
  heed::Autocast autocast(network, precision, {.scale = 256});
  heed::Tensor loss;
  for (int step = 1; step <= 60; ++step) {
    heed::Context context = contexts.next();
    loss = autocast.backward([&] {
      const heed::Tensor logits = network(x.to(autocast.dtype()), context);  // products: f16 or bf16
      return heed::mean(heed::cross_entropy(logits, classes).to(heed::DType::f32));
    });
    adam.clip(1.0);
    autocast.step(adam, 1e-2);  // in f16 no step where a gradient overflowed
  }
  std::cout << "loss in " << autocast.dtype() << ": " << loss.item() << '\n';
  return loss.item();
}

void files(Network& network, const std::filesystem::path& folder) {
  heed::save_model(network, folder / "network.safetensors");
  heed::Initialiser initialiser(2);
  Network same(initialiser);
  heed::load_model(same, folder / "network.safetensors");
  heed::check(heed::model_state(same).size() == 6, "files");
}

std::vector<std::int32_t> predict(const Network& network, const heed::Tensor& x) {
  const heed::NoGrad no_grad;
  heed::Context context = heed::Context::inference();  // no dropout
  return heed::argmax(network(x, context), 1).to_vector<std::int32_t>();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    autograd();
    modules();
    own_layer();
    heed::Initialiser initialiser(1);
    Network network(initialiser);
    optimizers(network);
    const double loss = train(network);
    std::cout << "loss after 60 steps: " << loss << '\n';
    const heed::TemporaryFolder folder;
    files(network, folder.path());
    const std::size_t answers = predict(network, some_points()).size();
    Network other(initialiser);
    const double in_half = mixed_precision(other, heed::find_device(argc > 1 ? argv[1] : "cpu"),
                                           heed::precision_from_name(argc > 2 ? argv[2] : "f32"));
    return loss < 0.3 && in_half < 0.3 && answers == 96 ? 0 : 1;
  } catch (const heed::Error& error) {
    std::cerr << "from_pytorch: " << error.what() << '\n';
    return 1;
  }
}
