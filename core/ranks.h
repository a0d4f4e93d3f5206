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

/// A thread that does one piece of work at a time while its caller continues. A transport makes all
/// its calls on one WorkerThread, because MPI may be used from a single thread only.
class WorkerThread {
 public:
  WorkerThread();
  ~WorkerThread();  ///< waits for the work; drops its exception
  WorkerThread& operator=(WorkerThread&&) = delete;

  /// Waits for the previous work as finish() does, then starts this one.
  void start(std::function<void()> work);
  /// Waits for the work and rethrows its exception.
  void finish();
  /// Runs the work on the worker thread and waits; runs it directly when called from that thread.
  void run(const std::function<void()>& work);
  bool is_current() const { return std::this_thread::get_id() == thread_.get_id(); }
  /// True while another thread waits for the work.
  bool is_awaited() const;

 private:
  void serve();
  void wait(std::unique_lock<std::mutex>& lock);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;  // empty: no work
  bool busy_ = false, ending_ = false, awaited_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last, because it uses the other members
};

// How several processes that train one model, the ranks 0, 1, ..., exchange bytes.
//
// A transport only moves bytes and never adds: the order of addition is up to the callers
// (training/gradient_exchange.h), so the result does not depend on the transport. Every rank must make the
// same calls in the same order.

/// Another rank has ended, or its messages do not belong to this exchange. The rank that catches
/// this does not know the cause: the process that ended, or its launcher, reports it.
class RankLost : public Error {
 public:
  using Error::Error;
};

/// Another rank has not answered for longer than RankPatience allows.
class RankSilent : public RankLost {
 public:
  using RankLost::RankLost;
};

/// The time to wait for ranks that do not answer because their process was stopped, their machine
/// is cut off, or they compute for longer than the others.
struct RankPatience {
  double remark_after = 10;  ///< seconds of silence before `say` is called
  double timeout = 0;        ///< seconds before waiting fails with RankSilent; 0: never
  /// Receives "rank 1 has not answered for 10 s: waiting on", on one of the ranks only. Called on
  /// another thread than the one that requested the exchange, while that thread waits.
  std::function<void(const std::string& text)> say = {};
};

class RankSilence;  // reports the ranks that do not answer

class Ranks {
 public:
  virtual ~Ranks();
  Ranks& operator=(Ranks&&) = delete;

  int rank() const { return rank_; }
  int count() const { return count_; }
  bool is_first() const { return rank_ == 0; }
  /// This rank's number among the ranks on this machine, and their number.
  int local_rank() const { return local_rank_; }
  int local_count() const { return local_count_; }
  /// This rank's share of the processors that it may run on, in threads; at least 1.
  int thread_share() const { return thread_share_; }
  /// True once the process that forked the ranks wants them to stop. Ranks may learn of it at
  /// different times.
  virtual bool asked_to_stop() const { return false; }
  /// Bytes (with headers) and messages that this rank has sent to others.
  std::int64_t bytes_sent() const { return bytes_sent_; }
  std::int64_t messages_sent() const { return messages_sent_; }

  /// All-to-all: sends out[r] to rank r and writes what r sends into in[r]; the entries of this
  /// rank itself are ignored. Throws RankLost when a rank has ended, or sends another number of
  /// bytes, a message of another job or one out of order.
  void exchange(std::span<const std::span<const std::byte>> out, std::span<const std::span<std::byte>> in);
  /// Returns the texts of all ranks, by rank; lengths may differ.
  std::vector<std::string> all_gather(std::string_view mine);
  /// Returns the text of rank 0; the argument of other ranks is ignored.
  std::string broadcast(std::string_view from_first);
  /// Sends out[r] to rank r and returns the texts received, by rank. The receivers need not know
  /// the lengths.
  std::vector<std::string> exchange_texts(std::span<const std::string_view> out);

  /// Runs `exchanges`, which may call only the functions above, in the background. The objects that
  /// it uses must live until it is done, even when the caller leaves with an error. Other calls on
  /// this object wait for it.
  void start(std::function<void()> exchanges);
  /// Waits for what start() began and rethrows its exception.
  void finish();

  /// Ends this process with `status`, and with it the whole job. Prints nothing.
  [[noreturn]] virtual void abandon(int status) = 0;

 protected:
  /// `worker` does all transfers.
  Ranks(int rank, int count, std::unique_ptr<WorkerThread> worker, const RankPatience& patience = {});
  WorkerThread& worker() { return *worker_; }
  RankSilence& silence() { return *silence_; }
  /// Waits for the worker. Destructors of transports call it before they release what the worker
  /// uses.
  void finish_transfers() noexcept;
  /// Called once the transport is connected: the ranks agree on the job and its layout. Throws an
  /// Error when one runs another version of heed.
  void meet();

