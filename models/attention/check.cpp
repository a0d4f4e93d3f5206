#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/models/attention/attention.h"

namespace heed {
namespace {

constexpr std::int64_t trial_width = 8, trial_batch = 3;
// Longer than the default chunks and blocks (64), to reveal dependence on the place in a sort.
constexpr std::int64_t long_length = 160, short_length = 5;

Tensor drawn(const Shape& shape, std::uint32_t stream) {
  return normal(shape, 0, 1, {41, 0, stream}, DType::f64);
}

Tensor part(const Tensor& x, std::int64_t begin, std::int64_t end) {
  return contiguous(slice(x, 1, begin, end));
}

/// Throws if two results [B, N, d] differ by more than `tolerance`; names `broken`, the position
/// and both values.
void expect_same(const Tensor& found, const Tensor& expected, double tolerance, const std::string& broken,
                 const char* of_found, const char* of_expected) {
  const std::vector<double> a = found.detach().to_doubles(), b = expected.detach().to_doubles();
  check(found.shape() == expected.shape(), broken, ": shape ", found.shape(), " ", of_found, ", ",
        expected.shape(), " ", of_expected);
  const std::int64_t length = found.size(1), width = found.size(2);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    check(std::abs(a[i] - b[i]) <= tolerance, broken, ": sample ", at / width / length, ", position ",
          at / width % length, ", element ", at % width, " is ", a[i], " ", of_found, " and ", b[i], " ",
          of_expected);
  }
}

void expect_finite(const Tensor& found, const char* given, const std::string& what) {
  if (!found.defined()) return;
  for (const double value : found.to_doubles())
    check(std::isfinite(value), "with ", given, ", ", what, " in ", found.dtype(), " has ", value);
}

AttentionConfig make_attention_config(const Options& options, bool causal, bool cross,
                                      std::int64_t max_length) {
  AttentionConfig config;
  config.width = trial_width;
  config.heads = 2;
  config.max_length = max_length;
  config.causal = causal;
  config.cross = cross;
  config.options = options;
  config.seed = 3;
  return config;
}

/// One variant in one use, with an input. Each check throws an Error that names the broken
/// property.
class Trial {
 public:
  Trial(const AttentionVariant& variant, const AttentionConfig& config, std::int64_t length,
        DType dtype = DType::f64)
      : layer_(make_attention(variant.name, config)), length_(length) {
    layer_->to(dtype, {});
    for (const NamedTensor& entry : layer_->parameters())  // biases that enter where they should not, show
      if (entry.name.find("bias") != std::string::npos) *entry.tensor = parameter(*entry.tensor + 0.5);
    layer_->state_changed();
    input_.x = cast(drawn({trial_batch, length, trial_width}, 1), dtype);
    if (config.cross) input_.memory = cast(drawn({trial_batch, length / 4 + 3, trial_width}, 2), dtype);
  }

  const AttentionInput& input() const { return input_; }

  Tensor run(const AttentionInput& input, std::uint64_t seed = 0) const {
    Context context = Context::inference();
    context.random = Random(seed);
    return (*layer_)(input, context).detach();
  }

  void takes_length(std::int64_t length) const {
    AttentionInput other = input_;
    other.x = drawn({trial_batch, length, trial_width}, 8);
    const Tensor out = run(other);
    check(out.shape() == other.x.shape(), "an input of shape ", other.x.shape(), " gives an output of shape ",
          out.shape());
    for (const double value : out.to_doubles())
      check(std::isfinite(value), "an input of shape ", other.x.shape(), " gives ", value);
  }

  /// Batches without samples and without words.
  void takes_nothing() const {
    for (const Shape& shape : {Shape{0, 3, trial_width}, Shape{2, 0, trial_width}}) {
      AttentionInput none;
      none.x = Tensor::zeros(shape, DType::f64);
      if (input_.memory.defined()) none.memory = Tensor::zeros({shape[0], 4, trial_width}, DType::f64);
      const Tensor out = run(none);
      check(out.shape() == shape, "an input of shape ", shape, " gives an output of shape ", out.shape());
    }
  }

