#pragma once

#include <nlohmann/json.hpp>

#include "heed/tests/support.h"

namespace heed::test {

inline std::vector<nlohmann::json> json_lines(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

/// Returns metrics.jsonl without times and memory of the process.
inline std::string records_of(const std::filesystem::path& run) {
  std::ifstream file(run / "metrics.jsonl");
  std::string text;
  for (std::string line; std::getline(file, line);) {
    auto record = nlohmann::ordered_json::parse(line);
    record.erase("elapsed_seconds");
    record.erase("tokens_per_second");
    record.erase("memory_bytes");
    text += record.dump() + "\n";
  }
  return text;
}

}  // namespace heed::test
