#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "heed/base/error.h"
#include "heed/core/tensor.h"

// Reading the config.json of published models, and comparing settings with what a layout can say.

namespace heed {

/// The members of a JSON object: of a config.json, with the model's name in errors, or settings of a run by
/// dotted names. Values to compare with are given as JSON, "true" or "\"post\"".
class ConfigReader {
 public:
  ConfigReader(const std::string& text, std::string model);

  std::int64_t integer(const char* name, std::int64_t low, std::int64_t high) const;
  double number(const char* name, double fallback) const;
  bool flag(const char* name, bool fallback) const;
  std::string text(const char* name, const std::string& fallback) const;
  bool has(const char* name) const;
  /// Throws unless the member is absent, or what is said.
  void expect(const char* name, std::string_view json) const;
  /// heed's name of an activation as `transformers` calls it; `fallback` is its default for the model.
  std::string activation(const char* name, const std::string& fallback) const;
  /// Throws unless the integer is the number of rows of a weight, where both are there.
  void check_rows(const char* name, const std::map<std::string, Tensor>& tensors,
                  const std::string& weight) const;
  /// Throws for a number of heads that does not divide the width.
  void check_heads(std::int64_t width, std::int64_t heads) const;

  struct Value;  // the parsed JSON

 private:
  std::shared_ptr<const Value> value_;
  std::string model_;
};

/// As `transformers` calls heed's activation.
std::string published_activation(const std::string& name);

/// Collects what a layout cannot say of a run.
class Misfits {
 public:
  explicit Misfits(const std::string& settings);
  /// The setting, where there is such, must have one of the values, given as JSON.
  void expect(const std::string& name, std::initializer_list<std::string_view> allowed);
  /// Layer normalisation, and feed-forward layers without a gate.
  void expect_classic_layers();
  void add(std::string text) { found_.push_back(std::move(text)); }
  /// Throws an Error with all of them, if any.
  void check_none(std::string_view layout) const;

 private:
  std::shared_ptr<const ConfigReader::Value> settings_;
  std::vector<std::string> found_;
};

}  // namespace heed