  /// Changing the last words, even to very large values, has no effect on earlier outputs: not
  /// through their values, nor through the choice of visible tokens, nor through normalisation. The
  /// earlier words are similar, so that they crowd together in a sort.
  void future_decides_nothing() const {
    AttentionInput with = input_, without = input_;
    with.x = drawn({1, 1, trial_width}, 3) + drawn({trial_batch, length_, trial_width}, 4) * 0.3;
    const Tensor out = run(with);
    for (const std::int64_t known : {length_ - 1, length_ / 2}) {
      for (const double times : {1.0, 10.0, 100.0}) {
        const Tensor other = drawn({trial_batch, length_ - known, trial_width}, 5) * times;
        without.x = concat({slice(with.x, 1, 0, known), other}, 1);
        expect_same(
            part(out, 0, known), part(run(without), 0, known), 1e-12,
            "it is declared strictly causal, but later words change earlier outputs", "with one sequence",
            concat_text("with other words from position ", known, " on, ", times, " times as large").c_str());
      }
    }
  }

  /// Values of later words never enter: the derivative of earlier outputs is exactly 0 there.
  void future_is_unseen() const {
    const std::int64_t known = length_ / 2;
    AttentionInput input = input_;
    input.x = parameter(input_.x);
    Context context = Context::inference();
    backward(sum(square(slice((*layer_)(input, context), 1, 0, known))));
    const Tensor seen = gradient(input.x), before = part(seen, 0, known);
    const Tensor later = Tensor::zeros({trial_batch, length_ - known, trial_width}, DType::f64);
    expect_same(
        seen, concat({before, later}, 1), 0,
        concat_text("it is declared causal, but outputs before position ", known, " depend on later words"),
        "in their derivative", "in that of a causal one");
  }

  void sees_memory() const {
    AttentionInput changed = input_;
    changed.memory = drawn(input_.memory.shape(), 6);
    check(max(abs(run(changed) - run(input_))).item() > 1e-12,
          "it is declared to serve as cross-attention, but another memory gives the same output");
  }

  /// Decoding one or several words at a time gives the outputs of the whole sequence. If later
  /// words affect what is seen, it gives those of the sequence so far.
  void decodes(const Capabilities& can) const {
    const NoGrad no_grad;
    const Tensor whole = run(input_);
    for (const std::int64_t at_once : {1, 2}) {
      if (at_once > 1 && !can.strictly_causal) continue;
      AttentionCache cache;
      Context context = Context::inference();
      for (std::int64_t t = 0; t + at_once <= std::min<std::int64_t>(length_, 6); t += at_once) {
        AttentionInput one = input_, prefix = input_;
        one.x = part(input_.x, t, t + at_once);
        prefix.x = part(input_.x, 0, t + at_once);
        const Tensor expected = can.strictly_causal ? whole : run(prefix);
        expect_same(layer_->step(one, cache, context), part(expected, t, t + at_once), 1e-12,
                    concat_text("decoding step at position ", t, " of ", at_once, " words"), "by step()",
                    "in the whole sequence");
      }
    }
  }

  /// Padding gives rows of zeros, and its contents affect nothing else. One sample is whole, one
  /// ends in padding, and one is all padding.
  void ignores_padding() const {
    const auto make_mask = [](std::int64_t length) {
      std::vector<std::int32_t> real(static_cast<std::size_t>(trial_batch * length), 0);
      std::fill_n(real.begin(), 2 * length - 2, 1);
      return Tensor::from(real, {trial_batch, length});
    };
    AttentionInput padded = input_;
    padded.mask = make_mask(length_);
    AttentionInput changed = padded;
    changed.x = where(unsqueeze(padded.mask, 2), padded.x, drawn(padded.x.shape(), 7) * 3);
    if (input_.memory.defined()) {
      padded.memory_mask = changed.memory_mask = make_mask(input_.memory.size(1));
      changed.memory =
          where(unsqueeze(padded.memory_mask, 2), padded.memory, drawn(padded.memory.shape(), 9));
    }
    const Tensor out = run(padded);
    expect_same(where(unsqueeze(padded.mask, 2), 0, out), Tensor::zeros(out.shape(), DType::f64), 0,
                "the output at padding is not 0", "", "where it should be");
    expect_same(run(changed), out, 0, "words that are padding change outputs", "with other padding",
                "with the first");
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    changed.x = where(unsqueeze(padded.mask, 2), padded.x, nan);
    if (input_.memory.defined()) changed.memory = where(unsqueeze(padded.memory_mask, 2), padded.memory, nan);
    expect_same(run(changed), out, 0, "words that are padding change outputs", "with NaN as padding",
                "with numbers");
  }

