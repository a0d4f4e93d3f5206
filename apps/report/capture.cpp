#include "heed/apps/report/capture.h"

#include <algorithm>
#include <cmath>

#include "heed/apps/data/text_file.h"
#include "heed/apps/report/report.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/base/json.h"
#include "heed/base/names.h"

namespace heed {

/// Returns the sort key of a name, which puts "lines.10" after "lines.2".
CapturedExample& CaptureFile::example(const std::string& name) {
  constexpr const char* digits = "0123456789";
  const std::size_t begin = std::min(name.find_first_of(digits), name.size()),
                    end = std::min(name.find_first_not_of(digits, begin), name.size());
  return examples_
      .try_emplace({name.substr(0, begin), end - begin, name.substr(begin)}, CapturedExample{name})
      .first->second;
}

void CaptureFile::add(const std::string& name, const Capture& capture) {
  std::vector<Capture::Entry>& shown = example(name).shown;
  shown.insert(shown.end(), capture.entries.begin(), capture.entries.end());
}

void CaptureFile::add_tokens(const std::string& name, const std::string& list, const Tensor& ids,
                             const std::vector<std::string>& texts) {
  example(name).tokens.push_back({list, ids, texts});
}

TensorFile CaptureFile::content() const {
  TensorFile file;
  for (const auto& [key, example] : examples_) {
    for (const auto& [list, ids, texts] : example.tokens) {
      file.tensors[example.name + "." + list] = ids;
      file.metadata[example.name + "." + list] = dumped(page::Json(texts));
    }
    for (const Capture::Entry& entry : example.shown) {
      const std::string name = concat_text(example.name, '.', entry.layer, '.', entry.name);
      std::string free = name;
      for (int i = 1; file.tensors.contains(free); ++i) free = concat_text(name, '.', i);
      file.tensors.emplace(free, entry.value);
    }
  }
  return file;
}

std::vector<CapturedExample> CaptureFile::examples() const {
  std::vector<CapturedExample> list;
  for (const auto& [key, example] : examples_) list.push_back(example);
  return list;
}

const Answered* CaptureFile::answer_to(const std::string& example) const {
  const auto found = answers_.find(example.substr(0, example.find('-')));
  return found == answers_.end() ? nullptr : &found->second;
}

void CaptureFile::save(const std::filesystem::path& path, bool overwrite) const {
  if (path.extension() != ".html") {
    check_output(path, overwrite);
    return save_safetensors(path, content());
  }
  page::Json section = page::Json::object();
  if (page::Json drawn = page::examples(*this, {}); !drawn.is_null()) section["examples"] = std::move(drawn);
  write_output(path, page::html({{"title", "What the model looks at"}, {"sections", {section}}}), overwrite);
}

}  // namespace heed

