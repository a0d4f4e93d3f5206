#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace heed::programs {

/// What `evaluate` found, for people: a line for each figure, then of classes a table of precision, recall
/// and F1, and the confusion matrix. Where that is wider than `columns`, the most frequent confusions stand
/// in its place. `found` is the object that evaluate prints for programs.
std::string evaluation_table(const nlohmann::ordered_json& found, int columns);

}  // namespace heed::programs
