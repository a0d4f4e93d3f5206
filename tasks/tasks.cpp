#include <vector>

#include "heed/core/nearest_name.h"
#include "heed/tasks/classify.h"
#include "heed/tasks/converse.h"
#include "heed/tasks/embed_text.h"
#include "heed/tasks/language_model.h"
#include "heed/tasks/match.h"
#include "heed/tasks/recommend.h"
#include "heed/tasks/summarize.h"
#include "heed/tasks/translate.h"

// The list of tasks. What trains, measures, opens or compares a task finds it here by its name.

namespace heed {

std::span<const TaskKind* const> task_kinds() {
  static const std::vector<const TaskKind*> kinds{
      &translate_task(), &summarize_task(),  &converse_task(),  &classify_task(),
      &match_task(),     &embed_text_task(), &recommend_task(), &language_model_task(),
  };
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
