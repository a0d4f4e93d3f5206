// The C API from several threads at once: what each gets is what it gets alone, and errors are its own.

#include <doctest/doctest.h>
#include <heed/c/heed.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "heed/apps/tasks/train.h"
#include "heed/core/device.h"
#include "heed/models/attention/attention.h"
#include "heed/tests/support.h"
#include "heed/tests/temporary_folder.h"

using heed::test::at_once;

namespace {

/// Handles that are freed together; the calls in between must work. doctest's checks are for one thread, so
/// that the others count.
class Work {
 public:
  explicit Work(std::atomic<int>& failures) : failures_(failures) {}
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work() {
    for (heed_tensor* tensor : tensors_) heed_tensor_free(tensor);
  }
  void must(heed_status status) {
    if (status != HEED_OK) ++failures_;
  }
  void must(bool holds) {
    if (!holds) ++failures_;
  }
  heed_tensor* kept(heed_tensor* tensor) {
    tensors_.push_back(tensor);
    return tensor;
  }
  heed_tensor* random(uint32_t stream, const std::vector<int64_t>& shape, heed_dtype dtype = HEED_F32) {
    heed_tensor* made = nullptr;
    must(heed_tensor_random("normal", 0, 1, 5, 0, stream, dtype, static_cast<int32_t>(shape.size()),
                            shape.data(), "cpu", &made));
    return kept(made);
  }
  std::vector<float> values(const heed_tensor* tensor) {
    int64_t shape[HEED_MAX_RANK];
    int32_t rank = 0;
    must(heed_tensor_shape(tensor, &rank, shape, nullptr));
    std::size_t count = 1;
    for (int32_t i = 0; i < rank; ++i) count *= static_cast<std::size_t>(shape[i]);
    std::vector<float> found(count);
    must(heed_tensor_read(tensor, found.data(), count * sizeof(float)));
    return found;
  }

 private:
  std::atomic<int>& failures_;
  std::vector<heed_tensor*> tensors_;
};

}  // namespace

TEST_CASE("c threads: a call that is asked to end says so, in its thread alone, and the run goes on") {
  const TemporaryFolder folder;
  const heed::TaskEntry& entry = heed::task_entry("classify");
  heed::Settings settings = entry.settings(false);
  for (const char* one : {"model.width=16", "model.heads=2", "training.steps=3"}) settings.assign(one);
  heed::train(entry, settings, {.folder = folder / "run", .report = false});
  heed_run* run = nullptr;
  REQUIRE(heed_run_open((folder / "run").c_str(), nullptr, &run) == HEED_OK);
  const char* lines[] = {"[ MAX 2 9 ]", "[ MIN 4 3 ]"};
  const auto answers = [&] {
    char* text = nullptr;
    if (heed_run_predict(run, lines, 2, nullptr, &text) != HEED_OK) return std::string(heed_last_error());
    const std::string found = text;
    heed_text_free(text);
    return found;
  };
  const std::string alone = answers();
  CHECK(alone.find("probability") != std::string::npos);
  int asked = 0, failures = 0;
  const auto never = [](void* count) -> int32_t { return ++*static_cast<int*>(count), 0; };
  const auto always = [](void* count) -> int32_t { return ++*static_cast<int*>(count), 1; };
  char* text = nullptr;
  REQUIRE(heed_set_stop(never, &asked) == HEED_OK);
  CHECK(answers() == alone);
  CHECK(asked > 0);
  REQUIRE(heed_set_stop(always, &asked) == HEED_OK);
  CHECK(heed_run_predict(run, lines, 2, nullptr, &text) == HEED_INTERRUPTED);
  CHECK(text == nullptr);
  CHECK(std::string(heed_last_error()).find("interrupted") != std::string::npos);
  CHECK(heed_run_measure(run, "valid", &text) == HEED_INTERRUPTED);
  at_once(1, [&](std::size_t) {  // another thread was not asked to stop
    if (answers() != alone) ++failures;
  });

  // A stop function that uses the run that waits for it is told so, and does not wait for ever.
  struct Asked {
    heed_run* run;
    heed_status status;
    std::string words;
  } by_itself{run, HEED_OK, ""};
  const auto describe = [](void* context) -> int32_t {
    auto* const asked_here = static_cast<Asked*>(context);
    char* found = nullptr;
    asked_here->status = heed_run_describe(asked_here->run, &found);
    asked_here->words = heed_last_error();
    heed_text_free(found);
    return 0;
  };
  REQUIRE(heed_set_stop(describe, &by_itself) == HEED_OK);
  CHECK(answers() == alone);
  CHECK(by_itself.status == HEED_ERROR);
  CHECK(by_itself.words.find("in use by the call that called this function") != std::string::npos);
  REQUIRE(heed_set_stop(nullptr, nullptr) == HEED_OK);
  CHECK(answers() == alone);
  CHECK(failures == 0);
  heed_run_free(run);
  CHECK(heed_live_handles() == 0);
}

