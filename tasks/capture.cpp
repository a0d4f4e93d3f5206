#include "heed/tasks/capture.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/data/text_file.h"
#include "heed/models/loss.h"
#include "heed/tasks/data.h"
#include "heed/tasks/maps_script.h"
#include "heed/training/report.h"

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
  return page_head(title, capture_style()) + "<h1>" + title + "</h1>\n" + std::string(capture_note) +
         capture_html(content_) + std::string(page_end);
}

void CaptureFile::save(const std::filesystem::path& path, bool overwrite) const {
  if (path.extension() == ".html") return write_output(path, page(), overwrite);
  check_output(path, overwrite);
  save_safetensors(path, content_);
}

namespace {

constexpr std::string_view capture_page_style = R"page(
.example { margin-bottom: 2.2rem; } .example .text { max-width: none; }
.layer { display: flex; flex-wrap: wrap; align-items: center; gap: 0.2rem 0.8rem; margin: 0.35rem 0; } .layer .name { flex: 0 0 12rem; font-size: 0.85rem; color: var(--muted); overflow-wrap: anywhere; }
.heads { display: flex; flex-wrap: wrap; gap: 0.35rem; } .heads button { padding: 2px; border: 1px solid var(--line-soft); background: none; border-radius: 4px; cursor: pointer; line-height: 0; }
.heads button[aria-pressed] { border-color: rgb(var(--accent)); box-shadow: 0 0 0 1px rgb(var(--accent)); } canvas { image-rendering: pixelated; }
.chosen { font-size: 0.9rem; margin-top: 0.7rem; } .read { margin-left: 0.8rem; color: var(--muted); font-variant-numeric: tabular-nums; }
.cell { fill: rgb(var(--accent)); stroke: var(--line-soft); stroke-width: 0.5; } .cell.on { stroke: var(--ink); stroke-width: 1.5; } text.on { fill: var(--ink); font-weight: 600; }
.strip { display: flex; flex-wrap: wrap; align-items: baseline; gap: 0.15rem 0.8rem; margin: 0.3rem 0; font-size: 0.9rem; } .strip > .name { flex: 0 0 15rem; font-size: 0.8rem; color: var(--muted); overflow-wrap: anywhere; }
.strip > div { flex: 1 1 18rem; min-width: 0; line-height: 1.85; overflow-wrap: anywhere; } .t { padding: 0.12em 0.3em; margin-right: 0.15em; border-radius: 3px; white-space: pre-wrap; }
.k { background: hsl(var(--h) 62% 86%); } .w { background: rgb(var(--accent) / calc(0.65 * var(--w))); }
@media (prefers-color-scheme: dark) { .k { background: hsl(var(--h) 38% 27%); } }
@media (max-width: 40rem) { .layer .name, .strip > .name { flex-basis: 100%; } .read { display: block; margin-left: 0; } }
)page";

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

/// Weights [1, H, N, M] for the script: the first heads, rows and columns.
Json map_json(const Example& example, const Shown& shown, const DrawingOptions& options) {
  const std::int64_t rows = std::min(shown.value.size(2), options.tokens),
                     columns = std::min(shown.value.size(3), options.tokens);
  Json heads = Json::array();
  for (std::int64_t head = 0; head < std::min(shown.value.size(1), options.heads); ++head) {
    const Tensor part = slice(slice(shown.value, 1, head, head + 1), 2, 0, rows);
    const std::vector<double> weights = slice(part, 3, 0, columns).to_doubles();
    const double most = std::max(0.0, *std::ranges::max_element(weights));
    std::string cells;
    for (const double weight : weights)
      cells += static_cast<char>(most > 0 ? std::lround(std::clamp(weight / most, 0.0, 1.0) * 255) : 0);
    heads.push_back({{"most", most}, {"cells", base64(cells)}});
  }
  const std::string name = shown.kind == "weights" ? shown.layer : shown.layer + ", " + shown.kind;
  return {{"name", name},
          {"rows", rows},
          {"columns", columns},
          {"row_tokens", tokens_of(example, shown, shown.value.size(2), false)},
          {"column_tokens", tokens_of(example, shown, shown.value.size(3), true)},
          {"heads", std::move(heads)}};
}

// --- texts in colour

std::string token_text(const std::vector<std::string>& tokens, std::size_t i) {
  if (tokens.empty()) return std::to_string(i + 1);
  std::string text = tokens[i];
  replace_all(text, "\n", "\\n");
  return text.find_first_not_of(' ') == text.npos ? "\u2423" : html_text(text);
}

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
                        token_text(tokens, i), "</span>");
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
  const std::vector<std::string> tokens =
      list < 0 ? std::vector<std::string>() : example.tokens[static_cast<std::size_t>(list)];
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

