#include "heed/apps/tasks/capture.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "heed/apps/tasks/data.h"
#include "heed/apps/tasks/report.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/base/unicode.h"
#include "heed/data/text_file.h"
#include "heed/data/tokenizer_parts.h"
#include "heed/models/loss.h"
#include "heed/training/report.h"
#include "heed/training/text_metrics.h"

namespace heed {

using Json = nlohmann::ordered_json;

Capture captured(const std::function<void(Context&)>& pass) {
  const NoGrad no_grad;
  Capture capture;
  Context context = Context::inference();
  context.capture = &capture;
  pass(context);
  return capture;
}

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

namespace {

/// The axis of the samples: the second in Reformer's buckets and orders [rounds, B, H, N].
int batch_axis(const Capture::Entry& entry) {
  return entry.name == "buckets" || (entry.name == "order" && entry.value.rank() == 4) ? 1 : 0;
}

/// What a capture of `count` samples has of one of them; what has one sample alone is the same for all.
Capture sample_of(const Capture& capture, std::int64_t sample, std::int64_t count) {
  Capture one;
  for (const Capture::Entry& entry : capture.entries) {
    const int axis = batch_axis(entry);
    const std::int64_t samples = entry.value.rank() > axis ? entry.value.size(axis) : 0;
    if (samples == count)
      one.entries.push_back({entry.layer, entry.name, slice(entry.value, axis, sample, sample + 1)});
    else if (samples == 1)
      one.entries.push_back(entry);
  }
  return one;
}

}  // namespace

void add_pass(CaptureFile& file, const std::string& example, const Capture& capture,
              const std::vector<Tokens>& rows, const Tokenizer& tokenizer) {
  const Tensor ids = pad_tokens(rows).ids;
  const auto count = static_cast<std::int64_t>(rows.size());
  for (std::int64_t row = 0; row < count; ++row) {
    const std::string name = count == 1 ? example : example + (row == 0 ? "-first" : "-second");
    std::vector<std::string> texts = token_texts(tokenizer, rows[static_cast<std::size_t>(row)]);
    texts.resize(static_cast<std::size_t>(ids.size(1)), "<pad>");
    file.add_tokens(name, "tokens", slice(ids, 0, row, row + 1), texts);
    file.add(name, count == 1 ? capture : sample_of(capture, row, count));
  }
}

std::string CaptureFile::page() const {
  constexpr const char* title = "What the model looks at";
  return page_html(title, concat_text("<h1>", title, "</h1>\n", capture_html(*this)));
}

void CaptureFile::save(const std::filesystem::path& path, bool overwrite) const {
  if (path.extension() == ".html") return write_output(path, page(), overwrite);
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

const std::vector<std::string>& list_of(const Example& example, int number) {
  static const std::vector<std::string> none;
  return number < 0 ? none : example.tokens[static_cast<std::size_t>(number)];
}

/// A token as readers see it; of no list its number.
std::string token_text(const std::vector<std::string>& tokens, std::size_t i) {
  if (tokens.empty()) return std::to_string(i + 1);
  std::string text = tokens[i];
  replace_all(text, "\n", "\\n");
  return text.find_first_not_of(' ') == text.npos ? "\u2423" : text;
}

bool is_map(const Shown& shown) {
  return shown.value.rank() == 4 && shown.value.size(0) == 1 &&
         (shown.kind == "weights" || shown.kind.ends_with("_weights") || shown.kind == "key_choice");
}

/// What is drawn of a layer's weights.
struct DrawnMap {
  Json json;                           ///< for the script
  std::string name;                    ///< of the layer
  int row_tokens;                      ///< what looks: the number of a list of tokens, -1: none
  std::vector<std::string> strongest;  ///< of each row: what it looks at most in the mean over all heads
};

/// Weights [1, H, N, M]: the first heads, rows and columns.
DrawnMap drawn_map(const Example& example, const Shown& shown, const DrawingOptions& options) {
  const std::int64_t rows = std::min(shown.value.size(2), options.tokens),
                     columns = std::min(shown.value.size(3), options.tokens),
                     count = std::min(shown.value.size(1), options.heads);
  const int row_tokens = tokens_of(example, shown, shown.value.size(2), false),
            column_tokens = tokens_of(example, shown, shown.value.size(3), true);
  Json heads = Json::array();
  std::vector<double> mean(static_cast<std::size_t>(rows * columns), 0);
  for (std::int64_t head = 0; head < count; ++head) {
    const Tensor part = slice(slice(shown.value, 1, head, head + 1), 2, 0, rows);
    const std::vector<double> weights = slice(part, 3, 0, columns).to_doubles();
    const double most = std::max(0.0, *std::ranges::max_element(weights));
    std::string cells;
    for (const double weight : weights)
      cells += static_cast<char>(most > 0 ? std::lround(std::clamp(weight / most, 0.0, 1.0) * 255) : 0);
    heads.push_back({{"most", most}, {"cells", base64(cells)}});
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += weights[i] / static_cast<double>(count);
  }
  DrawnMap map{{}, shown.kind == "weights" ? shown.layer : shown.layer + ", " + shown.kind, row_tokens, {}};
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto begin = mean.begin() + row * columns;
    const auto best = std::max_element(begin, begin + columns);
    map.strongest.push_back(
        concat_text(token_text(list_of(example, column_tokens), static_cast<std::size_t>(best - begin)), ' ',
                    short_number(std::round(1000 * *best) / 1000)));
  }
  map.json = {{"name", map.name},
              {"rows", rows},
              {"columns", columns},
              {"row_tokens", row_tokens},
              {"column_tokens", column_tokens},
              {"heads", std::move(heads)}};
  return map;
}

/// The maps as a table for each list of tokens: what each of them looks at most.
std::string strongest_html(const Example& example, std::span<const DrawnMap> maps) {
  std::map<std::pair<int, std::size_t>, std::vector<std::vector<std::string>>> tables;
  for (const DrawnMap& map : maps) {
    auto& table = tables[{map.row_tokens, map.strongest.size()}];
    if (table.empty()) {
      table = {{"token"}};
      for (std::size_t row = 0; row < map.strongest.size(); ++row)
        table.push_back({token_text(list_of(example, map.row_tokens), row)});
    }
    table[0].push_back(map.name);
    for (std::size_t row = 0; row < map.strongest.size(); ++row) table[row + 1].push_back(map.strongest[row]);
  }
  std::string html;
  for (const auto& [key, table] : tables) html += table_html(table);
  return details_html("What each token looks at most, in the mean over the heads, and its weight", html);
}

// --- texts in colour

/// A text coloured by numbers of clusters or buckets, or by weights.
std::string strip(const std::string& name, const std::vector<std::string>& tokens,
                  std::span<const double> values, const std::string& kind, bool is_weight) {
  const double most = std::max(*std::ranges::max_element(values), 1e-30);
  std::string line = "<div class=\"strip\"><span class=\"name\">" + html_text(name) + "</span><div>";
  for (std::size_t i = 0; i < values.size(); ++i) {
    // The golden angle: neighbouring numbers get colours far apart.
    const std::string shade =
        is_weight ? concat_text("w\" style=\"--w:", short_number(std::clamp(values[i] / most, 0.0, 1.0)))
                  : concat_text("k\" style=\"--h:", std::lround(std::fmod(values[i] * 137.508 + 210, 360)));
    line += concat_text("<span class=\"t ", shade, "\" title=\"", kind, ' ', short_number(values[i]), "\">",
                        html_text(token_text(tokens, i)), "</span>");
  }
  return line + "</div></div>\n";
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

/// All texts that a layer's numbers [..., N] colour: one for each head, and each round.
std::vector<std::string> strips_of(const Example& example, const Shown& shown,
                                   const DrawingOptions& options) {
  std::vector<std::string> strips;
  const std::string kind = kind_text(shown);
  if (kind.empty()) return strips;
  const std::vector<double> values = shown.value.to_doubles();
  const std::int64_t rank = shown.value.rank(), length = shown.value.size(rank - 1);
  const int list = tokens_of(example, shown, length, false);
  const std::vector<std::string>& tokens = list_of(example, list);
  const std::int64_t heads = rank > 2 ? shown.value.size(rank - 2) : 1;
  for (std::int64_t i = 0; (i + 1) * length <= std::ssize(values); ++i) {
    const std::int64_t head = i % heads, round = i / heads;
    if (head >= options.heads) continue;
    std::string name = shown.layer;
    if (rank == 4) name += concat_text(", round ", round);
    if (rank > 2) name += concat_text(", head ", head);
    if (shown.kind.starts_with("query_")) name += ", queries";
    if (shown.kind.starts_with("key_")) name += ", keys";
    strips.push_back(
        strip(name, tokens,
              std::span(values).subspan(static_cast<std::size_t>(i * length),
                                        static_cast<std::size_t>(std::min(length, options.tokens))),
              kind, kind == "weight"));
  }
  return strips;
}

std::string_view explanation_of(std::string_view kind) {
  if (kind == "weight")
    return "No token looks at another here, so there is no map. Each head adds up all tokens, each with a "
           "weight: the queries to one vector, with which it weighs the keys, and these to another, which "
           "every token meets. The stronger the colour, the larger the weight.";
  if (kind == "bucket")
    return "Each round hashes the tokens into buckets, so that like ones tend to share one, and a token "
           "looks within its bucket: the maps have what all rounds allow. It looks at itself only where "
           "there is nothing else.";
  return "Like tokens are sorted into clusters, and look within their own.";
}

std::string strips_html(const Example& example, const DrawingOptions& options) {
  std::map<std::string, std::vector<std::string>> strips;  // by kind
  for (const Shown& shown : example.shown)
    for (std::string& one : strips_of(example, shown, options))
      strips[kind_text(shown)].push_back(std::move(one));
  std::string html;
  for (const auto& [kind, list] : strips) {
    const std::int64_t most = std::min(std::ssize(list), options.heads);
    html += concat_text(
        "<h4>", kind == "weight" ? "Weights of the tokens" : "Tokens of one colour share a " + kind,
        most < std::ssize(list) ? concat_text(" (the first ", most, " of ", list.size(), ")") : "",
        "</h4>\n<p class=\"muted\">", explanation_of(kind), "</p>\n");
    for (const std::string& one : std::span(list).first(static_cast<std::size_t>(most))) html += one;
  }
  return html;
}

/// "Line 1", of "lines.0"; "Line 1, second text" of "lines.0-second".
std::string title_of(const std::string& name) {
  const std::size_t dot = name.find('.');
  if (dot == name.npos) return name;
  const std::size_t end = std::min(name.find_first_not_of("0123456789", dot + 1), name.size());
  if (end == dot + 1 || end - dot > 10) return name;
  std::string title = concat_text(name.starts_with("samples.") ? "Text " : "Line ",
                                  std::stoll(name.substr(dot + 1, end - dot - 1)) + 1);
  if (end < name.size()) title += concat_text(", ", name.substr(end + 1), " text");
  return title;
}

/// Of "lines.0", too, for "lines.0-second": of two texts that are read one by one.
const Answered* answered_of(const CaptureFile& capture, const std::string& example) {
  const auto found = capture.answers().find(example.substr(0, example.find('-')));
  return found == capture.answers().end() ? nullptr : &found->second;
}

std::string answered_html(const Answered& answered) {
  std::string html =
      concat_text("<p class=\"text\">", line_html(answered.line), " <b>→ ", html_text(answered.text), "</b>");
  if (answered.probability > 0)
    html += concat_text(" <small>probability ", short_number(answered.probability), "</small>");
  return html + "</p>\n";
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

const std::string maps_note =
    "<p class=\"maps-note\">Every small square is a head: a row for each token that looks, a column for "
    "each token that is looked at. Choose one to see it large. All maps of an example share one "
    "scale.</p>\n";

std::string maps_html(const Example& example, std::span<DrawnMap> maps, const DrawingOptions& options) {
  const std::string table = strongest_html(example, maps);
  Json data = {{"tokens", Json::array()}, {"maps", Json::array()}};
  for (std::vector<std::string> list : example.tokens) {
    list.resize(static_cast<std::size_t>(std::min(std::ssize(list), options.tokens)));
    data["tokens"].push_back(std::move(list));
  }
  for (DrawnMap& map : maps) data["maps"].push_back(std::move(map.json));
  return "<div class=\"maps\">" +
         script_json(data.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace)) + "</div>\n" +
         table;
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
  return text.empty() ? "" : concat_text("<p class=\"muted\"><small>Shown: ", text, ".</small></p>\n");
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

std::string capture_html(const CaptureFile& capture, const DrawingOptions& options) {
  std::string html;
  std::vector<Example> examples = examples_of(capture.content());
  std::int64_t drawn = 0;
  bool has_maps = false;
  for (Example& example : examples) {
    const Answered* answered = answered_of(capture, example.name);
    const bool names_words = answered && !example.tokens.empty() && name_unknown(example, answered->line);
    const DrawingOptions fitting = fitting_options(example, options);
    std::vector<DrawnMap> maps;
    std::int64_t all_maps = 0;
    for (const Shown& shown : example.shown)
      if (is_map(shown) && ++all_maps <= fitting.layers) maps.push_back(drawn_map(example, shown, fitting));
    const std::string strips = strips_html(example, fitting);
    if (maps.empty() && strips.empty()) continue;
    if (drawn == options.examples) {
      html += concat_text("<p class=\"muted\"><small>", examples.size(), " texts were looked at; the first ",
                          drawn, " are shown.</small></p>\n");
      break;
    }
    ++drawn;
    html += "<section class=\"example\"><h3>" + html_text(title_of(example.name)) + "</h3>\n";
    if (answered) html += answered_html(*answered);
    if (names_words)
      html +=
          "<p class=\"muted\"><small>⟨word⟩: the vocabulary lacks this word, and the model reads &lt;unk&gt; "
          "in its place.</small></p>\n";
    if (!maps.empty()) html += maps_html(example, maps, fitting);
    has_maps = has_maps || !maps.empty();
    html += strips + left_out(example, all_maps, fitting) + "</section>\n";
  }
  return has_maps ? maps_note + html : html;
}

namespace {

/// What the given share of the values lies below; they are put into another order.
double quantile(std::vector<double>& values, double share) {
  const auto at =
      values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, at);
  return *at;
}

}  // namespace

std::string weight_histograms_html(const TensorFile& first, const TensorFile& last, std::size_t most_layers) {
  constexpr std::size_t bins = 40;
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
  std::vector<Chart> charts;
  std::vector<std::vector<std::string>> numbers = {
      {"layer", "median before", "median after", "99 % below, before", "99 % below, after"}};
  for (const std::string& layer : layers) {
    auto& [before, after] = weights[layer];
    if (before.empty() || after.empty() || charts.size() == most_layers) continue;
    std::vector<double> all = before;
    all.insert(all.end(), after.begin(), after.end());
    const double bin = quantile(all, 0.99) / static_cast<double>(bins);
    numbers.push_back({layer});
    for (const double share : {0.5, 0.99})
      for (std::vector<double>* values : {&before, &after})
        numbers.back().push_back(short_number(quantile(*values, share)));
    charts.push_back({ChartKind::bars, layer, "attention weight", "share of the weights", {}});
    for (const std::vector<double>* values : {&before, &after}) {
      std::vector<ChartPoint> points;
      for (std::size_t i = 0; i < bins; ++i) points.push_back({static_cast<double>(i) * bin, 0});
      for (const double value : *values)
        points[std::min(bins - 1, static_cast<std::size_t>(value / bin))].y +=
            1 / static_cast<double>(values->size());
      charts.back().series.push_back(
          {values == &before ? "before the first step" : "after the last step", points});
    }
  }
  if (charts.empty()) return "";
  return charts_html(charts, true) + details_html("The numbers", table_html(numbers)) +
         (charts.size() < layers.size() ? concat_text("<p class=\"muted\"><small>The first ", charts.size(),
                                                      " of ", layers.size(), " layers.</small></p>\n")
                                        : "");
}

}  // namespace heed
