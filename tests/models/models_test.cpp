
#include "heed/models/attention/attention.h"
#include "heed/models/cases/model_cases.h"
#include "heed/models/classifier.h"
#include "heed/models/encoder_decoder.h"
#include "heed/models/language_model.h"
#include "heed/tests/model_support.h"

namespace {

const std::vector<Tokens> three_sources{{3, 4, 5, 6}, {7, 8}, {9}};
const std::vector<Tokens> three_targets{{4, 5}, {6, 7, 8, 3}, {}};

TranslationBatch tiny_batch() {
  return make_translation_batch(three_sources, three_targets, 1, 2);
}

}  // namespace

TEST_CASE("models: parameters have dotted names, each once") {
  TransformerConfig config = tiny_config();
  config.tie_embeddings = "all";
  EncoderDecoder model(config);
  CHECK(has_name(model, "embedding.weight"));
  CHECK(has_name(model, "encoder.layers.0.attention.query.weight"));
  CHECK(has_name(model, "encoder.layers.0.attention_norm.bias"));
  CHECK(has_name(model, "decoder.layers.0.self_attention.output.weight"));
  CHECK(has_name(model, "decoder.layers.0.cross_attention.key.weight"));
  CHECK(has_name(model, "decoder.layers.0.feed_forward.input.bias"));
  CHECK_FALSE(has_name(model, "output.weight"));
  CHECK_FALSE(has_name(model, "encoder.layers.0.attention.query.bias"));
  const std::int64_t attention = 4 * 8 * 8, feed_forward = 8 * 12 + 12 + 12 * 8 + 8, norm = 2 * 8;
  CHECK(model.parameter_count() ==
        11 * 8 + (attention + feed_forward + 2 * norm) + (2 * attention + feed_forward + 3 * norm));
}

TEST_CASE("models: one seed gives one set of parameters") {
  TransformerConfig config = tiny_config();
  EncoderDecoder a(config), b(config);
  config.seed = 2;
  EncoderDecoder c(config);
  const auto x = a.parameters(), y = b.parameters(), z = c.parameters();
  REQUIRE(x.size() == y.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    CAPTURE(x[i].name);
    CHECK(x[i].tensor->to_doubles() == y[i].tensor->to_doubles());
    const bool is_constant = contains(x[i].name, "norm") || contains(x[i].name, "bias");
    CHECK((x[i].tensor->to_doubles() == z[i].tensor->to_doubles()) == is_constant);
  }
  CHECK(x[0].tensor->to_doubles() != x[1].tensor->to_doubles());
}

TEST_CASE("models: gradient check of every kind of model") {
  for (const OpCase& one : model_cases()) {
    if (!one.name.starts_with("model/")) continue;
    CAPTURE(one.name);
    CHECK(gradcheck(one.function, one.inputs, one.tolerance, 1e-5, 4).passed);
  }
}

TEST_CASE("pooling: the last token and the weighted mean, with padding on either side and without tokens") {
  const Tensor x = normal_numbers(17, {3, 4, 5}, 1);
  const Tensor mask = Tensor::from(Ints{1, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0}, {3, 4});
  const auto row = [&](std::int64_t sample, std::int64_t place) {
    return select(select(x, 0, sample), 0, place);
  };
  for (const DType dtype : {DType::f64, DType::f32}) {
    CAPTURE(dtype);
    const double near = dtype == DType::f64 ? 1e-14 : 1e-6;
    const auto differs = [&](const Tensor& found, const std::vector<Tensor>& expected) {
      return worst_difference(cast(found, DType::f64), stack(expected, 0));
    };
    const Tensor in = cast(x, dtype), none = Tensor::zeros({5}, DType::f64);
    CHECK(differs(pooled("last", nullptr, in, mask), {row(0, 2), row(1, 3), none}) < near);
    CHECK(differs(pooled("last", nullptr, in, {}), {row(0, 3), row(1, 3), row(2, 3)}) < near);
    CHECK(differs(pooled("weighted", nullptr, in, mask), {(row(0, 0) + row(0, 1) * 2 + row(0, 2) * 3) / 6,
                                                          (row(1, 2) + row(1, 3) * 2) / 3, none}) < near);
    const Tensor all = pooled("weighted", nullptr, in, Tensor::from(Ints(12, 1), {3, 4}));
    CHECK(worst_difference(pooled("weighted", nullptr, in, {}), all) == 0);
  }
}

