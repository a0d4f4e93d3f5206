#include "heed/apps/data/exercises.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "heed/base/error.h"
#include "heed/core/random.h"

namespace heed {
namespace {

constexpr std::int64_t longest_motif = 3;

void say(Exercise& made, std::int64_t token, std::int64_t answer = -1) {
  made.tokens.push_back(static_cast<std::int32_t>(token));
  made.answers.push_back(static_cast<std::int32_t>(answer));
}

/// Returns `count` different numbers of [begin, end), in random order.
std::vector<std::int64_t> different(Draws& draws, std::int64_t begin, std::int64_t end, std::int64_t count) {
  std::vector<std::int64_t> found;
  std::unordered_set<std::int64_t> seen;
  while (std::ssize(found) < count) {
    const std::int64_t one = begin + draws.below(end - begin);
    if (seen.insert(one).second) found.push_back(one);
  }
  return found;
}

/// Draws `count` different gaps of 0 ... space - 1, gap g with the weight (g + 1)^-0.99: those with the
/// smallest -log(u) / weight (Efraimidis and Spirakis 2006).
std::vector<std::int64_t> near_gaps(Draws& draws, std::int64_t space, std::int64_t count) {
  std::vector<std::pair<double, std::int64_t>> drawn;
  for (std::int64_t gap = 0; gap < space; ++gap)
    drawn.emplace_back(-std::log(1 - draws.unit()) * std::pow(static_cast<double>(gap + 1), 0.99), gap);
  std::ranges::sort(drawn);
  std::vector<std::int64_t> gaps;
  for (std::int64_t i = 0; i < count; ++i) gaps.push_back(drawn[static_cast<std::size_t>(i)].second);
  return gaps;
}

Exercise associative_recall(const ExerciseOptions& options, Draws& draws) {
  const std::int64_t values_begin = options.vocabulary / 2, context = 2 * options.pairs;
  const auto keys = different(draws, 1, values_begin, options.pairs),
             values = different(draws, values_begin, options.vocabulary, options.pairs),
             gaps = near_gaps(draws, (options.length - context) / 2, options.pairs);
  Exercise made;
  for (std::size_t i = 0; i < keys.size(); ++i) say(made, keys[i]), say(made, values[i]);
  while (std::ssize(made.tokens) < options.length) say(made, draws.below(options.vocabulary));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto place = static_cast<std::size_t>(context + 2 * gaps[i]);
    made.tokens[place] = static_cast<std::int32_t>(keys[i]);
    made.answers[place] = static_cast<std::int32_t>(values[i]);
  }
  return made;
}

using Motif = std::vector<std::int64_t>;

/// Writes a key and its value. A key that was there before asks for the first token of its value, and each
/// token of the value for the next.
void say_pair(Exercise& made, const Motif& key, const Motif& value, bool asks) {
  for (const std::int64_t token : key) say(made, token);
  for (const std::int64_t token : value) {
    if (asks) made.answers.back() = static_cast<std::int32_t>(token);
    say(made, token);
  }
}

/// "recall" and its kinds: the first half of the vocabulary are keys, the second values. Keys of several
/// tokens seldom recur by chance: one is read at a random place and once more at the end.
Exercise in_context_recall(const ExerciseOptions& options, Draws& draws) {
  const bool fuzzy = options.rule == "fuzzy_recall", noisy = options.rule == "noisy_recall";
  const std::int64_t symbols = noisy ? options.vocabulary / 2 : options.vocabulary;
  const auto motif = [&](std::int64_t begin, std::int64_t end) {
    return different(draws, begin, end, fuzzy ? 1 + draws.below(longest_motif) : 1);
  };
  std::map<Motif, Motif> values;
  Exercise made;
  const auto pair = [&](const Motif& key) {
    const auto [found, is_new] = values.try_emplace(key);
    if (is_new) found->second = motif(symbols / 2, symbols);
    say_pair(made, key, found->second, !is_new);
  };
  const Motif probe = motif(0, symbols / 2);
  const std::int64_t room = options.length - (fuzzy ? 4 * longest_motif : 2),
                     place = draws.below(room - 2 * longest_motif);
  while (std::ssize(made.tokens) < room) {
    const bool is_probe = std::ssize(made.tokens) >= place && !values.contains(probe);
    if (noisy && !is_probe && draws.unit() < options.noise) {
      say(made, symbols + draws.below(options.vocabulary - symbols));
      say(made, symbols + draws.below(options.vocabulary - symbols));
    } else {
      pair(is_probe ? probe : motif(0, symbols / 2));
    }
  }
  pair(probe);
  made.tokens.pop_back(), made.answers.pop_back();  // the last token of the value is only asked for
  return made;
}

/// The last two tokens of the vocabulary are the blank and the mark.
Exercise selective_copying(const ExerciseOptions& options, Draws& draws) {
  const std::int64_t blank = options.vocabulary - 2, mark = options.vocabulary - 1,
                     read = options.length - options.pairs;
  std::vector<std::int64_t> places = different(draws, 0, read, options.pairs);
  std::ranges::sort(places);
  Exercise made;
  for (std::int64_t i = 0; i < read; ++i) say(made, blank);
  for (const std::int64_t place : places) {
    const std::int64_t token = draws.below(blank);
    made.tokens[static_cast<std::size_t>(place)] = static_cast<std::int32_t>(token);
    say(made, mark, token);
  }
  return made;
}

/// The last token of the vocabulary ends the sequence.
Exercise compression(const ExerciseOptions& options, Draws& draws) {
  const std::int64_t end = options.vocabulary - 1;
  Exercise made;
  for (std::int64_t i = 1; i < options.length; ++i) {
    const std::int64_t token = draws.below(end);
    say(made, token, token);
  }
  say(made, end);
  return made;
}

/// Key k has the value (7 k + 3) mod K among the K values; the last token of the vocabulary asks for it. All
/// seeds have the same values, and K is not a multiple of 7.
Exercise memorization(const ExerciseOptions& options, Draws& draws) {
  const std::int64_t mark = options.vocabulary - 1;
  std::int64_t keys = mark / 2;
  if (keys % 7 == 0) --keys;
  Exercise made;
  while (std::ssize(made.tokens) + 1 < options.length) {
    const std::int64_t key = draws.below(keys);
    say(made, key), say(made, mark, keys + (7 * key + 3) % keys);
  }
  return made;
}

using Permutation = std::array<std::int32_t, 5>;

/// All permutations of five in lexicographic order; the first changes nothing.
const std::vector<Permutation>& permutations() {
  static const std::vector<Permutation> all = [] {
    std::vector<Permutation> found;
    Permutation next = {0, 1, 2, 3, 4};
    do found.push_back(next);
    while (std::ranges::next_permutation(next).found);
    return found;
  }();
  return all;
}

/// Returns the number of the permutation that applies `first`, then `second`.
std::int64_t product(std::int64_t first, std::int64_t second) {
  const auto& all = permutations();
  Permutation result;
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = all[static_cast<std::size_t>(second)]
                   [static_cast<std::size_t>(all[static_cast<std::size_t>(first)][i])];
  return std::ranges::lower_bound(all, result) - all.begin();
}

Exercise state_tracking(const ExerciseOptions& options, Draws& draws) {
  Exercise made;
  for (std::int64_t i = 0, state = 0; i < options.length; ++i) {
    const std::int64_t token = draws.below(options.vocabulary);
    state = options.rule == "s5" ? product(state, token) : (state + token) % 2;
    say(made, token, state);
  }
  return made;
}

/// A rule, with the sizes that its paper gives it.
struct Rule {
  std::string_view name;
  std::int64_t vocabulary, length, pairs;
  Exercise (*draw)(const ExerciseOptions& options, Draws& draws);
};
constexpr Rule rules[] = {{"mqar", 8192, 0, 16, associative_recall},
                          {"recall", 16, 128, 0, in_context_recall},
                          {"noisy_recall", 32, 128, 0, in_context_recall},  // half of the tokens are noise
                          {"fuzzy_recall", 16, 128, 0, in_context_recall},
                          {"selective_copying", 16, 256, 16, selective_copying},
                          {"compression", 16, 32, 0, compression},
                          {"memorization", 256, 32, 0, memorization},
                          {"parity", 2, 32, 0, state_tracking},
                          {"s5", 120, 32, 0, state_tracking}};

const Rule& rule_named(std::string_view name) {
  const auto* const found = std::ranges::find(rules, name, &Rule::name);
  check(found != std::end(rules), "there is no rule of exercises \"", name, "\"");
  return *found;
}

}  // namespace