TEST_CASE("c threads: each has the words of its own errors, and records what it wants") {
  std::atomic<int> failures = 0;
  at_once(4, [&](std::size_t i) {
    const std::string op = "no_op_" + std::to_string(i);
    Work work(failures);
    heed_tensor *leaf = nullptr, *y = nullptr;
    work.must(heed_tensor_parameter(work.random(1, {3}), &leaf));
    work.kept(leaf);
    int32_t before = 0, tracked = 0;
    work.must(heed_set_recording(i % 2 == 0 ? 1 : 0, &before));
    for (int round = 0; round < 100; ++round) {
      if (heed_unary(op.c_str(), leaf, 0, 0, &y) != HEED_ERROR || y) ++failures;
      work.must(std::string(heed_last_error()).find("'" + op + "'") != std::string::npos);
      work.must(heed_unary("exp", leaf, 0, 0, &y));
      work.must(heed_tensor_is_tracked(y, &tracked));
      work.must(tracked == (i % 2 == 0 ? 1 : 0));
      heed_tensor_free(y);
      heed_set_last_error(op.c_str());
      work.must(std::string(heed_last_error()) == op);
    }
    work.must(heed_set_recording(before, nullptr));
  });
  CHECK(failures == 0);
  CHECK(heed_live_handles() == 0);
}

TEST_CASE("c threads: a tensor may be freed while others use it, and lent memory comes back once") {
  float values[64];
  std::fill(std::begin(values), std::end(values), 2.0F);
  const int64_t shape[] = {64};
  std::atomic<int> released = 0, failures = 0;
  const auto count = [](void* context) { ++*static_cast<std::atomic<int>*>(context); };
  constexpr int rounds = 20;
  for (int round = 0; round < rounds; ++round) {
    heed_tensor* lent = nullptr;
    REQUIRE(heed_tensor_borrow(HEED_F32, 1, shape, values, count, &released, &lent) == HEED_OK);
    at_once(4, [&](std::size_t i) {
      if (i == 0) {
        heed_tensor_free(lent);
        return;
      }
      heed_tensor *y = nullptr, *sum = nullptr;
      const heed_status status = heed_binary("mul", lent, lent, &y);  // in time, or told that it was freed
      if (status == HEED_BAD_ARGUMENT) {
        if (std::string(heed_last_error()).find("was freed") == std::string::npos) ++failures;
        return;
      }
      double number = 0;
      if (status != HEED_OK || heed_reduce("sum", y, HEED_ALL_AXES, 0, &sum) != HEED_OK ||
          heed_tensor_item(sum, &number) != HEED_OK || number != 256)
        ++failures;
      heed_tensor_free(y);
      heed_tensor_free(sum);
    });
  }
  CHECK(failures == 0);
  CHECK(released == rounds);
  CHECK(heed_live_handles() == 0);
}

TEST_CASE("c threads: gradient checks with callbacks, while the number of threads changes") {
  const heed_function cube = [](void*, heed_tensor* const* in, size_t, heed_tensor** out) {
    heed_tensor* square = nullptr;
    heed_status status = heed_binary("mul", in[0], in[0], &square);
    if (status == HEED_OK) status = heed_binary("mul", square, in[0], out);
    heed_tensor_free(square);
    return status;
  };
  const heed_function fails = [](void* context, heed_tensor* const*, size_t, heed_tensor**) -> heed_status {
    heed_set_last_error(static_cast<const char*>(context));
    return HEED_CALLBACK_FAILED;
  };
  const int before = heed::cpu_threads();
  std::atomic<int> failures = 0;
  at_once(3, [&](std::size_t i) {
    Work work(failures);
    std::string words = "failure " + std::to_string(i);
    heed_tensor* x = work.random(static_cast<uint32_t>(i), {4}, HEED_F64);
    for (int round = 0; round < 5; ++round) {
      heed_gradcheck_result result;
      if (i == 2) work.must(heed_set_cpu_threads(1 + round % 3));
      work.must(heed_gradcheck(cube, nullptr, &x, 1, 0, &result));
      work.must(result.passed == 1);
      work.must(heed_gradcheck(fails, words.data(), &x, 1, 0, &result) == HEED_CALLBACK_FAILED);
      work.must(std::string(heed_last_error()).find(words) != std::string::npos);
    }
  });
  heed::set_cpu_threads(before);
  CHECK(failures == 0);
  CHECK(heed_live_handles() == 0);
}