TEST_CASE("models: gradient check with dropout everywhere, two layers and learned positions") {
  TransformerConfig config = tiny_config();
  config.encoder_layers = config.decoder_layers = 2;
  config.dropout = 0.2;
  config.attention_dropout = 0.1;
  config.activation_dropout = 0.3;
  config.positions = "learned";
  EncoderDecoder model(config);
  model.to(DType::f64, {});
  const GradcheckResult result = gradcheck_parameters(
      model,
      [&] {
        Context context = Context::train(5, 7);
        return objective(model.loss(tiny_batch(), 0, context), context);
      },
      3);
  CAPTURE(result.worst_error);
  CHECK(result.passed);
}

TEST_CASE("models: a batch with padding has the loss of its sentences taken one by one") {
  EncoderDecoder model(tiny_config());
  Context context;
  const Loss together = model.loss(tiny_batch(), 0.1, context);
  CHECK(together.count == 2 + 4 + 0 + 3);
  double sum = 0;
  for (std::size_t i = 0; i < three_sources.size(); ++i) {
    const auto batch = make_translation_batch(std::span(three_sources).subspan(i, 1),
                                              std::span(three_targets).subspan(i, 1), 1, 2);
    sum += model.loss(batch, 0.1, context).sum.item();
  }
  CHECK(together.sum.item() == doctest::Approx(sum).epsilon(1e-5));
  CHECK(objective(together, context).item() == doctest::Approx(sum / 9).epsilon(1e-5));
}

TEST_CASE("models: a pointer mixes what the vocabulary says with tokens of the source") {
  TransformerConfig config = tiny_config();
  config.pointer = true;
  EncoderDecoder model(config);
  model.to(DType::f64, {});
  const TranslationBatch batch = tiny_batch();
  const auto log_probabilities = [&] {
    Context context;
    const Tensor memory = model.encode(batch.source, context);
    return model
        .log_probabilities(model.decode(batch.target, memory, batch.source.mask, context), memory,
                           batch.source, context)
        .to_doubles();
  };
  const auto set_gate = [&](double bias) {
    for (const auto& [name, parameter] : model.parameters()) {
      if (name == "pointer.gate.weight")
        parameter->assign<double>(Doubles(static_cast<std::size_t>(parameter->count()), 0.0));
      if (name == "pointer.gate.bias") parameter->assign<double>(Doubles{bias});
    }
  };
  for (const double bias : {-40.0, 0.3, 40.0}) {
    set_gate(bias);
    const Doubles p = log_probabilities();
    double expected = 0;
    for (std::size_t b = 0; b < 3; ++b) {
      Tokens wanted = three_targets[b];
      wanted.push_back(2);
      for (std::size_t t = 0; t < wanted.size(); ++t) {
        const double* row = &p[(b * 5 + t) * 11];
        double sum = 0, of_source = 0;
        for (int v = 0; v < 11; ++v) {
          sum += std::exp(row[v]);
          if (std::count(three_sources[b].begin(), three_sources[b].end(), v) > 0)
            of_source += std::exp(row[v]);
        }
        CHECK(sum == doctest::Approx(1).epsilon(1e-9));
        if (bias < -1) CHECK(of_source == doctest::Approx(1).epsilon(1e-9));  // nothing else can be written
        if (bias > 1) CHECK(of_source < 0.999);
        expected -= row[wanted[t]];
      }
    }
    Context context;
    CHECK(model.loss(batch, 0, context).sum.item() == doctest::Approx(expected).epsilon(1e-9));
  }
}

