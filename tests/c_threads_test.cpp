// The C API from several threads at once: what each gets is what it gets alone, and errors are its own.

#include <doctest/doctest.h>
#include <heed/c/heed.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "heed/apps/tasks/train.h"
#include "heed/core/device.h"
#include "heed/models/attention/attention.h"
#include "temporary_folder.h"

namespace {

/// Calls work(i) for i = 0 ... count - 1, each in a thread of its own, all at once.
template <class Work>
void in_threads(std::size_t count, const Work& work) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) threads.emplace_back([&work, i] { work(i); });
  for (std::thread& thread : threads) thread.join();
}

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

/// The parameters of a layer after some steps of an own loop.
std::vector<float> trained(std::size_t seed, std::atomic<int>& failures) {
  Work work(failures);
  heed_module* layer = nullptr;
  heed_optimizer* adam = nullptr;
  const std::string settings =
      R"({"width": 8, "heads": 2, "clusters": 2, "dropout": 0.2, "seed": )" + std::to_string(seed) + "}";
  work.must(heed_attention_create("clusterformer", settings.c_str(), &layer));
  std::size_t count = 0;
  work.must(heed_module_parameter_count(layer, &count));
  std::vector<heed_tensor*> parameters(count);
  for (std::size_t i = 0; i < count; ++i) {
    work.must(heed_module_parameter(layer, i, nullptr, &parameters[i]));
    work.kept(parameters[i]);
  }
  work.must(heed_optimizer_create("adam", R"({"clip_norm": 1})", parameters.data(), count, &adam));
  heed_tensor* const x = work.random(static_cast<uint32_t>(seed), {2, 6, 8});
  for (uint32_t step = 1; step <= 6; ++step) {
    heed_context* context = nullptr;
    heed_tensor *y = nullptr, *square = nullptr, *loss = nullptr, *extra = nullptr, *sum = nullptr;
    work.must(heed_context_create(1, seed, step, &context));
    work.must(heed_attention_forward(layer, x, nullptr, nullptr, nullptr, context, &y));
    work.must(heed_binary("mul", work.kept(y), y, &square));
    work.must(heed_reduce("mean", work.kept(square), HEED_ALL_AXES, 0, &loss));
    work.must(heed_context_auxiliary_loss(context, &extra));
    work.must(heed_reduce("sum", work.kept(extra), HEED_ALL_AXES, 0, &sum));
    work.must(heed_binary("add", work.kept(loss), work.kept(sum), &y));
    work.must(heed_backward(work.kept(y), nullptr));
    work.must(heed_optimizer_step(adam, 0.05));
    work.must(heed_optimizer_zero_gradients(adam));
    heed_context_free(context);
  }
  std::vector<float> all;
  for (heed_tensor* parameter : parameters) {
    const std::vector<float> values = work.values(parameter);
    all.insert(all.end(), values.begin(), values.end());
  }
  heed_optimizer_free(adam);
  heed_module_free(layer);
  return all;
}

}  // namespace

