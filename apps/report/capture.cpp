#include "heed/apps/report/capture.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "heed/apps/report/report.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/base/unicode.h"
#include "heed/data/text_file.h"
#include "heed/data/tokenizer_parts.h"
#include "heed/training/text_metrics.h"

namespace heed {

using Json = page::Json;

void CaptureFile::add(const std::string& example, const Capture& capture) {
  for (const Capture::Entry& entry : capture.entries)
    add(example + "." + entry.layer + "." + entry.name, entry.value);
}

void CaptureFile::add(const std::string& name, const Tensor& value) {
  std::string free = name;
  for (int i = 1; content_.tensors.contains(free); ++i) free = name + "." + std::to_string(i);
  content_.tensors.emplace(free, value);
}

void CaptureFile::add_tokens(const std::string& example, const std::string& name, const Tensor& ids,
                             const std::vector<std::string>& texts) {
  add(example + "." + name, ids);
  content_.metadata[example + "." + name] = Json(texts).dump(-1, ' ', false, Json::error_handler_t::replace);
}

void CaptureFile::save(const std::filesystem::path& path, bool overwrite) const {
  if (path.extension() == ".html") {
    Json section = Json::object();
    if (Json drawn = page::examples(*this, {}); !drawn.is_null()) section["examples"] = std::move(drawn);
    return write_output(path, page::html({{"title", "What the model looks at"}, {"sections", {section}}}),
                        overwrite);
  }
  check_output(path, overwrite);
  save_safetensors(path, content_);
}

namespace {

/// "lines.0" of "lines.0.encoder.layers.1.attention.weights".
std::string example_of(const std::string& name) {
  return name.substr(0, name.find('.', name.find('.') + 1));
}

/// A name whose order among others is that of its numbers: "layers.10" behind "layers.2".
std::string order_of(const std::string& name) {
  std::string key;
  for (std::size_t i = 0; i < name.size();) {
    std::size_t end = i;
    while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end])) != 0) ++end;
    if (end > i) key.append(end - i < 9 ? 9 - (end - i) : 0, '0').append(name, i, end - i);
    if (end < name.size()) key += name[end++];
    i = end;
  }
  return key;
}

/// The order of a tensor: an encoder before the decoder that reads it.
std::string order_in_model(const std::string& name) {
  std::string key = order_of(name);
  replace_all(key, ".decoder", ".~decoder");
  return key;
}

/// One thing that a layer shows.
struct Shown {
  std::string layer, kind;  ///< "encoder layer 1", "weights"
  Tensor value;
};

struct Example {
  std::string name;
  std::vector<std::vector<std::string>> tokens;  // what the model read: a source, then a target
  std::vector<Shown> shown;
};

/// "encoder.layers.1.attention.weights" apart, in words. "weights.1" is the second of its name.
Shown shown_of(std::string name, Tensor value) {
  std::size_t dot = name.rfind('.');
  std::string pass;
  if (dot != name.npos && std::isdigit(static_cast<unsigned char>(name[dot + 1])) != 0) {
    pass = concat_text(", pass ", std::stoul(name.substr(dot + 1)) + 1);
    name.resize(dot);
    dot = name.rfind('.');
  }
  Shown shown{dot == name.npos ? pass : name.substr(0, dot) + pass, name.substr(dot + 1), std::move(value)};
  for (const std::string_view end : {".attention", "_attention"})
    if (shown.layer.ends_with(end)) shown.layer.resize(shown.layer.size() - end.size());
  replace_all(shown.layer, "layers.", "layer ");
  for (char& c : shown.layer)
    if (c == '.' || c == '_') c = ' ';
  return shown;
}

std::vector<Example> examples_of(const TensorFile& capture) {
  std::map<std::string, Example> examples;  // by order
  const auto example = [&](const std::string& name) -> Example& {
    Example& found = examples[order_of(example_of(name))];
    found.name = example_of(name);
    return found;
  };
  for (const auto& [name, texts] : capture.metadata)
    example(name).tokens.push_back(Json::parse(texts).get<std::vector<std::string>>());
  std::map<std::string, const std::string*> names;  // of the tensors, by order
  for (const auto& [name, value] : capture.tensors)
    if (!capture.metadata.contains(name)) names[order_in_model(name)] = &name;
  for (const auto& [order, name] : names) {
    Example& found = example(*name);
    found.shown.push_back(shown_of(name->substr(found.name.size() + 1), capture.tensors.at(*name)));
  }
  std::vector<Example> list;
  for (auto& [order, found] : examples) list.push_back(std::move(found));
  return list;
}

