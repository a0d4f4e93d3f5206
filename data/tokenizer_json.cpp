#include <nlohmann/json.hpp>
#include <utility>

#include "heed/core/error.h"
#include "heed/core/nesting_limit.h"
#include "heed/data/tokenizer.h"
#include "heed/data/tokenizer_parts.h"

namespace heed {

/// Reads a tokenizer.json. It follows the parts it knows exactly and refuses all others by name, because a
/// part that is skipped would give other ids without a word.
class TokenizerFile {
 public:
  using Json = nlohmann::json;

  static Tokenizer read(std::string_view text) {
    const Json file = parse(text);
    check(file.is_object(), "the file is ", file.type_name(), ", not a JSON object");
    for (const char* option : {"truncation", "padding"})
      check(is_null(file, option), option,
            " is set, which encode() would have to follow; take it out of the file");
    TokenizerSettings settings;
    settings.normalizer = read_normalizer(file);
    read_pre_tokenizer(file, settings);
    check_decoder(file, settings.style);
    settings.post_processor = is_null(file, "post_processor") ? "null" : file["post_processor"].dump();
    settings.added_tokens = read_added_tokens(file);
    TokenModel model = read_model(member(file, "model", ""));
    check(std::holds_alternative<WordModel>(model) == (settings.style == WordStyle::bert),
          "pre_tokenizer BertPreTokenizer and model WordLevel are supported together alone");
    return Tokenizer(std::make_shared<Tokenizer::Parts>(std::move(model), std::move(settings)));
  }

  static std::string write(const Tokenizer& tokenizer);

 private:
  static Json parse(std::string_view text) {
    check_json_text(text, 64, "the JSON");
    try {
      return Json::parse(text);
    } catch (const Json::exception& error) {
      fail("not a JSON file: ", error.what());
    }
  }

  static bool is_null(const Json& object, const char* name) {
    return !object.contains(name) || object[name].is_null();
  }

  /// A member that must be there; `where` is the path of the object, for messages.
  static const Json& member(const Json& object, const char* name, const std::string& where) {
    check(object.is_object(), where, " is ", object.type_name(), ", not an object");
    check(object.contains(name), where.empty() ? "" : where + ".", name, " is missing");
    return object[name];
  }

  static bool flag(const Json& object, const char* name, bool fallback, const std::string& where) {
    if (is_null(object, name)) return fallback;
    check(object[name].is_boolean(), where, ".", name, " is ", object[name].type_name(),
          ", not true or false");
    return object[name].get<bool>();
  }

  static std::string text_of(const Json& value, const std::string& where) {
    check(value.is_string(), where, " is ", value.type_name(), ", not a string");
    return value.get<std::string>();
  }

  static std::int32_t id_of(const Json& value, const std::string& where) {
    check(value.is_number_integer() && value >= 0 && value <= 0x7FFFFFFF, where, " is ",
          value.dump(-1, ' ', true), ", not a token id");
    return value.get<std::int32_t>();
  }

  static std::vector<TextStep> read_normalizer(const Json& file) {
    if (is_null(file, "normalizer")) return {};
    const Json& normalizer = file["normalizer"];
    const std::string type = text_of(member(normalizer, "type", "normalizer"), "normalizer.type");
    if (type != "Sequence") return {text_step(type)};
    const Json& list = member(normalizer, "normalizers", "normalizer");
    check(list.is_array(), "normalizer.normalizers is ", list.type_name(), ", not a list");
    std::vector<TextStep> steps;
    for (const Json& step : list)
      steps.push_back(
          text_step(text_of(member(step, "type", "normalizer.normalizers[]"), "normalizer type")));
    return steps;
  }

  static TextStep text_step(const std::string& type) {
    for (const auto& [step, name] : step_names)
      if (type == name) return step;
    fail("normalizer \"", type,
         "\" is not supported (NFC, NFD, NFKC, NFKD, Lowercase and Sequence of these are)");
  }

  static void read_pre_tokenizer(const Json& file, TokenizerSettings& settings) {
    check(!is_null(file, "pre_tokenizer"), "pre_tokenizer is missing: only byte-level BPE is supported");
    const Json& part = file["pre_tokenizer"];
    const std::string type = text_of(member(part, "type", "pre_tokenizer"), "pre_tokenizer.type");
    if (type == "BertPreTokenizer") {
      settings.style = WordStyle::bert;
      return;
    }
    check(type == "ByteLevel", "pre_tokenizer \"", type,
          "\" is not supported (ByteLevel and BertPreTokenizer are)");
    settings.add_prefix_space = flag(part, "add_prefix_space", true, "pre_tokenizer");
    settings.split_words = flag(part, "use_regex", true, "pre_tokenizer");
  }

