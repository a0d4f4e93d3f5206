#include "heed/core/device.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "heed/base/error.h"

namespace heed {

std::string name_of(Device device) {
  return device.type == DeviceType::cpu ? "cpu" : "vulkan:" + std::to_string(device.index);
}

namespace {

std::string what_was_found() {
  const VulkanDevices& found = vulkan_devices();
  if (found.devices.empty()) return "no Vulkan device: " + found.problem;
  std::string text = "found";
  for (const DeviceInfo& info : found.devices) {
    text += concat_text(text == "found" ? " " : "; ", info.device, " ", info.name, " (", info.kind, ")");
    if (!info.refusal.empty()) text += ", refused: " + info.refusal;
  }
  return text;
}

/// The devices that need not be named: discrete GPUs first, then the others, each in the driver's order.
std::vector<Device> gpus() {
  std::vector<Device> discrete, other;
  for (const DeviceInfo& info : vulkan_devices().devices) {
    if (!info.refusal.empty() || info.kind == "software" || info.kind == "other") continue;
    (info.kind == "discrete GPU" ? discrete : other).push_back(info.device);
  }
  discrete.insert(discrete.end(), other.begin(), other.end());
  return discrete;
}

bool contains_ignoring_case(std::string_view text, std::string_view part) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  const auto same = [&](char a, char b) { return lower(a) == lower(b); };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

const DeviceInfo* device_called(std::string_view name) {
  const auto& devices = vulkan_devices().devices;
  int index = -1;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  const bool is_index = error == std::errc() && stop == name.data() + name.size();
  for (const DeviceInfo& info : devices)
    if (is_index ? info.device.index == index : contains_ignoring_case(info.name, name)) return &info;
  return nullptr;
}

Device named_gpu(std::string_view choice, std::string_view name) {
  const DeviceInfo* info = name.empty() ? nullptr : device_called(name);
  check(info, "device \"", choice, "\" does not exist: ", what_was_found());
  check(info->refusal.empty(), "device \"", choice, "\" (", info->name, ") cannot be used: ", info->refusal);
  return info->device;
}

}  // namespace

Device find_device(std::string_view choice, int place, int places) {
  if (choice.empty()) {
    const char* preset = std::getenv("HEED_DEVICE");
    choice = preset && *preset ? preset : "cpu";
  }
  if (choice == "cpu") return {};
  if (choice == "auto" || choice == "vulkan") {
    const std::vector<Device> found = gpus();
    if (found.empty() && choice == "auto") return {};
    check(!found.empty(),
          "device \"vulkan\": there is no GPU that heed can use (a software device must be named); ",
          what_was_found());
    check(static_cast<std::size_t>(places) <= found.size(), "device \"", choice, "\": ", places,
          " processes of this machine want a GPU each, but there are ", found.size(),
          "; start fewer, or name one for all to share (vulkan:N); ", what_was_found());
    return found[static_cast<std::size_t>(place)];
  }
  constexpr std::string_view prefix = "vulkan:";
  check(choice.starts_with(prefix), "device \"", choice,
        "\" is not known; give auto, cpu, vulkan, vulkan:N or vulkan:NAME");
  return named_gpu(choice, choice.substr(prefix.size()));
}

}  // namespace heed
