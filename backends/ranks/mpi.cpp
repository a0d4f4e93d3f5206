// Ranks that a launcher of MPI has started. Of MPI only the moving of bytes is used, and its library is opened at run
// time: the two families differ in their handles alone, which are pointers in Open MPI and numbers in MPICH and what
// descends from it (the ABI that MPICH, Intel MPI and MVAPICH agreed on).

#include <dlfcn.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "heed/core/courier.h"
#include "heed/core/ranks.h"

namespace heed {
namespace {

constexpr const char* open_mpi_library = "libmpi.so.40";
constexpr const char* mpich_library = "libmpich.so.12";
constexpr int funneled = 1;  // MPI_THREAD_FUNNELED in both: there are threads, and one of them calls MPI

bool is_set(const char* name) {
  const char* const value = std::getenv(name);
  return value && *value;
}

/// A symbol of the library as a function or an object.
template <class T>
T symbol(void* library, const std::string& path, const char* name) {
  void* const found = dlsym(library, name);
  check(found != nullptr, "MPI: ", path, " has no ", name, ": it is no MPI library that heed can use");
  return reinterpret_cast<T>(found);
}

/// Waits until the launcher has read what this process wrote to its standard error, for a second at most: MPICH's ends
/// the job as soon as it hears of an abort, and what then still lies in the pipe is lost.
void let_messages_arrive() {
  struct stat kind {};
  int unread = 0;
  if (fstat(STDERR_FILENO, &kind) != 0 || !S_ISFIFO(kind.st_mode)) return;
  for (int i = 0; i < 100 && ioctl(STDERR_FILENO, FIONREAD, &unread) == 0 && unread > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

/// The functions of one family, whose handles are of type Handle.
template <class Handle>
class MpiRanks : public Ranks {
 public:
  struct Library {
    int (*abort)(Handle, int);
    int (*start_all_to_all)(const void*, const int*, const int*, Handle, void*, const int*, const int*,
                            Handle, Handle, Handle*);
    int (*test)(Handle*, int*, void*);
    int (*finalize)();
    Handle world, byte;
  };

  MpiRanks(const Library& library, int rank, int count, std::unique_ptr<Courier> courier)
      : Ranks(rank, count, std::move(courier)), library_(library) {
    meet();
  }
  ~MpiRanks() override {
    let_courier_end();
    courier().run([this] { library_.finalize(); });
  }

  [[noreturn]] void abandon(int status) override {
    let_messages_arrive();
    // From here, although MPI is the courier's: that may be waiting for ranks that never answer.
    library_.abort(library_.world, status);
    std::_Exit(status);
  }

 protected:
  void transfer(std::span<const std::span<const std::byte>> out,
                std::span<const std::span<std::byte>> in) override {
    const auto size = static_cast<std::size_t>(count()), self = static_cast<std::size_t>(rank());
    std::vector<int> out_bytes(size, 0), out_at(size, 0), in_bytes(size, 0), in_at(size, 0);
    std::size_t sent = 0, got = 0;
    for (std::size_t r = 0; r < size; ++r) {
      if (r == self) continue;
      out_at[r] = static_cast<int>(sent);
      in_at[r] = static_cast<int>(got);
      out_bytes[r] = static_cast<int>(out[r].size());
      in_bytes[r] = static_cast<int>(in[r].size());
      sent += out[r].size();
      got += in[r].size();
    }
    packed_out_.resize(sent);
    packed_in_.resize(got);
    for (std::size_t r = 0; r < size; ++r)
      if (out_bytes[r] > 0) std::memcpy(packed_out_.data() + out_at[r], out[r].data(), out[r].size());
    Handle request{};
    const int status = library_.start_all_to_all(packed_out_.data(), out_bytes.data(), out_at.data(),
                                                 library_.byte, packed_in_.data(), in_bytes.data(),
                                                 in_at.data(), library_.byte, library_.world, &request);
    if (status != 0) throw RankLost(concat_text("ranks: MPI_Ialltoallv failed with status ", status));
    wait(request);
    for (std::size_t r = 0; r < size; ++r)
      if (in_bytes[r] > 0) std::memcpy(in[r].data(), packed_in_.data() + in_at[r], in[r].size());
  }

 private:
  /// MPI itself would wait with all of a processor's time, which the next batch can use.
  void wait(Handle request) {
    alignas(16) std::array<std::byte, 256> unused{};  // MPI_Status, of 20 to 24 bytes
    const auto begin = std::chrono::steady_clock::now();
    for (int done = 0; true;) {
      if (const int status = library_.test(&request, &done, unused.data()); status != 0)
        throw RankLost(concat_text("ranks: MPI_Test failed with status ", status));
      if (done) return;
      if (std::chrono::steady_clock::now() - begin > std::chrono::microseconds(100))
        std::this_thread::sleep_for(std::chrono::microseconds(10));
    }
  }

  Library library_;
  std::vector<std::byte> packed_out_, packed_in_;
};

template <class Handle>
std::unique_ptr<Ranks> joined(void* library, const std::string& path, Handle world, Handle byte) {
  using Functions = typename MpiRanks<Handle>::Library;
  const auto init = symbol<int (*)(int*, char***, int, int*)>(library, path, "MPI_Init_thread");
  const auto ask_rank = symbol<int (*)(Handle, int*)>(library, path, "MPI_Comm_rank");
  const auto ask_size = symbol<int (*)(Handle, int*)>(library, path, "MPI_Comm_size");
  Functions functions{symbol<decltype(Functions::abort)>(library, path, "MPI_Abort"),
                      symbol<decltype(Functions::start_all_to_all)>(library, path, "MPI_Ialltoallv"),
                      symbol<decltype(Functions::test)>(library, path, "MPI_Test"),
                      symbol<decltype(Functions::finalize)>(library, path, "MPI_Finalize"),
                      world,
                      byte};
  int provided = 0, rank = 0, count = 0;
  auto courier = std::make_unique<Courier>();
  courier->run([&] {
    check(init(nullptr, nullptr, funneled, &provided) == 0, "MPI: ", path, " could not be initialised");
    check(provided >= funneled, "MPI: ", path, " does not serve programs with threads (MPI_THREAD_FUNNELED)");
    check(ask_rank(world, &rank) == 0 && ask_size(world, &count) == 0, "MPI: ", path,
          " does not say its rank");
  });
  // A library that does not speak with its launcher takes itself for the only rank.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (!is_set(name)) continue;
    check(std::to_string(count) == std::getenv(name), "MPI: the launcher started ", std::getenv(name),
          " ranks, but ", path, " knows of ", count, ": it belongs to another launcher");
    break;
  }
  return std::make_unique<MpiRanks<Handle>>(functions, rank, count, std::move(courier));
}

}  // namespace

bool started_by_mpi() {
  const bool open_mpi = is_set("OMPI_COMM_WORLD_SIZE") || is_set("PMIX_RANK");
  return open_mpi || (is_set("PMI_RANK") && is_set("PMI_SIZE"));
}

std::unique_ptr<Ranks> open_mpi() {
  check(started_by_mpi(), "MPI: no launcher (mpirun, mpiexec, srun) started this process");
  const bool is_open_mpi = is_set("OMPI_COMM_WORLD_SIZE") || is_set("PMIX_RANK");
  const std::string path = is_set("HEED_MPI") ? std::getenv("HEED_MPI")
                           : is_open_mpi      ? open_mpi_library
                                              : mpich_library;
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);  // its plug-ins look for its names
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
                         symbol<void*>(library, path, "ompi_mpi_byte"));
  }
  check(says("MPICH") || says("Intel(R) MPI") || says("MVAPICH"), "MPI: ", path, " calls itself \"",
        version.substr(0, version.find('\n')), "\": heed knows Open MPI and the family of MPICH");
  return joined<int>(library, path, 0x44000000, 0x4c00010d);  // MPI_COMM_WORLD, MPI_BYTE
}

}  // namespace heed
