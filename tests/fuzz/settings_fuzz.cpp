#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "heed/tasks/learner.h"

// The first byte chooses the task; the rest is laid over its settings as JSON, and the model is costed.
// Anything is refused with an Error or makes a model whose sizes are known.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const std::vector<heed::Settings> declared = [] {  // slow to declare
    std::vector<heed::Settings> all;
    for (const heed::TaskKind* kind : heed::task_kinds())
      for (const bool own_data : {false, true}) all.push_back(kind->settings(own_data));
    return all;
  }();
  const auto kinds = heed::task_kinds();
  const std::size_t which = data[0] % kinds.size();
  const heed::TaskKind& kind = *kinds[which];
  heed::Settings settings = declared[2 * which + (data[0] >= 128 ? 1 : 0)];
  try {
    settings.merge({reinterpret_cast<const char*>(data) + 1, size - 1}, "input");
    kind.make(settings)->check_settings();
  } catch (const heed::Error&) {
  }
  return 0;
}
