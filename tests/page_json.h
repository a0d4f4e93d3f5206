#pragma once

#include <nlohmann/json.hpp>

#include "heed/tests/support.h"

// The JSON from which pages are drawn (apps/report/report.h).

namespace heed::test {

/// Returns the JSON in a page.
inline nlohmann::json page_json(const std::string& page) {
  const std::string start = "<script type=\"application/json\" id=\"page\">";
  const std::size_t at = page.find(start);
  REQUIRE(at != std::string::npos);
  return nlohmann::json::parse(
      page.substr(at + start.size(), page.find("</script>", at) - at - start.size()));
}

/// Returns the section with this title; empty if there is none.
inline nlohmann::json section_of(const nlohmann::json& page, const std::string& title) {
  for (const nlohmann::json& section : page.at("sections"))
    if (section.value("title", "") == title) return section;
  return nlohmann::json::object();
}

/// Returns whether a list holds a value.
inline bool holds(const nlohmann::json& list, const nlohmann::json& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// Returns whether one of the examples has maps.
inline bool has_maps(const nlohmann::json& examples) {
  return std::any_of(examples.at("shown").begin(), examples.at("shown").end(),
                     [](const auto& one) { return !one.at("maps").empty(); });
}

}  // namespace heed::test
