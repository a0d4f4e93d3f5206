#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "heed/base/error.h"

namespace heed {

/// A thread that does one piece of work at a time, while who gave it goes on. All calls of a transport are
/// made on one, because MPI answers a single thread only.
class Courier {
 public:
  Courier();
  ~Courier();  ///< waits for the work; what it throws is lost
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  /// Waits for what was started before, as finish() does, and hands the work over.
  void start(std::function<void()> work);
  /// Waits for the work and throws what it threw.
  void finish();
  /// Has the work done, at once where this thread is the courier's, and waits.
  void run(const std::function<void()>& work);
  bool is_current() const { return std::this_thread::get_id() == thread_.get_id(); }
  /// Whether another thread waits for the work.
  bool is_awaited() const;

 private:
  void serve();
  void wait(std::unique_lock<std::mutex>& lock);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;  // empty: none
  bool busy_ = false, ending_ = false, awaited_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses the others
};

// Several processes that train one model, each a rank from 0: how they pass bytes to each other.
//
// A transport moves bytes and never adds: the order of addition is the callers'
// (training/gradient_exchange.h), so that the result does not depend on the transport. Whoever calls from one
// rank must call the same from all, in the same order.

/// Another rank has ended, or what it sends is no part of this conversation. Whoever catches it knows nothing
/// of the cause: that is for the process that ended, or for who started it, to say.
class RankLost : public Error {
 public:
  using Error::Error;
};

/// Another rank has not answered for longer than RankPatience allows.
class RankSilent : public RankLost {
 public:
  using RankLost::RankLost;
};

/// How long ranks wait for one that does not answer: its process was stopped, its machine is cut off, or it
/// computes longer than the others.
struct RankPatience {
  double remark_after = 10;  ///< seconds until `say` hears of it
  double timeout = 0;        ///< seconds until waiting ends with RankSilent; 0: never
  /// Gets "rank 1 has not answered for 10 s: waiting on", on one of the ranks. Called from another thread
  /// than the one that asked for the exchange, while that one waits.
  std::function<void(const std::string& text)> say = {};
};

class Courier;      // the thread that does the transfers of a Ranks
class RankSilence;  // what it tells of ranks that do not answer

class Ranks {
 public:
  virtual ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int rank() const { return rank_; }
  int count() const { return count_; }
  bool is_first() const { return rank_ == 0; }
  /// Which of the ranks on this machine this is, and how many there are.
  int local_rank() const { return local_rank_; }
  int local_count() const { return local_count_; }
  /// How many threads are this rank's share of the processors that it may run on; at least 1.
  int thread_share() const { return thread_share_; }
  /// Whether the process that forked the ranks wants them to stop. They do not get to know at the same time.
  virtual bool asked_to_stop() const { return false; }
  /// Bytes that this rank has sent to others, headers included, and how many messages.
  std::int64_t bytes_sent() const { return bytes_sent_; }
  std::int64_t messages_sent() const { return messages_sent_; }

  /// All to all: out[r] goes to rank r, and what r sends is written to in[r]; those of this rank itself stay
  /// as they are. Throws RankLost when a rank has ended or sends another number of bytes, or a message of
  /// another job or of another place in the order.
  void exchange(std::span<const std::span<const std::byte>> out, std::span<const std::span<std::byte>> in);
  /// What every rank gives, by rank; lengths may differ.
  std::vector<std::string> all_gather(std::string_view mine);
  /// What rank 0 gives. What others give is not looked at.
  std::string broadcast(std::string_view from_first);
  /// All to all of texts whose lengths the receivers do not know.
  std::vector<std::string> exchange_texts(std::span<const std::string_view> out);

  /// Does `exchanges`, calls of the functions above and no others, while the caller goes on. What they use
  /// must live until they are done, even when the caller ends with an error. Whatever else is asked of this
  /// meanwhile waits for them.
  void start(std::function<void()> exchanges);
  /// Waits for what was started, and throws what it threw.
  void finish();

  /// Ends this process with `status`, and with it the job. Nothing is printed.
  [[noreturn]] virtual void abandon(int status) = 0;

 protected:
  /// `courier` does all transfers.
  Ranks(int rank, int count, std::unique_ptr<Courier> courier, const RankPatience& patience = {});
  Courier& courier() { return *courier_; }
  RankSilence& silence() { return *silence_; }
  /// Waits for what the courier does; for the destructors of transports, before what it uses is gone.
  void let_courier_end() noexcept;
  /// To be called when the transport stands: agrees with the others on who they are. Throws an Error when
  /// they are of another version of heed.
  void meet();

