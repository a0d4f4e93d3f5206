#include "heed/tests/hostile/hostile_uses.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "heed/base/error.h"

namespace heed::test {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Before with_file(const std::string& name, const std::string& content) {
  return [=](const fs::path& folder) { write_content(folder / name, content); };
}

Before with_folder(const std::string& name) {
  return [=](const fs::path& folder) { fs::create_directories(folder / name); };
}

Before with_fifo(const std::string& name) {
  return [=](const fs::path& folder) {
    fs::remove(folder / name);
    if (::mkfifo((folder / name).c_str(), 0666) != 0) throw CannotPrepare{"a FIFO cannot be made here"};
  };
}

Before with_device(const std::string& name, unsigned minor) {
  return [=](const fs::path& folder) {
    const fs::path path = folder / name;
    if (::mknod(path.c_str(), S_IFCHR | 0666, makedev(1, minor)) != 0)
      throw CannotPrepare{"this user may not make device nodes"};
    const int descriptor = ::open(path.c_str(), O_RDWR);
    if (descriptor < 0) throw CannotPrepare{"device nodes do not work in this folder"};
    ::close(descriptor);
  };
}

Before in_turn(std::vector<Before> all) {
  return [all = std::move(all)](const fs::path& folder) {
    for (const Before& one : all) one(folder);
  };
}

Before without(const std::string& name) {
  return [=](const fs::path& folder) { check(fs::remove(folder / name), "there is no ", name); };
}

Before with_json(const std::string& name, std::function<void(Json&)> change) {
  return [=](const fs::path& folder) {
    Json content = Json::parse(content_of(folder / name));
    change(content);
    write_content(folder / name, content.dump(2) + "\n");
  };
}

std::string last_part(const std::string& setting) {
  return setting.substr(setting.rfind('.') + 1);
}

std::string attention_setting(const std::string& task) {
  return task == "language_model" ? "model.decoder_attention" : "model.encoder_attention";
}

std::string layers_setting(const std::string& task) {
  return task == "language_model" ? "model.decoder_layers" : "model.encoder_layers";
}

Arguments use_command(const std::string& task, const Arguments& more) {
  Arguments command = predict_command(task);
  return joined(joined({command.front(), "--run", "{run}"}, {command.begin() + 1, command.end()}), more);
}

Arguments train_command(const Arguments& more) {
  return joined({"train", "--out", "{t}/out", "{small}"}, more);
}

}  // namespace heed::test
