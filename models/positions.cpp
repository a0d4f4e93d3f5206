#include "heed/models/positions.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <numbers>
#include <optional>

#include "heed/autograd/ops.h"
#include "heed/base/names.h"
#include "heed/base/plain_numbers.h"

namespace heed {
namespace {

/// f_i = base^(-2i / width) for i < ceil(width / 2).
std::vector<double> frequencies(std::int64_t width, double base) {
  std::vector<double> all;
  for (std::int64_t i = 0; 2 * i < width; ++i)
    all.push_back(std::pow(base, -2 * static_cast<double>(i) / static_cast<double>(width)));
  return all;
}

double many_turns(const RotaryAngles& angles) {
  if (angles.many_turns > 0) return angles.many_turns;
  return angles.scaling == RotaryScaling::yarn ? 32 : 4;
}

/// Returns f_i for `width` elements of a head, in a text read up to position `end`, with the changes that
/// RotaryAngles describes.
std::vector<double> frequencies(std::int64_t width, const RotaryAngles& angles, std::int64_t end) {
  using enum RotaryScaling;
  const auto length = static_cast<double>(angles.length), dh = static_cast<double>(width);
  const double few = angles.few_turns, many = many_turns(angles);
  double base = angles.base;
  if (angles.scaling == dynamic && end > angles.length && width > 2)
    base *= std::pow(angles.factor * static_cast<double>(end) / length - angles.factor + 1, dh / (dh - 2));
  std::vector<double> all = frequencies(width, base);
  if (angles.scaling == dynamic) return all;
  /// The pair, not rounded, that completes so many turns in L tokens.
  const auto pair = [&](double turns) {
    return dh * std::log(length / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
  };
  const double first = std::max(std::floor(pair(many)), 0.0), last = std::min(std::ceil(pair(few)), dh - 1);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (angles.scaling == longrope) {
      all[i] /= (end > angles.length ? angles.long_factors : angles.short_factors)[i];
      continue;
    }
    double kept = (length * all[i] / (2 * std::numbers::pi) - few) / (many - few);
    if (angles.scaling == yarn)
      kept = 1 - (static_cast<double>(i) - first) / (first == last ? 0.001 : last - first);
    kept = std::clamp(kept, 0.0, 1.0);
    all[i] = (1 - kept) * all[i] / angles.factor + kept * all[i];
  }
  return all;
}

/// a of RotaryAngles.
double amplitude(const RotaryAngles& angles) {
  using enum RotaryScaling;
  const double growth = std::log(std::max(angles.factor, 1.0));
  if (angles.amplitude > 0) return angles.amplitude;
  if (angles.scaling == yarn) return 0.1 * growth + 1;
  if (angles.scaling == longrope && angles.length > 1)
    return std::sqrt(1 + growth / std::log(static_cast<double>(angles.length)));
  return 1;
}

/// Calls visit(n, i, n f_i) for first <= n < last and each frequency f_i.
void for_each_angle(std::int64_t first, std::int64_t last, const std::vector<double>& frequencies,
                    auto&& visit) {
  for (std::size_t i = 0; i < frequencies.size(); ++i)
    for (std::int64_t n = first; n < last; ++n)
      visit(n, static_cast<std::int64_t>(i), static_cast<double>(n) * frequencies[i]);
}

/// Returns the length of a table for the positions below `end`. It has room for more, because
/// decoding asks for one more position at every step.
std::int64_t table_length(std::int64_t end) {
  return static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(64, end))));
}

constexpr std::int64_t buckets = 32, farthest = 128;

}  // namespace

std::vector<std::int64_t> cache_key(std::vector<std::int64_t> numbers, DType dtype, Device device) {
  numbers.insert(numbers.end(), {static_cast<std::int64_t>(dtype), static_cast<std::int64_t>(device.type),
                                 static_cast<std::int64_t>(device.index)});
  return numbers;
}

Tensor tensor_of(const std::vector<double>& values, const Shape& shape, DType dtype, Device device) {
  if (dtype == DType::f64) return Tensor::from(values, shape, device);
  return cast(Tensor::from(std::vector<float>(values.begin(), values.end()), shape, device), dtype);
}

