// Every command of every task's program on a Vulkan device: trained, ended, resumed, measured, asked; and
// left in order.

#include "heed/tests/hostile/killed_training.h"

#include <sys/wait.h>

#include <cctype>
#include <nlohmann/json.hpp>

#include "heed/apps/tasks/task.h"
#include "heed/tests/vulkan_support.h"

namespace {

namespace fs = std::filesystem;

/// Flags that choose the device of the tests.
Arguments on_device() {
  const char* named = std::getenv("HEED_TEST_VULKAN");
  return {"--device", named ? named : "vulkan:llvmpipe"};
}

constexpr ProgramLimits limits = {.seconds = 300};  // a cold cache of shaders, beside other work

ProgramResult run_there(const std::string& task, const Arguments& arguments, const std::string& input = {}) {
  const ProgramResult result = run_program(task, joined(arguments, on_device()), input, ".", limits);
  CHECK_FALSE(result.hung);
  REQUIRE_MESSAGE(result.status == 0, result.errors);
  return result;
}

/// The loss, or what a task without one measures itself by.
double loss_in(const std::string& json) {
  const nlohmann::json report = nlohmann::json::parse(json);
  for (const char* const name : {"loss", "nats_per_token", "mrr", "root_mean_squared_error"})
    if (report.contains(name)) return report[name].get<double>();
  throw Error("no figure in " + json);
}

}  // namespace

VULKAN_TEST("vulkan tasks: every command of every program, and an exit in order") {
  for (const TaskEntry* entry : task_table()) {
    const std::string task(entry->name);
    CAPTURE(task);
    const TemporaryFolder folder;
    const std::string run = (folder / "run").string();
    run_there(task, small_train(task, run, {"--steps", "6"}));
    run_there(task, {"train", "--resume", "--out", run, "--steps", "8"});

    // The same weights on the CPU: the same figures, but for the last digits.
    const ProgramResult there = run_there(task, {"evaluate", "--run", run});
    const ProgramResult here = run_program(task, {"evaluate", "--run", run, "--device", "cpu"});
    REQUIRE_MESSAGE(here.status == 0, here.errors);
    CHECK(loss_in(there.output) == doctest::Approx(loss_in(here.output)).epsilon(1e-4));

    const std::string inside = (folder / "inside.html").string();
    const ProgramResult answers =
        run_there(task, joined(predict_command(task), {"--run", run, "--capture", inside}),
                  small_line(task) + small_line(task));
    CHECK(std::count(answers.output.begin(), answers.output.end(), '\n') >= 2);
    CHECK(fs::file_size(inside) > 1000);
    const ProgramResult rounded = run_program(
        task,
        joined(joined(predict_command(task), on_device()), {"--run", run, "--set", "int8_weights=true"}),
        small_line(task), ".", limits);
    CHECK(rounded.status == 2);
    CHECK(contains(rounded.errors, "int8_weights is for the CPU"));
  }
  const TemporaryFolder folder;  // int8_weights are refused before anything is trained
  CHECK(run_program(
            "classify",
            joined(small_train("classify", folder / "other", {"--set", "int8_weights=true"}), on_device()),
            {}, ".", limits)
            .status == 2);
  CHECK_FALSE(fs::exists(folder / "other"));
}

VULKAN_TEST("vulkan tasks: ranks that share a device give the bits of one process, in half precision too") {
  for (const auto& tried :
       {std::pair<std::string, std::string>{"f32", "routing_transformer"}, {"f16", "dot_product"}}) {
    const std::string &precision = tried.first, &attention = tried.second;
    CAPTURE_ALL(precision, attention);
    const TemporaryFolder folder;
    const Arguments flags = {"--steps",     "3",       "--set",       "training.accumulation=4",
                             "--precision", precision, "--attention", attention};
    run_there("classify", small_train("classify", folder / "alone", flags));
    run_there("classify", small_train("classify", folder / "two", joined(flags, {"--ranks", "2"})));
    for (const char* name : {"model.safetensors", "optimizer.safetensors"})
      CHECK(tensors_of(folder / "alone" / name) == tensors_of(folder / "two" / name));
  }
}

VULKAN_TEST("vulkan tasks: killed and resumed to the same bits") {
  for (const TaskEntry* entry : task_table()) {
    if (!std::getenv("HEED_KILLS") && entry != task_table().back())
      continue;  // one is what a test has time for
    CAPTURE(std::string(entry->name));
    check_killed_training(std::string(entry->name), kills_wanted(1), on_device());
  }
}