TEST_CASE("models: the loss is the label-smoothed cross entropy of the logits") {
  EncoderDecoder model(tiny_config());
  model.to(DType::f64, {});
  Context context;
  const TranslationBatch batch = tiny_batch();
  const Tensor memory = model.encode(batch.source, context);
  const Tensor logits = model.log_probabilities(
      model.decode(batch.target, memory, batch.source.mask, context), memory, batch.source, context);
  CHECK(logits.shape() == Shape{3, 5, 11});
  const Ints wanted{4, 5, 2, -1, -1, 6, 7, 8, 3, 2, 2, -1, -1, -1, -1};  // 2: the end
  const double expected = sum(cross_entropy(logits, Tensor::from(wanted, {3, 5}), 0.1)).item();
  CHECK(model.loss(batch, 0.1, context).sum.item() == doctest::Approx(expected).epsilon(1e-12));
}

TEST_CASE("models: padding and the future change nothing") {
  for (const char* norm : {"post", "pre"}) {
    TransformerConfig config = tiny_config();
    config.norm = norm;
    EncoderDecoder model(config);
    Context context;
    PaddedTokens source = pad_tokens(three_sources);
    const Tensor before = model.encode(source, context);
    PaddedTokens other = source;
    other.ids = Tensor::from(Ints{3, 4, 5, 6, 7, 8, 10, 9, 9, 1, 2, 3}, {3, 4});
    const Tensor after = model.encode(other, context);
    const Tensor real = cast(unsqueeze(source.mask, 2), DType::f32);
    CHECK((before * real).to_doubles() == (after * real).to_doubles());
    CHECK(before.to_doubles() != after.to_doubles());

    // The last token of the target changes: all hidden states before it stay.
    const PaddedTokens target{Tensor::from(Ints{1, 4, 5}, {1, 3})};
    const PaddedTokens changed{Tensor::from(Ints{1, 4, 9}, {1, 3})};
    const Tensor memory = slice(before, 0, 0, 1);
    const Tensor a = model.decode(target, memory, {}, context),
                 b = model.decode(changed, memory, {}, context);
    CHECK(slice(a, 1, 0, 2).to_doubles() == slice(b, 1, 0, 2).to_doubles());
    CHECK(slice(a, 1, 2, 3).to_doubles() != slice(b, 1, 2, 3).to_doubles());

    // What the memory holds at padding does not reach the decoder.
    const PaddedTokens one{Tensor::from(Ints{1, 1, 1}, {3, 1})};
    const Tensor with_noise = where(unsqueeze(source.mask, 2), before, Tensor::full({1}, 50));
    CHECK(model.decode(one, before, source.mask, context).to_doubles() ==
          model.decode(one, with_noise, source.mask, context).to_doubles());
  }
}

TEST_CASE("models: a fully padded sample gives no loss, no gradient and no NaN") {
  TransformerConfig config = tiny_config();
  config.attention_bias = true;
  EncoderClassifier classifier(config);
  Context context = Context::train(1, 1);
  const Tensor logits = classifier.logits(pad_tokens(std::vector<Tokens>{{3, 4}, {}}), context);
  for (const double value : logits.to_doubles()) CHECK(std::isfinite(value));

  EncoderDecoder model(config);
  const auto batch =
      make_translation_batch(std::vector<Tokens>{{3, 4}, {}}, std::vector<Tokens>{{3}, {4}}, 1, 2);
  backward(objective(model.loss(batch, 0.1, context), context));
  for (const NamedTensor& entry : model.parameters()) {
    CAPTURE(entry.name);
    REQUIRE(gradient(*entry.tensor).defined());
    bool finite = true;
    for (const double value : gradient(*entry.tensor).to_doubles()) finite = finite && std::isfinite(value);
    CHECK(finite);
  }
}

