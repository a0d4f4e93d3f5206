#include "heed/models/containers.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

namespace heed {

void Sequential::add(std::function<Tensor(const Tensor&)> function) {
  check(function != nullptr, described("Sequential"), ": step ", steps_.size(), " is an empty function");
  steps_.emplace_back([function = std::move(function)](const Tensor& x, Context&) { return function(x); });
}

Tensor Sequential::operator()(const Tensor& x, Context& context) const {
  Tensor result = x;
  for (const auto& step : steps_) result = step(result, context);
  return result;
}

Tensor Sequential::operator()(const Tensor& x) const {
  Context context = Context::inference();
  return (*this)(x, context);
}

std::string summary(Module& model) {
  const std::vector<NamedTensor> parameters = model.parameters(), buffers = model.buffers();
  std::size_t name_width = 4, shape_width = 5;
  for (const auto* list : {&parameters, &buffers}) {
    for (const NamedTensor& entry : *list) {
      name_width = std::max(name_width, entry.name.size());
      shape_width = std::max(shape_width, concat_text(entry.tensor->shape()).size());
    }
  }
  std::ostringstream text;
  const auto row = [&](const std::string& name, const std::string& shape, const auto& elements,
                       const char* note) {
    text << std::left << std::setw(static_cast<int>(name_width)) << name << "  "
         << std::setw(static_cast<int>(shape_width)) << shape << "  " << std::right << std::setw(12)
         << elements << note << '\n';
  };
  const auto rows = [&](const std::vector<NamedTensor>& list, const char* note) {
    std::int64_t total = 0;
    for (const NamedTensor& entry : list) {
      row(entry.name, concat_text(entry.tensor->shape()), entry.tensor->count(), note);
      total += entry.tensor->count();
    }
    return total;
  };
  row("name", "shape", "elements", "");
  const std::int64_t trained = rows(parameters, ""), kept = rows(buffers, "  buffer");
  text << trained << " parameters";
  if (!buffers.empty()) text << ", " << kept << " elements of buffers";
  text << '\n';
  return text.str();
}

}  // namespace heed