Positions::Positions(std::string_view kind, std::int64_t max_length, std::int64_t width, double deviation,
                     Initialiser& initialiser)
    : width_(width), halves_(kind == "sinusoidal_halves") {
  check_setting("positions", std::string(kind), setting_choices("positions"));
  if (kind != "learned") return;
  check(max_length > 0, "learned positions need a max_length, got ", max_length);
  add_parameter("weight", weight, initialiser.normal({max_length, width}, deviation));
}

Tensor Positions::operator()(std::int64_t begin, std::int64_t count, const Tensor& like) {
  const std::int64_t end = begin + count;
  if (weight.defined()) {
    if (end > weight.size(0)) {
      fail(described("Positions"), ": the sequence needs ", end, " positions, but max_length is ",
           weight.size(0));
    }
    return slice(weight, 0, begin, end);
  }
  const std::int64_t room = table_length(end), pairs = ceil_div(width_, 2);
  const Tensor table = tables_.get(cache_key({room}, like.dtype(), like.device()), [&] {
    std::vector<double> values(static_cast<std::size_t>(room * width_));
    for_each_angle(0, room, frequencies(width_, 10000), [&](std::int64_t n, std::int64_t i, double angle) {
      const std::int64_t sine = halves_ ? i : 2 * i, cosine = halves_ ? pairs + i : 2 * i + 1;
      values[static_cast<std::size_t>(n * width_ + sine)] = std::sin(angle);
      if (2 * i + 1 < width_) values[static_cast<std::size_t>(n * width_ + cosine)] = std::cos(angle);
    });
    return tensor_of(values, {room, width_}, like.dtype(), like.device());
  });
  return slice(table, 0, begin, end);
}

bool has_position_vectors(const TransformerConfig& config) {
  for (const char* without : {"none", "rotary", "alibi", "relative"})
    if (config.positions == without) return false;
  return true;
}

double embedding_scale(const TransformerConfig& config) {
  return config.scale_embeddings ? std::sqrt(static_cast<double>(config.width)) : 1;
}

double embedding_deviation(const TransformerConfig& config) {
  return config.embedding_deviation > 0 ? config.embedding_deviation
                                        : 1 / std::sqrt(static_cast<double>(config.width));
}

TokenInput::TokenInput(const TransformerConfig& config, const Embedding& embedding, Initialiser& initialiser)
    : embedding_(embedding),
      positions_(*this, "positions", config.positions, config.max_length, config.width,
                 embedding_deviation(config), initialiser),
      has_positions_(has_position_vectors(config)),
      scale_(embedding_scale(config)),
      dropout_(config.dropout) {
  if (config.token_types > 0)
    types_ = std::make_unique<Part<Embedding>>(*this, "types", config.token_types, config.width,
                                               embedding_deviation(config), initialiser);
  if (config.embedding_norm) norm_ = std::make_unique<Part<Norm>>(*this, "norm", config);
}

Tensor TokenInput::operator()(const Tensor& ids, std::int64_t begin, Context& context, const Tensor& types) {
  check(ids.rank() == 2 && ids.dtype() == DType::i32, "a model reads i32 ids [batch, length], got ",
        ids.dtype(), " of shape ", ids.shape());
  return from_vectors(embedding_(ids), begin, context, types);
}

Tensor TokenInput::from_vectors(Tensor x, std::int64_t begin, Context& context, const Tensor& types) {
  if (types.defined() && !types_)
    fail(described("TokenInput"), ": types of tokens need the setting token_types");
  if (scale_ != 1) x = x * scale_;
  if (has_positions_) x = x + positions_(begin, x.size(1), x);
  if (types_) x = x + (types.defined() ? (*types_)(types) : slice(types_->weight, 0, 0, 1));
  if (norm_) x = (*norm_)(x);
  return maybe_dropout(x, dropout_, context);
}