TEST_CASE("models: errors say which layer they come from") {
  EncoderDecoder model(tiny_config());
  Context context;
  const auto encode = [&](const Tensor& ids) { model.encode({ids}, context); };
  const std::string outside = error_of([&] { encode(Tensor::from(Ints{3, 11}, {1, 2})); });
  CHECK(contains(outside, "source_embedding"));
  CHECK(contains(outside, "11"));
  CHECK_ERROR(encode(Tensor::from(Ints{3}, {1})), "[batch, length]");

  const PaddedTokens target{Tensor::from(Ints{1}, {1, 1})};
  const std::string narrow = error_of([&] { model.decode(target, Tensor::zeros({1, 3, 5}), {}, context); });
  CHECK(contains(narrow, "decoder.layers.0.cross_attention"));
  CHECK(contains(narrow, "[1, 3, 5]"));
  const std::string mask = error_of([&] {
    model.decode(target, Tensor::zeros({1, 3, 8}), Tensor::ones({1, 2}, DType::i32), context);
  });
  CHECK(contains(mask, "decoder.layers.0.cross_attention"));
  CHECK(contains(mask, "memory_mask"));

  Initialiser initialiser(1);
  const FeedForward feed_forward(8, 12, Activation::relu, 0, initialiser);
  const std::string width = error_of([&] { feed_forward(Tensor::zeros({2, 7}), context); });
  CHECK(contains(width, "input (Linear)"));
  CHECK(contains(width, "[2, 7]"));
  CHECK_ERROR(feed_forward(Tensor::zeros({2, 8}, DType::f64), context), "f64");
}

namespace {

/// A layer in which a device runs out of memory, or is lost.
template <class Kind>
class FailingAttention : public Attention {
 public:
  FailingAttention() : Attention(config_of_width_8()) {}

 protected:
  Tensor forward(const AttentionInput&, Context&) override { throw Kind("no room for 12 bytes"); }

 private:
  static AttentionConfig config_of_width_8() {
    AttentionConfig config;
    config.width = 8;
    return config;
  }
};

template <class Part>
class Holder : public Module {
 public:
  Holder() { add_module("stack", part); }
  Part part;
};

template <class Kind>
void check_kind_is_kept() {
  Holder<FailingAttention<Kind>> holder;
  Context context;
  try {
    holder.part({Tensor::zeros({1, 2, 8})}, context);
    FAIL("nothing was thrown");
  } catch (const Kind& error) {
    CHECK(std::string(error.what()) == "stack (attention): no room for 12 bytes");
  }
}

}  // namespace

TEST_CASE("models: an error that passes a layer gets its path and keeps its type") {
  check_kind_is_kept<OutOfMemory>();
  check_kind_is_kept<DeviceLost>();
}

TEST_CASE("models: learned positions end at max_length, sinusoidal ones do not") {
  TransformerConfig config = tiny_config();
  config.positions = "learned";
  Context context;
  LanguageModel learned(config);
  const std::string message = error_of([&] {
    learned.hidden({Tensor::zeros({1, 13}, DType::i32)}, context);
  });
  CHECK(contains(message, "input.positions"));
  CHECK(contains(message, "13"));
  CHECK(contains(message, "12"));
  LanguageModel sinusoidal(tiny_config());
  CHECK(sinusoidal.hidden({Tensor::zeros({1, 200}, DType::i32)}, context).shape() == Shape{1, 200, 8});
}

