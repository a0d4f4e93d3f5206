#include "heed/base/names.h"

#include <algorithm>
#include <array>

namespace heed {

/// Names that other programs use for a setting.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> other_names = {
    {{"lr", "learning_rate"},
     {"batch_size", "batch_tokens"},
     {"hidden_size", "width"},
     {"d_model", "width"},
     {"num_layers", "layers"},
     {"num_heads", "heads"},
     {"num_epochs", "epochs"},
     {"vocab_size", "vocabulary"}}};

/// "learning_rate" of "training.schedule.learning_rate".
static std::string last_word(std::string_view name) {
  std::string word(name.substr(name.find_last_of('.') + 1));
  word.erase(0, word.find_first_not_of('-'));
  std::ranges::replace(word, '-', '_');
  return word;
}

/// Returns the first candidate whose last word is that of `name`, or ends in it; "" when there is
/// none.
static std::string same_last_word(std::string_view name, std::span<const std::string> candidates) {
  std::string word = last_word(name);
  for (const auto& [other, ours] : other_names)
    if (other == word) word = ours;
  const auto find = [&](auto fits) -> std::string {
    const auto found = std::ranges::find_if(candidates, fits, last_word);
    return found == candidates.end() ? "" : *found;
  };
  const std::string same = find([&](const std::string& other) { return other == word; });
  return same.empty() ? find([&](const std::string& other) { return other.ends_with("_" + word); }) : same;
}

// The "optimal string alignment" distance. Only three rows of its table are kept.
int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  constexpr int slip = 2;  // letters; a name that differs more is better found by its last word
  // A third of the letters may differ: beyond that a suggestion misleads more than it helps.
  int allowed = std::max(2, static_cast<int>(name.size()) / 3) + 1;
  std::string best;
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(name, candidate);
    const bool anything_kept = distance < static_cast<int>(std::max(name.size(), candidate.size()));
    if (distance < allowed && anything_kept) {
      allowed = distance;
      best = candidate;
    }
  }
  if (!best.empty() && allowed <= slip) return best;
  const std::string same = same_last_word(name, candidates);
  return same.empty() ? best : same;
}

std::string suggest_name(std::string_view name, std::span<const std::string> candidates) {
  if (candidates.empty()) return "; none are known here";
  if (const std::string nearest = nearest_name(name, candidates); !nearest.empty())
    return "; did you mean '" + nearest + "'?";
  return "; known are " + listed(candidates);
}

std::string listed(std::span<const std::string> names, std::size_t most) {
  std::string text;
  const std::size_t shown = std::min(names.size(), most);
  for (std::size_t i = 0; i < shown; ++i) text += (i == 0 ? "" : ", ") + names[i];
  return shown < names.size() ? concat_text(text, " and ", names.size() - shown, " more") : text;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + separator.size());
    if (text.empty()) parts.emplace_back();
  }
  return parts;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::string replaced;
  for (std::size_t at = 0, found = 0; at < text.size(); at = found + from.size()) {
    found = std::min(text.find(from, at), text.size());
    replaced.append(text, at, found - at);
    if (found < text.size()) replaced.append(to);
  }
  text = std::move(replaced);
}

}  // namespace heed
