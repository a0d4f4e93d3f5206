#include "heed/tests/cases/attention_capabilities.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"

namespace heed {
namespace {

// Longer than the default chunks and blocks (64), so that what depends on the place in a sort shows.
constexpr std::int64_t length = 160, memory_length = 40, width = 8, batch = 2;

Tensor random(const Shape& shape, std::uint32_t stream) {
  return normal(shape, 0, 1, {41, 0, stream}, DType::f64);
}

double worst_difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) worst = std::max(worst, std::abs(x[i] - y[i]));
  return worst;
}

bool same(const Tensor& a, const Tensor& b) {
  return worst_difference(a, b) < 1e-12;
}

AttentionConfig config_of(bool causal, bool cross) {
  AttentionConfig config;
  config.width = width;
  config.heads = 2;
  config.max_length = length;
  config.causal = causal;
  config.cross = cross;
  config.seed = 3;
  return config;
}

/// One variant in one use.
class Trial {
 public:
  Trial(const AttentionVariant& variant, const AttentionConfig& config)
      : layer_(make_attention(variant.name, config)) {
    layer_->to(DType::f64, {});
    input_.x = random({batch, length, width}, 1);
    if (config.cross) input_.memory = random({batch, memory_length, width}, 2);
  }

  const AttentionInput& input() const { return input_; }

  Tensor run(const AttentionInput& input, std::uint64_t seed = 0) const {
    Context context = Context::inference();
    context.random = Random(seed);
    return (*layer_)(input, context).detach();
  }

  /// Other values in the last tokens change nothing before them: neither by entering, nor by deciding what
  /// is seen. The tokens before are much alike, so that they crowd together where tokens are sorted.
  bool future_decides_nothing() const {
    for (const std::int64_t known : {length - 1, length / 2}) {
      AttentionInput with = input_, without = input_;
      with.x = random({1, 1, width}, 3) + random({batch, length, width}, 4) * 0.3;
      const Tensor other = random({batch, length - known, width}, 5) * 3;
      without.x = concat({slice(with.x, 1, 0, known), other}, 1);
      const auto before = [&](const Tensor& out) { return contiguous(slice(out, 1, 0, known)); };
      if (!same(before(run(with)), before(run(without)))) return false;
    }
    return true;
  }

  /// Later tokens do not enter with their values: the derivative of earlier outputs is exactly 0 there.
  bool future_is_unseen() const {
    const std::int64_t known = length / 2;
    AttentionInput input = input_;
    input.x = parameter(input_.x);
    Context context = Context::inference();
    backward(sum(square(slice((*layer_)(input, context), 1, 0, known))));
    const Tensor later = contiguous(slice(gradient(input.x), 1, known, length));
    return worst_difference(later, Tensor::zeros(later.shape(), DType::f64)) == 0;
  }

  /// The memory matters.
  bool sees_memory() const {
    AttentionInput changed = input_;
    changed.memory = random(input_.memory.shape(), 6);
    return !same(run(changed), run(input_));
  }

  /// Every query gives the same by itself as among all.
  bool works_by_step() const {
    const Tensor whole = run(input_);
    AttentionCache cache;
    Context context = Context::inference();
    for (std::int64_t t = 0; t < 3; ++t) {
      AttentionInput one = input_;
      one.x = contiguous(slice(input_.x, 1, t, t + 1));
      if (!same(layer_->step(one, cache, context).detach(), contiguous(slice(whole, 1, t, t + 1))))
        return false;
    }
    return true;
  }

  /// Padding gives rows of zeros, and what stands there changes nothing else; a sample may be all padding.
  bool ignores_padding() const {
    const std::int64_t real = length - 3;
    AttentionInput padded = input_;
    padded.mask =
        concat({Tensor::ones({1, real}, DType::i32), Tensor::zeros({1, length - real}, DType::i32)}, 1);
    padded.mask = concat({padded.mask, Tensor::zeros({1, length}, DType::i32)}, 0);
    AttentionInput changed = padded;
    changed.x = where(unsqueeze(padded.mask, 2), padded.x, random(padded.x.shape(), 7) * 3);
    const Tensor out = run(padded);
    const Tensor hidden = where(unsqueeze(padded.mask, 2), Tensor::zeros({1}, DType::f64), out);
    return worst_difference(hidden, Tensor::zeros(hidden.shape(), DType::f64)) == 0 &&
           worst_difference(run(changed), out) == 0;
  }

  bool repeats() const { return worst_difference(run(input_, 1), run(input_, 2)) == 0; }

 private:
  std::unique_ptr<Attention> layer_;
  AttentionInput input_;
};

/// What an attempt says, or false where the variant refuses.
bool attempt(const std::function<bool()>& what) {
  try {
    return what();
  } catch (const Error&) {
    return false;
  }
}