  /// Padding at the beginning, holes, a sample of padding alone and, as a memory, for queries that
  /// are real; a batch of padding alone: outputs, losses and gradients are finite.
  void padding_is_finite() const {
    const auto make_mask = [](std::int64_t length, bool with_last) {
      std::vector<std::int32_t> real(static_cast<std::size_t>(trial_batch * length), 0);
      for (std::int64_t i = 0; i < length; ++i) {
        real[static_cast<std::size_t>(i)] = i >= 2;
        real[static_cast<std::size_t>(length + i)] = i % 3 != 1;
        real[static_cast<std::size_t>(2 * length + i)] = with_last;
      }
      return Tensor::from(real, {trial_batch, length});
    };
    const bool cross = input_.memory.defined();
    AttentionInput input = input_;
    input.mask = make_mask(length_, cross);
    if (cross) input.memory_mask = make_mask(input_.memory.size(1), false);
    is_finite(input, "padding at the beginning, holes and a sample of padding alone");
    for (Tensor* mask : {&input.mask, &input.memory_mask})
      if (mask->defined()) *mask = Tensor::zeros(mask->shape(), DType::i32);
    is_finite(input, "a batch of padding alone");
  }

  /// A sample without a real word does not affect the outputs and gradients of other samples.
  /// Auxiliary losses may be means over all samples.
  void ignores_empty_samples() const {
    const auto make_mask = [](std::int64_t length) {
      std::vector<std::int32_t> real(static_cast<std::size_t>(trial_batch * length), 1);
      std::fill_n(real.end() - length - 2, length + 2, 0);
      return Tensor::from(real, {trial_batch, length});
    };
    AttentionInput with = input_;
    with.mask = make_mask(length_);
    if (with.memory.defined()) with.memory_mask = make_mask(with.memory.size(1));
    AttentionInput without = with;
    for (Tensor* part : {&without.x, &without.mask, &without.memory, &without.memory_mask})
      if (part->defined()) *part = contiguous(slice(*part, 0, 0, trial_batch - 1));
    const auto found = results(with), expected = results(without);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto& [name, other] = expected[i];
      expect_same(reshape(found[i].second, {1, 1, -1}), reshape(other, {1, 1, -1}),
                  1e-11 * std::max(1.0, max(abs(other)).item()),
                  concat_text("a sample without a real word changes ", name), "beside it", "without it");
    }
  }

  void repeats() const {
    expect_same(run(input_, 1), run(input_, 2), 0,
                "it is declared deterministic, but inference draws numbers", "with one seed", "with another");
  }

  /// A sample gives the same outputs alone and in a batch.
  void keeps_samples_apart() const {
    AttentionInput alone;
    alone.x = slice(input_.x, 0, 0, 1);
    if (input_.memory.defined()) alone.memory = slice(input_.memory, 0, 0, 1);
    expect_same(run(alone), contiguous(slice(run(input_), 0, 0, 1)), 1e-12, "samples of a batch mix", "alone",
                "in a batch");
  }

  /// A training pass changes buffers only through Context::observe().
  void observes() const {
    const Buffers buffers(*layer_);
    Context context = Context::train(1, 1);
    std::vector<Observation> observations;
    context.observations = &observations;
    static_cast<void>((*layer_)(input_, context));
    buffers.expect_unchanged();
  }

  void has_gradients() const {
    const Buffers buffers(*layer_);
    std::vector<Tensor> inputs{input_.x};
    if (input_.memory.defined()) inputs.push_back(input_.memory);
    AttentionInput input = input_;
    std::vector<std::int32_t> real(static_cast<std::size_t>(trial_batch * length_), 1);
    std::fill_n(real.end() - 2, 2, 0);
    input.mask = Tensor::from(real, {trial_batch, length_});
    const auto output = [&](std::span<const Tensor> given) {
      buffers.restore();  // training moves some, and finite differences need the same function again
      input.x = given[0];
      if (given.size() > 1) input.memory = given[1];
      Context context = Context::train(1, 1);
      return (*layer_)(input, context);
    };
    // If a function bends sharply, such as a norm of numbers near 0, a long step gives wrong
    // differences. A wrong derivative fails with any step.
    ModuleGradcheckResult result;
    for (const double step : {1e-5, 1e-6})
      if (result = gradcheck(*layer_, output, inputs, 1e-6, step, 24); result.passed) break;
    buffers.restore();
    check(result.passed, "the gradient of ", result.worst_name, ", element ", result.worst_element,
          ": backward gives ", result.analytic, ", finite differences ", result.numeric,
          ", relatively apart by ", result.worst_error);
  }

