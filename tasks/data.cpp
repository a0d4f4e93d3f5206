#include "heed/tasks/data.h"

#include <cmath>

#include "heed/core/digest.h"

namespace heed {

void declare_long_texts(Settings& settings) {
  settings.integer("data.max_tokens", 256, 1, 1 << 24, "The most tokens of a text, its end mark included");
  settings.choice("data.long_texts", "error", {"error", "cut"},
                  "What becomes of a longer one: an error, or its beginning alone is read, and said");
  settings.text("tokenizer.begin", "", "A mark before every text, such as [CLS]; empty: none");
}

BoundedTokenizer::BoundedTokenizer(Tokenizer tokenizer, const Settings& settings)
    : tokenizer_(std::move(tokenizer)),
      max_tokens_(static_cast<std::size_t>(settings.get<std::int64_t>("data.max_tokens"))),
      cut_(settings.get<std::string>("data.long_texts") == "cut") {
  if (const auto mark = settings.get<std::string>("tokenizer.begin"); !mark.empty())
    begin_ = {tokenizer_.id_of(mark)};
}

Tokens BoundedTokenizer::operator()(std::string_view text) {
  Tokens tokens = tokens_with_end(tokenizer_, text);
  tokens.insert(tokens.begin(), begin_.begin(), begin_.end());
  return bounded(std::move(tokens));
}

Tokens BoundedTokenizer::bounded(Tokens tokens) {
  if (tokens.size() <= max_tokens_) return tokens;
  check(cut_, "the text has ", tokens.size(), " tokens, more than data.max_tokens = ", max_tokens_,
        "; raise that, or set data.long_texts=cut to read the beginning of such texts");
  ++cut_texts_;
  const std::int32_t end = tokens.back();
  tokens.resize(max_tokens_);
  tokens.back() = end;
  return tokens;
}

std::vector<Tokens> BoundedTokenizer::operator()(const TextList& texts, const TextPlaces& places) {
  std::vector<Tokens> all;
  all.reserve(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    try {
      all.push_back((*this)(texts[i]));
    } catch (Error& error) {
      error.add_context(places[i] + ": ");
      throw;
    }
  }
  return all;
}

std::string BoundedTokenizer::take_cut_message() {
  if (cut_texts_ == 0) return "";
  const std::string text = concat_text(cut_texts_, cut_texts_ == 1 ? " text is" : " texts are",
                                       " longer than data.max_tokens = ", max_tokens_, " and ",
                                       cut_texts_ == 1 ? "was" : "were", " cut");
  cut_texts_ = 0;
  return text;
}

Tokens tokens_with_end(const Tokenizer& tokenizer, std::string_view text) {
  Tokens tokens = tokenizer.encode(text);
  tokens.push_back(tokenizer.id_of("</s>"));
  return tokens;
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
}

std::vector<std::string> token_texts(const Tokenizer& tokenizer, std::span<const std::int32_t> tokens) {
  std::vector<std::string> texts;
  for (const std::int32_t token : tokens)
    texts.push_back(tokenizer.decode({&token, 1}, /*keep_special=*/true));
  return texts;
}

void add_text(Digest& digest, std::string_view text) {
  digest.add(std::to_string(text.size()) + ":");
  digest.add(text);
}

std::string digest_of_texts(std::initializer_list<const TextList*> lists) {
  Digest digest;
  for (const TextList* list : lists) {
    for (const std::string_view text : *list) add_text(digest, text);
    digest.add(";");
  }
  return digest.hex();
}

TextSource source_of(std::vector<const TextList*> lists) {
  return [lists = std::move(lists)](const std::function<void(std::string_view)>& take) {
    for (const TextList* list : lists)
      for (const std::string_view text : *list) take(text);
  };
}

BatchOptions training_batches(const Settings& settings) {
  BatchOptions options;
  options.max_tokens = settings.get<std::int64_t>("training.batch_tokens");
  options.max_length = settings.get<std::int64_t>("data.max_tokens");
  options.seed = static_cast<std::uint64_t>(settings.get<std::int64_t>("seed"));
  return options;
}

BatchOptions evaluation_batches(std::int64_t batch_size) {
  BatchOptions options;
  options.shuffle = false;
  options.max_tokens = 0;
  options.batch_size = batch_size;
  return options;
}

std::vector<std::int32_t> lengths_of(const std::vector<Tokens>& sequences, std::int32_t more) {
  std::vector<std::int32_t> lengths;
  lengths.reserve(sequences.size());
  for (const Tokens& tokens : sequences) lengths.push_back(static_cast<std::int32_t>(tokens.size()) + more);
  return lengths;
}

double rounded(double value) {
  return std::round(value * 1e4) / 1e4;
}

std::vector<std::string> short_lines(const TextList& texts, std::size_t count) {
  constexpr std::size_t looked_at = 500, best_bytes = 60;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < std::min(texts.size(), looked_at); ++i)
    if (!is_blank(texts[i])) order.push_back(i);
  const auto distance = [&](std::size_t i) {
    return texts[i].size() > best_bytes ? texts[i].size() - best_bytes : best_bytes - texts[i].size();
  };
  std::ranges::stable_sort(order, {}, distance);
  order.resize(std::min(order.size(), count));
  std::ranges::sort(order);
  std::vector<std::string> lines;
  for (const std::size_t i : order) lines.emplace_back(texts[i]);
  return lines;
}

}  // namespace heed