/// The tokens that an axis of `length` of a layer stands for: their number among the example's lists; -1:
/// none. A decoder reads the target: its own tokens are the last list, the source's the first.
int tokens_of(const Example& example, const Shown& shown, std::int64_t length, bool is_key) {
  const auto fits = [&](std::size_t i) {
    return static_cast<std::int64_t>(example.tokens[i].size()) == length;
  };
  if (example.tokens.empty()) return -1;
  const std::size_t last = example.tokens.size() - 1;
  const bool of_target = shown.layer.find("decoder") != std::string::npos &&
                         !(is_key && shown.layer.find("cross") != std::string::npos);
  if (of_target && fits(last)) return static_cast<int>(last);
  for (std::size_t i = 0; i <= last; ++i)
    if (fits(i)) return static_cast<int>(i);
  return -1;
}

bool is_map(const Shown& shown) {
  return shown.value.rank() == 4 && shown.value.size(0) == 1 &&
         (shown.kind == "weights" || shown.kind.ends_with("_weights") || shown.kind == "key_choice");
}

/// Weights [1, H, N, M]: the first heads, rows and columns, a byte for each weight.
Json drawn_map(const Example& example, const Shown& shown, const DrawingOptions& options) {
  const std::int64_t rows = std::min(shown.value.size(2), options.tokens),
                     columns = std::min(shown.value.size(3), options.tokens),
                     count = std::min(shown.value.size(1), options.heads);
  Json heads = Json::array();
  for (std::int64_t head = 0; head < count; ++head) {
    const Tensor part = slice(slice(shown.value, 1, head, head + 1), 2, 0, rows);
    const std::vector<double> weights = slice(part, 3, 0, columns).to_doubles();
    const double most = std::max(0.0, *std::ranges::max_element(weights));
    std::string cells;
    for (const double weight : weights)
      cells += static_cast<char>(most > 0 ? std::lround(std::clamp(weight / most, 0.0, 1.0) * 255) : 0);
    heads.push_back({{"most", page::rounded(most)}, {"cells", base64(cells)}});
  }
  return {{"name", shown.kind == "weights" ? shown.layer : shown.layer + ", " + shown.kind},
          {"rows", rows},
          {"columns", columns},
          {"row_tokens", tokens_of(example, shown, shown.value.size(2), false)},
          {"column_tokens", tokens_of(example, shown, shown.value.size(3), true)},
          {"heads", std::move(heads)}};
}

/// What the numbers of a kind are, one of a token, in the singular; "" for what is no number of a token.
std::string kind_text(const Shown& shown) {
  struct Numbers {
    std::string_view kind;
    std::int64_t rank;
    const char* text;
  };
  static constexpr Numbers all[] = {{"assignment", 2, "cluster"},      {"buckets", 4, "bucket"},
                                    {"query_centroids", 3, "cluster"}, {"key_centroids", 3, "cluster"},
                                    {"query_weights", 3, "weight"},    {"key_weights", 3, "weight"}};
  for (const Numbers& one : all)
    if (one.kind == shown.kind && one.rank == shown.value.rank()) return one.text;
  return "";
}

/// The texts that a layer's numbers [..., N] colour: one for each head, and each round.
void add_strips(Json& strips, const Example& example, const Shown& shown, const DrawingOptions& options) {
  const std::vector<double> values = shown.value.to_doubles();
  const std::int64_t rank = shown.value.rank(), length = shown.value.size(rank - 1);
  const std::int64_t heads = rank > 2 ? shown.value.size(rank - 2) : 1;
  for (std::int64_t i = 0; (i + 1) * length <= std::ssize(values); ++i) {
    const std::int64_t head = i % heads, round = i / heads;
    if (head >= options.heads) continue;
    std::string name = shown.layer;
    if (rank == 4) name += concat_text(", round ", round);
    if (rank > 2) name += concat_text(", head ", head);
    if (shown.kind.starts_with("query_")) name += ", queries";
    if (shown.kind.starts_with("key_")) name += ", keys";
    Json own = Json::array();
    for (std::int64_t k = 0; k < std::min(length, options.tokens); ++k)
      own.push_back(page::rounded(values[static_cast<std::size_t>(i * length + k)]));
    strips.push_back(
        {{"name", name}, {"tokens", tokens_of(example, shown, length, false)}, {"values", std::move(own)}});
  }
}

