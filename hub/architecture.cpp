#include <array>

#include "heed/hub/architecture.h"
#include "heed/hub/config_reader.h"

// The list of published architectures.

namespace heed {

std::span<const Architecture* const> architectures() {
  static const std::array<const Architecture*, 3> all{&gpt2_architecture(), &bert_architecture(),
                                                      &marian_architecture()};
  return all;
}

const Architecture& architecture_of(const std::string& config, const std::map<std::string, Tensor>& tensors) {
  const std::string type = ConfigReader(config, "published").text("model_type", "");
  std::string known;
  for (const Architecture* one : architectures()) {
    if (one->model_type == type) return *one;
    known += concat_text(known.empty() ? "" : ", ", one->model_type);
  }
  std::string names;
  std::size_t shown = 0;
  for (const auto& [name, tensor] : tensors)
    if (shown++ < 5) names += concat_text(names.empty() ? "" : ", ", name);
  fail("config.json: the architecture (\"model_type\") is \"", type,
       "\", which heed does not know; it knows ", known, ". The names of its weights, unknown too: ", names,
       tensors.size() > 5 ? concat_text(" and ", tensors.size() - 5, " more") : "");
}

}  // namespace heed
