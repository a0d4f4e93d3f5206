#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heed/core/error.h"

// Members of a JSON object from outside, with Json = nlohmann::json or ordered_json; `where` is its path in the file,
// for messages.

namespace heed::json_parts {

template <class Json>
bool is_null(const Json& object, const char* name) {
  return !object.contains(name) || object[name].is_null();
}

/// A member that must be there.
template <class Json>
const Json& member(const Json& object, const char* name, const std::string& where) {
  check(object.is_object(), where, " is ", object.type_name(), ", not an object");
  check(object.contains(name), where.empty() ? "" : where + ".", name, " is missing");
  return object[name];
}

template <class Json>
bool flag(const Json& object, const char* name, bool fallback, const std::string& where) {
  if (is_null(object, name)) return fallback;
  check(object[name].is_boolean(), where, ".", name, " is ", object[name].type_name(), ", not true or false");
  return object[name].template get<bool>();
}

template <class Json>
std::string text_of(const Json& value, const std::string& where) {
  check(value.is_string(), where, " is ", value.type_name(), ", not a string");
  return value.template get<std::string>();
}

template <class Json>
std::string text_in(const Json& object, const char* name, const std::string& where) {
  return text_of(member(object, name, where), where + "." + name);
}

template <class Json>
std::int32_t id_of(const Json& value, const std::string& where) {
  check(value.is_number_integer() && value >= 0 && value <= 0x7FFFFFFF, where, " is ",
        value.dump(-1, ' ', true), ", not a token id");
  return value.template get<std::int32_t>();
}

/// The tokens of an object token -> id, whose ids are 0 to its size - 1, each once.
template <class Json>
std::vector<std::string> tokens_by_id(const Json& vocabulary, const std::string& where) {
  check(vocabulary.is_object(), where, " is ", vocabulary.type_name(), ", not an object");
  std::vector<std::string> tokens(vocabulary.size());
  std::vector<bool> seen(vocabulary.size());
  for (const auto& [token, value] : vocabulary.items()) {
    const std::int32_t id = id_of(value, where + "[\"" + token + "\"]");
    const auto index = static_cast<std::size_t>(id);
    check(index < tokens.size(), where, ": token \"", token, "\" has id ", id, ", but a vocabulary of ",
          tokens.size(), " must use the ids 0 to ", tokens.size() - 1, ", each once");
    check(!seen[index], where, ": tokens \"", tokens[index], "\" and \"", token, "\" share the id ", id);
    seen[index] = true;
    tokens[index] = token;
  }
  return tokens;
}

/// A member that is a number from 0 to 2^63 - 1.
template <class Json>
std::int64_t count_in(const Json& object, const char* name) {
  const Json& value = object.at(name);
  check(value.is_number_integer(), "\"", name, "\" is ", value.dump(-1, ' ', true), ", not an integer");
  const bool is_large = value.is_number_unsigned() && value.template get<std::uint64_t>() > INT64_MAX;
  check(!is_large, "\"", name, "\" is too large");
  check(value.template get<std::int64_t>() >= 0, "\"", name, "\" is negative");
  return value.template get<std::int64_t>();
}

/// Calls visit(part, type) for a part, or for each one of a "Sequence", whose list is the member `list`.
template <class Json, class Visit>
void for_each_part(const Json& part, const char* list, const std::string& where, const Visit& visit) {
  const std::string type = text_in(part, "type", where);
  if (type != "Sequence") return visit(part, type);
  const Json& parts = member(part, list, where);
  check(parts.is_array(), where, ".", list, " is ", parts.type_name(), ", not a list");
  for (const Json& one : parts) for_each_part(one, list, where + "." + list + "[]", visit);
}

}  // namespace heed::json_parts
