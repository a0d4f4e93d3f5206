#include "heed/models/token_input.h"

#include <cmath>

#include "heed/autograd/ops.h"

namespace heed {
namespace {

/// `halves`: column i of the interleaved table stands in the first half where it is a sine, else in the second.
template <class T>
Tensor sinusoids(std::int64_t count, std::int64_t width, bool halves, Device device) {
  std::vector<T> table(static_cast<std::size_t>(count * width));
  for (std::int64_t i = 0; i < width; ++i) {
    const double even = static_cast<double>(i - i % 2);
    const double frequency = std::pow(10000.0, -even / static_cast<double>(width));
    const std::int64_t column = !halves ? i : i % 2 ? (width + 1) / 2 + i / 2 : i / 2;
    for (std::int64_t p = 0; p < count; ++p) {
      const double angle = static_cast<double>(p) * frequency;
      table[static_cast<std::size_t>(p * width + column)] =
          static_cast<T>(i % 2 ? std::cos(angle) : std::sin(angle));
    }
  }
  return Tensor::from(table, {count, width}, device);
}

}  // namespace

Positions::Positions(std::string_view kind, std::int64_t max_length, std::int64_t width, double deviation,
                     Initialiser& initialiser)
    : width_(width), halves_(kind == "sinusoidal_halves") {
  check_setting("positions", std::string(kind), choices_of("positions"));
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
  const std::lock_guard lock(mutex_);
  const bool reusable = table_.defined() && table_.size(0) >= end && table_.dtype() == like.dtype() &&
                        table_.device() == like.device();
  if (!reusable) {
    // A little more than asked for, because decoding asks for one more position at every step.
    const std::int64_t room = std::max<std::int64_t>(64, end + end / 2);
    table_ = like.dtype() == DType::f64
                 ? sinusoids<double>(room, width_, halves_, like.device())
                 : cast(sinusoids<float>(room, width_, halves_, like.device()), like.dtype());
  }
  return slice(table_, 0, begin, end);
}

bool has_position_vectors(const TransformerConfig& config) {
  for (const char* without : {"none", "rotary", "alibi", "relative"})
    if (config.positions == without) return false;
  return true;
}

double embedding_deviation(const TransformerConfig& config) {
  return config.embedding_deviation > 0 ? config.embedding_deviation
                                        : 1 / std::sqrt(static_cast<double>(config.width));
}

TokenInput::TokenInput(const TransformerConfig& config, const Embedding& embedding, Initialiser& initialiser)
    : embedding_(embedding),
      positions_(config.positions, config.max_length, config.width, embedding_deviation(config), initialiser),
      has_positions_(has_position_vectors(config)),
      scale_(config.scale_embeddings ? std::sqrt(static_cast<double>(config.width)) : 1),
      dropout_(config.dropout) {
  add_module("positions", positions_);
  if (config.token_types > 0) {
    types_ = std::make_unique<Embedding>(config.token_types, config.width, embedding_deviation(config),
                                         initialiser);
    add_module("types", *types_);
  }
  if (config.embedding_norm) {
    norm_ = std::make_unique<Norm>(norm_kind_of(config.norm_kind), config.width, config.epsilon);
    add_module("norm", *norm_);
  }
}

Tensor TokenInput::operator()(const Tensor& ids, std::int64_t begin, Context& context, const Tensor& types) {
  check(ids.rank() == 2 && ids.dtype() == DType::i32, "a model reads i32 ids [batch, length], got ",
        ids.dtype(), " of shape ", ids.shape());
  return of_vectors(embedding_(ids), begin, context, types);
}

Tensor TokenInput::of_vectors(Tensor x, std::int64_t begin, Context& context, const Tensor& types) {
  check(types_ || !types.defined(), described("TokenInput"),
        ": types of tokens need the setting token_types");
  if (scale_ != 1) x = x * scale_;
  if (has_positions_) x = x + positions_(begin, x.size(1), x);
  if (types_) x = x + (types.defined() ? (*types_)(types) : slice(types_->weight, 0, 0, 1));
  if (norm_) x = (*norm_)(x);
  return maybe_dropout(x, dropout_, context);
}

}  // namespace heed