namespace heed::page {
namespace {

/// Returns a layer's name in words: "encoder layer 1" for "encoder.layers.1.attention".
std::string in_words(std::string layer) {
  for (const std::string_view end : {".attention", "_attention"})
    if (layer.ends_with(end)) layer.resize(layer.size() - end.size());
  replace_all(layer, "layers.", "layer ");
  for (char& c : layer)
    if (c == '.' || c == '_') c = ' ';
  return layer;
}

/// Returns the examples of a capture, with layers in words. Repeated names within a layer belong to
/// its next pass.
std::vector<CapturedExample> examples_in_words(const CaptureFile& capture) {
  std::vector<CapturedExample> examples = capture.examples();
  for (CapturedExample& example : examples) {
    std::map<std::string, int> passes;
    for (Capture::Entry& shown : example.shown) {
      const int pass = ++passes[shown.layer + '.' + shown.name];
      shown.layer = in_words(shown.layer) + (pass > 1 ? concat_text(", pass ", pass) : "");
    }
  }
  return examples;
}

bool is_map(const Capture::Entry& shown) {
  return shown.value.rank() == 4 && shown.value.size(0) == 1 &&
         (shown.name == "weights" || shown.name.ends_with("_weights") || shown.name == "key_choice");
}

/// Returns the name of a strip's numbers, one per token, in the singular; "" if they are not per
/// token.
std::string strip_kind(const Capture::Entry& shown) {
  struct Numbers {
    std::string_view name;
    std::int64_t rank;
    const char* text;
  };
  static constexpr Numbers all[] = {{"assignment", 2, "cluster"},      {"buckets", 4, "bucket"},
                                    {"query_centroids", 3, "cluster"}, {"key_centroids", 3, "cluster"},
                                    {"query_weights", 3, "weight"},    {"key_weights", 3, "weight"}};
  for (const Numbers& one : all)
    if (one.name == shown.name && one.rank == shown.value.rank()) return one.text;
  return "";
}

/// Returns the index of the token list that an axis of `length` belongs to; -1: none. A decoder
/// reads the target: its own tokens are the last list, the source's the first.
int tokens_of(const CapturedExample& example, const std::string& layer, std::int64_t length, bool is_key) {
  const int last = static_cast<int>(example.tokens.size()) - 1;
  const auto fits = [&](int i) {
    return std::ssize(example.tokens[static_cast<std::size_t>(i)].texts) == length;
  };
  const bool of_target =
      layer.find("decoder") != layer.npos && !(is_key && layer.find("cross") != layer.npos);
  if (of_target && last >= 0 && fits(last)) return last;
  for (int i = 0; i <= last; ++i)
    if (fits(i)) return i;
  return -1;
}

/// Returns the first heads, rows and columns of weights [1, H, N, M], as one byte per weight.
Json drawn_map(const CapturedExample& example, const Capture::Entry& shown, const DrawingOptions& options) {
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
    heads.push_back({{"most", rounded(most)}, {"cells", base64(cells)}});
  }
  return {{"name", shown.name == "weights" ? shown.layer : shown.layer + ", " + shown.name},
          {"rows", rows},
          {"columns", columns},
          {"row_tokens", tokens_of(example, shown.layer, shown.value.size(2), false)},
          {"column_tokens", tokens_of(example, shown.layer, shown.value.size(3), true)},
          {"heads", std::move(heads)}};
}

/// Adds the texts colored by a layer's numbers [..., N]: one for each head and round.
void add_strips(Json& strips, const CapturedExample& example, const Capture::Entry& shown,
                const DrawingOptions& options) {
  const std::vector<double> values = shown.value.to_doubles();
  const std::int64_t rank = shown.value.rank(), length = shown.value.size(rank - 1);
  const std::int64_t heads = rank > 2 ? shown.value.size(rank - 2) : 1;
  for (std::int64_t i = 0; (i + 1) * length <= std::ssize(values); ++i) {
    if (i % heads >= options.heads) continue;
    std::string name = shown.layer;
    if (rank == 4) name += concat_text(", round ", i / heads);
    if (rank > 2) name += concat_text(", head ", i % heads);
    if (shown.name.starts_with("query_")) name += ", queries";
    if (shown.name.starts_with("key_")) name += ", keys";
    Json own = Json::array();
    for (std::int64_t k = 0; k < std::min(length, options.tokens); ++k)
      own.push_back(rounded(values[static_cast<std::size_t>(i * length + k)]));
    strips.push_back({{"name", name},
                      {"tokens", tokens_of(example, shown.layer, length, false)},
                      {"values", std::move(own)}});
  }
}

/// Returns the strips by kind, with the first heads of each.
Json make_strips(const CapturedExample& example, const DrawingOptions& options) {
  std::map<std::string, Json> kinds;
  for (const Capture::Entry& shown : example.shown)
    if (const std::string kind = strip_kind(shown); !kind.empty())
      add_strips(kinds[kind], example, shown, options);
  Json list = Json::array();
  for (auto& [kind, strips] : kinds) {
    const std::size_t all = strips.size();
    while (std::ssize(strips) > options.heads) strips.erase(strips.size() - 1);
    list.push_back({{"kind", kind}, {"all", all}, {"shown", std::move(strips)}});
  }
  return list;
}

/// Returns options with fewer tokens if all maps of an example together would have too many cells.
DrawingOptions fitting_options(const CapturedExample& example, DrawingOptions options) {
  std::int64_t heads = 0, maps = 0;
  for (const Capture::Entry& shown : example.shown)
    if (is_map(shown) && ++maps <= options.layers) heads += std::min(shown.value.size(1), options.heads);
  if (heads > 0 && options.cells < DrawingOptions::all)
    options.tokens =
        std::min(options.tokens, std::max<std::int64_t>(8, std::lround(std::sqrt(options.cells / heads))));
  return options;
}

/// Returns a note on the parts of an example that are not drawn.
std::string left_out(const CapturedExample& example, const DrawingOptions& options) {
  std::int64_t tokens = 0, heads = 0, maps = 0;
  for (const Capture::Entry& shown : example.shown) {
    maps += is_map(shown) ? 1 : 0;
    if (!is_map(shown) && strip_kind(shown).empty()) continue;
    const std::int64_t rank = shown.value.rank();
    tokens = std::max(tokens, shown.value.size(rank - 1));
    if (rank > 2) heads = std::max(heads, shown.value.size(rank - (is_map(shown) ? 3 : 2)));
  }
  std::vector<std::string> parts;
  const auto say = [&](std::int64_t all, std::int64_t limit, const char* what) {
    if (limit < all) parts.push_back(concat_text("the first ", limit, " of ", all, ' ', what));
  };
  say(tokens, options.tokens, "tokens");
  say(heads, options.heads, "heads");
  say(maps, options.layers, "layers");
  return listed(parts);
}

/// Null where there is nothing to draw.
Json drawn_example(CapturedExample& example, const Answered* answered, const DrawingOptions& all) {
  const DrawingOptions options = fitting_options(example, all);
  Json maps = Json::array(), tokens = Json::array(), strips = make_strips(example, options);
  for (const Capture::Entry& one : example.shown)
    if (is_map(one) && std::ssize(maps) < options.layers) maps.push_back(drawn_map(example, one, options));
  if (maps.empty() && strips.empty()) return nullptr;
  for (auto& [name, ids, texts] : example.tokens) {
    texts.resize(static_cast<std::size_t>(std::min(std::ssize(texts), options.tokens)));
    tokens.push_back(std::move(texts));
  }
  Json drawn = {{"name", example.name},
                {"tokens", std::move(tokens)},
                {"maps", std::move(maps)},
                {"strips", std::move(strips)},
                {"left_out", left_out(example, options)}};
  if (answered)
    drawn.update({{"line", line(answered->line)},
                  {"answer", answered->text},
                  {"probability", rounded(answered->probability)}});
  return drawn;
}

}  // namespace

Json examples(const CaptureFile& capture, const DrawingOptions& options) {
  std::vector<CapturedExample> all = examples_in_words(capture);
  Json shown = Json::array();
  for (CapturedExample& example : all)
    if (std::ssize(shown) < options.examples)
      if (Json drawn = drawn_example(example, capture.answer_to(example.name), options); !drawn.is_null())
        shown.push_back(std::move(drawn));
  if (shown.empty()) return nullptr;
  const bool has_more = std::ssize(shown) == options.examples;
  return {{"all", has_more ? all.size() : shown.size()}, {"shown", std::move(shown)}};
}

}  // namespace heed::page