  /// Moves bytes whose numbers both sides know, at most largest_transfer() for each pair.
  virtual void transfer(std::span<const std::span<const std::byte>> out,
                        std::span<const std::span<std::byte>> in) = 0;
  std::size_t largest_transfer() const { return (std::size_t{1} << 30) / static_cast<std::size_t>(count_); }

 private:
  std::vector<std::uint64_t> announce(std::span<const std::size_t> lengths, std::uint64_t& largest);
  void move(std::span<const std::span<const std::byte>> out, std::span<const std::span<std::byte>> in,
            std::uint64_t largest);

  void deliver(std::span<const std::span<const std::byte>> out, std::span<const std::span<std::byte>> in);

  int rank_, count_;
  std::unique_ptr<Courier> courier_;
  int local_rank_ = 0, local_count_ = 1, thread_share_ = 1;
  std::uint64_t job_ = 0;       // a random number that all messages of this job carry
  std::uint64_t sequence_ = 0;  // of the next exchange
  std::int64_t bytes_sent_ = 0, messages_sent_ = 0;
  std::unique_ptr<RankSilence> silence_;
};

/// Pieces of work that are dealt out: piece i is computed by rank i mod N, and every rank gets what each
/// piece came to, in their order. Null ranks: all are computed here.
std::vector<std::string> deal_out(Ranks* ranks, std::size_t pieces,
                                  const std::function<std::string(std::size_t piece)>& compute);
/// The same for pieces that come to numbers.
template <class T, class Compute>
std::vector<std::vector<T>> deal_out_numbers(Ranks* ranks, std::size_t pieces, const Compute& compute) {
  const std::vector<std::string> texts = deal_out(ranks, pieces, [&](std::size_t piece) {
    const std::vector<T> values = compute(piece);
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  });
  std::vector<std::vector<T>> all;
  for (const std::string& text : texts) {
    all.emplace_back(text.size() / sizeof(T));
    if (!text.empty()) std::memcpy(all.back().data(), text.data(), text.size());
  }
  return all;
}

/// Whether a launcher of MPI (mpirun, mpiexec, srun) started this process as one of several.
bool started_by_mpi();
/// The ranks of the job that this process was started in. Opens the launcher's MPI library at run time:
/// libmpi.so.40 of Open MPI or libmpich.so.12, or the one that the environment variable HEED_MPI names. To be
/// called once. Throws an Error for a library that cannot be opened or is of another kind.
std::unique_ptr<Ranks> open_mpi(const RankPatience& patience = {});

/// Runs `body` in `count` processes of this machine, which are forked here, and returns the status of rank 0
/// when all have ended well. To be called before a device is opened. The ranks ignore SIGINT, SIGTERM, SIGHUP
/// and SIGUSR1, which are for the caller; when `stop_requested` becomes true, so does Ranks::asked_to_stop(),
/// and ranks that were stopped (SIGSTOP) are continued, so that they can end. When one fails the others are
/// killed: the status of the one that failed first is returned, and where a signal ended it, a RankLost says
/// which. Throws an Error when the ranks cannot begin.
int run_local_ranks(int count, const std::function<int(Ranks&)>& body,
                    const std::function<bool()>& stop_requested = {}, const RankPatience& patience = {});

/// "rank 1", "ranks 0 and 2", "ranks 0, 2 and 3", and how long: "rank 1 has not answered for 12 s".
std::string silence_text(const std::vector<int>& ranks, const char* what, double seconds);

/// Seconds from one look to the next, without those in which this process was stopped itself.
class AwakeTime {
 public:
  void restart();
  void look();
  double seconds() const { return seconds_; }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  double seconds_ = 0;
};

/// Watches, on the courier's thread, how long other ranks have not answered. Only time during which somebody
/// waits for the courier counts: a rank that computes while its gradients travel misses nobody.
class RankSilence {
 public:
  RankSilence(int rank, RankPatience patience, const Courier& courier)
      : rank_(rank), patience_(std::move(patience)), courier_(courier) {}

  /// For transports: a transfer begins, or bytes have moved.
  void heard();
  /// For transports, about once a second while nothing moves: the ranks, in their order, with which bytes are
  /// outstanding. Throws RankSilent when patience is at its end.
  void wait_for(const std::vector<int>& silent);

 private:
  int rank_;
  RankPatience patience_;
  const Courier& courier_;
  AwakeTime quiet_;
  std::vector<int> named_;  // ranks that were said not to answer
  double longest_ = 0;      // silence of those that answered in the end, in seconds
};

}  // namespace heed
