// Ranks on one machine: forked processes with a socket pair between any two.

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "heed/base/descriptor.h"
#include "heed/core/ranks.h"

namespace heed {
namespace {

using Row = std::vector<Descriptor>;  // sockets to every other rank

class LocalRanks : public Ranks {
 public:
  /// `parent`: a socket to the process that forked this one; see run_local_ranks().
  LocalRanks(int rank, Row peers, const Descriptor& parent, const RankPatience& patience)
      : Ranks(rank, static_cast<int>(peers.size()), std::make_unique<WorkerThread>(), patience),
        peers_(std::move(peers)),
        parent_(parent) {
    meet();
  }
  ~LocalRanks() override { finish_transfers(); }

  bool asked_to_stop() const override {
    pollfd waiting{parent_.value, POLLIN, 0};
    return poll(&waiting, 1, 0) > 0;
  }

  [[noreturn]] void abandon(int status) override { _exit(status); }

 protected:
  void transfer(std::span<const std::span<const std::byte>> out,
                std::span<const std::span<std::byte>> in) override {
    std::vector<std::span<const std::byte>> to_send(out.begin(), out.end());
    std::vector<std::span<std::byte>> to_get(in.begin(), in.end());
    to_send[static_cast<std::size_t>(rank())] = {};
    to_get[static_cast<std::size_t>(rank())] = {};
    std::vector<pollfd> waiting(peers_.size());
    silence().heard();
    while (true) {
      std::vector<int> missing;
      for (std::size_t r = 0; r < peers_.size(); ++r) {
        const int events = (to_send[r].empty() ? 0 : POLLOUT) | (to_get[r].empty() ? 0 : POLLIN);
        waiting[r] = {events ? peers_[r].value : -1, static_cast<short>(events), 0};
        if (events) missing.push_back(static_cast<int>(r));
      }
      if (missing.empty()) return;
      const int ready = poll(waiting.data(), waiting.size(), 1000);
      check(ready >= 0 || errno == EINTR, "ranks: waiting for the others failed: ", std::strerror(errno));
      if (ready == 0) silence().wait_for(missing);
      if (ready <= 0) continue;
      silence().heard();
      for (std::size_t r = 0; r < peers_.size(); ++r) {
        // Receive first: a rank that has ended may have sent data before.
        if (waiting[r].revents && !to_get[r].empty())
          to_get[r] = to_get[r].subspan(
              moved(r, recv(peers_[r].value, to_get[r].data(), to_get[r].size(), MSG_DONTWAIT), true));
        if (waiting[r].revents && !to_send[r].empty())
          to_send[r] = to_send[r].subspan(moved(
              r, send(peers_[r].value, to_send[r].data(), to_send[r].size(), MSG_DONTWAIT | MSG_NOSIGNAL),
              false));
      }
    }
  }

 private:
  static std::size_t moved(std::size_t rank, ssize_t bytes, bool receiving) {
    if (bytes > 0) return static_cast<std::size_t>(bytes);
    if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return 0;
    if (bytes == 0 && !receiving) return 0;
    throw RankLost(concat_text("ranks: rank ", rank, " has ended"));
  }

  Row peers_;
  const Descriptor& parent_;
};

/// Two connected sockets; `count` is the number of ranks, for the error message.
std::pair<Descriptor, Descriptor> socket_pair(int type, int count) {
  int ends[2];
  const int failed = socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends);
  check(failed == 0, "ranks: ", count, " ranks cannot be connected: ", std::strerror(errno),
        "; use fewer, or raise ulimit -n");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

/// A socket pair between any two of `count` ranks.
std::vector<Row> connected(int count) {
  const auto size = static_cast<std::size_t>(count);
  std::vector<Row> rows(size);
  for (Row& row : rows) row.resize(size);
  for (std::size_t a = 0; a < size; ++a)
    for (std::size_t b = a + 1; b < size; ++b)
      std::tie(rows[a][b], rows[b][a]) = socket_pair(SOCK_STREAM, count);
  return rows;
}

/// Connects a rank. If that fails, sends the reason to the process that forked it, which reports it.
std::unique_ptr<LocalRanks> join(int rank, Row peers, const Descriptor& parent,
                                 const RankPatience& patience) {
  const auto tell = [&](const std::exception& error) {
    const std::string text = concat_text("rank ", rank, " cannot begin: ", error.what());
    (void)!send(parent.value, text.data(), text.size(), MSG_NOSIGNAL);
  };
  try {
    return std::make_unique<LocalRanks>(rank, std::move(peers), parent, patience);
  } catch (const RankLost& error) {
    // The lost rank's own error says more, so let it arrive first.
    std::this_thread::sleep_for(std::chrono::seconds(2));
    tell(error);
  } catch (const std::system_error& error) {
    tell(Error(
        concat_text("a thread cannot be started: ", error.what(), "; use fewer ranks, or raise ulimit -u")));
  } catch (const std::exception& error) {
    tell(error);
  }
  _exit(1);
}

[[noreturn]] void be_rank(int rank, std::vector<Row> rows, const Descriptor& parent, pid_t parent_id,
                          const std::function<int(Ranks&)>& body, const RankPatience& patience) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // the rank must not outlive its parent
  if (getppid() != parent_id) _exit(1);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) std::signal(signal, SIG_IGN);
  Row own = std::move(rows[static_cast<std::size_t>(rank)]);
  rows.clear();  // other ranks notice a rank's end only once no copies of its sockets are open
  int status = 1;
  try {
    status = body(*join(rank, std::move(own), parent, patience));
  } catch (const std::exception&) {  // the body has reported its error
  }
  std::cout.flush();
  std::fflush(nullptr);
  _exit(status);
}