  static void check_decoder(const Json& file, WordStyle style) {
    if (is_null(file, "decoder")) return;
    check(style == WordStyle::byte_level, "a decoder is supported for ByteLevel alone");
    const std::string type = text_of(member(file["decoder"], "type", "decoder"), "decoder.type");
    check(type == "ByteLevel", "decoder \"", type, "\" is not supported (ByteLevel is)");
  }

  static std::vector<AddedToken> read_added_tokens(const Json& file) {
    std::vector<AddedToken> tokens;
    if (is_null(file, "added_tokens")) return tokens;
    check(file["added_tokens"].is_array(), "added_tokens is ", file["added_tokens"].type_name(),
          ", not a list");
    for (const Json& entry : file["added_tokens"]) {
      const std::string where = concat_text("added_tokens[", tokens.size(), "]");
      AddedToken token;
      token.id = id_of(member(entry, "id", where), where + ".id");
      token.content = text_of(member(entry, "content", where), where + ".content");
      token.single_word = flag(entry, "single_word", false, where);
      token.lstrip = flag(entry, "lstrip", false, where);
      token.rstrip = flag(entry, "rstrip", false, where);
      token.special = flag(entry, "special", false, where);
      token.normalized = flag(entry, "normalized", !token.special, where);
      tokens.push_back(std::move(token));
    }
    return tokens;
  }

  static TokenModel read_model(const Json& model) {
    // Old files name the model by its parts alone, without a type.
    const std::string type = is_null(model, "type") ? "BPE" : text_of(model["type"], "model.type");
    if (type == "WordLevel")
      return WordModel(read_tokens(member(model, "vocab", "model")),
                       text_of(member(model, "unk_token", "model"), "model.unk_token"));
    check(type == "BPE", "model \"", type, "\" is not supported (BPE and WordLevel are)");
    return read_bpe(model);
  }

  static BpeModel read_bpe(const Json& model) {
    refuse_unknown_settings(model);
    BpeOptions options;
    if (!is_null(model, "unk_token")) options.unk_token = text_of(model["unk_token"], "model.unk_token");
    options.fuse_unk = flag(model, "fuse_unk", false, "model");
    options.ignore_merges = flag(model, "ignore_merges", false, "model");
    const Json& vocabulary = member(model, "vocab", "model");
    return {read_tokens(vocabulary), read_merges(member(model, "merges", "model"), vocabulary), options};
  }

  static void refuse_unknown_settings(const Json& model) {
    check(is_null(model, "dropout") || model["dropout"] == 0.0, "model.dropout is not supported");
    check(!flag(model, "byte_fallback", false, "model"), "model.byte_fallback is not supported");
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"})
      check(is_null(model, name) || model[name] == "", "model.", name, " is not supported");
  }

  static std::vector<std::string> read_tokens(const Json& vocabulary) {
    check(vocabulary.is_object(), "model.vocab is ", vocabulary.type_name(), ", not an object");
    std::vector<std::string> tokens(vocabulary.size());
    std::vector<bool> seen(vocabulary.size());
    for (const auto& [token, value] : vocabulary.items()) {
      const std::int32_t id = id_of(value, "model.vocab[\"" + token + "\"]");
      const auto index = static_cast<std::size_t>(id);
      check(index < tokens.size(), "token \"", token, "\" has id ", id, ", but a vocabulary of ",
            tokens.size(), " must use the ids 0 to ", tokens.size() - 1, ", each once");
      check(!seen[index], "tokens \"", tokens[index], "\" and \"", token, "\" share the id ", id);
      seen[index] = true;
      tokens[index] = token;
    }
    return tokens;
  }

  static std::vector<BpeModel::Pair> read_merges(const Json& merges, const Json& vocabulary) {
    check(merges.is_array(), "model.merges is ", merges.type_name(), ", not a list");
    std::vector<BpeModel::Pair> pairs;
    pairs.reserve(merges.size());
    for (const Json& merge : merges) {
      const std::string where = concat_text("model.merges[", pairs.size(), "]");
      const auto [left, right] = merge_parts(merge, where);
      pairs.emplace_back(part_id(left, vocabulary, where), part_id(right, vocabulary, where));
    }
    return pairs;
  }

  /// Both forms: ["a", "b"], and the older "a b".
  static std::pair<std::string, std::string> merge_parts(const Json& merge, const std::string& where) {
    if (merge.is_array() && merge.size() == 2) return {text_of(merge[0], where), text_of(merge[1], where)};
    const std::string text = merge.is_string() ? merge.get<std::string>() : std::string();
    const std::size_t space = text.find(' ');
    check(space != std::string::npos && text.find(' ', space + 1) == std::string::npos, where,
          " is neither two strings nor \"left right\"");
    return {text.substr(0, space), text.substr(space + 1)};
  }

