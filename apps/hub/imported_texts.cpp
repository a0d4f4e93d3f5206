// Texts of published models: their tokenizers, the marks around a text, and the tokens that end one.

#include "heed/apps/hub/architecture.h"

#include <algorithm>
#include <optional>

#include "heed/apps/tasks/language_model.h"
#include "heed/base/json.h"
#include "heed/base/names.h"
#include "heed/text/tokenizer.h"

namespace heed::hub {
namespace {

/// Returns a mark that tokenizer_config.json names, a text or an object with its "content"; "":
/// none.
std::string mark_of_published(const Json& tokenizer_config, const char* name) {
  Json mark = tokenizer_config.value(name, Json());
  if (mark.is_object()) mark = mark.value("content", Json());
  return mark.is_string() ? mark.get<std::string>() : "";
}

/// Returns a flag of tokenizer_config.json; none: it does not say.
std::optional<bool> flag_of_published(const Json& tokenizer_config, const char* name) {
  const Json flag = tokenizer_config.value(name, Json());
  if (flag.is_null()) return std::nullopt;
  check(flag.is_boolean(), "tokenizer_config.json: \"", name, "\" must be true or false, is ", dumped(flag));
  return flag.get<bool>();
}

using TokenizerJson = nlohmann::json;  // whose objects find a token fast

/// Removes truncation and padding: in heed, data.max_tokens truncates and batches pad.
void remove_lengths(TokenizerJson& json, std::vector<std::string>& remarks) {
  for (const char* const part : {"truncation", "padding"}) {
    if (json_parts::is_null(json, part)) continue;
    remarks.push_back(concat_text("left out of tokenizer.json: ", part, ' ', dumped(json[part])));
    json[part] = nullptr;
  }
}

/// A member of tokenizer_config.json that replaces one of tokenizer.json.
struct Replacement {
  const char *member, *part, *type, *replaced;
  TokenizerJson fallback;  ///< if a class is named, but not the member
  std::vector<std::string_view> classes;
};

/// Replaces what the classes of tokenizers in `transformers` replace. A file without a class only
/// replaces what it names.
void replace_parts(TokenizerJson& json, const Json& config, std::vector<std::string>& remarks) {
  const std::vector<std::string_view> berts = {"BertTokenizer", "DistilBertTokenizer"},
                                      bytes = {"GPT2Tokenizer", "RobertaTokenizer"};
  const Replacement replacements[] = {
      {"do_lower_case", "normalizer", "BertNormalizer", "lowercase", true, berts},
      {"strip_accents", "normalizer", "BertNormalizer", "strip_accents", nullptr, berts},
      {"tokenize_chinese_chars", "normalizer", "BertNormalizer", "handle_chinese_chars", true, berts},
      {"add_prefix_space", "pre_tokenizer", "ByteLevel", "add_prefix_space", false, bytes}};
  std::string kind = mark_of_published(config, "tokenizer_class");
  if (kind.ends_with("Fast")) kind.resize(kind.size() - 4);
  for (const Replacement& one : replacements) {
    const bool is_named = std::ranges::count(one.classes, kind) > 0;
    if ((!kind.empty() && !is_named) || (!is_named && !config.contains(one.member))) continue;
    const std::optional<bool> said = flag_of_published(config, one.member);
    const TokenizerJson value = said ? TokenizerJson(*said) : one.fallback;
    const auto replace_in = [&](TokenizerJson& part) {
      if (!part.is_object() || part.value("type", TokenizerJson()) != one.type) return;
      const TokenizerJson before = part.value(one.replaced, TokenizerJson());
      if (before == value) return;
      remarks.push_back(concat_text("tokenizer_config.json has ", one.member, ' ', dumped(value),
                                    ", which replaces ", one.replaced, ' ', dumped(before),
                                    " of tokenizer.json"));
      part[one.replaced] = value;
    };
    TokenizerJson& part = json[one.part];
    replace_in(part);
    if (part.is_object() && part.contains("normalizers"))
      for (TokenizerJson& each : part["normalizers"]) replace_in(each);
  }
}

/// The marks around a text, and between two that are read as one.
struct MarksAround {
  std::vector<std::string> before, after, between = {};
};

/// Adds the marks of a part of the post-processor, outside of those that are there.
void add_marks(const TokenizerJson& part, const std::string& type, MarksAround& marks) {
  using namespace json_parts;
  const std::string where = "post_processor";
  MarksAround own;
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    for (const auto& [name, list] : {std::pair("cls", &own.before), {"sep", &own.after}}) {
      const TokenizerJson& pair = member(part, name, where);
      check(pair.is_array() && !pair.empty(), where, '.', name, " is not a token and its id");
      list->push_back(text_of(pair[0], where));
    }
    own.between.assign(type == "BertProcessing" ? 1 : 2, own.after[0]);
  } else if (type == "TemplateProcessing") {
    std::vector<std::string>*list = &own.before, ignored;
    const auto add = [&](const TokenizerJson& one, std::vector<std::string>& next) {
      check(one.is_object(), where, " holds ", dumped(one), ", which is not an object");
      if (!one.contains("SpecialToken")) {
        list = &next;
        return;
      }
      const std::string id = text_in(one["SpecialToken"], "id", where);
      const TokenizerJson& special = member(member(part, "special_tokens", where), id.c_str(), where);
      for (const TokenizerJson& token : member(special, "tokens", where))
        list->push_back(text_of(token, where));
    };
    for (const TokenizerJson& one : member(part, "single", where)) add(one, own.after);
    list = &ignored;  // what stands before the first text of a pair
    if (!json_parts::is_null(part, "pair"))
      for (const TokenizerJson& one : part["pair"]) add(one, list == &own.between ? ignored : own.between);
  } else {
    check(type == "ByteLevel", "the post-processor \"", type, "\" is not supported");
  }
  marks.before.insert(marks.before.begin(), own.before.begin(), own.before.end());
  marks.after.insert(marks.after.end(), own.after.begin(), own.after.end());
  if (!own.between.empty()) marks.between = own.between;
}

/// Returns the marks that tokenizer.json puts around a text; nothing if it does not say.
std::optional<MarksAround> marks_around(const TokenizerJson& json) {
  if (json_parts::is_null(json, "post_processor")) return std::nullopt;
  MarksAround marks;
  json_parts::for_each_part(
      json["post_processor"], "processors", "post_processor",
      [&](const TokenizerJson& part, const std::string& type) { add_marks(part, type, marks); });
  return marks;
}

std::string spaced(const std::vector<std::string>& marks) {
  return marks.empty() ? "nothing" : listed(marks);
}

/// Sets the mark that begins the texts of a language model.
void set_begin(const TokenizerJson& tokenizer, Settings& settings) {
  const MarksAround marks = marks_around(tokenizer).value_or(MarksAround());
  check(marks.before.size() <= 1 && marks.after.empty(), "tokenizer.json: its post-processor puts ",
        spaced(marks.before), " before a text and ", spaced(marks.after),
        " behind it; a language model of heed supports one mark before a text and none behind it");
  if (!marks.before.empty()) settings.set("tokenizer.begin", marks.before.front(), "tokenizer.json");
}

/// Sets the marks of an encoder, which are at most one before a text and the end mark behind it.
void set_marks_of_encoder(const TokenizerJson& json, const Tokenizer& tokenizer, bool is_masked,
                          Settings& settings) {
  const auto marks = marks_around(json);
  if (!marks || (marks->before.empty() && marks->after.empty())) return;  // as the architecture has them
  const auto& [before, after, between] = *marks;
  const bool ends = after.size() == 1 && tokenizer.find(after[0]) == tokenizer.id_of("</s>");
  check(ends && before.size() <= 1 && (!is_masked || !before.empty()),
        "tokenizer.json: its post-processor puts ", spaced(before), " and ", spaced(after),
        " around a text; heed supports one mark before it and ", tokenizer.token(tokenizer.id_of("</s>")),
        " behind it");
  settings.set("tokenizer.begin", before.empty() ? "" : before[0], "tokenizer.json");
  if (settings.has("tokenizer.between") && !between.empty()) {
    std::string text;
    for (const std::string& mark : between) text += (text.empty() ? "" : " ") + mark;
    settings.set("tokenizer.between", text, "tokenizer.json");
  }
}

/// Sets what generation_config.json says, or where it is missing config.json, as in `transformers`:
/// the tokens that end a text, and how to sample.
void set_generation(const PublishedTexts& texts, const Tokenizer& tokenizer, const Config& config,
                    Settings& settings, std::vector<std::string>& remarks) {
  const std::string file = texts.generation.empty() ? "config.json" : "generation_config.json";
  const Config generation = texts.generation.empty() ? config : Config(texts.generation, file);
  std::vector<std::string> ends;
  for (const std::int64_t id : generation.integers("eos_token_id", 0, 1 << 30)) {
    const bool is_known = id < tokenizer.vocabulary_size();
    const std::string token = is_known ? tokenizer.token(static_cast<std::int32_t>(id)) : "";
    if (token.empty())
      remarks.push_back(
          concat_text(file, ": token ", id, " ends a text, but tokenizer.json has no such token"));
    else if (token == mark_of_published(texts.tokenizer_config, "eos_token"))
      ends.insert(ends.begin(), token);
    else
      ends.push_back(token);
  }
  if (ends.empty()) {
    remarks.push_back(file + " names no token that ends a text, so each goes on to generation.tokens");
    settings.set("generation.past_end", "true", file);
  } else {
    if (find_mark_id(tokenizer, text_mark) != tokenizer.id_of(ends.front()))
      settings.set_json("tokenizer.end", Json(ends.front()).dump(), file);
    ends.erase(ends.begin());
    settings.set_json("tokenizer.more_ends", Json(ends).dump(), file);
  }
  const bool draws = generation.value("do_sample", false).get<bool>();
  for (const std::string name : {"repetition_penalty", "temperature", "top_k", "top_p", "min_p"})
    if (generation.has(name.c_str()) && (draws || name == "repetition_penalty"))
      settings.set_json(concat_text("generation.", name), generation.value(name.c_str(), 1.0).dump(), file);
  const Json neutral = Json::parse(R"({"no_repeat_ngram_size": 0, "num_beams": 1,
      "min_length": 0, "min_new_tokens": null, "bad_words_ids": null, "suppress_tokens": null,
      "begin_suppress_tokens": null, "forced_bos_token_id": null, "forced_eos_token_id": null,
      "typical_p": 1.0})");
  std::vector<std::string> names;
  for (const auto& [name, value] : neutral.items())
    if (!generation.is(name.c_str(), value)) names.push_back(name);
  if (!names.empty()) remarks.push_back(concat_text(file, ": heed does not use ", listed(names)));
}

}  // namespace

