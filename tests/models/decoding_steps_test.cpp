
#include "heed/core/profile.h"
#include "heed/models/search.h"
#include "heed/tests/model_support.h"

// What decoding remembers, and that a step costs the same wherever it stands.

namespace {

Tensor numbered(const Shape& shape, double first = 0) {
  return reshape(Tensor::arange(shape.count(), DType::f32) + first, shape);
}

/// `rows` of `held` by index_select.
Floats chosen(const Tensor& held, const Ints& rows) {
  return index_select(held, 0, Tensor::from(rows, {static_cast<std::int64_t>(rows.size())}))
      .to_vector<float>();
}

struct Kernels {
  std::int64_t matmul = 0, attention = 0;
  double copied = 0;  // bytes
};

template <class Call>
Kernels kernels_of(Call&& call) {
  start_profile();
  call();
  stop_profile();
  Kernels kernels;
  for (const ProfileRow& row : profile_rows()) {
    if (row.name == "matmul") kernels.matmul = row.calls;
    if (row.name == "attention") kernels.attention = row.calls;
    if (row.name == "copy") kernels.copied = row.bytes;
  }
  return kernels;
}

}  // namespace

TEST_CASE("growing: what is appended stands behind what was held, in the same memory while there is room") {
  Tensor held;
  std::vector<Tensor> parts;
  std::int64_t blocks = 0;
  const Storage* memory = nullptr;
  for (std::int64_t t = 0; t < 200; ++t) {
    parts.push_back(numbered({3, 1 + t % 2, 2}, static_cast<double>(10 * t)));
    held = appended(std::move(held), parts.back());
    if (held.storage().get() != memory) ++blocks;
    memory = held.storage().get();
  }
  CHECK(held.to_vector<float>() == concat(parts, 1).to_vector<float>());
  CHECK(blocks <= 10);  // each has room for half as much again
}

TEST_CASE("growing: what another handle sees, or a gradient reads, is not written to") {
  const Tensor first = appended({}, numbered({2, 1, 2})), more = numbered({2, 1, 2}, 50);
  const Tensor one = appended(first, more), other = appended(first, numbered({2, 1, 2}, 90));
  CHECK(one.to_vector<float>() == concat({first, more}, 1).to_vector<float>());
  CHECK(other.to_vector<float>() == concat({first, numbered({2, 1, 2}, 90)}, 1).to_vector<float>());
  const Tensor parameter = heed::parameter(numbered({2, 1, 2}));
  CHECK(appended(first, parameter).tracked());
  CHECK_ERROR(appended(first, numbered({2, 1, 3})), "cannot add");
}

TEST_CASE("growing: rows in any order are those that index_select finds, and few of them move") {
  const std::vector<Ints> orders{{0, 1, 2, 3},       {0, 1},       {3, 1, 2},
                                 {0, 0, 2, 2},       {1, 0, 3, 2}, {1, 2, 3},
                                 {0, 1, 2, 3, 0, 1}, {2},          {3, 3, 3, 3}};
  for (const Ints& order : orders) {
    CAPTURE(order.size());
    Tensor held = appended(appended({}, numbered({4, 2, 3})), numbered({4, 1, 3}, 100));
    const Floats expected = chosen(held, order);
    const Storage* memory = held.storage().get();
    held = RowOrder(order).of(std::move(held));
    CHECK(held.to_vector<float>() == expected);
    const bool taken = order == orders[4] || order == orders[5];  // a row is needed after its place was taken
    const bool stays = !taken && order.size() <= 4;
    CHECK((held.storage().get() == memory) == stays);
  }
  const Tensor held = numbered({2, 3}), before = contiguous(held);
  const Ints second{1};
  CHECK(RowOrder(second).of(held).to_vector<float>() == chosen(before, second));
  CHECK(held.to_vector<float>() == before.to_vector<float>());  // another handle sees it
  const Ints beyond{0, 2};
  CHECK_ERROR(RowOrder(beyond).of(held), "row 2 is not one of 2");
}

TEST_CASE("growing: the last rows take the places of those that end") {
  CHECK(rows_that_go_on({true, true, true}) == Ints{0, 1, 2});
  CHECK(rows_that_go_on({true, false, true, true}) == Ints{0, 3, 2});
  CHECK(rows_that_go_on({false, false, true, false}) == Ints{2});
  CHECK(rows_that_go_on({false, false}).empty());
}

TEST_CASE("decoding: a step costs as many kernels late as early, and copies grow with the text alone") {
  TransformerConfig config = tiny_config();
  config.max_length = 200;
  LanguageModel model(config);
  const NoGrad no_grad;
  Context context;
  DecoderState state = model.start();
  const Tensor tokens = Tensor::from(Ints{1, 2, 3}, {3});
  const auto step = [&] { model.step(tokens, state, context); };
  step();
  const Kernels early = kernels_of(step);
  double copied = 0;
  for (int i = 0; i < 180; ++i) copied += kernels_of(step).copied;
  const Kernels late = kernels_of(step);
  CHECK(early.matmul > 0);
  CHECK(early.matmul == late.matmul);
  CHECK(early.attention == late.attention);
  // A step writes one position of keys and of values, and a new block, half as large again, copies what is
  // held: in all some four times the text. Writing all of it at every step would be ninety times.
  CHECK(early.copied > 0);
  CHECK(copied < 8 * 180 * early.copied);
}

