#include "heed/backends/vulkan/staging.h"

#include "heed/backends/vulkan/gpu.h"

namespace heed::vulkan {

Staging::Piece Staging::for_upload(std::uint64_t bytes) {
  if (chunks_.empty() || chunks_.back().used + bytes > largest_piece) {
    const bool reuse = !chunks_.empty() &&
                       (chunks_.size() >= most_chunks || chunks_.front().value <= gpu_.stream().completed());
    Chunk chunk;
    if (reuse) {
      chunk = std::move(chunks_.front());
      chunks_.pop_front();
      gpu_.stream().wait(chunk.value);
      chunk.used = 0;
    } else {
      chunk.buffer = std::make_unique<HostBuffer>(gpu_, largest_piece, false);
    }
    chunks_.push_back(std::move(chunk));
  }
  Chunk& chunk = chunks_.back();
  const Piece piece{chunk.buffer->buffer(), chunk.used, chunk.buffer->data() + chunk.used};
  chunk.used += (bytes + 15) / 16 * 16;
  chunk.value = gpu_.stream().recording();
  return piece;
}

HostBuffer& Staging::for_download() {
  std::unique_ptr<HostBuffer>& buffer = downloads_[next_download_];
  if (!buffer) buffer = std::make_unique<HostBuffer>(gpu_, largest_piece, true);
  next_download_ = 1 - next_download_;
  return *buffer;
}

}  // namespace heed::vulkan
