#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

/// metrics.jsonl without what the clock and the memory of a process say.
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
