// Images in an encoder: the patches of an image form a sequence (Dosovitskiy et al. 2021, arXiv
// 2010.11929, eq. 1). The model learns which of four figures an image shows, at any place and in
// any noise.

#include <heed/heed.h>

#include <iostream>
#include <vector>

namespace {

constexpr int size = 16, patch = 4, side = size / patch, patches = side * side, width = 32, classes = 4;

class VisionTransformer : public heed::Module {
 public:
  explicit VisionTransformer(const heed::TransformerConfig& config)
      : encoder_(*this, "encoder", config, initialiser_) {}

  /// Returns the logits [B, classes] of images [B, size, size].
  heed::Tensor operator()(const heed::Tensor& images, heed::Context& context) {
    const heed::Tensor cut = heed::reshape(images, {-1, side, patch, side, patch});
    const heed::Tensor x = heed::reshape(heed::permute(cut, {0, 1, 3, 2, 4}), {-1, patches, patch * patch});
    return output_(heed::mean(encoder_(embedding_(x) + positions_, {}, context), 1));
  }

 private:
  heed::Initialiser initialiser_{1};
  heed::Part<heed::Linear> embedding_{*this, "embedding", patch* patch, width, true, initialiser_};
  heed::Parameter positions_{*this, "positions", initialiser_.normal({patches, width}, 0.02)};
  heed::Part<heed::Encoder> encoder_;
  heed::Part<heed::Linear> output_{*this, "output", width, classes, true, initialiser_};
};

struct Images {
  heed::Tensor pixels, figures;  // f32 [n, size, size], i32 [n]
};

/// A ring, a cross, a corner or two bars, somewhere in noise.
Images draw(int count, std::uint64_t seed) {
  constexpr const char* figures[classes][5] = {{" *** ", "*   *", "*   *", "*   *", " *** "},
                                               {"  *  ", "  *  ", "*****", "  *  ", "  *  "},
                                               {"*    ", "*    ", "*    ", "*    ", "*****"},
                                               {"     ", "*****", "     ", "*****", "     "}};
  heed::Draws draws({seed});
  std::vector<float> pixels;
  std::vector<std::int32_t> labels;
  for (int i = 0; i < count; ++i) {
    double image[size][size];
    for (auto& row : image)
      for (double& pixel : row) pixel = 0.5 * draws.unit();
    const int label = draws.below(classes), top = draws.below(size - 5), left = draws.below(size - 5);
    for (int y = 0; y < 5; ++y)
      for (int x = 0; x < 5; ++x) image[top + y][left + x] += figures[label][y][x] == '*' ? 0.8 : 0;
    for (const auto& row : image) pixels.insert(pixels.end(), std::begin(row), std::end(row));
    labels.push_back(label);
  }
  return {heed::Tensor::from(pixels, {count, size, size}), heed::Tensor::from(labels, {count})};
}

double accuracy(VisionTransformer& model, const Images& images) {
  const heed::NoGrad no_grad;
  heed::Context context = heed::Context::inference();
  const heed::Tensor right = heed::equal(heed::argmax(model(images.pixels, context), 1), images.figures);
  return heed::mean(right.to(heed::DType::f32)).item();
}

}  // namespace

int main() {
  const Images train = draw(4096, 1), test = draw(512, 2);
  VisionTransformer model({.width = width,
                           .feed_forward = 2 * width,
                           .encoder_layers = 2,
                           .dropout = 0,
                           .norm = "pre",
                           .encoder_attention = {{.name = "dot_product"}}});  // or another: `heed variants`
  heed::Optimizer adam(model.parameters(), {});
  heed::StepContexts contexts(1);
  for (std::uint32_t epoch = 1; epoch <= 10; ++epoch) {
    const heed::Tensor order = heed::permutation(4096, {1, epoch});
    for (int begin = 0; begin < 4096; begin += 64) {
      heed::Context context = contexts.next();
      const heed::Tensor rows = heed::slice(order, 0, begin, begin + 64);
      const heed::Tensor logits = model(heed::index_select(train.pixels, 0, rows), context);
      heed::backward(heed::mean(heed::cross_entropy(logits, heed::index_select(train.figures, 0, rows))));
      adam.step(3e-3);
      adam.zero_gradients();
    }
    std::cout << "epoch " << epoch << ": " << accuracy(model, test) << " of others are right\n";
  }
  return accuracy(model, test) > 0.9 ? 0 : 1;
}
