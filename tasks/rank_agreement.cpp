#include "heed/tasks/rank_agreement.h"

#include <nlohmann/json.hpp>

#include "heed/training/checkpoint.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

/// The first difference between what rank 0 and another rank have under a name.
struct Difference {
  std::string name, first, other;
  std::size_t rank = 0;
};

std::optional<Difference> difference(Ranks& ranks, const Json& mine) {
  const std::vector<std::string> texts = ranks.all_gather(mine.dump());
  const Json first = Json::parse(texts[0]);
  for (std::size_t r = 1; r < texts.size(); ++r) {
    if (texts[r] == texts[0]) continue;
    const Json other = Json::parse(texts[r]);
    const auto text = [](const Json& object, const std::string& name) {
      return object.contains(name) ? object[name].dump() : std::string("not there");
    };
    for (const Json* object : {&first, &other})
      for (const auto& [name, value] : object->items())
        if (text(first, name) != text(other, name))
          return Difference{name, text(first, name), text(other, name), r};
  }
  return std::nullopt;
}

}  // namespace

void check_same_settings(Ranks& ranks, const TaskKind& kind, const Settings& settings) {
  Json mine = {{"task", kind.name}};
  for (const Setting& one : settings.declared())
    if (one.name != "threads" && one.name != "device") mine[one.name] = Json::parse(settings.json(one.name));
  if (const auto found = difference(ranks, mine))
    throw SettingsError(concat_text("rank ", found->rank, " was started with another ", found->name,
                                    " than rank 0: ", found->other, ", not ", found->first,
                                    "; give all ranks the same settings"));
}

void check_same_data(Ranks& ranks, const std::map<std::string, std::string>& digests) {
  if (const auto found = difference(ranks, Json(digests)))
    fail("rank ", found->rank, " has read other data than rank 0: the ", found->name,
         " part differs; give all ranks the same files");
}

std::string platform_remark(Ranks& ranks, Device device) {
  const std::vector<std::string> names = ranks.all_gather(platform_name(device));
  for (std::size_t r = 1; r < names.size(); ++r)
    if (names[r] != names[0])
      return concat_text("rank ", r, " computes with ", names[r], " and rank 0 with ", names[0],
                         ": the last bits of results depend on which rank computes which batch");
  return {};
}

std::map<std::string, std::string> broadcast_files(Ranks& ranks,
                                                   const std::map<std::string, std::string>& files) {
  std::string message;  // lengths and texts in turn: a file may hold any bytes
  for (const auto& [name, content] : files)
    for (const std::string* text : {&name, &content})
      message.append(std::to_string(text->size())).append(":").append(*text);
  message = ranks.broadcast(message);
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < message.size();) {
    const std::size_t colon = message.find(':', at);
    check(colon != message.npos, "ranks: the files of rank 0 did not arrive whole");
    const std::size_t length = std::stoull(message.substr(at, colon - at));
    check(length <= message.size() - colon - 1, "ranks: the files of rank 0 did not arrive whole");
    texts.push_back(message.substr(colon + 1, length));
    at = colon + 1 + length;
  }
  std::map<std::string, std::string> received;
  for (std::size_t i = 0; i + 1 < texts.size(); i += 2) received[texts[i]] = texts[i + 1];
  return received;
}

}  // namespace heed