NamedFiles imported_files(const PublishedTexts& texts, const Config& config, const ImportPlan& plan,
                          Settings& settings, std::vector<std::string>& remarks) {
  NamedFiles files;
  const bool is_masked = plan.settings.value("objective", "") == "masked",
             is_causal = plan.task == "language_model" && !is_masked;
  const auto add = [&](const std::string& name, const std::string& text) {
    const Tokenizer tokenizer = Tokenizer::from_json(text, name);
    for (const auto& [mark, is_needed] : {std::pair("</s>", !is_causal), {"<mask>", is_masked}})
      check(!is_needed || find_mark_id(tokenizer, mark) >= 0, name, ": the tokenizer has no token \"", mark,
            '"');
    files[name] = tokenizer.to_json();
    return tokenizer;
  };
  auto json = parse_json<TokenizerJson>(texts.tokenizer, "tokenizer.json");
  check(json.is_object(), "tokenizer.json is not a JSON object");
  const std::size_t before = remarks.size();  // each change has one
  remove_lengths(json, remarks);
  replace_parts(json, texts.tokenizer_config, remarks);
  const Tokenizer tokenizer = add("tokenizer.json", remarks.size() == before ? texts.tokenizer : json.dump());
  check(plan.end < 0 || plan.end == tokenizer.id_of("</s>"), "config.json: token ", plan.end,
        " ends outputs, but in tokenizer.json that is token ", tokenizer.id_of("</s>"));
  if (is_causal) {
    set_generation(texts, tokenizer, config, settings, remarks);
    set_begin(json, settings);
  } else if (plan.task != "translate") {
    set_marks_of_encoder(json, tokenizer, is_masked, settings);
  }
  if (plan.begin >= 0) {
    check(plan.begin < tokenizer.vocabulary_size(), "config.json: token ", plan.begin,
          " begins outputs, but tokenizer.json has ", tokenizer.vocabulary_size(), " tokens");
    settings.set("tokenizer.begin", tokenizer.token(static_cast<std::int32_t>(plan.begin)), "config.json");
  }
  if (!texts.target_tokenizer.empty()) {
    add("target_tokenizer.json", texts.target_tokenizer);
    settings.set("tokenizer.separate", "true", "target_tokenizer.json");
  }
  return files;
}

}  // namespace heed::hub
