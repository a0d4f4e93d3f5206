#include "heed/data/string_tree.h"

#include <algorithm>

namespace heed {

StringTree::StringTree(const std::vector<std::string_view>& strings) : beginnings_(strings.size(), -1) {
  struct Path {
    std::int32_t string, node;
  };
  std::vector<Path> paths;
  for (const std::string_view string : strings) {
    if (!string.empty()) paths.push_back({static_cast<std::int32_t>(lengths_.size()), 0});
    lengths_.push_back(string.size());
    longest_ = std::max(longest_, string.size());
  }
  // One level of the tree after the other: the links of a node lead to levels above, which are whole by then.
  for (std::size_t depth = 1; !paths.empty(); ++depth) {
    for (Path& path : paths) {
      const std::string_view text = strings[static_cast<std::size_t>(path.string)];
      path.node = child_or_new(path.node, static_cast<unsigned char>(text[text.size() - depth]));
      if (text.size() > depth) continue;
      Node& node = nodes_[static_cast<std::size_t>(path.node)];
      if (node.found >= 0 && length(node.found) == depth) continue;  // one that is alike
      beginnings_[static_cast<std::size_t>(path.string)] = node.found;
      node.found = path.string;
    }
    std::erase_if(paths, [&](const Path& path) { return length(path.string) == depth; });
  }
}

std::int32_t StringTree::child(std::int32_t node, unsigned char byte) const {
  const auto place = children_.find(std::uint64_t{256} * static_cast<std::uint64_t>(node) + byte);
  return place == children_.end() ? -1 : place->second;
}

std::int32_t StringTree::step(std::int32_t node, unsigned char byte) const {
  for (; node != 0; node = nodes_[static_cast<std::size_t>(node)].shorter)
    if (const std::int32_t next = child(node, byte); next >= 0) return next;
  return ends_[byte];
}

std::int32_t StringTree::child_or_new(std::int32_t node, unsigned char byte) {
  const std::int32_t known = child(node, byte);
  if (known >= 0) return known;
  const std::int32_t shorter = node == 0 ? 0 : step(nodes_[static_cast<std::size_t>(node)].shorter, byte);
  const auto made = static_cast<std::int32_t>(nodes_.size());
  nodes_.push_back({shorter, nodes_[static_cast<std::size_t>(shorter)].found});
  if (node == 0) ends_[byte] = made;
  children_.emplace(std::uint64_t{256} * static_cast<std::uint64_t>(node) + byte, made);
  return made;
}

void StringTree::longest(std::string_view text, std::size_t begin, std::size_t end,
                         std::vector<std::int32_t>& found) const {
  found.resize(end - begin);
  std::int32_t node = 0;
  for (std::size_t at = std::min(text.size(), end + longest_); at > begin; --at) {
    node = step(node, static_cast<unsigned char>(text[at - 1]));
    if (at - 1 < end) found[at - 1 - begin] = nodes_[static_cast<std::size_t>(node)].found;
  }
}

}  // namespace heed
