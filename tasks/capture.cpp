#include "heed/tasks/capture.h"

#include <nlohmann/json.hpp>

#include "heed/autograd/autograd.h"
#include "heed/core/file.h"
#include "heed/tasks/capture_page.h"
#include "heed/training/chart.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

Capture captured(const std::function<void(Context&)>& pass) {
  const NoGrad no_grad;
  Capture capture;
  Context context = Context::inference();
  context.capture = &capture;
  pass(context);
  return capture;
}

void CaptureFile::add(const std::string& example, const Capture& capture) {
  for (const Capture::Entry& entry : capture.entries)
    add(example + "." + entry.layer + "." + entry.name, entry.value);
}

void CaptureFile::add(const std::string& name, const Tensor& value) {
  std::string free = name;
  for (int i = 1; content_.tensors.contains(free); ++i) free = name + "." + std::to_string(i);
  content_.tensors.emplace(free, value);
}

void CaptureFile::add_tokens(const std::string& example, const std::string& name, const Tensor& ids,
                             const std::vector<std::string>& texts) {
  add(example + "." + name, ids);
  content_.metadata[example + "." + name] = Json(texts).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string CaptureFile::page() const {
  constexpr const char* title = "What the model looks at";
  return page_head(title, capture_style()) + "<h1>" + title + "</h1>\n" + std::string(capture_note) +
         capture_html(content_) + std::string(page_end);
}

void CaptureFile::save(const std::filesystem::path& path, bool overwrite) const {
  if (path.extension() == ".html") return write_output(path, page(), overwrite);
  check_output(path, overwrite);
  save_safetensors(path, content_);
}

}  // namespace heed
