#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

// What pages are drawn from (apps/report/report.h).

namespace heed::test {

/// The JSON in a page.
inline nlohmann::json page_json(const std::string& page) {
  const std::string start = "<script type=\"application/json\" id=\"page\">";
  const std::size_t at = page.find(start);
  REQUIRE(at != std::string::npos);
  return nlohmann::json::parse(
      page.substr(at + start.size(), page.find("</script>", at) - at - start.size()));
}

/// Its section of a title; empty where it has none.
inline nlohmann::json section_of(const nlohmann::json& page, const std::string& title) {
  for (const nlohmann::json& section : page.at("sections"))
    if (section.value("title", "") == title) return section;
  return nlohmann::json::object();
}

/// Whether a list holds a value.
inline bool holds(const nlohmann::json& list, const nlohmann::json& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// Whether one of the examples has maps.
inline bool has_maps(const nlohmann::json& examples) {
  return std::any_of(examples.at("shown").begin(), examples.at("shown").end(),
                     [](const auto& one) { return !one.at("maps").empty(); });
}

}  // namespace heed::test
