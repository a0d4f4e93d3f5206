#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "heed/base/error.h"
#include "heed/base/json.h"
#include "heed/text/tokenizer.h"
#include "heed/text/tokenizer_parts.h"

namespace heed {

using namespace json_parts;
using SortedJson = nlohmann::json;

/// Reads a tokenizer.json file. Supports the parts that it can reproduce exactly and refuses all others by
/// name, because skipping a part would silently give other ids.
class TokenizerFile {
 public:
  static Tokenizer read(std::string_view text) {
    const SortedJson file = parse(text);
    check(file.is_object(), "the file is ", file.type_name(), ", not a JSON object");
    for (const char* option : {"truncation", "padding"})
      check(is_null(file, option), option,
            " is set, which encode() does not support; remove it from the file");
    TokenizerSettings settings;
    if (!is_null(file, "normalizer")) {
      settings.normalizer = read_normalizer(file["normalizer"].dump());
      settings.normalizer_text = file["normalizer"].dump(2);
    }
    read_words(file, settings);
    TokenModel model = read_model(member(file, "model", ""), settings.byte_level);
    check(std::holds_alternative<BpeModel>(model) || !settings.byte_level,
          "pre_tokenizer ByteLevel is only supported with model BPE");
    read_decoder_part(file, settings);
    if (!is_null(file, "post_processor")) settings.post_processor_text = file["post_processor"].dump(2);
    settings.added_tokens = read_added_tokens(file);
    return Tokenizer(std::make_shared<TokenizerParts>(std::move(model), std::move(settings)));
  }

  static std::string write(const Tokenizer& tokenizer);

 private:
  static SortedJson parse(std::string_view text) { return parse_json<SortedJson>(text, "the JSON"); }

  static void read_words(const SortedJson& file, TokenizerSettings& settings) {
    settings.byte_level = false;
    if (is_null(file, "pre_tokenizer")) return;  // the whole text is one word
    const SortedJson& part = file["pre_tokenizer"];
    settings.pre_tokenizer_text = part.dump(2);
    if (text_in(part, "type", "pre_tokenizer") == "ByteLevel") {
      settings.byte_level = true;
      settings.add_prefix_space = flag(part, "add_prefix_space", true, "pre_tokenizer");
      const bool splits = flag(part, "use_regex", true, "pre_tokenizer");
      settings.word_split = splits ? WordSplit::gpt2 : WordSplit::none;
      return;
    }
    const std::string comparable = without_offsets(part);
    for (const WordSplit split : {WordSplit::whole, WordSplit::digits, WordSplit::llama3, WordSplit::qwen2})
      for (const bool adds_space : {false, true}) {
        if (adds_space && split != WordSplit::whole) continue;
        if (comparable != without_offsets(parse(byte_level_pre_tokenizer(adds_space, split)))) continue;
        settings.byte_level = true;
        settings.add_prefix_space = adds_space;
        settings.word_split = split;
        return;
      }
    settings.pre_tokenizer = read_pre_tokenizer(part.dump());
  }

  /// Returns a pre-tokenizer without the members that only change offsets, which heed does not use.
  static std::string without_offsets(SortedJson part) {
    if (part.is_object() && part.contains("pretokenizers") && part["pretokenizers"].is_array())
      for (SortedJson& one : part["pretokenizers"])
        if (one.is_object()) one.erase("trim_offsets");
    return part.dump();
  }

  static void read_decoder_part(const SortedJson& file, TokenizerSettings& settings) {
    if (is_null(file, "decoder")) return;
    const SortedJson& part = file["decoder"];
    settings.decoder_text = part.dump(2);
    if (!settings.byte_level) {
      check(!part.is_object() || part.value("type", SortedJson()) != "ByteLevel",
            "decoder ByteLevel is only supported with pre_tokenizer ByteLevel");
      settings.decoder = read_decoder(part.dump());
      return;
    }
    const std::string type = text_in(part, "type", "decoder");
    check(type == "ByteLevel", "decoder \"", type,
          "\" is not supported (for pre_tokenizer ByteLevel, ByteLevel is)");
  }

