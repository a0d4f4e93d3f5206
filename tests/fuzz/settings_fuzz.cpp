#include <cstddef>
#include <cstdint>
#include <string_view>

#include "heed/tasks/learner.h"

// The first byte chooses the task; the rest is laid over its settings as JSON, and the model is costed. Anything is
// refused with an Error or makes a model whose sizes are known.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto kinds = heed::task_kinds();
  const heed::TaskKind& kind = *kinds[data[0] % kinds.size()];
  try {
    heed::Settings settings = kind.settings(data[0] >= 128);
    settings.merge({reinterpret_cast<const char*>(data) + 1, size - 1}, "input");
    kind.make(settings)->check_settings();
  } catch (const heed::Error&) {
  }
  return 0;
}