TEST_CASE("c threads: many predict with one run, and look at it meanwhile") {
  const TemporaryFolder folder;
  const heed::TaskKind& kind = heed::task_kind("classify");
  heed::Settings settings = kind.settings(false);
  for (const char* one : {"model.width=16", "model.heads=2", "training.steps=3"}) settings.assign(one);
  heed::train(kind, settings, {.folder = folder / "run", .report = false});
  heed_run* run = nullptr;
  REQUIRE(heed_run_open((folder / "run").c_str(), nullptr, &run) == HEED_OK);
  const char* lines[] = {"[ MAX 2 9 ]", "[ MIN 4 3 ]", "[ MAX 1 [ MIN 7 8 ] ]", "[ MIN 5 ]", "one"};
  const auto answers = [&](std::size_t first) {
    char* text = nullptr;
    if (heed_run_predict(run, lines + first, 2, nullptr, &text) != HEED_OK)
      return std::string(heed_last_error());
    const std::string found = text;
    heed_text_free(text);
    return found;
  };
  std::vector<std::string> alone;
  for (std::size_t i = 0; i < 4; ++i) alone.push_back(answers(i));
  CHECK(alone[0].find("probability") != std::string::npos);
  CHECK(alone[0] != alone[3]);
  std::atomic<int> failures = 0;
  in_threads(4, [&](std::size_t i) {
    for (int round = 0; round < 3; ++round) {
      if (answers(i) != alone[i]) ++failures;
      char* text = nullptr;
      heed_module* model = nullptr;
      if (heed_run_describe(run, &text) != HEED_OK) ++failures;
      heed_text_free(text);
      if (heed_run_model(run, &model) != HEED_OK) ++failures;
      heed_module_free(model);
    }
  });
  CHECK(failures == 0);

  // A call that is asked to end says so, and the run answers as before.
  int asked = 0;
  const auto never = [](void* count) -> int32_t { return ++*static_cast<int*>(count), 0; };
  const auto at_once = [](void* count) -> int32_t { return ++*static_cast<int*>(count), 1; };
  char* text = nullptr;
  REQUIRE(heed_set_stop(never, &asked) == HEED_OK);
  CHECK(answers(0) == alone[0]);
  CHECK(asked > 0);
  REQUIRE(heed_set_stop(at_once, &asked) == HEED_OK);
  CHECK(heed_run_predict(run, lines, 2, nullptr, &text) == HEED_INTERRUPTED);
  CHECK(text == nullptr);
  CHECK(std::string(heed_last_error()).find("interrupted") != std::string::npos);
  CHECK(heed_run_measure(run, "valid", &text) == HEED_INTERRUPTED);
  in_threads(1, [&](std::size_t) {  // another thread was not asked to stop
    if (answers(1) != alone[1]) ++failures;
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
  CHECK(answers(0) == alone[0]);
  CHECK(by_itself.status == HEED_ERROR);
  CHECK(by_itself.words.find("in use by the call that called this function") != std::string::npos);
  REQUIRE(heed_set_stop(nullptr, nullptr) == HEED_OK);
  CHECK(answers(0) == alone[0]);
  CHECK(failures == 0);
  heed_run_free(run);
  CHECK(heed_live_handles() == 0);
}

TEST_CASE("c threads: each has the words of its own errors, and records what it wants") {
  std::atomic<int> failures = 0;
  in_threads(4, [&](std::size_t i) {
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

TEST_CASE("c threads: two trainings at once come to the weights of each alone") {
  std::atomic<int> failures = 0;
  const std::vector<float> alone[] = {trained(1, failures), trained(2, failures)};
  CHECK(alone[0] != alone[1]);
  std::vector<float> together[2];
  in_threads(2, [&](std::size_t i) { together[i] = trained(i + 1, failures); });
  for (int i = 0; i < 2; ++i) CHECK(together[i] == alone[i]);
  CHECK(failures == 0);
  CHECK(heed_live_handles() == 0);
}

TEST_CASE("c threads: many compute with one layer, of every mechanism") {
  for (const heed::AttentionVariant& variant : heed::attention_variants()) {
    CAPTURE(variant.name);
    heed_module* layer = nullptr;
    const std::string name(variant.name);
    REQUIRE(heed_attention_create(name.c_str(), R"({"width": 8, "heads": 2, "max_length": 12})", &layer) ==
            HEED_OK);
    std::atomic<int> failures = 0;
    const auto output = [&](std::size_t i) {
      Work work(failures);
      heed_tensor* y = nullptr;
      heed_tensor* const x = work.random(static_cast<uint32_t>(i), {1, static_cast<int64_t>(12 - 2 * i), 8});
      work.must(heed_set_recording(0, nullptr));
      work.must(heed_attention_forward(layer, x, nullptr, nullptr, nullptr, nullptr, &y));
      work.must(heed_set_recording(1, nullptr));
      return work.values(work.kept(y));
    };
    std::vector<float> alone[4], found[4];
    for (std::size_t i = 0; i < 4; ++i) alone[i] = output(i);
    in_threads(4, [&](std::size_t i) {
      found[i] = output(i);
      if (output(i) != found[i]) ++failures;
    });
    for (int i = 0; i < 4; ++i) CHECK(found[i] == alone[i]);
    CHECK(failures == 0);
    heed_module_free(layer);
  }
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
    in_threads(4, [&](std::size_t i) {
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
  in_threads(3, [&](std::size_t i) {
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