  static std::vector<AddedToken> read_added_tokens(const SortedJson& file) {
    std::vector<AddedToken> tokens;
    if (is_null(file, "added_tokens")) return tokens;
    check(file["added_tokens"].is_array(), "added_tokens is ", file["added_tokens"].type_name(),
          ", not a list");
    for (const SortedJson& entry : file["added_tokens"]) {
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

  /// Returns the type of the model. Old files identify it only by its parts: it is the first type
  /// that Hugging Face's tokenizers could read it as.
  static std::string type_of(const SortedJson& model) {
    const SortedJson& vocabulary = member(model, "vocab", "model");
    if (model.contains("type")) return text_of(model["type"], "model.type");
    if (model.contains("merges")) return "BPE";
    if (vocabulary.is_array()) return "Unigram";
    return model.contains("continuing_subword_prefix") && model.contains("max_input_chars_per_word")
               ? "WordPiece"
               : "WordLevel";
  }

  /// Reads an object token -> id. Ids may be left out, but not so many that a short file takes all
  /// memory.
  static TokenVocabulary read_vocabulary(const SortedJson& model) {
    const SortedJson& vocabulary = member(model, "vocab", "model");
    check(vocabulary.is_object(), "model.vocab is ", vocabulary.type_name(), ", not an object");
    const std::size_t most = 2 * vocabulary.size() + 65536;
    std::vector<std::string> tokens;
    std::vector<bool> holes;
    for (const auto& [token, value] : vocabulary.items()) {
      const std::int32_t id = id_of(value, "model.vocab[\"" + token + "\"]");
      const auto index = static_cast<std::size_t>(id);
      check(index < most, "model.vocab: token \"", token, "\" has id ", id, ", but a vocabulary of ",
            vocabulary.size(), " must use ids below ", most);
      if (index >= tokens.size()) tokens.resize(index + 1), holes.resize(index + 1, true);
      check(holes[index], "model.vocab: tokens \"", tokens[index], "\" and \"", token, "\" share the id ",
            id);
      holes[index] = false;
      tokens[index] = token;
    }
    return {std::move(tokens), holes};
  }

  static TokenModel read_model(const SortedJson& model, bool byte_level) {
    const std::string type = type_of(model);
    if (type == "WordLevel") return WordModel(read_vocabulary(model), text_in(model, "unk_token", "model"));
    if (type == "WordPiece") return read_word_piece(model);
    if (type == "Unigram") return read_unigram(model);
    check(type == "BPE", "model \"", type, "\" is not supported (BPE, WordLevel, WordPiece and Unigram are)");
    return read_bpe(model, byte_level);
  }

  static WordPieceModel read_word_piece(const SortedJson& model) {
    WordPieceOptions options;
    options.unk_token = text_in(model, "unk_token", "model");
    options.continuing_subword_prefix = text_in(model, "continuing_subword_prefix", "model");
    const SortedJson& most = member(model, "max_input_chars_per_word", "model");
    check(most.is_number_unsigned(), "model.max_input_chars_per_word is ", most.dump(-1, ' ', true),
          ", not a number of characters");
    options.max_input_chars_per_word =
        static_cast<std::int64_t>(std::min<std::uint64_t>(most.get<std::uint64_t>(), INT64_MAX));
    return {read_vocabulary(model), options};
  }

  static UnigramModel read_unigram(const SortedJson& model) {
    const SortedJson& vocabulary = member(model, "vocab", "model");
    check(vocabulary.is_array(), "model.vocab is ", vocabulary.type_name(), ", not a list");
    std::vector<std::string> tokens;
    std::vector<double> scores;
    for (const SortedJson& entry : vocabulary) {
      const std::string where = concat_text("model.vocab[", tokens.size(), "]");
      check(entry.is_array() && entry.size() == 2 && entry[1].is_number(), where,
            " is not a text with its score");
      tokens.push_back(text_of(entry[0], where));
      scores.push_back(entry[1].get<double>());
    }
    UnigramOptions options;
    if (!is_null(model, "unk_id")) options.unk_id = id_of(model["unk_id"], "model.unk_id");
    options.byte_fallback = flag(model, "byte_fallback", false, "model");
    return {std::move(tokens), std::move(scores), options};
  }

  static BpeModel read_bpe(const SortedJson& model, bool byte_level) {
    refuse_unknown_settings(model);
    BpeOptions options;
    options.of_characters = !byte_level;
    options.byte_fallback = flag(model, "byte_fallback", false, "model");
    check(!options.byte_fallback || !byte_level,
          "model.byte_fallback is not supported with pre_tokenizer ByteLevel, which spells bytes itself");
    if (!is_null(model, "unk_token")) options.unk_token = text_of(model["unk_token"], "model.unk_token");
    options.fuse_unk = flag(model, "fuse_unk", false, "model");
    options.ignore_merges = flag(model, "ignore_merges", false, "model");
    return {read_vocabulary(model), read_merges(member(model, "merges", "model"), model["vocab"]), options};
  }

  static void refuse_unknown_settings(const SortedJson& model) {
    check(is_null(model, "dropout") || model["dropout"] == 0.0, "model.dropout is not supported");
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"})
      check(is_null(model, name) || model[name] == "", "model.", name, " is not supported");
  }

  static std::vector<BpeModel::Pair> read_merges(const SortedJson& merges, const SortedJson& vocabulary) {
    check(merges.is_array(), "model.merges is ", merges.type_name(), ", not a list");
    std::vector<BpeModel::Pair> pairs;
    pairs.reserve(merges.size());
    for (const SortedJson& merge : merges) {
      const std::string where = concat_text("model.merges[", pairs.size(), "]");
      const auto [left, right] = merge_parts(merge, where);
      pairs.emplace_back(part_id(left, vocabulary, where), part_id(right, vocabulary, where));
    }
    return pairs;
  }

  /// Reads both forms of a merge: ["a", "b"], and the older "a b".
  static std::pair<std::string, std::string> merge_parts(const SortedJson& merge, const std::string& where) {
    if (merge.is_array() && merge.size() == 2) return {text_of(merge[0], where), text_of(merge[1], where)};
    const std::string text = merge.is_string() ? merge.get<std::string>() : std::string();
    const std::size_t space = text.find(' ');
    check(space != std::string::npos && text.find(' ', space + 1) == std::string::npos, where,
          " is neither two strings nor \"left right\"");
    return {text.substr(0, space), text.substr(space + 1)};
  }

  static std::int32_t part_id(const std::string& token, const SortedJson& vocabulary,
                              const std::string& where) {
    const auto place = vocabulary.find(token);
    check(place != vocabulary.end(), where, " names \"", token, "\", which is not in the vocabulary");
    return id_of(*place, where);
  }
};

namespace {

using OrderedJson = nlohmann::ordered_json;

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

OrderedJson vocabulary_part(const TokenVocabulary& vocabulary) {
  OrderedJson part = OrderedJson::object();
  // Appended without a look-up by name, which would be quadratic in the vocabulary.
  auto& entries =
      static_cast<std::vector<OrderedJson::object_t::value_type>&>(part.get_ref<OrderedJson::object_t&>());
  for (std::size_t id = 0; id < vocabulary.tokens().size(); ++id)
    if (!vocabulary.is_hole(static_cast<std::int32_t>(id))) entries.emplace_back(vocabulary.tokens()[id], id);
  return part;
}

OrderedJson model_part(const WordModel& model) {
  return {{"type", "WordLevel"}, {"vocab", vocabulary_part(model)}, {"unk_token", model.unknown()}};
}

OrderedJson model_part(const WordPieceModel& model) {
  const WordPieceOptions& options = model.options();
  return {{"type", "WordPiece"},
          {"unk_token", options.unk_token},
          {"continuing_subword_prefix", options.continuing_subword_prefix},
          {"max_input_chars_per_word", options.max_input_chars_per_word},
          {"vocab", vocabulary_part(model)}};
}

OrderedJson model_part(const UnigramModel& model) {
  OrderedJson vocabulary = OrderedJson::array();
  for (std::size_t id = 0; id < model.tokens().size(); ++id)
    vocabulary.push_back(OrderedJson::array({model.tokens()[id], model.scores()[id]}));
  const UnigramOptions& options = model.options();
  return {{"type", "Unigram"},
          {"unk_id", options.unk_id ? OrderedJson(*options.unk_id) : OrderedJson()},
          {"vocab", std::move(vocabulary)},
          {"byte_fallback", options.byte_fallback}};
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
          {"byte_fallback", options.byte_fallback},
          {"ignore_merges", options.ignore_merges},
          {"vocab", vocabulary_part(model)},
          {"merges", std::move(merges)}};
}

}  // namespace

std::string TokenizerFile::write(const Tokenizer& tokenizer) {
  const TokenizerSettings& settings = tokenizer.parts_->settings;
  const OrderedJson file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added_tokens_part(settings.added_tokens)},
      {"normalizer", nullptr},
      {"pre_tokenizer", nullptr},
      {"post_processor", nullptr},
      {"decoder", nullptr},
      {"model", std::visit([](const auto& model) { return model_part(model); }, tokenizer.parts_->model)}};
  std::string text;
  try {
    text = file.dump(2) + "\n";
  } catch (const OrderedJson::exception&) {
    fail("a tokenizer with a token that is not valid UTF-8 has no JSON; learn it from text that is UTF-8");
  }
  // Inserted as text, since parsing into an ordered object takes quadratic time. No string inside the file
  // contains a raw line end.
  const auto put = [&](const char* name, const std::string& part) {
    const std::string start = concat_text("\n  \"", name, "\": ");
    std::string indented = start;
    for (const char c : part) {
      indented += c;
      if (c == '\n') indented += "  ";
    }
    text.replace(text.find(start + "null"), start.size() + 4, indented);
  };
  put("normalizer", settings.normalizer_text);
  put("pre_tokenizer", settings.pre_tokenizer_text);
  put("post_processor", settings.post_processor_text);
  put("decoder", settings.decoder_text);
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
