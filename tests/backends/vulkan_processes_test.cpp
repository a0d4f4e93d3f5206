// A Vulkan device and its process: leaving while work is queued, fork, the pipelines that one process leaves
// for the next, two devices at once, and the profile of a device's kernels.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <stdexcept>

#include "heed/backends/vulkan/launch.h"
#include "heed/core/profile.h"
#include "heed/tests/child_process.h"
#include "heed/tests/vulkan_support.h"

namespace {

/// Work that takes the software device a while, of several kernels, left in the queue. The driver
/// compiles them on a thread of its own, where it does not find them in its cache, and computes the
/// large one for long.
Tensor queue_work(Device device) {
  const Tensor x = uniform({256, 256}, -1, 1, {1, 0, 0}, DType::f32, device);
  Tensor y = gelu(softmax(x + 1.0));
  for (int i = 0; i < 8; ++i) y = matmul(x, y);
  return y;
}

/// Without the validation layers and the guards, which wait: as a program runs.
ChildOptions plain(std::vector<std::pair<std::string, std::string>> environment = {}) {
  environment.insert(environment.end(), {{"HEED_VULKAN_VALIDATION", ""}, {"HEED_VULKAN_GUARDS", ""}});
  return {.environment = std::move(environment)};
}

Tensor of_the_program;  // destroyed after nearly everything else

}  // namespace

TEST_CASE("child: returns with queued work" * doctest::skip()) {
  const Device device = vulkan_test_device().value();
  static Tensor of_the_case;
  of_the_case = of_the_program = queue_work(device);
}

TEST_CASE("child: exits with queued work" * doctest::skip()) {
  const Device device = vulkan_test_device().value();
  static const Tensor of_the_case = queue_work(device);
  of_the_program = of_the_case + 1.0;
  std::exit(3);
}

TEST_CASE("child: throws with queued work" * doctest::skip()) {
  const Device device = vulkan_test_device().value();
  of_the_program = queue_work(device);
  throw std::runtime_error("thrown with queued work");
}

VULKAN_TEST("vulkan: a program may leave while work is queued, 45 times") {
  for (int i = 0; i < 15; ++i) {
    // Mesa's cache of shaders, new or old: the device compiles while the program leaves, or computes.
    const TemporaryFolder folder;
    const ChildOptions cold = plain({{"MESA_SHADER_CACHE_DIR", folder.path().string()}});
    const ChildResult returned = run_in_child("child: returns with queued work", i % 2 ? plain() : cold);
    INFO(returned.text());
    CHECK(returned.status == 0);
    const ChildResult left = run_in_child("child: exits with queued work", i % 2 ? cold : plain());
    INFO(left.text());
    CHECK(left.status == 3);
    const ChildResult thrown = run_in_child("child: throws with queued work", plain());
    INFO(thrown.text());
    CHECK(thrown.status == 1);
    CHECK(contains(thrown.output, "thrown with queued work"));
  }
}

TEST_CASE("child: records while it leaves" * doctest::skip()) {
  const Device device = vulkan_test_device().value();
  struct Late {  // destroyed after the devices have finished
    Tensor x;
    ~Late() {
      try {
        const bool readable = x.to_vector<float>()[0] == 1;
        std::cout << (readable ? "readable\n" : "wrong\n");
        x + x;
        std::cout << "recorded\n" << std::flush;
      } catch (const Error& error) {
        std::cout << error.what() << std::endl;
      }
    }
  };
  static Late late;  // before the device is opened
  late.x = Tensor::ones({4}, DType::f32, device);
}

VULKAN_TEST("vulkan: what is recorded after the devices have finished is refused") {
  const ChildResult result = run_in_child("child: records while it leaves", plain());
  INFO(result.text());
  CHECK(result.status == 0);
  // Memory of its own that a GPU has is read by a copy, which is a command, too.
  CHECK(contains(result.output, "readable") == vulkan::gpu(device.index).capabilities().unified_memory);
  CHECK(contains(result.output, "the program is exiting"));
}