/// By kind; of each the first heads.
Json strips_of(const Example& example, const DrawingOptions& options) {
  std::map<std::string, Json> kinds;
  for (const Shown& shown : example.shown)
    if (const std::string kind = kind_text(shown); !kind.empty())
      add_strips(kinds[kind], example, shown, options);
  Json list = Json::array();
  for (auto& [kind, strips] : kinds) {
    const std::size_t all = strips.size();
    while (std::ssize(strips) > options.heads) strips.erase(strips.size() - 1);
    list.push_back({{"kind", kind}, {"all", all}, {"shown", std::move(strips)}});
  }
  return list;
}

/// Of "lines.0", too, for "lines.0-second": of two texts that are read one by one.
const Answered* answered_of(const CaptureFile& capture, const std::string& example) {
  const auto found = capture.answers().find(example.substr(0, example.find('-')));
  return found == capture.answers().end() ? nullptr : &found->second;
}

/// Puts the words that stand in the line in place of "<unk>" among the tokens that were read of it: what lies
/// between the tokens before and behind. Says whether there were any.
bool name_unknown(Example& example, const std::string& whole) {
  constexpr std::string_view space = " \t\n";
  const std::size_t tab = whole.find('\t');
  const std::string line = example.name.ends_with("-second") && tab != whole.npos ? whole.substr(tab) : whole;
  const std::string lower = unicode::lower_case(line, unicode::FinalSigma::medial);
  if (lower.size() != line.size()) return false;  // places in one are none in the other
  std::vector<std::string>& tokens = example.tokens.front();
  std::vector<std::size_t> unknown;  // since the last token that was found
  std::size_t at = 0;
  bool any = false;
  const auto name_until = [&](std::size_t end) {
    const std::string_view between = std::string_view(line).substr(at, end - at);
    for (const auto& words : {split_at_punctuation(between), split_at_spaces(between)}) {
      if (words.size() != unknown.size()) continue;
      for (std::size_t i = 0; i < words.size(); ++i)
        tokens[unknown[i]] = concat_text("⟨", unicode::beginning(words[i], 60), "⟩");
      any = any || !words.empty();
      break;
    }
    unknown.clear();
  };
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::size_t begin = tokens[i].find_first_not_of(space);
    if (tokens[i] == "<unk>" || tokens[i] == "[UNK]") {
      unknown.push_back(i);
    } else if (begin != tokens[i].npos) {
      const std::string word =
          unicode::lower_case(std::string_view(tokens[i]).substr(begin), unicode::FinalSigma::medial);
      const std::size_t found = lower.find(word.substr(0, word.find_last_not_of(space) + 1), at);
      if (found == lower.npos) {
        if (word.front() == '<' || word.front() == '[') continue;  // a mark
        return any;                                                // a token that the line does not spell so
      }
      name_until(found);
      at = found + word.size();
    }
  }
  name_until(line.size());
  return any;
}

/// Fewer tokens where all maps of an example would have too many cells.
DrawingOptions fitting_options(const Example& example, DrawingOptions options) {
  std::int64_t heads = 0, maps = 0;
  for (const Shown& shown : example.shown)
    if (is_map(shown) && ++maps <= options.layers) heads += std::min(shown.value.size(1), options.heads);
  if (heads > 0 && options.cells < DrawingOptions::all)
    options.tokens =
        std::min(options.tokens, std::max<std::int64_t>(8, std::lround(std::sqrt(options.cells / heads))));
  return options;
}

/// What of an example is not drawn.
std::string left_out(const Example& example, std::int64_t maps, const DrawingOptions& options) {
  std::int64_t tokens = 0, heads = 0;
  for (const Shown& shown : example.shown)
    if (is_map(shown) || !kind_text(shown).empty()) {
      tokens = std::max(tokens, shown.value.size(shown.value.rank() - 1));
      if (shown.value.rank() > 2)
        heads = std::max(heads, shown.value.size(shown.value.rank() - (is_map(shown) ? 3 : 2)));
    }
  std::string text;
  const auto say = [&](std::int64_t all, std::int64_t limit, const char* what) {
    if (limit < all)
      text += concat_text(text.empty() ? "" : ", ", "the first ", limit, " of ", all, ' ', what);
  };
  say(tokens, options.tokens, "tokens");
  say(heads, options.heads, "heads");
  say(maps, options.layers, "layers");
  return text;
}

}  // namespace