TEST_CASE("decoding: a prompt is read in one forward pass, whatever the number of texts") {
  TransformerConfig config = tiny_config();
  config.decoder_layers = 3;
  LanguageModel model(config);
  const Tokens prompt{1, 2, 3, 4, 5, 6, 7, 8};
  for (const std::int64_t texts : {1, 5}) {
    const Kernels kernels = kernels_of([&] { LanguageModelSteps(model, prompt, texts, 12); });
    CHECK(kernels.attention == 3);
  }
}

TEST_CASE(
    "decoding: reading several tokens at a time gives what one after the other gives, for every variant") {
  for (const AttentionVariant& variant : attention_variants()) {
    if (!variant.capabilities.causal) continue;
    CAPTURE(variant.name);
    TransformerConfig config = tiny_config();
    config.decoder_layers = 2;
    config.decoder_attention = {{variant.name, 0, {}}};
    LanguageModel model(config);
    model.to(DType::f64, {});
    const NoGrad no_grad;
    Context context = Context::inference();
    const Tensor ids = Tensor::from(Ints{1, 4, 7, 2, 9, 3, 8, 8, 5, 6}, {2, 5});
    DecoderState at_once = model.start(), one_by_one = model.start();
    model.step(contiguous(slice(ids, 1, 0, 1)), at_once, context);
    Tensor together = model.step(contiguous(slice(ids, 1, 1, 4)), at_once, context), single;
    for (std::int64_t t = 0; t < 4; ++t)
      single = model.step(contiguous(select(ids, 1, t)), one_by_one, context);
    CHECK(at_once.position == 4);
    CHECK(worst_difference(together, single) < 1e-12);
    const Tensor last = contiguous(select(ids, 1, 4));
    CHECK(worst_difference(model.step(last, at_once, context), model.step(last, one_by_one, context)) <
          1e-12);
  }
}

TEST_CASE("decoding: rows that are not there are refused") {
  LanguageModel text_model(tiny_config());
  LanguageModelSteps texts(text_model, Tokens{1}, 2, 4);
  texts.step(Tensor::zeros({2}, DType::i32));
  for (const std::int32_t row : {5, -1}) CHECK_ERROR(texts.reorder(Ints{0, row}), "is not one of 2");
  EncoderDecoder model(tiny_config());
  EncoderDecoderSteps steps(model, pad_tokens(std::vector<Tokens>{{3, 4}, {5}}));
  steps.step(Tensor::zeros({2}, DType::i32));
  CHECK_ERROR(steps.reorder({}), "no row");
  CHECK_ERROR(steps.step(Tensor::zeros({0}, DType::i32)), "needs a token");
}

TEST_CASE("decoding: hypotheses that share a row of the memory read what each reads from one of its own") {
  for (const char* name : {"dot_product", "linformer", "hard_coded_gaussian", "mixed_heads"}) {
    CAPTURE(name);
    TransformerConfig config = tiny_config();
    config.decoder_layers = 2;
    config.cross_attention = {{name, 0, {}}};
    config.pointer = true;
    EncoderDecoder model(config);
    model.to(DType::f64, {});
    const NoGrad no_grad;
    Context context = Context::inference();
    const std::vector<Tokens> sources{{3, 4, 5, 6}, {7, 8}};
    const PaddedTokens source = pad_tokens(sources);
    const Tensor memory = model.encode(source, context);
    DecoderState shared = model.start(memory, source), own = model.start(memory, source);
    const Tensor begin = Tensor::from(Ints{1, 1}, {2});
    CHECK(worst_difference(model.step(begin, shared, context), model.step(begin, own, context)) == 0);
    const Ints rows{0, 0, 0, 1, 1, 1}, both{0, 1};
    shared.reorder(rows, both);
    own.reorder(rows);
    CHECK(shared.memory.size(0) == 2);
    CHECK(own.memory.size(0) == 6);
    const Ints moved{0, 2, 0, 4, 4, 5};
    for (int i = 0; i < 3; ++i) {
      const Tensor tokens = Tensor::from(Ints{4, 5, 6, 7, 8, 9}, {6});
      CHECK(worst_difference(model.step(tokens, shared, context), model.step(tokens, own, context)) < 1e-12);
      shared.reorder(moved, both);
      own.reorder(moved);
    }
  }
}

TEST_CASE("decoding: five hypotheses of a sentence keep what is known of its source once") {
  TransformerConfig config = tiny_config();
  EncoderDecoder model(config);
  const std::vector<Tokens> sources{{3, 4, 5, 6}, {7, 8}, {9, 10, 3}};
  EncoderDecoderSteps steps(model, pad_tokens(sources));
  const NoGrad no_grad;
  const auto tokens = [](std::size_t rows) {
    return Tensor::from(Ints(rows, 4), {static_cast<std::int64_t>(rows)});
  };
  steps.step(tokens(3));
  steps.reorder(Ints{0, 0, 1, 1, 2, 2});
  // Keys and values of the sources are not moved when hypotheses of one sentence are, nor made again.
  const Kernels before = kernels_of([&] { steps.step(tokens(6)); });
  steps.reorder(Ints{1, 1, 2, 3, 5, 4});
  const Kernels after = kernels_of([&] { steps.step(tokens(6)); });
  CHECK(before.matmul == after.matmul);
  // Sentences of different numbers of hypotheses have a row of the memory each.
  steps.reorder(Ints{0, 2, 3, 4});
  CHECK(steps.step(tokens(4)).size(0) == 4);
}
