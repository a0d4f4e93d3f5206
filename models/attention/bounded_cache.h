#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace heed {

/// Values that were made before, by the numbers they depend on (the length first of all). Batches come in
/// many lengths; a run that meets more than `most` starts over.
template <class Value, std::size_t most>
class BoundedCache {
 public:
  using Key = std::vector<std::int64_t>;

  template <class Make>
  const Value& get(const Key& key, Make&& make) {
    const auto found = values_.find(key);
    if (found != values_.end()) return found->second;
    Value made = make();
    if (values_.size() >= most) values_.clear();
    return values_[key] = std::move(made);
  }

 private:
  std::map<Key, Value> values_;
};

}  // namespace heed