const char* const yes = "yes";
const char* const no = "-";

struct Column {
  const char* title;
  std::function<std::string(const Capabilities&)> cell;
};

std::vector<Column> columns() {
  const auto mark = [](bool value) { return std::string(value ? yes : no); };
  return {{"causal",
           [](const Capabilities& can) {
             return std::string(!can.causal ? no : can.strictly_causal ? "strictly" : "values");
           }},
          {"cross",
           [](const Capabilities& can) {
             return std::string(!can.cross ? no : can.cross_by_step ? yes : "not by step");
           }},
          {"padding", [=](const Capabilities& can) { return mark(can.padding); }},
          {"any length", [=](const Capabilities& can) { return mark(can.any_length); }},
          {"rotary", [=](const Capabilities& can) { return mark(can.rotary); }},
          {"alibi", [=](const Capabilities& can) { return mark(can.alibi); }},
          {"relative", [=](const Capabilities& can) { return mark(can.relative); }},
          {"deterministic", [=](const Capabilities& can) { return mark(can.deterministic); }}};
}

std::string padded(std::string text, std::size_t to) {
  text.resize(std::max(to, text.size()), ' ');
  return text;
}

}  // namespace

TriedCapabilities try_capabilities(const AttentionVariant& variant) {
  Capabilities can;
  const auto with = [&](bool causal, bool cross, const std::function<bool(const Trial&)>& what) {
    return attempt([&] { return what(Trial(variant, config_of(causal, cross))); });
  };
  can.causal = with(true, false, [](const Trial& trial) { return trial.future_is_unseen(); });
  // Of a variant without the form, the field says nothing; it keeps its default.
  can.strictly_causal =
      !can.causal || with(true, false, [](const Trial& trial) { return trial.future_decides_nothing(); });
  can.cross = with(false, true, [](const Trial& trial) { return trial.sees_memory(); });
  can.cross_by_step =
      !can.cross || with(false, true, [](const Trial& trial) { return trial.works_by_step(); });
  can.padding = true;
  can.deterministic = true;
  for (const auto& [causal, cross] : {std::pair(false, false), {true, false}, {false, true}}) {
    if ((causal && !can.causal) || (cross && !can.cross)) continue;
    can.padding = can.padding && with(causal, cross, [](const Trial& t) { return t.ignores_padding(); });
    can.deterministic = can.deterministic && with(causal, cross, [](const Trial& t) { return t.repeats(); });
  }
  const auto tells_positions_by = [&](bool AttentionConfig::*kind) {
    return attempt([&] {
      AttentionConfig config = config_of(false, false);
      const Trial plain(variant, config);
      config.*kind = true;
      const Trial placed(variant, config);
      return !same(placed.run(placed.input()), plain.run(plain.input()));
    });
  };
  can.rotary = tells_positions_by(&AttentionConfig::rotary);
  can.alibi = tells_positions_by(&AttentionConfig::alibi);
  can.relative = tells_positions_by(&AttentionConfig::relative);
  can.any_length = attempt([&] {
    AttentionConfig config = config_of(false, false);
    config.max_length = 0;
    const Trial trial(variant, config);
    return trial.run({random({1, 7, width}, 8), {}, {}, {}}).size(1) == 7 &&
           trial.run(trial.input()).size(1) == length;
  });
  can.reason = variant.capabilities.reason;
  return {std::string(variant.name), can};
}

std::vector<TriedCapabilities> try_all_capabilities() {
  std::vector<TriedCapabilities> rows;
  for (const AttentionVariant& variant : attention_variants()) rows.push_back(try_capabilities(variant));
  return rows;
}

std::string capability_table(std::span<const TriedCapabilities> rows, bool markdown) {
  std::size_t name_width = 7;
  for (const TriedCapabilities& row : rows) name_width = std::max(name_width, row.name.size());
  const std::string begin = markdown ? "| " : "", between = markdown ? " | " : "  ",
                    end = markdown ? " |\n" : "\n";
  constexpr std::size_t cell_width = 13;
  std::string header = begin + padded("variant", markdown ? 0 : name_width), rule = "|---|", lines;
  for (const Column& column : columns()) {
    header += between + (markdown ? std::string(column.title) : padded(column.title, cell_width));
    rule += "---|";
  }
  for (const TriedCapabilities& row : rows) {
    lines += begin + padded(markdown ? "`" + row.name + "`" : row.name, markdown ? 0 : name_width);
    for (const Column& column : columns())
      lines += between + padded(column.cell(row.can), markdown ? 0 : cell_width);
    while (!markdown && lines.back() == ' ') lines.pop_back();
    lines += end;
  }
  while (!markdown && header.back() == ' ') header.pop_back();
  return header + end + (markdown ? rule + "\n" : "") + lines;
}

}  // namespace heed