TEST_CASE("models: sinusoidal positions follow the formula for any offset") {
  Initialiser initialiser(1);
  Positions positions("sinusoidal", 1, 6, 0, initialiser);
  const Tensor like = Tensor::zeros({1}, DType::f64);
  const Doubles table = positions(100, 3, like).to_doubles();
  for (int p = 0; p < 3; ++p) {
    for (int i = 0; i < 3; ++i) {
      const double angle = (100 + p) / std::pow(10000, 2 * i / 6.0);
      CHECK(table[static_cast<std::size_t>(p * 6 + 2 * i)] == doctest::Approx(std::sin(angle)));
      CHECK(table[static_cast<std::size_t>(p * 6 + 2 * i + 1)] == doctest::Approx(std::cos(angle)));
    }
  }
  CHECK(positions(0, 1, Tensor::zeros({1})).dtype() == DType::f32);
  CHECK(contains(error_of([&] { Positions("sinusodial", 1, 6, 0, initialiser); }),
                 "did you mean 'sinusoidal'"));
}

TEST_CASE("models: converting to f64 and back keeps the values and the training") {
  EncoderClassifier model(tiny_config());
  Context context;
  const PaddedTokens input = pad_tokens(three_sources);
  const Tensor before = model.logits(input, context);
  model.to(DType::f64, {});
  CHECK(model.dtype() == DType::f64);
  const Tensor wide = model.logits(input, context);
  CHECK(wide.dtype() == DType::f64);
  CHECK(worst_difference(before, wide) <= 1e-5);
  model.to(DType::f32, {});
  const Tensor after = model.logits(input, context);
  CHECK(after.to_doubles() == before.to_doubles());
  backward(sum(after));
  for (const NamedTensor& entry : model.parameters()) CHECK(gradient(*entry.tensor).defined());
}

TEST_CASE("models: the mean over tokens leaves padding out") {
  const Tensor x = Tensor::from(Floats{1, 2, 3, 4, 50, 60, 5, 6, 7, 8, 9, 10}, {2, 3, 2});
  const Tensor mask = Tensor::from(Ints{1, 1, 0, 0, 0, 0}, {2, 3});
  CHECK(mean_over_tokens(x, mask).to_doubles() == Doubles{2, 3, 0, 0});
  CHECK(mean_over_tokens(x, {}).to_doubles() == Doubles{18, 22, 7, 8});
}

TEST_CASE("models: dropout acts in training only, and follows seed and step") {
  TransformerConfig config = tiny_config();
  config.dropout = 0.5;
  EncoderDecoder model(config);
  const auto loss = [&](Context context) { return model.loss(tiny_batch(), 0, context).sum.item(); };
  CHECK(loss(Context::inference()) == loss(Context::inference()));
  CHECK(loss(Context::train(1, 1)) == loss(Context::train(1, 1)));
  CHECK(loss(Context::train(1, 1)) != loss(Context::train(1, 2)));
  CHECK(loss(Context::train(1, 1)) != loss(Context::inference()));
}

TEST_CASE("models: auxiliary losses enter the objective with their weights") {
  Context context;
  CHECK_FALSE(context.auxiliary_loss().defined());
  context.losses.push_back({"a", 0.5, Tensor::full({1}, 4)});
  context.losses.push_back({"b", 2, Tensor::full({}, 3)});
  const Loss loss{Tensor::full({}, 6), 3};
  CHECK(loss.mean().item() == doctest::Approx(2));
  CHECK(objective(loss, context).item() == doctest::Approx(2 + 0.5 * 4 + 2 * 3));
  context.losses.push_back({"c", 1, Tensor::zeros({2})});
  CHECK_ERROR(context.auxiliary_loss(), "'c'");
}

TEST_CASE("models: batches refuse what cannot be trained on") {
  CHECK_ERROR(pad_tokens({}), "at least one sequence");
  CHECK(contains(error_of([] { make_translation_batch(three_sources, std::vector<Tokens>{{1}}, 1, 2); }),
                 "1 and 3"));
  CHECK(contains(error_of([] { make_language_model_batch(std::vector<Tokens>{{1}}); }), "two tokens"));
  CHECK_ERROR(make_classification_batch(three_sources, Ints{1}), "1 and 3");
  const PaddedTokens full = pad_tokens(std::vector<Tokens>{{1, 2}, {3, 4}});
  CHECK_FALSE(full.mask.defined());
}