/// The error sent by a rank that could not begin; empty if there is none.
std::string text_from(const Descriptor& ranks) {
  std::string text(4096, '\0');
  const ssize_t bytes = recv(ranks.value, text.data(), text.size(), MSG_DONTWAIT);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
  return text;
}

/// The processes of the ranks; the destructor kills those that still run.
struct Processes {
  std::vector<pid_t> ids;  // -1: ended
  ~Processes() {
    for (const pid_t id : ids)
      if (id > 0) kill(id, SIGKILL);
    for (const pid_t id : ids)
      while (id > 0 && waitpid(id, nullptr, 0) < 0 && errno == EINTR) {
      }
  }
};

/// Reports ranks that have not ended after rank 0 has: only a stopped process would take so long.
class Stragglers {
 public:
  explicit Stragglers(const RankPatience& patience) : patience_(patience) {}

  void look(const std::vector<pid_t>& ids) {
    waited_.look();
    const double seconds = waited_.seconds();
    const bool is_over = patience_.timeout > 0 && seconds >= patience_.timeout;
    const bool says = patience_.say && !said_ && seconds >= patience_.remark_after;
    if (!is_over && !says) return;
    std::vector<int> left;
    for (std::size_t r = 0; r < ids.size(); ++r)
      if (ids[r] > 0) left.push_back(static_cast<int>(r));
    const std::string text = concat_text(silence_text(left, "ended", seconds), " after rank 0 has");
    if (is_over) throw RankSilent("ranks: " + text);
    patience_.say(text);
    said_ = true;
  }

 private:
  const RankPatience& patience_;
  AwakeTime waited_;
  bool said_ = false;
};

}  // namespace

int run_local_ranks(int count, const std::function<int(Ranks&)>& body,
                    const std::function<bool()>& stop_requested, const RankPatience& patience) {
  check(count >= 1 && count <= 1024, "ranks: the number of ranks is ", count, "; it must be 1 to 1024");
  std::vector<Row> rows = connected(count);
  // All ranks share the other end. A rank that cannot begin sends the reason through it, and shutting down
  // the parent's sending side asks them to stop.
  auto [to_ranks, to_parent] = socket_pair(SOCK_SEQPACKET, count);
  std::cout.flush();
  std::fflush(nullptr);
  const pid_t parent = getpid();
  Processes processes;
  for (int rank = 0; rank < count; ++rank) {
    const pid_t id = fork();
    check(id >= 0, "ranks: rank ", rank, " of ", count, " cannot be started: ", std::strerror(errno),
          "; use fewer ranks, or raise ulimit -u");
    if (id == 0) {
      to_ranks = Descriptor();
      be_rank(rank, std::move(rows), to_parent, parent, body, patience);
    }
    processes.ids.push_back(id);
  }
  rows.clear();
  int of_first = 1;
  std::optional<Stragglers> stragglers;
  for (int left = count; left > 0;) {
    bool changed = false;
    for (int rank = 0; rank < count; ++rank) {
      pid_t& id = processes.ids[static_cast<std::size_t>(rank)];
      int status = 0;
      if (id < 0 || waitpid(id, &status, WNOHANG) != id) continue;
      id = -1;
      --left;
      changed = true;
      if (WIFSIGNALED(status))
        throw RankLost(concat_text("rank ", rank, " of ", count, " was ended by signal ", WTERMSIG(status),
                                   " (", strsignal(WTERMSIG(status)), "), and the others with it"));
      if (WEXITSTATUS(status) != 0)
        if (const std::string text = text_from(to_ranks); !text.empty()) fail("ranks: ", text);
      if (rank == 0) of_first = WEXITSTATUS(status);
      if (rank > 0 && WEXITSTATUS(status) != 0) return WEXITSTATUS(status);
      if (rank == 0 && of_first != 0) return of_first;
    }
    if (changed) continue;
    if (processes.ids.front() < 0) {
      if (!stragglers) stragglers.emplace(patience);
      stragglers->look(processes.ids);
    }
    if (stop_requested && stop_requested()) {
      shutdown(to_ranks.value, SHUT_WR);
      for (const pid_t id : processes.ids)
        if (id > 0) kill(id, SIGCONT);  // a stopped process would keep the others from ending
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return of_first;
}

}  // namespace heed