std::string strips_html(const Example& example, const DrawingOptions& options) {
  std::map<std::string, std::vector<std::string>> strips;  // by kind
  for (const Shown& shown : example.shown)
    for (std::string& one : strips_of(example, shown, options))
      strips[kind_text(shown)].push_back(std::move(one));
  std::string html;
  for (const auto& [kind, list] : strips) {
    const std::int64_t most = std::min(std::ssize(list), 2 * options.heads);
    html += concat_text(
        "<h4>",
        kind == "weight" ? std::string("Weights of the tokens: the stronger the colour, the larger")
                         : concat_text("Tokens of one colour share a ", kind),
        most < std::ssize(list) ? concat_text(" (the first ", most, " of ", list.size(), ")") : "",
        "</h4>\n");
    for (const std::string& one : std::span(list).first(static_cast<std::size_t>(most))) html += one;
  }
  return html;
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

std::string_view capture_style() {
  return capture_page_style;
}

std::string capture_html(const TensorFile& capture, const DrawingOptions& options) {
  std::string html;
  Json data = Json::array();
  const std::vector<Example> examples = examples_of(capture);
  std::int64_t drawn = 0;
  for (const Example& example : examples) {
    Json maps = Json::array();
    std::int64_t all_maps = 0;
    for (const Shown& shown : example.shown)
      if (is_map(shown) && ++all_maps <= options.layers) maps.push_back(map_json(example, shown, options));
    const std::string strips = strips_html(example, options);
    if (maps.empty() && strips.empty()) continue;
    if (drawn == options.examples) {
      html += concat_text("<p class=\"muted\"><small>", examples.size(), " texts were looked at; the first ",
                          drawn, " are shown.</small></p>\n");
      break;
    }
    ++drawn;
    html += "<section class=\"example\"><h3>" + html_text(example.name) + "</h3>\n";
    if (const auto caption = options.captions.find(example.name); caption != options.captions.end())
      html += caption->second;
    Json tokens = Json::array();
    for (std::vector<std::string> list : example.tokens) {
      list.resize(static_cast<std::size_t>(std::min(std::ssize(list), options.tokens)));
      tokens.push_back(std::move(list));
    }
    if (!maps.empty()) {
      html += "<div class=\"maps\"></div>\n";
      data.push_back({{"tokens", std::move(tokens)}, {"maps", std::move(maps)}});
    }
    html += strips + left_out(example, all_maps, options) + "</section>\n";
  }
  if (data.empty()) return html;
  std::string json = data.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  replace_all(json, "</", "<\\/");  // nothing in a text may end the script
  return html.append(maps_script_begin).append(json).append(maps_script_end);
}

std::string weight_histograms_html(const TensorFile& first, const TensorFile& last, std::size_t most_layers) {
  constexpr std::size_t bins = 40;
  std::map<std::string, std::vector<std::vector<double>>> weights;  // of a layer: [first, last]
  std::vector<std::string> layers;                                  // in the order of the model
  for (const TensorFile* capture : {&first, &last})
    for (const Example& example : examples_of(*capture))
      for (const Shown& shown : example.shown) {
        if (!is_map(shown) || shown.kind != "weights") continue;
        const auto [place, is_new] = weights.emplace(shown.layer, std::vector<std::vector<double>>(2));
        if (is_new) layers.push_back(shown.layer);
        for (const double value : shown.value.to_doubles())
          if (value > 0) place->second[capture == &first ? 0 : 1].push_back(value);
      }
  std::string charts;
  std::size_t drawn = 0;
  for (const std::string& layer : layers) {
    std::vector<double> all = weights[layer][0];
    all.insert(all.end(), weights[layer][1].begin(), weights[layer][1].end());
    if (weights[layer][0].empty() || weights[layer][1].empty() || drawn == most_layers) continue;
    ++drawn;
    const auto high = all.begin() + static_cast<std::ptrdiff_t>(0.99 * static_cast<double>(all.size() - 1));
    std::ranges::nth_element(all, high);
    Histogram histogram{0, *high / static_cast<double>(bins), {"first step", "last step"}, {}};
    for (const std::vector<double>& values : weights[layer]) {
      std::vector<double> shares(bins, 0);
      for (const double value : values)
        shares[std::min(bins - 1, static_cast<std::size_t>(value / histogram.width))] +=
            1 / static_cast<double>(values.size());
      histogram.counts.push_back(std::move(shares));
    }
    charts += figure(layer, "", histogram_chart(layer, histogram));
  }
  if (charts.empty()) return "";
  const std::vector<ChartSeries> legend = {{"before the first step", {}}, {"after the last step", {}}};
  return chart_legend(legend) + "<div class=\"charts\">\n" + charts + "</div>\n" +
         (drawn < layers.size() ? concat_text("<p class=\"muted\"><small>The first ", drawn, " of ",
                                              layers.size(), " layers.</small></p>\n")
                                : "");
}

}  // namespace heed
