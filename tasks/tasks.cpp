#include <vector>

#include "heed/core/nearest_name.h"
#include "heed/tasks/learner.h"

// The list of tasks, a line each: tasks/<name>.cpp defines <name>_task(). What trains, measures, opens or compares a task
// finds it here by its name.
// clang-format off
#define HEED_TASKS(task) \
  task(translate)        \
  task(summarize)        \
  task(converse)         \
  task(classify)         \
  task(match)            \
  task(embed_text)       \
  task(recommend)        \
  task(language_model)
// clang-format on

namespace heed {

#define HEED_DECLARE(name) const TaskKind& name##_task();
HEED_TASKS(HEED_DECLARE)
#undef HEED_DECLARE

std::span<const TaskKind* const> task_kinds() {
#define HEED_KIND(name) &name##_task(),
  static const std::vector<const TaskKind*> kinds{HEED_TASKS(HEED_KIND)};
#undef HEED_KIND
  return kinds;
}

const TaskKind& task_kind(std::string_view name) {
  std::vector<std::string> names;
  for (const TaskKind* kind : task_kinds()) {
    if (kind->name == name) return *kind;
    names.emplace_back(kind->name);
  }
  fail("there is no task '", name, "'", suggest_name(std::string(name), names));
}

}  // namespace heed