 private:
  /// A copy of the buffers of a layer.
  class Buffers {
   public:
    explicit Buffers(Module& layer) : buffers_(layer.buffers()) {
      for (const NamedTensor& entry : buffers_) {
        values_.push_back(*entry.tensor);
        numbers_.push_back(entry.tensor->to_doubles());
      }
    }
    void restore() const {
      for (std::size_t i = 0; i < buffers_.size(); ++i) *buffers_[i].tensor = values_[i];
    }
    void expect_unchanged() const {
      for (std::size_t i = 0; i < buffers_.size(); ++i)
        check(buffers_[i].tensor->to_doubles() == numbers_[i], "a training pass changes the buffer '",
              buffers_[i].name,
              "' itself; pass what moves it to Context::observe(), and move it in absorb()");
    }

   private:
    std::vector<NamedTensor> buffers_;
    std::vector<Tensor> values_;
    std::vector<std::vector<double>> numbers_;
  };

  /// The sum of squared outputs, optionally with auxiliary losses, and its gradients.
  struct Pass {
    AttentionInput input;
    Tensor out, loss;
  };

  Pass run_pass(const AttentionInput& given, Context& context, bool with_losses) const {
    Pass pass{given, {}, {}};
    pass.input.x = parameter(given.x);
    if (given.memory.defined()) pass.input.memory = parameter(given.memory);
    for (const NamedTensor& entry : layer_->parameters()) zero_gradient(*entry.tensor);
    pass.out = (*layer_)(pass.input, context);
    pass.loss = sum(square(pass.out));
    if (with_losses)
      for (const AuxiliaryLoss& loss : context.losses)
        pass.loss = pass.loss + cast(loss.value, pass.loss.dtype());
    backward(pass.loss);
    return pass;
  }

  void is_finite(const AttentionInput& input, const char* given) const {
    const Buffers buffers(*layer_);
    Context context = Context::train(1, 1);
    const Pass pass = run_pass(input, context, true);
    buffers.restore();
    expect_finite(pass.out.detach(), given, "an output");
    expect_finite(pass.loss.detach(), given, "a loss");
    expect_finite(gradient(pass.input.x), given, "the gradient of the words");
    if (input.memory.defined())
      expect_finite(gradient(pass.input.memory), given, "the gradient of the memory");
    for (const NamedTensor& entry : layer_->parameters())
      expect_finite(gradient(*entry.tensor), given, concat_text("the gradient of ", entry.name));
  }

  /// Outputs of the first two of three samples, and gradients of all parameters.
  std::vector<std::pair<std::string, Tensor>> results(const AttentionInput& input) const {
    Context context = Context::inference();
    const Pass pass = run_pass(input, context, false);
    std::vector<std::pair<std::string, Tensor>> all;
    const auto add = [&](const std::string& name, const Tensor& found) {
      if (found.defined()) all.emplace_back(name, contiguous(found));
    };
    const auto add_others = [&](const std::string& name, const Tensor& found) {
      if (found.defined()) add(name, slice(found, 0, 0, trial_batch - 1));
    };
    add_others("the outputs of others", pass.out.detach());
    add_others("the gradient of others", gradient(pass.input.x));  // a query may have no part in the output
    if (input.memory.defined()) add_others("the gradient of other memories", gradient(pass.input.memory));
    for (const NamedTensor& entry : layer_->parameters())
      add(concat_text("the gradient of ", entry.name), gradient(*entry.tensor));
    return all;
  }

  std::unique_ptr<Attention> layer_;
  std::int64_t length_;
  AttentionInput input_;
};

/// Calls body(causal, cross) for every use that a variant declares.
void for_each_use(const Capabilities& can, const std::function<void(bool causal, bool cross)>& body) {
  body(false, false);
  if (can.causal) body(true, false);
  if (can.cross) body(false, true);
}

