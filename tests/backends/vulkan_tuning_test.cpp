#include <nlohmann/json.hpp>

#include "heed/backends/vulkan/attention.h"
#include "heed/backends/vulkan/gpu.h"
#include "heed/backends/vulkan/tuning.h"
#include "heed/base/json.h"
#include "heed/tests/vulkan_support.h"
#include "heed/training/checkpoint.h"

namespace heed {
namespace {

/// While it lives, what is kept for the next program lies in a folder of its own.
struct OwnCache {
  OwnCache() { setenv("HEED_CACHE_DIR", folder.path().c_str(), 1); }
  ~OwnCache() { unsetenv("HEED_CACHE_DIR"); }
  TemporaryFolder folder;
};

const vulkan::PhysicalDevice& found(Device device) {
  return vulkan::physical_devices().devices[static_cast<std::size_t>(device.index)];
}

}  // namespace

VULKAN_TEST(
    "vulkan tuning: what was measured is used by whoever opens the device next, and a damaged file is "
    "refused") {
  const OwnCache cache;
  CHECK(vulkan::load_tuning(found(device)).digest.empty());
  vulkan::gpu(device.index);  // opened before there is a file
  write_content(vulkan::tuning_file(found(device).identity), "{}");
  const std::filesystem::path file = tune_device(device);  // over an old one
  CHECK(file == vulkan::tuning_file(found(device).identity));
  CHECK(file.parent_path() == cache.folder.path());
  const vulkan::Tuning tuned = vulkan::load_tuning(found(device));
  CHECK(tuned.digest.size() == 32);
  double best = 0;
  for (std::size_t i = 0; i < tuned.scalar.tiles.size(); ++i) {
    const vulkan::TileShape &tile = tuned.scalar.tiles[i], &assumed = vulkan::scalar_tiles().tiles[i];
    CHECK(tile.rows == assumed.rows);
    CHECK(tile.efficiency > 0);
    best = std::max(best, tile.efficiency);
  }
  CHECK(best == 1);
  CHECK(read_file(file).find(concat_text("\"lanes\": ", tuned.attention.lanes)) != std::string::npos);
  CHECK(vulkan::gpu(device.index).tuning().attention.lanes == 16);  // what was tried is not what is used
  // A device that is opened now has it, and one that was opened before goes on as it was.
  vulkan::Gpu& next = *new vulkan::Gpu(device.index);  // never closed, as all are
  CHECK(next.tuning().digest == tuned.digest);
  CHECK(vulkan::gpu(device.index).tuning().digest.empty());
  CHECK(contains(platform_name(device), found(device).driver));

  // A file that is damaged, or another device's, is refused by its name.
  const std::string whole = read_file(file);
  const auto refused = [&](const std::string& content, const char* reason) {
    write_file_atomically(file, content);
    CHECK_ERROR(vulkan::load_tuning(found(device)), reason);
    CHECK_ERROR(vulkan::load_tuning(found(device)), file.c_str());
  };
  refused(whole.substr(0, whole.size() / 2), "not valid JSON");
  std::string changed = whole;
  changed.replace(changed.find("per_byte") + 11, 1, "9");
  refused(changed, "digest");
  refused("{}", "digest");
  auto figures = nlohmann::ordered_json::parse(whole);
  figures.erase("digest");
  figures["attention"]["lanes"] = 5;
  add_digest(figures);
  refused(figures.dump(), "\"lanes\" is 5");
  refused(std::string(1 << 17, ' '), "bytes");
  vulkan::PhysicalDevice other = found(device);
  other.identity = "another";
  write_file_atomically(file.parent_path() / "tuning-another.json", whole);
  CHECK_ERROR(vulkan::load_tuning(other), "another device");
}

VULKAN_TEST(
    "vulkan tuning: attention's workgroups are as large as the tuning says, and no larger than its rows") {
  vulkan::Gpu& gpu = vulkan::gpu(device.index);
  const auto lanes = [&](std::int64_t length) {
    AttentionArgs args;
    args.query = args.key = args.value = Tensor::zeros({1, 1, length, 64}, DType::f32, device);
    return vulkan::square_group(vulkan::AttentionCall(args), true, 64, 4).lanes;
  };
  CHECK(lanes(300) == 16);
  CHECK(lanes(12) == 4);
  gpu.use(vulkan::AttentionTuning{.lanes = 8});
  CHECK(lanes(300) == 8);
  CHECK(lanes(12) == 4);
  gpu.use(vulkan::AttentionTuning{});
}

TEST_CASE("vulkan tuning: plans follow the figures") {
  const vulkan::Limits gpu{4294967295, 4294967295, 65535, 1024, 49152, 16};
  vulkan::TileSet set = vulkan::scalar_tiles();
  const auto plan = [&](std::int64_t m, std::int64_t k) {
    return vulkan::plan_matmul(set, gpu, 1, m, m, k, 256 << 20);
  };
  CHECK(plan(4096, 4096).tile.rows == 128);
  for (vulkan::TileShape& tile : set.tiles) tile.efficiency = tile.rows == 32 ? 1 : 0.1;
  CHECK(plan(4096, 4096).tile.rows == 32);
  // A few processors are busy with fewer pieces of a long sum.
  set = vulkan::scalar_tiles();
  const std::int64_t parts_of_many = plan(512, 16384).parts;
  set.units = 8;
  CHECK(plan(512, 16384).parts < parts_of_many);
}

}  // namespace heed
