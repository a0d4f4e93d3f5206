#include "compare.h"

#include <cmath>
#include <limits>

#include "heed/base/error.h"
#include "reference_case.h"

namespace heed::verify {
Tolerances Tolerances::suggested(DType dtype) {
  if (dtype == DType::f64) return {{1e-9, 1e-9}, {1e-9, 1e-9}};
  return {{1e-5, 1e-4}, {1e-4, 1e-3}};
}

double Deviation::badness() const {
  if (!problem.empty() || std::isnan(error)) return std::numeric_limits<double>::infinity();
  return allowed > 0 ? error / allowed : error > 0 ? std::numeric_limits<double>::infinity() : 0;
}

Deviation compare(const std::string& name, const Tensor& ours, const Tensor& reference, Tolerance tolerance) {
  Deviation worst{name, 0, tolerance.absolute, {}};
  if (!ours.defined()) {
    worst.problem = "was not computed";
    return worst;
  }
  if (!(ours.shape() == reference.shape())) {
    worst.problem = concat_text("has shape ", ours.shape(), " instead of ", reference.shape());
    return worst;
  }
  const std::vector<double> values = ours.to_doubles(), expected = reference.to_doubles();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Deviation here{name,
                         std::abs(values[i] - expected[i]),
                         tolerance.absolute + tolerance.relative * std::abs(expected[i]),
                         {}};
    if (i == 0 || here.badness() > worst.badness()) worst = here;
  }
  return worst;
}

Deviation compare_exactly(const std::string& name, const Tensor& ours, const Tensor& reference) {
  return compare(name, ours, reference, {0, 0});
}

}  // namespace heed::verify
