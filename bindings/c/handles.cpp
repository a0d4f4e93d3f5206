#include "heed/c/handles.h"

#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "heed/base/error.h"
#include "heed/base/fork.h"
#include "heed/base/unicode.h"
#include "heed/core/device.h"
#include "heed/core/version.h"

namespace heed::c {
namespace {

constexpr int kind_bits = 3;

struct Table {
  LeafMutex mutex;
  std::unordered_map<std::uintptr_t, std::shared_ptr<void>> objects;
  std::uintptr_t next = 1;
};

/// Never destroyed: handles that are left when the program ends outlive their devices.
Table& table() {
  static auto* const handles = new Table;
  return *handles;
}

const char* name_of(std::uintptr_t kind) {
  static constexpr const char* names[] = {"heed_tensor", "heed_context", "heed_module",  "heed_optimizer",
                                          "heed_run",    "heed_queue",   "heed_autocast"};
  return kind >= 1 && kind <= std::size(names) ? names[kind - 1] : nullptr;
}

thread_local std::string last_error;
/// Used if there is no memory for a message.
thread_local const char* last_error_without_memory = nullptr;

/// Returns a message in which examples from memory, which the library reads from temporary files,
/// are named as rows: "row 4 of 'train'" for "/tmp/heed-examples-x/train.jsonl:5".
std::string name_example_rows(std::string message) {
  constexpr std::string_view ending = ".jsonl", digits = "0123456789";
  for (std::size_t at = 0; (at = message.find("heed-examples-", at)) != std::string::npos;) {
    const std::size_t begin = message.find_last_of(" \"'(", at) + 1, end = message.find(ending, at);
    if (end == std::string::npos) break;
    const std::size_t name = message.rfind('/', end) + 1;
    std::size_t after = end + ending.size();
    std::string row;
    if (message.compare(after, 1, ":") == 0) {
      const std::size_t stop = std::min(message.find_first_not_of(digits, after + 1), message.size());
      const std::string line = message.substr(after + 1, stop - after - 1);
      if (!line.empty() && line.size() < 18) {
        row = concat_text("row ", std::stoll(line) - 1, " of ");
        after = stop;
      }
    }
    const std::string named = concat_text(row, '\'', message.substr(name, end - name), '\'');
    message.replace(begin, after - begin, named);
    at = begin + named.size();
  }
  return message;
}

template <class... Parts>
void set_last_error(const Parts&... parts) noexcept {
  last_error_without_memory = nullptr;
  try {
    last_error = unicode::printable_lines(name_example_rows(concat_text(parts...)));  // hosts print it as is
  } catch (...) {
    last_error_without_memory = "out of memory, even for a message";
  }
}

}  // namespace

std::uintptr_t add_object(Kind kind, std::shared_ptr<void> object) {
  Table& handles = table();
  const std::lock_guard lock(handles.mutex);
  const std::uintptr_t handle = handles.next << kind_bits | static_cast<std::uintptr_t>(kind);
  handles.objects.emplace(handle, std::move(object));
  ++handles.next;
  return handle;
}

std::shared_ptr<void> find_object(Kind kind, std::uintptr_t handle, const char* argument, bool take) {
  Table& handles = table();
  const std::lock_guard lock(handles.mutex);
  const std::uintptr_t given = handle & ((1U << kind_bits) - 1);
  if (given == static_cast<std::uintptr_t>(kind)) {
    const auto found = handles.objects.find(handle);
    if (found != handles.objects.end()) {
      std::shared_ptr<void> object = found->second;
      if (take) handles.objects.erase(found);
      return object;
    }
  }
  check_argument(handle != 0, argument, " is NULL");
  const char* wanted = name_of(static_cast<std::uintptr_t>(kind));
  const bool known = name_of(given) && handle >> kind_bits >= 1 && handle >> kind_bits < handles.next;
  check_argument(known, argument, " is not a handle from heed; a ", wanted, " is needed");
  check_argument(given == static_cast<std::uintptr_t>(kind), argument, " is a ", name_of(given), " where a ",
                 wanted, " is needed");
  throw BadArgument(concat_text(argument, " is a ", wanted, " that was freed"));
}

Kind kind_of(std::uintptr_t handle) {
  return static_cast<Kind>(handle & ((1U << kind_bits) - 1));
}

Release::~Release() {
  if (!release_) return;
  try {
    release_(context_);
  } catch (...) {  // there is no caller to report to
    heed_set_last_error("a release function threw an exception");
  }
}

char* new_text(const std::string& text) {
  auto* const copy = new char[text.size() + 1];
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

Options settings_of(const char* json) {
  Options options;
  const auto settings = settings_object<nlohmann::ordered_json>(json);
  about_settings([&] {
    for (const auto& [name, value] : settings.items())
      options.set(name, option_from_json(name, value.dump()));
  });
  return options;
}

heed_status status_of_exception(const char* function) noexcept {
  const auto failed = [](heed_status status, const auto&... parts) {
    set_last_error(parts...);
    return status;
  };
  try {
    throw;
  } catch (const BadArgument& error) {
    return failed(HEED_BAD_ARGUMENT, function, ": ", error.what());
  } catch (const CallbackFailed& error) {
    return failed(HEED_CALLBACK_FAILED, error.what());
  } catch (const SettingsError& error) {
    return failed(HEED_BAD_SETTINGS, error.what());
  } catch (const OutOfMemory& error) {
    return failed(HEED_OUT_OF_MEMORY, error.what());
  } catch (const DeviceLost& error) {
    return failed(HEED_DEVICE_LOST, error.what());
  } catch (const Error& error) {
    return failed(HEED_ERROR, error.what());
  } catch (const Interrupted&) {
    return failed(HEED_INTERRUPTED, function, ": interrupted at the program's request");
  } catch (const std::bad_alloc&) {
    return failed(HEED_OUT_OF_MEMORY, function, ": out of memory");
  } catch (const std::exception& error) {
    return failed(HEED_ERROR, "unexpected: ", error.what());
  } catch (...) {
    return failed(HEED_ERROR, function, ": an exception of an unknown type");
  }
}

}  // namespace heed::c

using namespace heed::c;

int32_t heed_abi_version(void) {
  return HEED_ABI_VERSION;
}

const char* heed_version(void) {
  return heed::version;
}

const char* heed_last_error(void) {
  return last_error_without_memory ? last_error_without_memory : last_error.c_str();
}

void heed_set_last_error(const char* message) {
  set_last_error(message ? message : "");
}

void heed_text_free(char* text) {
  delete[] text;
}

heed_status heed_set_cpu_threads(int32_t count) {
  return guarded(__func__, [&] { heed::set_cpu_threads(count); });
}

int64_t heed_live_handles(void) {
  try {
    Table& handles = table();
    const std::lock_guard lock(handles.mutex);
    return static_cast<std::int64_t>(handles.objects.size());
  } catch (...) {  // of the mutex
    return -1;
  }
}
