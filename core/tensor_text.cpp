// Prints a tensor as text, in nested brackets as NumPy prints arrays.

#include <cmath>
#include <iomanip>
#include <limits>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "heed/base/plain_numbers.h"
#include "heed/core/backend.h"
#include "heed/core/tensor.h"

namespace heed {

namespace {

constexpr std::int64_t most_printed = 1000;  // elements; larger tensors are summarised
constexpr std::int64_t edge = 3;             // elements shown at each end of a summarised axis
constexpr int decimals = 4;

/// A range of an axis that is shown, at one of its ends.
struct Part {
  std::int64_t from, to, count;  ///< first index in the tensor, first index in the output, length
};

std::vector<Part> parts_of(std::int64_t extent) {
  if (extent <= 2 * edge) return {{0, 0, extent}};
  return {{0, 0, edge}, {extent - edge, edge, edge}};
}

std::int64_t element_offset(const Tensor& x, const std::vector<Part>& corner, bool from) {
  std::int64_t offset = x.offset();
  for (int i = 0; i < x.rank(); ++i)
    offset += x.strides()[i] *
              (from ? corner[static_cast<std::size_t>(i)].from : corner[static_cast<std::size_t>(i)].to);
  return offset;
}

void copy_corners(const Tensor& x, const Tensor& shown, std::vector<Part>& corner) {
  const auto axis = static_cast<int>(corner.size());
  if (axis < x.rank()) {
    for (const Part& part : parts_of(x.size(axis))) {
      corner.push_back(part);
      copy_corners(x, shown, corner);
      corner.pop_back();
    }
    return;
  }
  Shape shape;
  for (const Part& part : corner) shape.push_back(part.count);
  backend_of(x).copy(x.view(shape, x.strides(), element_offset(x, corner, true)),
                     shown.view(shape, shown.strides(), element_offset(shown, corner, false)));
}

/// The first and last elements of each axis, gathered on the device so that only these are downloaded.
Tensor corners(const Tensor& x) {
  Shape shape;
  for (const std::int64_t extent : x.shape()) shape.push_back(std::min(extent, 2 * edge));
  const Tensor shown = Tensor::empty(shape, x.dtype(), x.device());
  std::vector<Part> corner;
  copy_corners(x, shown, corner);
  return shown;
}

/// The number format shared by all elements of a tensor, so that they line up in columns.
class Format {
 public:
  Format(const std::vector<double>& values, DType dtype) : integers_(!is_floating(dtype)) {
    double largest = 0, smallest = std::numeric_limits<double>::infinity();
    bool fractions = false;
    for (const double value : values) {
      if (!std::isfinite(value)) continue;
      largest = std::max(largest, std::abs(value));
      if (value != 0) smallest = std::min(smallest, std::abs(value));
      fractions = fractions || value != std::floor(value);
    }
    scientific_ =
        !integers_ && (largest >= 1e8 || (fractions && (smallest < 1e-4 || largest / smallest > 1e8)));
    if (fractions || scientific_) decimals_ = decimals;
    while (decimals_ > 0 && !scientific_ && drop_last_digit(values)) --decimals_;
    for (const double value : values) width_ = std::max(width_, text_of(value).size());
  }

  std::string operator()(double value) const {
    const std::string text = text_of(value);
    return std::string(width_ - text.size(), ' ') + text;
  }

 private:
  /// True when every number, as printed, ends in 0.
  bool drop_last_digit(const std::vector<double>& values) const {
    for (const double value : values)
      if (std::isfinite(value) && text_of(value).back() != '0') return false;
    return true;
  }

  std::string text_of(double value) const {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
    PlainStream text;
    text << (scientific_ ? std::scientific : std::fixed) << std::setprecision(decimals_) << value;
    if (!integers_ && decimals_ == 0) text << '.';
    return text.str();
  }

  bool integers_, scientific_ = false;
  int decimals_ = 0;
  std::size_t width_ = 0;
};

/// Writes `axis` and those after it with their brackets; `at` is the index of the next element.
void write(std::ostream& out, const Tensor& x, const Shape& shown, const std::vector<double>& values,
           const Format& format, int axis, std::size_t& at) {
  if (axis == x.rank()) {
    out << format(values[at++]);
    return;
  }
  out << '[';
  const bool innermost = axis + 1 == x.rank();
  const auto separate = [&] {
    out << ',';
    if (innermost) {
      out << ' ';
      return;
    }
    for (int i = axis + 1; i < x.rank(); ++i) out << '\n';
    out << std::string(static_cast<std::size_t>(axis) + 1, ' ');
  };
  for (std::int64_t i = 0; i < shown[axis]; ++i) {
    if (i > 0) separate();
    if (i == edge && shown[axis] < x.size(axis)) {
      out << "...";
      separate();
    }
    write(out, x, shown, values, format, axis + 1, at);
  }
  out << ']';
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& x) {
  if (!x.defined()) return out << "undefined";
  const Tensor shown = x.count() > most_printed ? corners(x.detach()) : x.detach();
  const std::vector<double> values = shown.to_doubles();
  const Format format(values, x.dtype());
  std::size_t at = 0;
  PlainStream text;  // unaffected by the width, base and flags of `out`
  if (x.count() == 0)
    text << "[]";
  else
    write(text, x, shown.shape(), values, format, 0, at);
  return out << text.str() << ' ' << concat_text(x.dtype(), ' ', x.shape())
             << (x.device() == Device{} ? "" : " ") << (x.device() == Device{} ? "" : name_of(x.device()));
}

}  // namespace heed
