#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "heed/base/digest.h"
#include "heed/base/error.h"
#include "heed/base/plain_arithmetic.h"

namespace heed {

/// Builds a JSON value from the events of Json::sax_parse, in linear time. Json::parse takes
/// quadratic time for large objects: an ordered_json compares each new member with all members
/// before it, and a parser with a callback visits all siblings after each object.
///
/// Nesting of `limit` levels or more is refused, since later walks over the value are recursive,
/// for example to print it in an error. Repeated members are refused if `refuses_repeated`;
/// otherwise the last one counts, as in other parsers.
template <class Json>
class JsonBuilder {
 public:
  JsonBuilder(std::string_view source, int limit, bool refuses_repeated)
      : source_(source), limit_(static_cast<std::size_t>(limit)), refuses_repeated_(refuses_repeated) {}
  Json take() { return std::move(root_); }

  bool null() { return add(Json(nullptr)); }
  bool boolean(bool value) { return add(Json(value)); }
  bool number_integer(typename Json::number_integer_t value) { return add(Json(value)); }
  bool number_unsigned(typename Json::number_unsigned_t value) { return add(Json(value)); }
  bool number_float(typename Json::number_float_t value, const std::string&) { return add(Json(value)); }
  bool string(std::string& value) { return add(Json(std::move(value))); }
  bool binary(typename Json::binary_t& value) { return add(Json(std::move(value))); }
  bool start_object(std::size_t) { return open(Json::object()); }
  bool key(const std::string& name) {
    Open& at = open_.back();
    const auto [known, is_new] = at.members.try_emplace(name, at.members.size());
    check(is_new || !refuses_repeated_, source_, ": the member ", Json(name).dump(-1, ' ', true),
          " occurs twice in an object");
    auto& members = at.value->template get_ref<typename Json::object_t&>();
    if constexpr (requires { members.reserve(1); }) {  // ordered: a vector, whose own emplace() would search
      using Member = typename Json::object_t::value_type;
      std::vector<Member, typename Json::object_t::allocator_type>& list = members;
      if (is_new) list.emplace_back(name, nullptr);
      next_ = &list[known->second].second;
    } else {
      next_ = &members[name];
    }
    return true;
  }
  bool end_object() { return close(); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_array() { return close(); }
  template <class Failure>
  [[noreturn]] bool parse_error(std::size_t, const std::string&, const Failure& failure) {
    throw failure;
  }

 private:
  struct Open {
    Json* value;
    std::unordered_map<std::string, std::size_t> members;  // their places
  };

  Json* put(Json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    if (open_.back().value->is_object()) return &(*next_ = std::move(value));
    open_.back().value->push_back(std::move(value));
    return &open_.back().value->back();
  }
  bool add(Json value) { return put(std::move(value)) != nullptr; }
  bool open(Json empty) {
    check(open_.size() < limit_, source_, " is nested too deeply: ", limit_, " levels or more");
    open_.push_back({put(std::move(empty)), {}});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view source_;
  std::size_t limit_;
  bool refuses_repeated_;
  Json root_;
  std::vector<Open> open_;  // from the root inwards
  Json* next_ = nullptr;    // the member whose name was read
};

/// Implements parse_json() and parse_written_json().
template <class Json>
Json parse_json_in_linear_time(std::string_view text, std::string_view source, int depth,
                               bool refuses_repeated) {
  const std::size_t nul = text.find('\0');  // which may hide the rest of the text from a parser
  check(nul == std::string_view::npos, source, " is not valid JSON: byte ", nul, " of ", text.size(),
        " is a NUL");
  const PlainArithmetic plain;  // numbers are read by strtod
  JsonBuilder<Json> builder(source, depth, refuses_repeated);
  try {
    Json::sax_parse(text, &builder);
  } catch (const typename Json::exception& error) {
    fail(source, " is not valid JSON: ", error.what());
  }
  return builder.take();
}

/// Parses JSON with `Json` = nlohmann::json or ordered_json. Throws an Error that begins with
/// `source` for text that is not JSON, is nested `depth` levels deep or deeper, or holds a NUL.
template <class Json>
Json parse_json(std::string_view text, std::string_view source, int depth = 64) {
  return parse_json_in_linear_time<Json>(text, source, depth, false);
}

/// Parses JSON written by people: as parse_json(), but an object must not name a member twice.
template <class Json>
Json parse_written_json(std::string_view text, std::string_view source, int depth = 64) {
  return parse_json_in_linear_time<Json>(text, source, depth, true);
}

/// A value as one line of JSON; bytes that are not UTF-8 become U+FFFD.
template <class Json>
std::string dumped(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Encodes bytes as text that JSON can hold (base64: RFC 4648, section 4).
inline std::string base64(std::string_view bytes) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 3; ++k)
      word = word << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k) text += k <= count ? digits[word >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

/// Appends a member "digest" to a JSON object: the digest of all other members.
template <class Json>
void add_digest(Json& object) {
  object["digest"] = compute_digest(object.dump());
}

/// Removes the member "digest"; returns false when it does not match the other members.
template <class Json>
bool remove_matching_digest(Json& object) {
  const std::string digest = object.value("digest", "");
  object.erase("digest");
  return digest == compute_digest(object.dump());
}

/// Returns the indented text of an object with its digest added. Throws an Error, `failure`, for
/// names that are not UTF-8.
template <class Json>
std::string text_with_digest(Json object, std::string_view failure) {
  try {
    add_digest(object);
    return object.dump(2) + "\n";
  } catch (const typename Json::exception&) {
    fail(failure);
  }
}

/// Parses text made by text_with_digest() and returns read(object). Throws an Error that begins
/// with `source` unless the object has this "format" and "format_version". Unless `hint` is null,
/// its digest must match too; the hint ends that message.
template <class Json, class Read>
auto read_heed_json(std::string_view text, std::string_view source, const char* format, int version,
                    const char* hint, const Read& read) {
  try {
    Json object = parse_json<Json>(text, "it", 4);
    check(object.is_object() && object.value("format", Json()) == format, "it has no \"format\": \"", format,
          "\"");
    check(object.at("format_version") == version, "its format_version is ",
          object.at("format_version").dump(), ", and this version of heed reads ", version);
    check(remove_matching_digest(object) || hint == nullptr, "it was changed after it was written", hint);
    return read(std::as_const(object));
  } catch (const typename Json::exception& error) {
    fail(source, " is damaged or was not written by heed: ", error.what());
  } catch (const Error& error) {
    fail(source, " is damaged or was not written by heed: ", error.what());
  }
}

}  // namespace heed

// Reads members of a JSON object from outside, with Json = nlohmann::json or ordered_json. `where` is the
// object's path in the file, for messages.

namespace heed::json_parts {

template <class Json>
bool is_null(const Json& object, const char* name) {
  return !object.contains(name) || object[name].is_null();
}

/// Returns the member `name`; throws an Error when it is missing.
template <class Json>
const Json& member(const Json& object, const char* name, std::string_view where) {
  check(object.is_object(), where, " is ", object.type_name(), ", not an object");
  check(object.contains(name), where, where.empty() ? "" : ".", name, " is missing");
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

/// Returns the tokens of an object token -> id, by id. The ids must be 0 to size - 1, each once.
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

/// Returns a member that must be an integer from 0 to 2^63 - 1.
template <class Json>
std::int64_t count_in(const Json& object, const char* name) {
  const Json& value = object.at(name);
  check(value.is_number_integer(), "\"", name, "\" is ", value.dump(-1, ' ', true), ", not an integer");
  const bool is_large = value.is_number_unsigned() && value.template get<std::uint64_t>() > INT64_MAX;
  check(!is_large, "\"", name, "\" is too large");
  check(value.template get<std::int64_t>() >= 0, "\"", name, "\" is negative");
  return value.template get<std::int64_t>();
}

/// Calls visit(part, type) for a part, or for each part in the member `list` of a "Sequence".
template <class Json, class Visit>
void for_each_part(const Json& part, const char* list, const std::string& where, const Visit& visit) {
  const std::string type = text_in(part, "type", where);
  if (type != "Sequence") return visit(part, type);
  const Json& parts = member(part, list, where);
  check(parts.is_array(), where, ".", list, " is ", parts.type_name(), ", not a list");
  for (const Json& one : parts) for_each_part(one, list, where + "." + list + "[]", visit);
}

}  // namespace heed::json_parts
