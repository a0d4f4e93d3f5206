#include "heed/core/devices.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "heed/core/error.h"

namespace heed {

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

/// The best device that need not be named: discrete before the other kinds, in the driver's order.
std::optional<Device> best_gpu() {
  const DeviceInfo* best = nullptr;
  for (const DeviceInfo& info : vulkan_devices().devices) {
    if (!info.refusal.empty() || info.kind == "software" || info.kind == "other") continue;
    if (!best || (info.kind == "discrete GPU" && best->kind != "discrete GPU")) best = &info;
  }
  return best ? std::optional(best->device) : std::nullopt;
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

Device find_device(std::string_view choice) {
  if (choice.empty()) {
    const char* preset = std::getenv("HEED_DEVICE");
    choice = preset && *preset ? preset : "cpu";
  }
  if (choice == "cpu") return {};
  if (choice == "auto") return best_gpu().value_or(Device{});
  if (choice == "vulkan") {
    const std::optional<Device> gpu = best_gpu();
    check(gpu.has_value(),
          "device \"vulkan\": there is no GPU that heed can use (a software device must be named); ",
          what_was_found());
    return *gpu;
  }
  constexpr std::string_view prefix = "vulkan:";
  check(choice.starts_with(prefix), "device \"", choice,
        "\" is not known; give auto, cpu, vulkan, vulkan:N or vulkan:NAME");
  return named_gpu(choice, choice.substr(prefix.size()));
}

}  // namespace heed