VULKAN_TEST("vulkan tasks: an end that was asked for leaves while work is queued, and saves") {
  const std::string task = "classify";
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  BackgroundProgram program(task, joined(small_train(task, run, {"--steps", "1000000"}), on_device()));
  for (int i = 0; i < 6000 && program.running() && !fs::exists(run / "metrics.jsonl"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  program.send(SIGTERM);
  CHECK(program.wait() == 143);
  REQUIRE(fs::exists(run / "trainer_state.json"));
  const int step = nlohmann::json::parse(content_of(run / "trainer_state.json")).at("step").get<int>();
  run_there(task, {"train", "--resume", "--out", run.string(), "--steps", std::to_string(step + 2)});
}

namespace {

/// An environment variable of the programs that a test starts.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

/// What a training that lost its device has to leave: one line that says so and names kernels, the status of
/// an error, and nothing that was under way.
void check_lost(const std::string& task, const ProgramResult& result, const fs::path& run) {
  CAPTURE(result.errors);
  CHECK_FALSE(result.hung);
  CHECK(result.status == 1);
  CHECK(result.output.empty());
  const std::size_t at = result.errors.find(task + ": error: ");
  REQUIRE(at != std::string::npos);
  const std::string error = result.errors.substr(at);
  CHECK(std::count(error.begin(), error.end(), '\n') == 1);
  for (const char* part : {"was lost (as HEED_VULKAN_LOSE_AFTER asks for: VK_ERROR_DEVICE_LOST)",
                           "restart from the last checkpoint"})
    CHECK_MESSAGE(contains(error, part), part);
  const std::string kernels = "its unfinished kernels: ";
  const std::size_t named = error.find(kernels);
  REQUIRE(named != std::string::npos);
  CHECK(std::islower(static_cast<unsigned char>(error[named + kernels.size()])));  // "copy", "matmul_f32" ...
  if (!fs::exists(run)) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(run))
    CHECK_FALSE(entry.path().filename().string().starts_with(".heed-"));
}

/// Trains while the device is lost after ever more submissions, and resumes: the weights are those of a
/// training that kept its device. Returns how often the device was lost behind a checkpoint.
int check_lost_training(const std::string& task, double growth) {
  const TemporaryFolder folder;
  const Arguments flags = {"--steps", "6", "--save-every", "2"};
  run_there(task, small_train(task, folder / "whole", flags));
  const std::string expected = tensors_of(folder / "whole/model.safetensors");
  int behind_checkpoint = 0;
  for (double submissions = 2;; submissions *= growth) {
    const auto number = std::to_string(static_cast<int>(submissions));
    CAPTURE(number);
    const fs::path run = folder / number;
    const ProgramResult result = [&] {
      const Variable lose("HEED_VULKAN_LOSE_AFTER", number);
      return run_program(task, joined(small_train(task, run, flags), on_device()), "", ".", limits);
    }();
    if (result.status == 0) break;  // done before
    check_lost(task, result, run);
    const bool resumes = fs::exists(run / "config.json");
    behind_checkpoint += fs::exists(run / "trainer_state.json");
    if (!resumes && submissions > 2) continue;  // what begins anew has been seen to
    run_there(task, small_train(task, run, resumes ? joined(flags, {"--resume"}) : flags));
    CHECK(tensors_of(run / "model.safetensors") == expected);
  }
  return behind_checkpoint;
}

}  // namespace

VULKAN_TEST("vulkan tasks: HEED_VULKAN_QUEUE is obeyed, or an error") {
  const auto devices = [](const char* queue) {
    const Variable wanted("HEED_VULKAN_QUEUE", queue);
    const ProgramResult result = run_program("heed", {"devices"}, "", ".", limits);
    return result.output + result.errors;
  };
  CHECK(!contains(devices("main"), "HEED_VULKAN_QUEUE"));
  CHECK(contains(devices("draw"), "HEED_VULKAN_QUEUE is \"draw\"; it must be main or compute"));
  // Mesa's software device has one family, which draws, too.
  if (!std::getenv("HEED_TEST_VULKAN"))
    CHECK(contains(devices("compute"), "it has no queue that computes and does not draw"));
}

VULKAN_TEST("vulkan tasks: a device lost in the middle of train ends it, and it resumes to the same bits") {
  int behind_checkpoint = 0;
  for (const TaskEntry* entry : task_table()) {
    const std::string task(entry->name);
    // One task is what a test has time for, from its first submission on.
    const bool is_chosen = task == "classify";
    if (!std::getenv("HEED_KILLS") && !is_chosen) continue;
    CAPTURE(task);
    behind_checkpoint += check_lost_training(task, is_chosen ? 2 : 5);
  }
  CHECK(behind_checkpoint >= 2);
}

VULKAN_TEST(
    "vulkan tasks: a device that is lost while a run is used is an error, and so is a wrong "
    "HEED_VULKAN_LOSE_AFTER") {
  const Arguments command =
      joined(joined(predict_command("classify"), {"--run", small_run("classify").string()}), on_device());
  {
    const Variable lose("HEED_VULKAN_LOSE_AFTER", "1");
    check_lost("classify", run_program("classify", command, small_line("classify"), ".", limits), "");
  }
  for (const char* value : {"soon", "-1", "3x"}) {
    const Variable lose("HEED_VULKAN_LOSE_AFTER", value);
    const ProgramResult result = run_program("classify", command, small_line("classify"), ".", limits);
    CHECK(result.status == 1);
    CHECK(contains(result.errors, concat_text("HEED_VULKAN_LOSE_AFTER is \"", value)));
  }
}
