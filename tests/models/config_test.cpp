#include <iomanip>

#include "heed/base/names.h"
#include "heed/models/encoder_decoder.h"
#include "heed/models/language_model.h"
#include "heed/tests/model_support.h"

TEST_CASE("nearest name: counts edits and swaps, and stays silent when nothing is similar") {
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("dropuot", "dropout") == 1);
  CHECK(edit_distance("same", "same") == 0);
  const std::array<std::string, 3> names{"width", "heads", "feed_forward"};
  CHECK(nearest_name("haeds", names) == "heads");
  CHECK(nearest_name("feedforward", names) == "feed_forward");
  CHECK(nearest_name("optimizer", names) == "");
  CHECK(nearest_name("x", names) == "");
  CHECK(suggest_name("wdith", names) == "; did you mean 'width'?");
  CHECK(suggest_name("optimizer", names) == "; known are width, heads, feed_forward");
  // The last word says more than the letters; and other programs have other words.
  const std::array<std::string, 5> dotted{"training.part_rates", "training.schedule.learning_rate",
                                          "training.batch_tokens", "model.decoder_layers", "training.steps"};
  CHECK(nearest_name("training.learning_rate", dotted) == "training.schedule.learning_rate");
  CHECK(nearest_name("lr", dotted) == "training.schedule.learning_rate");
  CHECK(nearest_name("training.batch_size", dotted) == "training.batch_tokens");
  CHECK(nearest_name("num_layers", dotted) == "model.decoder_layers");
  CHECK(nearest_name("training.stesp", dotted) == "training.steps");
  CHECK(nearest_name("--batch-size", std::array<std::string, 2>{"--steps", "--batch-tokens"}) ==
        "--batch-tokens");
}

TEST_CASE("options: take what is set, keep what is not, and refuse what nobody reads") {
  Options options;
  options.set("rank", std::int64_t{8});
  options.set("scale", 0.5);
  options.set("kinds", std::vector<std::string>{"a", "b"});
  CHECK(options.take_integer("rank", 4) == 8);
  CHECK(options.take_number("rank", 4) == 8.0);
  CHECK(options.take_number("scale", 1) == 0.5);
  CHECK(options.take_bool("shared", true));
  CHECK(options.take_text("mode", "tile") == "tile");
  CHECK(contains(error_of([&] { options.check_all_taken("attention 'x'"); }), "no setting 'kinds'"));
  CHECK(options.take_texts("kinds", {}).size() == 2);
  CHECK_NOTHROW(options.check_all_taken("attention 'x'"));
  CHECK(contains(error_of([&] { options.take_integer("scale", 1); }), "must be an integer, but is a number"));
  options.set("sahred", true);
  CHECK(contains(error_of([&] { options.check_all_taken("attention 'x'"); }), "did you mean 'shared'"));
}

TEST_CASE("config: JSON keeps every setting") {
  TransformerConfig config = tiny_config();
  config.dropout = 0.1;
  config.norm = "pre";
  config.decoder_layers = 2;
  AttentionChoice single;
  single.heads = 1;
  single.options.set("sigma", 0.25);
  single.options.set("offsets", Doubles{-1, 1});
  AttentionChoice none;
  none.name = "none";
  config.cross_attention = {none, single};
  const std::string text = to_json(config);
  const TransformerConfig read = transformer_config_from_json(text);
  CHECK(to_json(read) == text);
  CHECK(read.dropout == 0.1);
  CHECK(read.cross_attention[0].name == "none");
  CHECK(read.cross_attention[1].heads == 1);
  CHECK(read.cross_attention[1].options.take_number("sigma", 0) == 0.25);
  CHECK(read.cross_attention[1].options.take_numbers("offsets", {}) == Doubles{-1, 1});
  CHECK(to_json(transformer_config_from_json("{}")) == to_json(TransformerConfig{}));
}