  static std::int32_t part_id(const std::string& token, const Json& vocabulary, const std::string& where) {
    const auto place = vocabulary.find(token);
    check(place != vocabulary.end(), where, " names \"", token, "\", which is not in the vocabulary");
    return id_of(*place, where);
  }

  static constexpr std::pair<TextStep, const char*> step_names[] = {{TextStep::nfc, "NFC"},
                                                                    {TextStep::nfd, "NFD"},
                                                                    {TextStep::nfkc, "NFKC"},
                                                                    {TextStep::nfkd, "NFKD"},
                                                                    {TextStep::lower_case, "Lowercase"}};
};

namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson byte_level_part(bool add_prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

OrderedJson added_tokens_part(const std::vector<AddedToken>& tokens) {
  OrderedJson list = OrderedJson::array();
  for (const AddedToken& token : tokens)
    list.push_back({{"id", token.id},
                    {"content", token.content},
                    {"single_word", token.single_word},
                    {"lstrip", token.lstrip},
                    {"rstrip", token.rstrip},
                    {"normalized", token.normalized},
                    {"special", token.special}});
  return list;
}

OrderedJson vocabulary_part(const std::vector<std::string>& tokens) {
  OrderedJson vocabulary = OrderedJson::object();
  // Appended without the look-up by name, which would cost the square of the vocabulary.
  auto& entries = vocabulary.get_ref<OrderedJson::object_t&>();
  for (std::size_t id = 0; id < tokens.size(); ++id)
    static_cast<std::vector<OrderedJson::object_t::value_type>&>(entries).emplace_back(tokens[id], id);
  return vocabulary;
}

OrderedJson model_part(const WordModel& model) {
  return {{"type", "WordLevel"}, {"vocab", vocabulary_part(model.tokens())}, {"unk_token", model.unknown()}};
}

OrderedJson model_part(const BpeModel& model) {
  OrderedJson merges = OrderedJson::array();
  const std::vector<std::string>& tokens = model.tokens();
  for (const auto& [left, right] : model.merges())
    merges.push_back({tokens[static_cast<std::size_t>(left)], tokens[static_cast<std::size_t>(right)]});
  const BpeOptions& options = model.options();
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", options.unk_token ? OrderedJson(*options.unk_token) : OrderedJson()},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", options.fuse_unk},
          {"byte_fallback", false},
          {"ignore_merges", options.ignore_merges},
          {"vocab", vocabulary_part(tokens)},
          {"merges", std::move(merges)}};
}

}  // namespace

std::string TokenizerFile::write(const Tokenizer& tokenizer) {
  const TokenizerSettings& settings = tokenizer.parts_->settings;
  OrderedJson steps = OrderedJson::array();
  for (const TextStep step : settings.normalizer)
    for (const auto& [known, name] : step_names)
      if (known == step) steps.push_back({{"type", name}});
  OrderedJson normalizer;
  if (steps.size() == 1) normalizer = steps[0];
  if (steps.size() > 1) normalizer = {{"type", "Sequence"}, {"normalizers", steps}};
  const bool byte_level = settings.style == WordStyle::byte_level;
  const OrderedJson file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added_tokens_part(settings.added_tokens)},
      {"normalizer", normalizer},
      {"pre_tokenizer", byte_level ? byte_level_part(settings.add_prefix_space, settings.split_words)
                                   : OrderedJson{{"type", "BertPreTokenizer"}}},
      {"post_processor", nullptr},
      {"decoder", byte_level ? byte_level_part(true, true) : OrderedJson()},
      {"model", std::visit([](const auto& model) { return model_part(model); }, tokenizer.parts_->model)}};
  std::string text = file.dump(2) + "\n";
  if (settings.post_processor != "null") {
    // Put in as text, since an object that keeps its order takes the square of its size to read. No text
    // inside the file has a line end as it stands.
    const std::string place = "\n  \"post_processor\": null";
    std::string part;
    for (const char c : nlohmann::json::parse(settings.post_processor).dump(2)) {
      part += c;
      if (c == '\n') part += "  ";
    }
    text.replace(text.find(place), place.size(), "\n  \"post_processor\": " + part);
  }
  return text;
}

Tokenizer Tokenizer::from_json(std::string_view text, std::string_view origin) {
  try {
    return TokenizerFile::read(text);
  } catch (const Error& error) {
    fail(origin, ": ", error.what());
  }
}

std::string Tokenizer::to_json() const {
  return TokenizerFile::write(*this);
}

}  // namespace heed