  /// Moves bytes between all pairs of ranks. Both sides know the lengths, at most
  /// largest_transfer() per pair.
  virtual void transfer(std::span<const std::span<const std::byte>> out,
                        std::span<const std::span<std::byte>> in) = 0;
  std::size_t largest_transfer() const { return (std::size_t{1} << 30) / static_cast<std::size_t>(count_); }

 private:
  std::vector<std::uint64_t> announce(std::span<const std::span<const std::byte>> out,
                                      std::uint64_t& largest);
  void move(std::span<const std::span<const std::byte>> out, std::span<const std::span<std::byte>> in,
            std::uint64_t largest);

  int rank_, count_;
  std::unique_ptr<WorkerThread> worker_;
  int local_rank_ = 0, local_count_ = 1, thread_share_ = 1;
  std::uint64_t job_ = 0;       // a random number in all messages of this job
  std::uint64_t sequence_ = 0;  // number of the next exchange
  std::int64_t bytes_sent_ = 0, messages_sent_ = 0;
  std::unique_ptr<RankSilence> silence_;
};

/// Computes pieces of work in parallel: rank i mod N computes piece i, and every rank gets all
/// results in order. With null `ranks`, this process computes all of them.
std::vector<std::string> distribute_work(Ranks* ranks, std::size_t pieces,
                                         const std::function<std::string(std::size_t piece)>& compute);
/// Like distribute_work(), for pieces whose results are lists of numbers.
template <class T, class Compute>
std::vector<std::vector<T>> distribute_numbers(Ranks* ranks, std::size_t pieces, const Compute& compute) {
  const std::vector<std::string> texts = distribute_work(ranks, pieces, [&](std::size_t piece) {
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

/// True when an MPI launcher (mpirun, mpiexec, srun) started this process as one of several.
bool started_by_mpi();
/// The ranks of the MPI job that this process belongs to. Opens the launcher's MPI library at run
/// time: Open MPI's libmpi.so.40, libmpich.so.12, or the one named by the environment variable
/// HEED_MPI. Call it once. Throws an Error when the library cannot be opened or is of another kind.
std::unique_ptr<Ranks> open_mpi(const RankPatience& patience = {});

/// Forks `count` processes on this machine, runs `body` in each, and returns the status of rank 0
/// when all have succeeded. Call it before any device is opened. The ranks ignore SIGINT, SIGTERM,
/// SIGHUP and SIGUSR1, which are left to the caller. Once `stop_requested` returns true, so does
/// Ranks::asked_to_stop(), and ranks that were stopped (SIGSTOP) are continued so that they can
/// end. When one rank fails, the others are killed and the status of the first to fail is returned;
/// if a signal ended it, a RankLost names the signal. Throws an Error when the ranks cannot be
/// started.
int run_local_ranks(int count, const std::function<int(Ranks&)>& body,
                    const std::function<bool()>& stop_requested = {}, const RankPatience& patience = {});

/// Returns a message about silent ranks, such as "rank 1 has not answered for 12 s" or "ranks 0, 2
/// and 3 have not answered for 12 s", with `what` = "answered".
std::string silence_text(const std::vector<int>& ranks, const char* what, double seconds);

/// Measures the time from one look() to the next, leaving out time in which this process was
/// stopped.
class AwakeTime {
 public:
  void restart();
  void look();
  double seconds() const { return seconds_; }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  double seconds_ = 0;
};

/// Measures, on the worker thread, how long other ranks have been silent. Only time in which a
/// thread waits for the worker counts: a rank that computes while its gradients travel is not held
/// up.
class RankSilence {
 public:
  RankSilence(int rank, RankPatience patience, const WorkerThread& worker)
      : rank_(rank), patience_(std::move(patience)), worker_(worker) {}

  /// For transports: call when a transfer begins or bytes have moved.
  void heard();
  /// For transports: call about once a second while nothing moves, with the ranks, in ascending
  /// order, whose bytes are outstanding. Throws RankSilent once the timeout has passed.
  void wait_for(const std::vector<int>& silent);

 private:
  int rank_;
  RankPatience patience_;
  const WorkerThread& worker_;
  AwakeTime quiet_;
  std::vector<int> named_;  // ranks that `say` has reported as silent
  double longest_ = 0;      // the longest silence, in seconds, of a rank that answered in the end
};

}  // namespace heed