/// Whether the variant distinguishes positions through `kind`, such as AttentionConfig::rotary.
bool tells_positions(const AttentionVariant& variant, const Options& options, bool AttentionConfig::*kind) {
  AttentionConfig config = make_attention_config(options, false, false, long_length);
  const Trial plain(variant, config, long_length);
  config.*kind = true;
  const Trial placed(variant, config, long_length);
  return max(abs(placed.run(placed.input()) - plain.run(plain.input()))).item() > 1e-12;
}

constexpr std::pair<const char*, std::pair<bool Capabilities::*, bool AttentionConfig::*>> position_kinds[] =
    {{"rotary", {&Capabilities::rotary, &AttentionConfig::rotary}},
     {"alibi", {&Capabilities::alibi, &AttentionConfig::alibi}},
     {"relative", {&Capabilities::relative, &AttentionConfig::relative}}};

void check_use(const AttentionVariant& variant, const Options& options, const Capabilities& can, bool causal,
               bool cross) {
  for (const std::int64_t length : {short_length, long_length}) {
    const bool is_short = length == short_length;
    AttentionConfig config =
        make_attention_config(options, causal, cross, can.any_length && is_short ? 0 : length);
    config.bias = is_short;
    const Trial trial(variant, config, length);
    for (const std::int64_t other : {std::int64_t{1}, length - 1, length}) trial.takes_length(other);
    if (is_short) trial.takes_nothing();
    if (is_short && can.deterministic) trial.keeps_samples_apart();
    if (can.padding) {
      trial.ignores_padding();
      if (can.deterministic) trial.ignores_empty_samples();
      Trial(variant, config, length, DType::f32).padding_is_finite();
    }
    if (can.deterministic) trial.repeats();
    if (causal) trial.future_is_unseen();
    if (causal && can.strictly_causal) trial.future_decides_nothing();
    if (cross) trial.sees_memory();
    if (!is_short) continue;
    if (causal || (cross && can.cross_by_step)) trial.decodes(can);
    trial.observes();
    config.dropout = 0.2;
    Trial(variant, config, length).has_gradients();
  }
}

/// Whether an attempt succeeds; false also if the variant throws.
bool attempt(const std::function<void()>& what) {
  try {
    what();
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

void check_attention(std::string_view name, const Options& options) {
  const AttentionVariant& variant = attention_variant(name);
  const Capabilities can = attention_capabilities(name, options);
  for_each_use(can, [&](bool causal, bool cross) {
    try {
      check_use(variant, options, can, causal, cross);
    } catch (Error& error) {
      error.add_context(concat_text("attention '", name, "'",
                                    causal  ? ", causal"
                                    : cross ? ", cross-attention"
                                            : "",
                                    ": "));
      throw;
    }
  });
  for (const auto& [kind, fields] : position_kinds)
    check(!(can.*fields.first) || tells_positions(variant, options, fields.second), "attention '", name,
          "': it is declared ", kind, ", but with ", kind, " positions it gives the same output as without");
}

Capabilities tried_capabilities(const AttentionVariant& variant) {
  Capabilities can;
  const auto with = [&](bool causal, bool cross, const std::function<void(const Trial&)>& what) {
    return attempt(
        [&] { what(Trial(variant, make_attention_config({}, causal, cross, long_length), long_length)); });
  };
  can.causal = with(true, false, [](const Trial& trial) { trial.future_is_unseen(); });
  // If the variant lacks the form, the field keeps its default.
  can.strictly_causal =
      !can.causal || with(true, false, [](const Trial& trial) { trial.future_decides_nothing(); });
  can.cross = with(false, true, [](const Trial& trial) { trial.sees_memory(); });
  can.cross_by_step = !can.cross || with(false, true, [&](const Trial& trial) { trial.decodes({}); });
  for_each_use(can, [&](bool causal, bool cross) {
    can.padding = can.padding && with(causal, cross, [](const Trial& t) { t.ignores_padding(); });
    can.deterministic = can.deterministic && with(causal, cross, [](const Trial& t) { t.repeats(); });
  });
  for (const auto& [kind, fields] : position_kinds)
    can.*fields.first = attempt(
        [&, kind = kind, field = fields.second] { check(tells_positions(variant, {}, field), kind); });
  can.any_length = attempt([&] {
    const Trial trial(variant, make_attention_config({}, false, false, 0), long_length);
    for (const std::int64_t length : {std::int64_t{7}, long_length}) trial.takes_length(length);
  });
  can.reason = variant.capabilities.reason;
  return can;
}

}  // namespace heed