RotaryAngles rotary_angles(const TransformerConfig& config) {
  const auto numbers = [](const char* setting, const std::string& list) {
    std::vector<double> all;
    for (const std::string_view one : split_at(list, ",")) {
      if (list.empty()) break;
      const std::optional<double> number = parsed_number(one);
      check(number && *number > 0 && std::isfinite(*number), "setting '", setting,
            "' must hold positive numbers between commas, but holds '", one, "'");
      all.push_back(*number);
    }
    return all;
  };
  const std::span<const std::string> names = setting_choices("rotary_scaling");
  return {
      .base = config.rotary_base,
      .factor = config.rotary_factor,
      .length = config.rotary_length,
      .scaling = static_cast<RotaryScaling>(std::ranges::find(names, config.rotary_scaling) - names.begin()),
      .few_turns = config.rotary_few_turns,
      .many_turns = config.rotary_many_turns,
      .amplitude = config.rotary_amplitude,
      .share = config.rotary_share,
      .short_factors = numbers("rotary_short", config.rotary_short),
      .long_factors = numbers("rotary_long", config.rotary_long)};
}

Rotary::Rotary(const AttentionConfig& config)
    : width_(config.rotary ? config.inner_width() / config.heads : 0),
      turned_(static_cast<std::int64_t>(static_cast<double>(width_) * config.angles.share)),
      angles_(config.angles) {
  check(turned_ % 2 == 0, "rotary positions turn pairs of elements, but a head has a width of ", turned_,
        angles_.share < 1 ? " that rotates: choose rotary_share" : ": choose width and heads",
        " so that it is even");
  if (turned_ == 0) return;
  check(angles_.few_turns < many_turns(angles_), "setting 'rotary_few_turns' is ", angles_.few_turns,
        ", but must be below 'rotary_many_turns', ", many_turns(angles_));
  if (angles_.scaling == RotaryScaling::llama3) return;
  check(angles_.length > 0 && angles_.base > 1,
        "this 'rotary_scaling' needs 'rotary_length', the length of the training texts, and a 'rotary_base' "
        "above 1; they are ",
        angles_.length, " and ", angles_.base);
  if (angles_.scaling != RotaryScaling::longrope) return;
  for (const auto* factors : {&angles_.short_factors, &angles_.long_factors})
    check(std::ssize(*factors) == turned_ / 2, "settings 'rotary_short' and 'rotary_long' must hold ",
          turned_ / 2, " numbers, one for each pair of a head, but one holds ", factors->size());
}

Tensor Rotary::operator()(const Tensor& x, std::int64_t begin) {
  return turned_ == 0 ? x : apply_rotary(x, angles(begin, begin + x.size(1), x));
}

Tensor Rotary::at(const Tensor& x, const Tensor& positions, std::int64_t end) {
  if (turned_ == 0) return x;
  const Angles all = angles(0, end, x);
  return apply_rotary(x, {index_select(all.cosines, 0, positions), index_select(all.sines, 0, positions)});
}

Tensor Rotary::apply_rotary(const Tensor& x, const Angles& angles) const {
  const Tensor heads = reshape(x, {x.size(0), x.size(1), x.size(2) / width_, width_});
  if (turned_ == width_) return reshape(rotary(heads, angles.cosines, angles.sines), x.shape());
  const Tensor turned = rotary(contiguous(slice(heads, 3, 0, turned_)), angles.cosines, angles.sines);
  return reshape(concat({turned, slice(heads, 3, turned_, width_)}, 3), x.shape());
}

Rotary::Angles Rotary::angles(std::int64_t begin, std::int64_t end, const Tensor& like) {
  const DType dtype = statistics_type(like.dtype());
  const bool is_beyond = end > angles_.length, grows = is_beyond && angles_.scaling == RotaryScaling::dynamic,
             is_long = is_beyond && angles_.scaling == RotaryScaling::longrope;
  // With `dynamic`, the end decides about all angles, so a table serves this call alone.
  const std::int64_t first = grows ? begin : 0, last = grows ? end : table_length(end), half = turned_ / 2;
  const Angles all = tables_.get(cache_key({first, last, is_long}, dtype, like.device()), [&] {
    std::vector<double> cosines(static_cast<std::size_t>((last - first) * half)), sines(cosines.size());
    const double a = amplitude(angles_);
    for_each_angle(first, last, frequencies(turned_, angles_, end),
                   [&](std::int64_t n, std::int64_t i, double angle) {
                     cosines[static_cast<std::size_t>((n - first) * half + i)] = a * std::cos(angle);
                     sines[static_cast<std::size_t>((n - first) * half + i)] = a * std::sin(angle);
                   });
    const Shape shape{last - first, half};
    return Angles{tensor_of(cosines, shape, dtype, like.device()),
                  tensor_of(sines, shape, dtype, like.device())};
  });
  return {slice(all.cosines, 0, begin - first, end - first), slice(all.sines, 0, begin - first, end - first)};
}