std::string base64(std::string_view bytes) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 3; ++k)
      word = word << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k) text += k <= count ? digits[word >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

}  // namespace heed

namespace heed::page {

Json examples(const CaptureFile& capture, const DrawingOptions& options) {
  Json shown = Json::array();
  std::vector<Example> all = examples_of(capture.content());
  for (Example& example : all) {
    if (std::ssize(shown) == options.examples) break;
    const Answered* const answered = answered_of(capture, example.name);
    const bool names_words = answered && !example.tokens.empty() && name_unknown(example, answered->line);
    const DrawingOptions fitting = fitting_options(example, options);
    Json maps = Json::array();
    std::int64_t all_maps = 0;
    for (const Shown& one : example.shown)
      if (is_map(one) && ++all_maps <= fitting.layers) maps.push_back(drawn_map(example, one, fitting));
    Json strips = strips_of(example, fitting);
    if (maps.empty() && strips.empty()) continue;
    Json drawn = {{"name", example.name},        {"names_words", names_words},
                  {"tokens", Json::array()},     {"maps", std::move(maps)},
                  {"strips", std::move(strips)}, {"left_out", left_out(example, all_maps, fitting)}};
    if (answered)
      drawn.update({{"line", line(answered->line)},
                    {"answer", answered->text},
                    {"probability", rounded(answered->probability)}});
    for (std::vector<std::string>& list : example.tokens) {
      list.resize(static_cast<std::size_t>(std::min(std::ssize(list), fitting.tokens)));
      drawn["tokens"].push_back(std::move(list));
    }
    shown.push_back(std::move(drawn));
  }
  if (shown.empty()) return nullptr;
  const bool has_more = std::ssize(shown) == options.examples;
  return {{"all", has_more ? all.size() : shown.size()}, {"shown", std::move(shown)}};
}

namespace {

constexpr std::size_t bins = 40;

/// What the given share of the values lies below; they are put into another order.
double quantile(std::vector<double>& values, double share) {
  const auto at =
      values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, at);
  return *at;
}

Json histogram(std::vector<double>& values, double bin) {
  std::vector<double> shares(bins, 0);
  for (const double value : values) shares[std::min(bins - 1, static_cast<std::size_t>(value / bin))] += 1;
  for (double& share : shares) share = std::round(1e5 * share / static_cast<double>(values.size())) / 1e5;
  return {{"shares", shares},
          {"median", rounded(quantile(values, 0.5))},
          {"most", rounded(quantile(values, 0.99))}};
}

}  // namespace

Json histograms(const TensorFile& first, const TensorFile& last, std::size_t most_layers) {
  std::map<std::string, std::array<std::vector<double>, 2>> weights;  // of a layer: first, last
  std::vector<std::string> layers;                                    // in the order of the model
  for (const TensorFile* capture : {&first, &last})
    for (const Example& example : examples_of(*capture))
      for (const Shown& shown : example.shown) {
        if (!is_map(shown) || shown.kind != "weights") continue;
        const auto [place, is_new] = weights.try_emplace(shown.layer);
        if (is_new) layers.push_back(shown.layer);
        for (const double value : shown.value.to_doubles())
          if (value > 0) place->second[capture == &first ? 0 : 1].push_back(value);
      }
  Json drawn = Json::array();
  for (const std::string& layer : layers) {
    auto& [before, after] = weights[layer];
    if (before.empty() || after.empty() || drawn.size() == most_layers) continue;
    std::vector<double> all = before;
    all.insert(all.end(), after.begin(), after.end());
    const double bin = quantile(all, 0.99) / static_cast<double>(bins);
    drawn.push_back({{"name", layer},
                     {"bin", rounded(bin)},
                     {"before", histogram(before, bin)},
                     {"after", histogram(after, bin)}});
  }
  if (drawn.empty()) return nullptr;
  return {{"all", layers.size()}, {"layers", std::move(drawn)}};
}

}  // namespace heed::page
