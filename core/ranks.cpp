#include "heed/core/ranks.h"

#include <sched.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "heed/base/names.h"
#include "heed/core/version.h"

namespace heed {
namespace {

constexpr std::uint64_t mark = 0x31534b4e41524448;  // "HDRANKS1"
constexpr std::uint64_t longest_text = std::uint64_t{1} << 40;

/// Precedes the bytes of every message.
struct Header {
  std::uint64_t mark, job, sequence;
  std::uint64_t length;   // bytes that follow for this receiver
  std::uint64_t largest;  // the largest `length` to any receiver
};

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// The processors that this process may run on, as text: "0 1 5".
std::string processors(int& count) {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::string text;
  count = 0;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return text;
  count = CPU_COUNT(&set);
  for (std::size_t i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) text.append(std::to_string(i)).append(" ");
  return text;
}

}  // namespace

WorkerThread::WorkerThread() : thread_([this] { serve(); }) {}

WorkerThread::~WorkerThread() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void WorkerThread::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return work_ || ending_; });
    if (!work_) return;
    std::function<void()> work = std::exchange(work_, {});
    lock.unlock();
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    work = {};
    lock.lock();
    error_ = error;
    busy_ = false;
    changed_.notify_all();
  }
}

void WorkerThread::wait(std::unique_lock<std::mutex>& lock) {
  awaited_ = true;
  changed_.wait(lock, [&] { return !busy_; });
  awaited_ = false;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

bool WorkerThread::is_awaited() const {
  const std::lock_guard lock(mutex_);
  return awaited_;
}

void WorkerThread::start(std::function<void()> work) {
  std::unique_lock lock(mutex_);
  wait(lock);
  work_ = std::move(work);
  busy_ = true;
  changed_.notify_all();
}

void WorkerThread::finish() {
  std::unique_lock lock(mutex_);
  wait(lock);
}

void WorkerThread::run(const std::function<void()>& work) {
  if (is_current()) return work();
  start(work);
  finish();
}

Ranks::Ranks(int rank, int count, std::unique_ptr<WorkerThread> worker, const RankPatience& patience)
    : rank_(rank),
      count_(count),
      worker_(std::move(worker)),
      silence_(std::make_unique<RankSilence>(rank, patience, *worker_)) {
  check(count >= 1 && rank >= 0 && rank < count, "ranks: there is no rank ", rank, " of ", count);
}

Ranks::~Ranks() = default;

void Ranks::start(std::function<void()> exchanges) {
  worker_->start(std::move(exchanges));
}

void Ranks::finish() {
  if (!worker_->is_current()) worker_->finish();
}

void Ranks::finish_transfers() noexcept {
  try {
    worker_->finish();
  } catch (...) {  // errors of exchanges that no caller waits for any more are dropped
  }
}

void Ranks::meet() {
  std::random_device random;
  const std::uint64_t drawn = std::uint64_t{random()} << 32 | random();
  std::uint64_t job = 0;
  const std::string of_first = broadcast({reinterpret_cast<const char*>(&drawn), sizeof drawn});
  check(of_first.size() == sizeof job, "ranks: rank 0 does not run heed");
  std::memcpy(&job, of_first.data(), sizeof job);
  job_ = job;

  int allowed = 0;
  const std::string own = processors(allowed), host = host_name();
  const std::vector<std::string> versions = all_gather(version), hosts = all_gather(host);
  const std::vector<std::string> sets = all_gather(own);
  for (std::size_t r = 0; r < versions.size(); ++r)
    check(versions[r] == version, "ranks: rank ", r, " runs heed ", versions[r], ", but rank ", rank_,
          " runs heed ", version, ": all must be of one version");
  int sharing = 0;  // ranks of this host with the same processors
  local_rank_ = local_count_ = 0;
  for (int r = 0; r < count_; ++r) {
    const auto at = static_cast<std::size_t>(r);
    if (hosts[at] != host) continue;
    ++local_count_;
    if (r < rank_) ++local_rank_;
    if (sets[at] == own) ++sharing;
  }
  thread_share_ = std::max(1, allowed / std::max(1, sharing));
}

/// Sends every rank the length of the coming message and returns the lengths that the others announce.
/// `largest` becomes the length of the longest message between any two ranks.
std::vector<std::uint64_t> Ranks::announce(std::span<const std::span<const std::byte>> out,
                                           std::uint64_t& largest) {
  const auto count = static_cast<std::size_t>(count_), self = static_cast<std::size_t>(rank_);
  check(out.size() == count, "ranks: an exchange among ", count, " has ", out.size(), " messages");
  finish();
  std::vector<std::size_t> lengths;
  for (std::size_t r = 0; r < count; ++r) lengths.push_back(r == self ? 0 : out[r].size());
  largest = *std::max_element(lengths.begin(), lengths.end());
  std::vector<Header> sent(count), got(count);
  std::vector<std::span<const std::byte>> headers_out(count);
  std::vector<std::span<std::byte>> headers_in(count);
  for (std::size_t r = 0; r < count; ++r) {
    sent[r] = {mark, job_, sequence_, lengths[r], largest};
    if (r == self) continue;
    headers_out[r] = bytes_of(sent[r]);
    headers_in[r] = std::as_writable_bytes(std::span(&got[r], 1));
    bytes_sent_ += static_cast<std::int64_t>(sizeof(Header) + lengths[r]);
    ++messages_sent_;
  }
  worker_->run([&] { transfer(headers_out, headers_in); });
  got[self] = sent[self];
  std::vector<std::uint64_t> announced;
  for (std::size_t r = 0; r < count; ++r) {
    const auto fits = [&](bool condition, const char* what) {
      if (!condition) throw RankLost(concat_text("ranks: the message from rank ", r, " ", what));
    };
    fits(got[r].mark == mark, "is not from heed");
    fits(got[r].job == job_, "belongs to another job");
    fits(got[r].sequence == sequence_, "is out of order: the ranks do different things");
    fits(got[r].length <= got[r].largest && got[r].largest <= longest_text, "has an invalid length");
    announced.push_back(got[r].length);
    largest = std::max(largest, got[r].largest);
  }
  ++sequence_;
  return announced;
}

void Ranks::move(std::span<const std::span<const std::byte>> out, std::span<const std::span<std::byte>> in,
                 std::uint64_t largest) {
  const std::size_t step = largest_transfer(), self = static_cast<std::size_t>(rank_);
  const auto slice = [&](auto bytes, std::size_t begin) {
    begin = std::min(begin, bytes.size());
    return bytes.subspan(begin, std::min(step, bytes.size() - begin));
  };
  std::vector<std::span<const std::byte>> part_out(out.size());
  std::vector<std::span<std::byte>> part_in(in.size());
  for (std::size_t begin = 0; begin < largest; begin += step) {
    for (std::size_t r = 0; r < out.size(); ++r) {
      if (r == self) continue;
      part_out[r] = slice(out[r], begin);
      part_in[r] = slice(in[r], begin);
    }
    worker_->run([&] { transfer(part_out, part_in); });
  }
}

void Ranks::exchange(std::span<const std::span<const std::byte>> out,
                     std::span<const std::span<std::byte>> in) {
  const auto count = static_cast<std::size_t>(count_), self = static_cast<std::size_t>(rank_);
  check(in.size() == count, "ranks: an exchange among ", count, " has room for ", in.size(), " messages");
  std::uint64_t largest = 0;
  const std::vector<std::uint64_t> announced = announce(out, largest);
  for (std::size_t r = 0; r < count; ++r)
    if (r != self && announced[r] != in[r].size())
      throw RankLost(concat_text("ranks: rank ", r, " sends ", announced[r], " bytes, where ", in[r].size(),
                                 " are expected"));
  move(out, in, largest);
}

std::vector<std::string> Ranks::exchange_texts(std::span<const std::string_view> out) {
  const auto count = static_cast<std::size_t>(count_), self = static_cast<std::size_t>(rank_);
  std::vector<std::span<const std::byte>> bytes_out;
  for (const std::string_view text : out) bytes_out.push_back(std::as_bytes(std::span(text)));
  std::uint64_t largest = 0;
  const std::vector<std::uint64_t> announced = announce(bytes_out, largest);
  std::vector<std::string> texts(count);
  std::vector<std::span<std::byte>> bytes_in;
  for (std::size_t r = 0; r < count; ++r) {
    if (r != self) texts[r].resize(announced[r]);
    bytes_in.push_back(std::as_writable_bytes(std::span(texts[r])));
  }
  move(bytes_out, bytes_in, largest);
  texts[self] = std::string(out[self]);
  return texts;
}

std::vector<std::string> Ranks::all_gather(std::string_view mine) {
  return exchange_texts(std::vector<std::string_view>(static_cast<std::size_t>(count_), mine));
}

std::string Ranks::broadcast(std::string_view from_first) {
  return all_gather(is_first() ? from_first : std::string_view()).front();
}

std::vector<std::string> distribute_work(Ranks* ranks, std::size_t pieces,
                                         const std::function<std::string(std::size_t piece)>& compute) {
  const auto count = static_cast<std::size_t>(ranks ? ranks->count() : 1);
  const auto own = static_cast<std::size_t>(ranks ? ranks->rank() : 0);
  std::vector<std::string> results(pieces);
  for (std::size_t i = own; i < pieces; i += count) results[i] = compute(i);
  if (!ranks) return results;
  std::string message;  // each length followed by its result
  for (std::size_t i = own; i < pieces; i += count) {
    const std::uint64_t length = results[i].size();
    message.append(reinterpret_cast<const char*>(&length), sizeof length).append(results[i]);
  }
  const std::vector<std::string> messages = ranks->all_gather(message);
  for (std::size_t r = 0; r < count; ++r) {
    std::string_view left = messages[r];
    for (std::size_t i = r; i < pieces; i += count) {
      std::uint64_t length = 0;
      if (left.size() >= sizeof length) std::memcpy(&length, left.data(), sizeof length);
      if (left.size() < sizeof length || left.size() - sizeof length < length)
        throw RankLost(concat_text("ranks: rank ", r, " sent less than its pieces of work"));
      results[i] = left.substr(sizeof length, length);
      left.remove_prefix(sizeof length + length);
    }
    if (!left.empty()) throw RankLost(concat_text("ranks: rank ", r, " sent more than its pieces of work"));
  }
  return results;
}

static std::string names_of(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + listed(ranks, " and ");
}

/// Only one rank reports: the lowest that is not silent itself.
static int speaker(const std::vector<int>& silent) {
  int rank = 0;
  while (std::ranges::count(silent, rank) > 0) ++rank;
  return rank;
}

std::string silence_text(const std::vector<int>& ranks, const char* what, double seconds) {
  return concat_text(names_of(ranks), ranks.size() == 1 ? " has not " : " have not ", what, " for ",
                     std::llround(seconds), " s");
}

void AwakeTime::restart() {
  last_ = std::chrono::steady_clock::now();
  seconds_ = 0;
}

void AwakeTime::look() {
  const auto now = std::chrono::steady_clock::now();
  seconds_ += std::min(std::chrono::duration<double>(now - std::exchange(last_, now)).count(), 2.0);
}

void RankSilence::heard() {
  if (!named_.empty()) {
    quiet_.look();
    longest_ = std::max(longest_, quiet_.seconds());
    patience_.say(concat_text(names_of(named_), named_.size() == 1 ? " answers" : " answer", " again, after ",
                              std::llround(quiet_.seconds()), " s"));
    named_.clear();
  }
  quiet_.restart();
}

void RankSilence::wait_for(const std::vector<int>& silent) {
  if (!worker_.is_awaited()) return quiet_.restart();
  quiet_.look();
  const double seconds = quiet_.seconds();
  const bool speaks = speaker(silent) == rank_;
  // The speaker throws first, so that its message is the one that is read.
  if (patience_.timeout > 0 && seconds >= patience_.timeout + (speaks ? 0 : 2))
    throw RankSilent(concat_text("ranks: ", silence_text(silent, "answered", seconds),
                                 ": stopped, cut off, or at work for longer than the limit of ",
                                 patience_.timeout, " s; resume the run from its last checkpoint"));
  // A rank that was late once and came back may take as long again.
  if (!named_.empty() || !speaks || !patience_.say) return;
  if (seconds < std::max(patience_.remark_after, 2 * longest_)) return;
  named_ = silent;
  patience_.say(silence_text(silent, "answered", seconds) + ": waiting on");
}

}  // namespace heed
