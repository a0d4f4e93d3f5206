// Images from arrays in memory: a network of two layers learns to read generated digits. Each has
// at most seven strokes and is slanted, shifted, unevenly inked and printed on grainy paper.

#include <heed/heed.h>

#include <iostream>
#include <vector>

namespace {

constexpr int size = 12, classes = 10;

struct Pictures {
  heed::Tensor pixels, digits;  // f32 [n, size * size], i32 [n]
};

Pictures draw(int count, std::uint64_t seed) {
  // The strokes of each digit: a (top), b, c, d (bottom), e, f and g (middle), from the lowest bit
  // up.
  constexpr unsigned strokes[classes] = {0x3f, 0x06, 0x5b, 0x4f, 0x66, 0x6d, 0x7d, 0x07, 0x7f, 0x6f};
  // The start of each stroke, as row and column, and whether it is vertical.
  constexpr int begins[][3] = {{0, 0, 0}, {0, 4, 1}, {4, 4, 1}, {8, 0, 0}, {4, 0, 1}, {0, 0, 1}, {4, 0, 0}};
  heed::Draws draws({seed});
  std::vector<float> pixels;
  std::vector<std::int32_t> digits;
  for (int i = 0; i < count; ++i) {
    double picture[size][size];
    for (auto& row : picture)
      for (double& pixel : row) pixel = 0.4 * draws.unit();
    const int digit = draws.below(classes), top = draws.below(4), left = draws.below(4);
    const double lean = draws.unit() * 0.5;
    for (int stroke = 0; stroke < 7; ++stroke) {
      const double ink = 0.4 + 0.6 * draws.unit();
      const auto& [row, column, down] = begins[stroke];
      for (int at = 0; at < 5 && (strokes[digit] >> stroke & 1); ++at) {
        const int y = row + (down ? at : 0), x = column + (down ? 0 : at);
        picture[top + y][left + x + static_cast<int>(lean * (8 - y))] += ink;
      }
    }
    for (const auto& row : picture) pixels.insert(pixels.end(), std::begin(row), std::end(row));
    digits.push_back(digit);
  }
  return {heed::Tensor::from(pixels, {count, size * size}), heed::Tensor::from(digits, {count})};
}

double accuracy(const heed::Sequential& network, const Pictures& pictures) {
  const heed::NoGrad no_grad;
  const heed::Tensor right = heed::equal(heed::argmax(network(pictures.pixels), 1), pictures.digits);
  return heed::mean(right.to(heed::DType::f32)).item();
}

}  // namespace

int main() {
  const Pictures train = draw(4000, 1), test = draw(1000, 2);
  heed::Initialiser initialiser(1);
  heed::Sequential network;
  network.emplace<heed::Linear>(size * size, 128, true, initialiser);
  network.add(heed::gelu);
  network.emplace<heed::Linear>(128, classes, true, initialiser);
  heed::Optimizer adam(network.parameters(), {});
  for (std::uint32_t epoch = 1; epoch <= 40; ++epoch) {
    const heed::Tensor order = heed::permutation(4000, {1, epoch});
    for (int begin = 0; begin < 4000; begin += 50) {
      const heed::Tensor rows = heed::slice(order, 0, begin, begin + 50);
      const heed::Tensor logits = network(heed::index_select(train.pixels, 0, rows));
      heed::backward(heed::mean(heed::cross_entropy(logits, heed::index_select(train.digits, 0, rows))));
      adam.step(2e-3);
      adam.zero_gradients();
    }
    if (epoch % 10 == 0)
      std::cout << "epoch " << epoch << ": " << accuracy(network, test) << " of others are right\n";
  }
  return accuracy(network, test) > 0.9 ? 0 : 1;
}