VULKAN_TEST("vulkan: a forked child is refused the device, frees its tensors and leaves") {
  const Tensor x = Tensor::ones({1000}, DType::f32, device);
  std::cout.flush();
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    int refused = 0;
    {
      const Tensor copy = std::exchange(const_cast<Tensor&>(x), {});
      for (const bool reads : {true, false}) {
        try {
          if (reads) {
            copy.to_vector<float>();
          } else {
            copy + copy;
          }
        } catch (const Error& error) {
          refused += contains(error.what(), "fork");
        }
      }
    }
    std::exit(refused == 2 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK((x + x).to_vector<float>()[999] == 2);
}

TEST_CASE("child: uses one pipeline" * doctest::skip()) {
  const Device device = vulkan_test_device().value();
  CHECK(Tensor::ones({4}, DType::f32, device).to_vector<float>()[3] == 1);
  const vulkan::Pipelines& pipelines = vulkan::gpu(device.index).pipelines();
  std::cout << "found " << (pipelines.found_bytes() > 0 ? "pipelines" : "nothing") << std::endl;
}

VULKAN_TEST("vulkan: a process finds the pipelines of the one before it") {
  const TemporaryFolder folder;
  const auto run = [&] {
    const ChildResult result =
        run_in_child("child: uses one pipeline", plain({{"HEED_CACHE_DIR", (folder / "cache").string()}}));
    INFO(result.text());
    CHECK(result.status == 0);
    return contains(result.output, "found pipelines");
  };
  CHECK_FALSE(run());
  CHECK(run());
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "cache"))
    files.push_back(entry.path());
  REQUIRE(files.size() == 1);  // and no temporary file
  const std::filesystem::path file = files[0];
  const std::string whole = read_file(file);

  const auto is_ignored_and_rewritten = [&](const std::string& content) {
    std::ofstream(file, std::ios::binary) << content;
    CHECK_FALSE(run());
    CHECK(read_file(file).size() == whole.size());
    CHECK(run());
  };
  SUBCASE("damaged") {
    std::string flipped = whole, foreign = whole;
    flipped[flipped.size() - 3] = static_cast<char>(flipped[flipped.size() - 3] ^ 4);
    foreign[9] = static_cast<char>(foreign[9] ^ 1);  // behind the magic number: another device's
    for (const std::string& content :
         {whole.substr(0, whole.size() - 1), whole.substr(0, 20), std::string(), whole + "x", flipped,
          foreign, std::string("heedvkp2 and then something else entirely, of some length")}) {
      CAPTURE(content.size());
      is_ignored_and_rewritten(content);
    }
  }
  SUBCASE("a folder in its place") {
    std::filesystem::remove(file);
    std::filesystem::create_directory(file);
    CHECK_FALSE(run());
  }
  SUBCASE("a link to another file") {
    const std::filesystem::path other = folder / "other";
    std::ofstream(other) << "not ours";
    std::filesystem::remove(file);
    std::filesystem::create_symlink(other, file);
    CHECK_FALSE(run());
    CHECK(run());
    CHECK(read_file(other) == "not ours");
  }
}

VULKAN_TEST("vulkan: a second device beside the first, each with its own memory and stream") {
  static vulkan::Gpu* const second = new vulkan::Gpu(device.index);  // never closed, like every device
  vulkan::Gpu& first = vulkan::gpu(device.index);
  REQUIRE(&first != second);
  const Tensor x = Tensor::ones({1000}, DType::f32, device);
  const auto block = second->memory().allocate(device, 4000);
  Tensor y = x;
  for (int i = 0; i < 200; ++i) {  // both at work
    y = y + 1.0;
    second->stream().fill(block->buffer(), block->offset(), 4000, static_cast<std::uint32_t>(i));
  }
  second->stream().wait_idle();
  CHECK(*reinterpret_cast<const std::uint32_t*>(block->mapped() + 3996) == 199);
  CHECK(y.to_vector<float>()[999] == 201);
  CHECK(second->memory().stats().current_bytes >= 4000);
}

VULKAN_TEST("vulkan: the profile names the kernels with their time, work and traffic") {
  const Tensor x = uniform({128, 128}, -1, 1, {1, 0, 0}, DType::f32, device);
  softmax(x);  // before the profile starts
  start_profile();
  Tensor y = x;
  for (int i = 0; i < 100; ++i) y = matmul(y, x) * 0.1;  // more than one batch
  const Tensor z = gelu(y);
  stop_profile();
  softmax(z);  // after it has ended
  std::int64_t products = 0, elementwise = 0;
  double flops = 0;
  for (const ProfileRow& row : profile_rows()) {
    INFO(row.name);
    CHECK(row.seconds > 0);
    CHECK(row.seconds < 60);
    CHECK_FALSE(contains(row.name, "softmax"));
    if (contains(row.name, "matmul")) products += row.calls, flops += row.flops;
    if (contains(row.name, "unary")) elementwise += row.calls;
    CHECK((row.flops > 0 || row.bytes > 0));
  }
  CHECK(products >= 100);
  CHECK(flops == doctest::Approx(100 * 2.0 * 128 * 128 * 128));
  CHECK(elementwise == 101);
  CHECK(contains(profile_table(), "matmul"));
  start_profile();
  stop_profile();
  CHECK(profile_rows().empty());
}

VULKAN_TEST("vulkan: a device without timestamps says that its kernels are not timed") {
  const ChildResult result = run_in_child("child: profiles without timestamps", plain());
  INFO(result.text());
  CHECK(result.status == 0);
}

TEST_CASE("child: profiles without timestamps" * doctest::skip()) {
  const Device device = vulkan_test_device().value();
  vulkan::gpu(device.index).forget_timestamps();
  const Tensor x = Tensor::ones({4}, DType::f32, device);
  start_profile();
  CHECK((x + x).to_vector<float>()[0] == 2);
  stop_profile();
  CHECK(profile_rows().empty());
  CHECK(contains(profile_table(), "writes no timestamps"));
}

VULKAN_TEST("vulkan: what a device was given to do is counted") {
  const Tensor x = Tensor::ones({64}, DType::f32, device);
  const DeviceCounters before = device_counters(device);
  const Tensor y = (x + 1.0) * 2.0;  // the product waits for the sum
  CHECK(y.to_vector<float>()[0] == 4);
  const DeviceCounters after = device_counters(device);
  CHECK(after.dispatches == before.dispatches + 2);
  CHECK(after.barriers > before.barriers);
  CHECK(after.submissions > before.submissions);
  CHECK(after.waits <= before.waits + 1);
  CHECK_THROWS_AS(device_counters(Device{}), Error);
}