std::vector<std::string> exercise_rules() {
  std::vector<std::string> names;
  for (const Rule& rule : rules) names.emplace_back(rule.name);
  return names;
}

bool tracks_state(const ExerciseOptions& options) {
  return rule_named(options.rule).draw == state_tracking;
}

ExerciseOptions completed(ExerciseOptions options) {
  const Rule& usual = rule_named(options.rule);
  if (options.vocabulary == 0) options.vocabulary = usual.vocabulary;
  if (options.pairs == 0) options.pairs = usual.pairs;
  if (options.length == 0)
    options.length = usual.length > 0 ? usual.length : std::max<std::int64_t>(64, 4 * options.pairs);
  const auto at_least = [&](std::string_view what, std::int64_t value, std::int64_t least) {
    check(value >= least, "exercises of the rule ", options.rule, " need ", what, " of at least ", least,
          ", not ", value);
  };
  if (tracks_state(options)) {
    check(options.vocabulary == usual.vocabulary, "exercises of the rule ", options.rule,
          " have a vocabulary of ", usual.vocabulary, ", not ", options.vocabulary);
    return options;
  }
  const bool has_pairs = usual.pairs > 0, is_mqar = options.rule == "mqar";
  at_least("a vocabulary", options.vocabulary,
           is_mqar                 ? 2 * options.pairs + 2
           : usual.vocabulary > 16 ? 16
                                   : 8);
  at_least("a length", options.length, has_pairs ? (is_mqar ? 4 : 2) * options.pairs : 7 * longest_motif);
  return options;
}

Exercise draw_exercise(const ExerciseOptions& options, std::uint64_t seed, std::uint32_t index) {
  Draws draws({seed, index, 0});
  return rule_named(options.rule).draw(options, draws);
}

}  // namespace heed
