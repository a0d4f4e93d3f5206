// Ranks started by an MPI launcher. MPI is only used to move bytes, and its library is opened at run time:
// the two families differ only in their handles, which are pointers in Open MPI and integers in MPICH and
// its descendants (the common ABI of MPICH, Intel MPI and MVAPICH).

#include <dlfcn.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <set>
#include <thread>

#include "heed/core/ranks.h"

namespace heed {
namespace {

constexpr const char* open_mpi_library = "libmpi.so.40";
constexpr const char* mpich_library = "libmpich.so.12";
constexpr int funneled = 1;  // MPI_THREAD_FUNNELED in both: of several threads, only one calls MPI

bool is_set(const char* name) {
  const char* const value = std::getenv(name);
  return value && *value;
}

/// Looks up a function or object in the library.
template <class T>
T symbol(void* library, const std::string& path, const char* name) {
  void* const found = dlsym(library, name);
  check(found != nullptr, "MPI: ", path, " has no ", name, ": it is not an MPI library that heed can use");
  return reinterpret_cast<T>(found);
}

/// Waits, for a second at most, until the launcher has read what this process wrote to standard error.
/// MPICH's launcher ends the job as soon as it learns of an abort, and anything still in the pipe is lost.
void let_messages_arrive() {
  struct stat kind {};
  int unread = 0;
  if (fstat(STDERR_FILENO, &kind) != 0 || !S_ISFIFO(kind.st_mode)) return;
  for (int i = 0; i < 100 && ioctl(STDERR_FILENO, FIONREAD, &unread) == 0 && unread > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

/// Ranks over one family of MPI libraries, whose handles have type Handle.
template <class Handle>
class MpiRanks : public Ranks {
 public:
  struct Library {
    int (*abort)(Handle, int);
    int (*send)(const void*, int, Handle, int, int, Handle, Handle*);
    int (*receive)(void*, int, Handle, int, int, Handle, Handle*);
    int (*test_some)(int, Handle*, int*, int*, void*);
    int (*finalize)();
    Handle world, byte;
  };

  MpiRanks(const Library& library, int rank, int count, std::unique_ptr<WorkerThread> worker,
           const RankPatience& patience)
      : Ranks(rank, count, std::move(worker), patience), library_(library) {
    meet();
  }
  ~MpiRanks() override {
    finish_transfers();
    worker().run([this] { library_.finalize(); });
  }

  [[noreturn]] void abandon(int status) override {
    let_messages_arrive();
    // Called on this thread although only the worker calls MPI otherwise: the worker may be waiting for
    // ranks that never answer.
    library_.abort(library_.world, status);
    std::_Exit(status);
  }

 protected:
  void transfer(std::span<const std::span<const std::byte>> out,
                std::span<const std::span<std::byte>> in) override {
    // Point-to-point messages, because a collective call would not tell which rank it waits for.
    std::vector<Handle> requests;
    std::vector<int> partners;
    const auto begin = [&](std::size_t bytes, std::size_t r, const char* name, const auto& call) {
      if (bytes == 0 || static_cast<int>(r) == rank()) return;
      partners.push_back(static_cast<int>(r));
      const int status = call(static_cast<int>(bytes), partners.back(), &requests.emplace_back());
      if (status != 0) throw RankLost(concat_text("ranks: ", name, " failed with status ", status));
    };
    for (std::size_t r = 0; r < in.size(); ++r)
      begin(in[r].size(), r, "MPI_Irecv", [&](int bytes, int from, Handle* request) {
        return library_.receive(in[r].data(), bytes, library_.byte, from, tag, library_.world, request);
      });
    for (std::size_t r = 0; r < out.size(); ++r)
      begin(out[r].size(), r, "MPI_Isend", [&](int bytes, int to, Handle* request) {
        return library_.send(out[r].data(), bytes, library_.byte, to, tag, library_.world, request);
      });
    wait(requests, partners);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int tag = 1;

  /// Polls with pauses, since MPI's own wait would occupy a processor that can compute the next batch.
  void wait(std::vector<Handle>& requests, std::vector<int>& partners) {
    // Room for MPI_Status, which takes 20 to 24 bytes.
    std::vector<std::array<std::byte, 64>> unused(requests.size());
    std::vector<int> done(requests.size());
    silence().heard();
    auto moved = Clock::now(), looked = moved;
    for (std::size_t left = requests.size(); left > 0;) {
      int count = 0;
      const int status = library_.test_some(static_cast<int>(requests.size()), requests.data(), &count,
                                            done.data(), unused.data());
      if (status != 0) throw RankLost(concat_text("ranks: MPI_Testsome failed with status ", status));
      const auto now = Clock::now();
      if (count > 0) {
        silence().heard();
        for (int i = 0; i < count; ++i)
          partners[static_cast<std::size_t>(done[static_cast<std::size_t>(i)])] = -1;
        left -= static_cast<std::size_t>(count);
        moved = looked = now;
      } else if (now - looked > std::chrono::seconds(1)) {
        silence().wait_for(missing(partners));
        looked = now;
      }
      if (now - moved > std::chrono::microseconds(100))
        std::this_thread::sleep_for(std::chrono::microseconds(10));
    }
  }

  /// The ranks still awaited, in order, each once; -1 in `partners`: done.
  static std::vector<int> missing(const std::vector<int>& partners) {
    std::set<int> ranks(partners.begin(), partners.end());
    ranks.erase(-1);
    return {ranks.begin(), ranks.end()};
  }

  Library library_;
};

template <class Handle>
std::unique_ptr<Ranks> joined(void* library, const std::string& path, Handle world, Handle byte,
                              const RankPatience& patience) {
  using Functions = typename MpiRanks<Handle>::Library;
  const auto init = symbol<int (*)(int*, char***, int, int*)>(library, path, "MPI_Init_thread");
  const auto ask_rank = symbol<int (*)(Handle, int*)>(library, path, "MPI_Comm_rank");
  const auto ask_size = symbol<int (*)(Handle, int*)>(library, path, "MPI_Comm_size");
  Functions functions{symbol<decltype(Functions::abort)>(library, path, "MPI_Abort"),
                      symbol<decltype(Functions::send)>(library, path, "MPI_Isend"),
                      symbol<decltype(Functions::receive)>(library, path, "MPI_Irecv"),
                      symbol<decltype(Functions::test_some)>(library, path, "MPI_Testsome"),
                      symbol<decltype(Functions::finalize)>(library, path, "MPI_Finalize"),
                      world,
                      byte};
  int provided = 0, rank = 0, count = 0;
  auto worker = std::make_unique<WorkerThread>();
  worker->run([&] {
    check(init(nullptr, nullptr, funneled, &provided) == 0, "MPI: ", path, " could not be initialised");
    check(provided >= funneled, "MPI: ", path,
          " does not support programs with threads (MPI_THREAD_FUNNELED)");
    check(ask_rank(world, &rank) == 0 && ask_size(world, &count) == 0, "MPI: ", path,
          " does not report its rank");
  });
  // A library that cannot talk to the launcher believes it is the only rank.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (!is_set(name)) continue;
    check(std::to_string(count) == std::getenv(name), "MPI: the launcher started ", std::getenv(name),
          " ranks, but ", path, " knows of ", count, ": it belongs to another launcher");
    break;
  }
  return std::make_unique<MpiRanks<Handle>>(functions, rank, count, std::move(worker), patience);
}

}  // namespace

bool started_by_mpi() {
  const bool open_mpi = is_set("OMPI_COMM_WORLD_SIZE") || is_set("PMIX_RANK");
  return open_mpi || (is_set("PMI_RANK") && is_set("PMI_SIZE"));
}

std::unique_ptr<Ranks> open_mpi(const RankPatience& patience) {
  check(started_by_mpi(), "MPI: no launcher (mpirun, mpiexec, srun) started this process");
  const bool is_open_mpi = is_set("OMPI_COMM_WORLD_SIZE") || is_set("PMIX_RANK");
  const std::string path = is_set("HEED_MPI") ? std::getenv("HEED_MPI")
                           : is_open_mpi      ? open_mpi_library
                                              : mpich_library;
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);  // its plug-ins look up its symbols
  if (!library)
    fail("MPI: ", path, " cannot be opened (", dlerror(),
         "); install it, or name another with the environment variable HEED_MPI");
  std::array<char, 8192> text{};  // MPI_MAX_LIBRARY_VERSION_STRING
  int length = 0;
  symbol<int (*)(char*, int*)>(library, path, "MPI_Get_library_version")(text.data(), &length);
  const std::string version(text.data());
  const auto says = [&](const char* name) { return version.find(name) != std::string::npos; };
  if (says("Open MPI")) {
    check(is_open_mpi, "MPI: ", path, " is Open MPI, but its launcher did not start this process");
    return joined<void*>(library, path, symbol<void*>(library, path, "ompi_mpi_comm_world"),
                         symbol<void*>(library, path, "ompi_mpi_byte"), patience);
  }
  check(says("MPICH") || says("Intel(R) MPI") || says("MVAPICH"), "MPI: ", path, " calls itself \"",
        version.substr(0, version.find('\n')), "\": heed supports Open MPI and the family of MPICH");
  return joined<int>(library, path, 0x44000000, 0x4c00010d, patience);  // MPI_COMM_WORLD, MPI_BYTE
}

}  // namespace heed
