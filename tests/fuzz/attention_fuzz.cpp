#include <cmath>

#include "fuzz_support.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/core/device.h"
#include "heed/core/random.h"
#include "heed/models/attention/attention.h"

namespace heed::fuzz {
namespace {

double made_number(FuzzChoices& choices) {
  static constexpr std::array<double, 20> numbers = {0,   1,    2,    3,  4,  5,  7,    8,   9,    -1,
                                                     0.5, 0.25, 1e-6, 16, 63, 64, 1000, 1e9, 1e30, 0x1p62};
  return numbers[choices.below(numbers.size())];
}

/// A value of the kind that the setting asks for, or now and then of another.
Options::Value made_value(FuzzChoices& choices, const Options::Asked& asked) {
  const unsigned oddity = choices.below(32);
  if (oddity == 1) return std::string("x");
  if (oddity == 2) return true;
  if (oddity == 3) return std::vector<double>{made_number(choices)};
  if (std::holds_alternative<bool>(asked.fallback)) return choices.below(2) == 1;
  if (std::holds_alternative<std::int64_t>(asked.fallback)) {
    const double number = made_number(choices);
    if (number == std::floor(number) && std::abs(number) < 0x1p63) return static_cast<std::int64_t>(number);
    return number;
  }
  if (std::holds_alternative<double>(asked.fallback)) return made_number(choices);
  if (std::holds_alternative<std::vector<double>>(asked.fallback)) {
    std::vector<double> list;
    for (unsigned left = choices.below(4); left > 0; --left) list.push_back(made_number(choices));
    return list;
  }
  if (!asked.choices.empty())
    return asked.choices[choices.below(static_cast<unsigned>(asked.choices.size()))];
  return asked.fallback;
}

}  // namespace

// An attention mechanism with settings by the input: an Error, or a layer that runs and can be trained. Its
// outputs have the shape of its input and are finite, and those of padded positions are 0.
bool fuzz_attention(std::string_view bytes) {
  set_cpu_threads(1);  // so little work is not worth waking others
  FuzzChoices choices(bytes);
  const auto variants = attention_variants();
  const std::string_view name = variants[choices.below(static_cast<unsigned>(variants.size()))].name;
  AttentionConfig config;
  const unsigned flags = choices.below(32);
  config.causal = (flags & 1) != 0;
  config.cross = (flags & 2) != 0;
  config.bias = (flags & 4) != 0;
  config.dropout = (flags & 8) != 0 ? 0.5 : 0;
  config.width = 8;
  config.heads = 1 << choices.below(3);
  config.max_length = 12;
  const std::int64_t length = 1 + choices.below(9), memory_length = 1 + choices.below(9);
  const std::int64_t real = 1 + choices.below(9);
  for (const Options::Asked& asked : attention_settings(name))
    if (choices.below(3) == 0) config.options.set(asked.name, made_value(choices, asked));
  const unsigned positions = choices.below(8);
  config.rotary = positions % 4 == 1;
  config.alibi = positions == 2 || positions == 5;
  config.relative = positions == 3 || positions == 5;
  AttentionInput input;
  input.x = uniform({2, length, 8}, -1, 1, {1, 0, 1});
  if (config.cross) input.memory = uniform({2, memory_length, 8}, -1, 1, {1, 0, 2});
  if (real < length) {
    std::vector<std::int32_t> mask;
    for (std::int64_t i = 0; i < 2 * length; ++i) mask.push_back(i < length || i - length < real);
    input.mask = Tensor::from(mask, {2, length});
  }
  return accepted([&] {
    const auto layer = make_attention(name, config);
    for (const bool training : {false, true}) {
      Context context = training ? Context::train(1, 1) : Context::inference();
      const Tensor output = (*layer)(input, context);
      require(output.shape() == input.x.shape());
      const std::vector<float> values = output.detach().to_vector<float>();
      for (const float value : values) require(std::isfinite(value));
      if (input.mask.defined())
        for (std::size_t i = static_cast<std::size_t>((length + real) * 8); i < values.size(); ++i)
          require(values[i] == 0);
      if (training) backward(sum(square(output)));
    }
  });
}

}  // namespace heed::fuzz