DistanceBias::DistanceBias(const AttentionConfig& config, Initialiser& initialiser)
    : alibi_(config.alibi),
      interleaved_(config.interleaved_slopes),
      relative_(config.relative),
      causal_(config.causal),
      heads_(config.heads) {
  if (!relative_) return;
  const double deviation = 1 / std::sqrt(static_cast<double>(config.width));
  add_parameter("weight", weight, initialiser.normal({buckets, heads_}, deviation));
}

void DistanceBias::add_to(AttentionOptions& options, std::int64_t queries, std::int64_t keys,
                          const Tensor& like) {
  if (alibi_) options.slopes = slopes(like);
  if (relative_) options.bias = learned(queries, keys, like);
}

Tensor DistanceBias::matrix(std::int64_t queries, std::int64_t keys, const Tensor& like) {
  if (relative_) return learned(queries, keys, like);
  const Tensor positions = Tensor::arange(queries, DType::i32, like.device());
  return matrix_at(positions + static_cast<double>(keys - queries), keys, like);
}

Tensor DistanceBias::matrix_at(const Tensor& positions, std::int64_t keys, const Tensor& like) {
  check(alibi_, "DistanceBias: matrix_at() is for alibi only");
  const Tensor m = reshape(slopes(like), {1, heads_, 1, 1});
  const Tensor ahead =
      unsqueeze(Tensor::arange(keys, DType::i32, like.device()), 0) - unsqueeze(positions, 1);
  return cast(cast(abs(ahead), m.dtype()) * -m, like.dtype());
}

Tensor DistanceBias::slopes(const Tensor& like) {
  const DType dtype = statistics_type(like.dtype());
  return slopes_.get(cache_key({}, dtype, like.device()), [&] {
    const auto whole = std::bit_floor(static_cast<std::uint64_t>(heads_));
    const std::int64_t in_order = interleaved_ ? static_cast<std::int64_t>(whole) : heads_;
    std::vector<double> m;
    for (std::int64_t h = 1; h <= in_order; ++h)
      m.push_back(std::exp2(-8 * static_cast<double>(h) / static_cast<double>(in_order)));
    for (std::int64_t h = in_order; h < heads_; ++h)
      m.push_back(
          std::exp2(-4 * static_cast<double>(2 * (h - in_order) + 1) / static_cast<double>(in_order)));
    return tensor_of(m, {heads_}, dtype, like.device());
  });
}

Tensor DistanceBias::learned(std::int64_t queries, std::int64_t keys, const Tensor& like) {
  const Tensor ids = buckets_.get(cache_key({queries, keys}, DType::i32, like.device()), [&] {
    std::vector<std::int32_t> all;
    all.reserve(static_cast<std::size_t>(queries * keys));
    for (std::int64_t i = keys - queries; i < keys; ++i)
      for (std::int64_t j = 0; j < keys; ++j) all.push_back(bucket(j - i, causal_));
    return Tensor::from(all, {queries * keys}, like.device());
  });
  // [N M, H] -> contiguous [1, H, N, M]: the kernel reads rows of keys, tile by tile.
  const Tensor by_pair = reshape(embedding(cast(weight, like.dtype()), ids), {1, queries, keys, heads_});
  return contiguous(permute(by_pair, {0, 3, 1, 2}));
}

std::int32_t DistanceBias::bucket(std::int64_t ahead, bool causal) {
  const std::int64_t half = causal ? buckets : buckets / 2, exact = half / 2;
  const std::int64_t side = !causal && ahead > 0 ? half : 0;
  const std::int64_t distance = causal ? std::max<std::int64_t>(-ahead, 0) : std::abs(ahead);
  if (distance < exact) return static_cast<std::int32_t>(side + distance);
  const auto octaves = [&](std::int64_t d) {
    return std::log2(static_cast<double>(d) / static_cast<double>(exact));
  };
  const double beyond = octaves(distance) / octaves(farthest) * static_cast<double>(half - exact);
  return static_cast<std::int32_t>(side + std::min(exact + static_cast<std::int64_t>(beyond), half - 1));
}

}  // namespace heed
