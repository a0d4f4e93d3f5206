#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace heed {

/// Values that were made before, by the numbers they depend on (the length first of all). Batches come in
/// many lengths; a run that meets more than `most` starts over. Values are handles, cheap to copy; several threads may ask at
/// once, of which one makes what is missing.
template <class Value, std::size_t most>
class BoundedCache {
 public:
  using Key = std::vector<std::int64_t>;

  template <class Make>
  Value get(const Key& key, Make&& make) {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    if (found != values_.end()) return found->second;
    Value made = make();
    if (values_.size() >= most) values_.clear();
    return values_[key] = std::move(made);
  }

 private:
  std::mutex mutex_;
  std::map<Key, Value> values_;
};

}  // namespace heed
