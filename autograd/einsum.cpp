// Einstein summation: the equation is parsed into labels, and each pair of operands becomes one matrix
// product of [batch, left, shared] and [batch, shared, right].

#include <algorithm>
#include <string>
#include <vector>

#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"

namespace heed {

namespace {

/// A tensor and the letters of its axes, all different.
struct Term {
  Tensor value;
  std::string labels;

  std::int64_t extent(char label) const { return value.size(static_cast<int>(labels.find(label))); }
};

/// "..." is one label until the operands are known (with_axes), then a digit for each of its axes.
constexpr char ellipsis = '.';

struct Equation {
  std::vector<std::string> operands;
  std::string result;
};

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool contains(const std::string& labels, char label) {
  return labels.find(label) != std::string::npos;
}

/// "..." where an operand has it, then the letters that occur exactly once in all operands together, in
/// alphabetical order.
std::string implied_result(const std::vector<std::string>& operands) {
  std::string all, result;
  for (const std::string& labels : operands) all += labels;
  for (const char label : all)
    if (is_letter(label) && std::count(all.begin(), all.end(), label) == 1) result += label;
  std::sort(result.begin(), result.end());
  return contains(all, ellipsis) ? ellipsis + result : result;
}

/// Labels as the equation writes them.
std::string written(std::string labels) {
  const std::size_t at = labels.find(ellipsis);
  return at == std::string::npos ? labels : labels.replace(at, 1, "...");
}

Equation read(std::string_view text) {
  Equation equation{{""}, ""};
  bool in_result = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ') continue;
    if (c == '-' && i + 1 < text.size() && text[i + 1] == '>' && !in_result) {
      in_result = true;
      ++i;
    } else if (c == ',' && !in_result) {
      equation.operands.emplace_back();
    } else {
      const bool dots = text.substr(i).starts_with("...");
      check(is_letter(c) || dots, "einsum: '", text, "': a letter, '...', ',' or '->' was expected at '",
            text.substr(i), "'");
      if (dots) i += 2;
      (in_result ? equation.result : equation.operands.back()) += c;
    }
  }
  if (!in_result) equation.result = implied_result(equation.operands);
  for (const char label : equation.result) {
    check(std::count(equation.result.begin(), equation.result.end(), label) == 1, "einsum: '", text,
          "': the result names '", written({label}), "' twice");
    const auto has = [&](const std::string& labels) { return contains(labels, label); };
    check(std::any_of(equation.operands.begin(), equation.operands.end(), has), "einsum: '", text,
          "': the result names '", written({label}), "', which no operand has");
  }
  for (const std::string& labels : equation.operands) {
    const auto dots = std::count(labels.begin(), labels.end(), ellipsis);
    check(dots <= 1, "einsum: '", text, "': an operand has '...' twice");
    check(dots == 0 || contains(equation.result, ellipsis), "einsum: '", text,
          "': the result lacks the '...' that an operand has");
  }
  return equation;
}

/// Returns the labels with one for each of the `count` axes of "..."; the last of them is '0', as
/// broadcasting aligns them.
std::string with_axes(std::string labels, std::int64_t count) {
  const std::size_t at = labels.find(ellipsis);
  if (at == std::string::npos) return labels;
  std::string axes;
  for (std::int64_t i = count; i > 0; --i) axes += static_cast<char>('0' + i - 1);
  return labels.replace(at, 1, axes);
}

/// Takes the diagonal of axes that share a letter.
Term take_diagonals(Term term) {
  for (std::size_t first = 0; first < term.labels.size(); ++first) {
    for (std::size_t second;
         (second = term.labels.find(term.labels[first], first + 1)) != std::string::npos;) {
      const Tensor& x = term.value;
      const int a = static_cast<int>(first), b = static_cast<int>(second);
      Shape along_a, along_b;
      for (int i = 0; i < x.rank(); ++i) {
        along_a.push_back(i == a ? x.size(a) : 1);
        along_b.push_back(i == b ? x.size(b) : 1);
      }
      const Tensor places = Tensor::arange(x.size(a), DType::i32, x.device());
      const Tensor on_diagonal = equal(places.view(along_a), places.view(along_b));
      term.value = sum(where(on_diagonal, x, 0), b);
      term.labels.erase(second, 1);
    }
  }
  return term;
}

/// Sums over the axes whose letters are not in `keep`.
Term summed(const Term& term, const std::string& keep) {
  std::vector<int> axes;
  std::string labels;
  for (std::size_t i = 0; i < term.labels.size(); ++i)
    if (contains(keep, term.labels[i]))
      labels += term.labels[i];
    else
      axes.push_back(static_cast<int>(i));
  return {axes.empty() ? term.value : sum(term.value, axes), labels};
}

Tensor in_order(const Term& term, const std::string& labels) {
  Shape order;
  for (const char label : labels) order.push_back(static_cast<std::int64_t>(term.labels.find(label)));
  return permute(term.value, order);
}

std::int64_t elements(const Term& term, const std::string& labels) {
  std::int64_t count = 1;
  for (const char label : labels) count *= term.extent(label);
  return count;
}

/// Contracts two terms by one product. Letters that both have stay when they are in `keep` and are summed
/// otherwise.
Term contracted(const Term& a, const Term& b, const std::string& keep) {
  std::string batch, shared, left, right;
  for (const char label : a.labels)
    (!contains(b.labels, label) ? left : contains(keep, label) ? batch : shared) += label;
  for (const char label : b.labels)
    if (!contains(a.labels, label)) right += label;
  const std::int64_t batches = elements(a, batch), terms = elements(a, shared);
  const Tensor rows = reshape(in_order(a, batch + left + shared), {batches, elements(a, left), terms});
  const Tensor columns = reshape(in_order(b, batch + shared + right), {batches, terms, elements(b, right)});
  Shape shape;
  for (const char label : batch + left) shape.push_back(a.extent(label));
  for (const char label : right) shape.push_back(b.extent(label));
  return {reshape(matmul(rows, columns), shape), batch + left + right};
}

/// The operands with their labels; "..." becomes axes in the result, too.
std::vector<Term> parse_terms(std::string_view text, Equation& equation, std::span<const Tensor> operands) {
  check(operands.size() == equation.operands.size(), "einsum: '", text, "' has ", equation.operands.size(),
        " operands, but ", operands.size(), " are given");
  std::vector<Term> terms;
  std::int64_t most = 0;  // axes of "..."
  for (std::size_t i = 0; i < operands.size(); ++i) {
    check_same("einsum", operands[0], operands[i]);
    check_floating("einsum", operands[i]);
    const std::string& labels = equation.operands[i];
    const bool dots = contains(labels, ellipsis);
    const std::int64_t others =
        operands[i].rank() - static_cast<std::int64_t>(labels.size()) + (dots ? 1 : 0);
    check(others == 0 || (dots && others > 0), "einsum: '", text, "': operand ", i, " '", written(labels),
          "' does not fit shape ", operands[i].shape());
    most = std::max(most, others);
    terms.push_back({operands[i], with_axes(labels, others)});
  }
  equation.result = with_axes(equation.result, most);
  std::string seen;
  std::vector<std::int64_t> extents;
  for (const Term& term : terms) {
    for (std::size_t i = 0; i < term.labels.size(); ++i) {
      const std::size_t at = seen.find(term.labels[i]);
      const std::int64_t extent = term.value.size(static_cast<int>(i));
      if (at == std::string::npos) {
        seen += term.labels[i];
        extents.push_back(extent);
        continue;
      }
      const bool broadcasts = !is_letter(term.labels[i]) && (extent == 1 || extents[at] == 1);
      check(extents[at] == extent || broadcasts, "einsum: '", text, "': axis '",
            is_letter(term.labels[i]) ? std::string(1, term.labels[i]) : "...", "' has extent ", extents[at],
            " and ", extent);
      if (extents[at] == 1) extents[at] = extent;
    }
  }
  for (Term& term : terms)  // an axis that is stretched counts as one that the operand does not have
    for (std::size_t i = term.labels.size(); i-- > 0;) {
      const auto axis = static_cast<int>(i);
      if (term.value.size(axis) != 1 || extents[seen.find(term.labels[i])] == 1) continue;
      term.value = squeeze(term.value, axis);
      term.labels.erase(i, 1);
    }
  return terms;
}

}  // namespace

Tensor einsum(std::string_view equation, std::span<const Tensor> operands) {
  Equation parsed = read(equation);
  std::vector<Term> terms = parse_terms(equation, parsed, operands);
  for (Term& term : terms) term = take_diagonals(std::move(term));
  Term result;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    std::string needed = parsed.result;  // letters of the result and of the remaining operands
    for (std::size_t j = i + 1; j < terms.size(); ++j) needed += terms[j].labels;
    if (i == 0)
      result = summed(terms[0], needed);
    else
      result = contracted(result, summed(terms[i], needed + result.labels), needed);
    result = summed(result, needed);
  }
  return in_order(result, parsed.result);
}

Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands) {
  return einsum(equation, std::span(operands.begin(), operands.size()));
}

}  // namespace heed