TEST_CASE("config: what is wrong is named") {
  const auto reading = [](const char* text) { return error_of([&] { transformer_config_from_json(text); }); };
  CHECK(contains(reading("{\"widht\": 3}"), "'widht'; did you mean 'width'?"));
  CHECK(contains(reading("{\"width\": \"wide\"}"), "'width' must be an integer, but is \"wide\""));
  CHECK(contains(reading("{\"width\": 2.5}"), "'width' must be an integer"));
  CHECK(contains(reading("{\"dropout\": true}"), "'dropout' must be a number"));
  CHECK(contains(reading("{\"encoder_attention\": 3}"), "'encoder_attention'"));
  CHECK(contains(reading("{\"encoder_attention\": {\"name\": 3}}"), "'encoder_attention.name'"));
  CHECK(contains(reading("{\"encoder_attention\": {\"table\": {}}}"), "'encoder_attention.table'"));
  CHECK(contains(reading("[1]"), "JSON object"));
  CHECK(contains(reading("{"), "not valid JSON"));
  const std::string nested = "{\"width\": " + std::string(100'000, '[');
  CHECK(contains(reading(nested.c_str()), "nested too deeply"));

  const auto building = [](auto&& change) {
    TransformerConfig config = tiny_config();
    change(config);
    return error_of([&] { EncoderDecoder model(config); });
  };
  CHECK(building([](TransformerConfig&) {}) == "");
  const auto reading_model = [&](const char* text) {
    return building([&](TransformerConfig& config) {
      const TransformerConfig read = transformer_config_from_json(text);
      config.width = read.width;
      config.encoder_attention = read.encoder_attention;
    });
  };
  CHECK(contains(building([](auto& c) { c.norm = "posr"; }), "did you mean 'post'"));
  CHECK(contains(building([](auto& c) { c.activation = "rellu"; }), "did you mean 'relu'"));
  CHECK(contains(building([](auto& c) { c.dropout = 1; }), "'dropout' must be at least 0 and below 1, is 1"));
  CHECK(contains(reading_model(R"({"width": 12, "encoder_attention": {"name": "dot_product", "haeds": 3}})"),
                 "has no setting 'haeds'; did you mean 'heads'?"));
  CHECK(contains(building([](auto& c) { c.heads = 3; }), "width 8 and 3 heads"));
  CHECK(contains(building([](auto& c) { c.source_vocabulary = 0; }), "source_vocabulary"));
  CHECK(contains(building([](auto& c) { c.tie_embeddings = "all", c.source_vocabulary = 12; }),
                 "one vocabulary"));
  CHECK(contains(building([](auto& c) { c.encoder_attention[0].name = "dot_prodcut"; }),
                 "did you mean 'dot_product'"));
  CHECK(contains(building([](auto& c) { c.encoder_attention[0].options.set("rank", std::int64_t{1}); }),
                 "'dot_product' has no setting 'rank'"));
  CHECK(contains(building([](auto& c) { c.encoder_attention.resize(3); }), "has 3"));
}

TEST_CASE("config: one cross-attention with one head, in the last layer only") {
  TransformerConfig config = tiny_config();
  config.decoder_layers = 2;
  config.cross_attention = transformer_config_from_json(
                               "{\"cross_attention\": [\"none\", {\"name\": \"dot_product\", \"heads\": 1}]}")
                               .cross_attention;
  EncoderDecoder model(config);
  CHECK_FALSE(has_name(model, "decoder.layers.0.cross_attention.query.weight"));
  CHECK_FALSE(has_name(model, "decoder.layers.0.cross_attention_norm.weight"));
  CHECK(has_name(model, "decoder.layers.1.cross_attention.query.weight"));
  Context context;
  const Tensor memory = model.encode({Tensor::zeros({2, 3}, DType::i32)}, context);
  CHECK(model.decode({Tensor::zeros({2, 4}, DType::i32)}, memory, {}, context).shape() == Shape{2, 4, 8});

  // Self-attention cannot be left out.
  config.decoder_attention[0].name = "none";
  CHECK_ERROR(EncoderDecoder{config}, "unknown attention 'none'");
}

TEST_CASE("config: one table says what every setting may be, and reading, checking and help follow it") {
  const std::span<const Setting> settings = transformer_settings();
  const std::string text = to_json(TransformerConfig{});
  std::size_t at = 0;
  for (const Setting& setting : settings) {
    const std::string name(setting.name);
    CAPTURE(name);
    const std::size_t found = text.find("\n  \"" + name + "\": ");
    CHECK(found != std::string::npos);
    CHECK(found >= at);  // in the order of to_json()
    at = found;
    CHECK(setting.help != "");
    CHECK(setting.help.find('\n') == std::string::npos);

    const auto checking = [&](const std::string& value) {
      return error_of(
          [&] { check_config(transformer_config_from_json(concat_text("{\"", name, "\": ", value, "}"))); });
    };
    for (const std::string& choice : setting.choices) CHECK(checking('"' + choice + '"') == "");
    if (!setting.choices.empty()) {
      CHECK(contains(checking("\"nonesuch\""), "'" + name + "' must be '"));
      CHECK(contains(checking('"' + setting.choices.back() + "x\""), "did you mean"));
      continue;
    }
    if (setting.low == setting.high || setting.name == "seed") continue;
    const bool whole = setting.high > 1e6 || setting.high == std::floor(setting.high);
    const auto number = [](double value) { return concat_text(std::setprecision(17), value); };
    if (whole && setting.name != "epsilon" && setting.name != "embedding_deviation") {
      CHECK(checking(std::to_string(static_cast<std::int64_t>(setting.low))) == "");
      CHECK(checking(std::to_string(static_cast<std::int64_t>(setting.high))) == "");
      CHECK(contains(checking(std::to_string(static_cast<std::int64_t>(setting.high) + 1)), name));
      CHECK(contains(checking("4611686018427387904"), name));
      CHECK(contains(checking("18446744073709551615"), name));
    } else {
      CHECK(checking(number(setting.low)) == "");
      CHECK(checking(number(setting.high)) == "");
      CHECK(contains(checking(number(setting.high * 1.001)), name));
      CHECK(contains(checking("1e300"), name));
    }
    CHECK(contains(checking("-1"), name));
  }
  CHECK(settings.size() == 58);
  CHECK(contains(error_of([] { setting_choices("width"); }), "'width'"));
}

TEST_CASE("config: heads of one attention are in range too") {
  TransformerConfig config = tiny_config();
  config.encoder_attention[0].heads = std::int64_t{1} << 40;
  CHECK_ERROR(check_config(config), "'encoder_attention.heads' must be 0 to 1024");
}

TEST_CASE("options: ranges and choices are checked where a setting is taken, and can be listed") {
  Options options;
  options.set("rank", std::int64_t{70});
  options.set("scale", std::nan(""));
  options.set("mode", std::string("tall"));
  CHECK(error_of([&] { options.take_integer("rank", 4, 1, 64); }) == "setting 'rank' must be 1 to 64, is 70");
  CHECK(error_of([&] { options.take_number("scale", 1, 0, 2); }) == "setting 'scale' must be 0 to 2, is nan");
  CHECK(error_of([&] {
          options.take_choice("mode", {"tile", "tail"});
        }) == "setting 'mode' must be 'tile' or 'tail', is 'tall'; did you mean 'tail'?");
  CHECK(options.take_integer("depth", 3, 1, 8) == 3);
  CHECK(options.take_choice("kind", {"a", "b"}) == "a");
  std::string listed;
  for (const Options::Asked& asked : options.asked())
    listed +=
        concat_text(asked.name, "|", asked.type(), "|", asked.fallback_text(), "|", asked.range(), "\n");
  CHECK(listed ==
        "rank|an integer|4|1 to 64\nscale|a number|1.0|0 to 2\nmode|text|\"tile\"|'tile' or 'tail'\n"
        "depth|an integer|3|1 to 8\nkind|text|\"a\"|'a' or 'b'\n");
  CHECK(error_of([] { option_from_json("k", "18446744073709551615"); }) ==
        "setting 'k' is 18446744073709551615, which is too large");
}
