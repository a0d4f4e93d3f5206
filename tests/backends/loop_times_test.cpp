#include "heed/backends/cpu/loop_times.h"

#include "heed/backends/cpu/blas.h"
#include "heed/tests/kernel_check.h"

// How a step scales: its loops as they are recorded, the schedule of their tasks on some threads, and into
// how many tasks the kernels cut their work. The number of tasks follows from the shapes alone; how long they
// take is not tested.

namespace {

/// The tasks of the loops that `body` runs.
template <class Body>
std::vector<std::int64_t> tasks_of(Body&& body) {
  cpu::LoopRecorder recorder;
  body();
  std::vector<std::int64_t> tasks;
  for (const cpu::LoopTimes& loop : recorder.stop().loops)
    tasks.push_back(static_cast<std::int64_t>(loop.tasks.size()));
  return tasks;
}

using Counts = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("a schedule gives each task, in order, to the thread that is free first") {
  // Before a loop 1, then the tasks 4, 2, 2, 2; before one task of 3 comes 0.5; 0.25 at the end.
  const cpu::StepTimes step{{{"", 1, {4, 2, 2, 2}}, {"", 0.5, {3}}}, 0.25};
  const cpu::Schedule one = cpu::schedule(step, 1, 0.125);
  CHECK(one.total == 14.75);
  CHECK(one.serial == 4.75);
  const cpu::Schedule two = cpu::schedule(step, 2, 0.125);  // 4 and 2 | 2, 2, 2: 6 each at most
  CHECK(two.total == 1 + 0.125 + 6 + 0.5 + 3 + 0.25);
  CHECK(two.serial == 4.75);
  const cpu::Schedule three = cpu::schedule(step, 3, 0.125);  // 4 | 2, 2 | 2
  CHECK(three.total == 1 + 0.125 + 4 + 0.5 + 3 + 0.25);
  CHECK(cpu::schedule(step, 64, 0.125).total == three.total);
  CHECK(cpu::schedule({}, 8, 1).total == 0);
  CHECK_THROWS_AS(cpu::schedule(step, 0, 0), Error);
}

TEST_CASE("the median of steps is taken task by task, and only of the same loops") {
  const cpu::StepTimes steps[] = {{{{"", 1, {4, 2}}}, 7}, {{{"", 3, {1, 5}}}, 5}, {{{"", 2, {9, 3}}}, 6}};
  const cpu::StepTimes median = cpu::median_step(steps);
  CHECK(median.after == 6);
  REQUIRE(median.loops.size() == 1);
  CHECK(median.loops[0].before == 2);
  CHECK(median.loops[0].tasks == Doubles{4, 3});
  const cpu::StepTimes fewer_tasks[] = {{{{"", 1, {4, 2}}}, 7}, {{{"", 1, {4}}}, 7}};
  CHECK_THROWS_AS(cpu::median_step(fewer_tasks), Error);
  const cpu::StepTimes fewer_loops[] = {{{{"", 1, {4, 2}}}, 7}, {{}, 7}};
  CHECK_THROWS_AS(cpu::median_step(fewer_loops), Error);
  CHECK_THROWS_AS(cpu::median_step({}), Error);
}

TEST_CASE("a recorder sees the loops of its thread, each task once") {
  const WithThreads scope(3);
  const auto self = std::this_thread::get_id();
  std::vector<int> runs(10);
  CHECK(tasks_of([&] {
          parallel_for(10, [&](std::int64_t task) {
            CHECK(std::this_thread::get_id() == self);
            ++runs[static_cast<std::size_t>(task)];
            parallel_for(2, [](std::int64_t) {});  // belongs to its task
          });
          parallel_for(0, [](std::int64_t) {});
          std::thread([] { parallel_for(5, [](std::int64_t) {}); }).join();
          CHECK_THROWS_AS(cpu::LoopRecorder(), Error);
          CHECK_THROWS_AS(parallel_for(4, [](std::int64_t) { throw Error("task"); }), Error);
          parallel_for(1, [](std::int64_t) {});
        }) == Counts{10, 1});
  CHECK(runs == std::vector<int>(10, 1));
  { const cpu::LoopRecorder left_alone; }
  CHECK(tasks_of([] { parallel_for(2, [](std::int64_t) {}); }) == Counts{2});
}

TEST_CASE("products are cut into tasks for many threads, by their shapes") {
  struct Case {
    std::int64_t batch, m, n, k, least, most;
  };
  // The maps of a layer and their gradients, the logits of a large vocabulary, heads, a vector, and small
  // ones.
  for (const Case& c :
       {Case{1, 4096, 256, 256, 16, 160}, Case{1, 4096, 1024, 256, 16, 160},
        Case{1, 4096, 256, 1024, 16, 160}, Case{1, 1024, 256, 4096, 16, 160},
        Case{1, 256, 256, 4096, 16, 160}, Case{1, 524, 8000, 256, 16, 160}, Case{1, 524, 256, 8000, 16, 160},
        Case{64, 128, 128, 64, 64, 64}, Case{1, 1, 50257, 768, 16, 160}, Case{1, 8192, 8192, 8192, 64, 4096},
        Case{1, 128, 128, 128, 1, 4}, Case{1, 16, 16, 16, 1, 1}, Case{1, 64, 64, 0, 1, 1}}) {
    CAPTURE_ALL(c.m, c.n, c.k);
    const cpu::MatmulPlan plan(c.batch, c.m, c.n, c.k, true);
    CHECK(plan.tasks() >= c.least);
    CHECK(plan.tasks() <= c.most);
    // The tiles are all of the product, and none is empty.
    CHECK(plan.rows * plan.tile_rows >= c.m);
    CHECK((plan.rows - 1) * plan.tile_rows < c.m);
    CHECK(plan.columns * plan.tile_columns >= c.n);
    CHECK((plan.columns - 1) * plan.tile_columns < c.n);
    CHECK(plan.parts * plan.part_depth >= c.k);
    CHECK((plan.parts - 1) * plan.part_depth <= c.k);
  }
}

TEST_CASE("the two products of a linear map's backward share one loop, to the bits of two") {
  for (const double beta : {0.0, 1.0}) {
    const Tensor grad = random_floats({1100, 96}, 1), x = random_floats({1100, 160}, 2),
                 weight = random_floats({96, 160}, 3);
    const Tensor dx = Tensor::empty({1100, 160}), dweight = random_floats({96, 160}, 4);
    const Tensor other_dx = Tensor::empty({1100, 160}), other_dweight = random_floats({96, 160}, 4);
    const Tensor across = grad.view({96, 1100}, {1, 96}, 0);
    const Counts together = tasks_of([&] {
      cpu_backend.linear_backward(std::span(&grad, 1), x, std::span(&weight, 1), beta, dx,
                                  std::span(&dweight, 1));
    });
    const Counts of_x = tasks_of([&] { cpu_backend.matmul(grad, weight, {}, 0, other_dx); }),
                 of_weight = tasks_of([&] { cpu_backend.matmul(across, x, {}, beta, other_dweight); });
    REQUIRE(!together.empty());
    CHECK(together[0] == of_x[0] + of_weight[0]);
    CHECK(together[0] > 2);
    CHECK(test::bits_of(dx) == test::bits_of(other_dx));
    CHECK(test::bits_of(dweight) == test::bits_of(other_dweight));
  }
}

TEST_CASE("linear maps of the same rows share one loop each way, to the bits of one after the other") {
  struct Widths {
    std::int64_t rows;
    std::vector<std::int64_t> outs;
    bool one_chain, in_parts;  // of dx: in parts, which are added when all products are there
  };
  for (const Widths& c : {Widths{1100, {96, 96, 96}, true, false}, Widths{37, {2100, 2100}, true, true},
                          Widths{300, {256, 64, 64}, false, false}, Widths{1, {64, 64, 64}, true, false},
                          Widths{7000, {2100, 64}, false, false}}) {
    const std::int64_t in = 160;
    const Tensor x = random_floats({c.rows, in}, 1);
    std::vector<Tensor> weights, biases, outs, grads, dweights, other_outs, other_dweights;
    for (const std::int64_t out : c.outs) {
      const auto stream = static_cast<std::uint32_t>(weights.size());
      weights.push_back(random_floats({out, in}, 10 + stream));
      biases.push_back(stream == 1 ? Tensor() : random_floats({out}, 20 + stream));
      grads.push_back(random_floats({c.rows, out}, 30 + stream));
      for (std::vector<Tensor>* list : {&outs, &other_outs}) list->push_back(Tensor::empty({c.rows, out}));
      for (std::vector<Tensor>* list : {&dweights, &other_dweights})
        list->push_back(random_floats({out, in}, 40 + stream));
    }
    const Tensor dx = Tensor::empty({c.rows, in}), other_dx = Tensor::empty({c.rows, in});
    const Counts forward = tasks_of([&] { cpu_backend.linear_maps(x, weights, biases, outs); });
    const Counts back = tasks_of([&] { cpu_backend.linear_backward(grads, x, weights, 1, dx, dweights); });
    std::int64_t forward_tasks = 0, back_tasks = 0;
    for (std::size_t i = 0; i < c.outs.size(); ++i) {
      const auto turned = [](const Tensor& m) {
        return m.view({m.size(1), m.size(0)}, {1, m.size(1)}, m.offset());
      };
      cpu_backend.matmul(x, turned(weights[i]), biases[i], 0, other_outs[i]);
      cpu_backend.matmul(grads[i], weights[i], {}, i > 0 ? 1 : 0, other_dx);
      cpu_backend.matmul(turned(grads[i]), x, {}, 1, other_dweights[i]);
      forward_tasks += cpu::MatmulPlan(1, c.rows, c.outs[i], in, true).tasks();
      if (i == 0) back_tasks += cpu::MatmulPlan(1, c.rows, in, c.outs[i], true).tasks();
      back_tasks += cpu::MatmulPlan(1, c.outs[i], in, c.rows, true).tasks();
    }
    CHECK(std::count(forward.begin(), forward.end(), forward_tasks) == 1);
    CHECK(std::count(back.begin(), back.end(), back_tasks) == 1);
    if (!c.one_chain) CHECK(back.size() > 1);
    CHECK((cpu::MatmulPlan(1, c.rows, in, c.outs[0], true).parts > 1) == c.in_parts);
    if (!c.in_parts) CHECK(test::bits_of(dx) == test::bits_of(other_dx));
    CHECK(test::worst_error(dx.to_doubles(), other_dx.to_doubles()) <= 1e-3);
    for (std::size_t i = 0; i < c.outs.size(); ++i) {
      CHECK(test::bits_of(outs[i]) == test::bits_of(other_outs[i]));
      CHECK(test::bits_of(dweights[i]) == test::bits_of(other_dweights[i]));
    }
  }
}

TEST_CASE("sums and scattered rows are cut into tasks by their shapes") {
  const Tensor x = random_floats({1, 4096, 1024}, 1), sums = Tensor::empty({1, 1024});
  CHECK(tasks_of([&] { cpu_backend.reduce(ReduceOp::sum, x, sums); }) == Counts{64});
  const Tensor rows = random_floats({1, 4096, 256}, 2), index = Tensor::zeros({1, 4096}, DType::i32),
               out = Tensor::zeros({1, 4, 256});
  CHECK(tasks_of([&] { cpu_backend.scatter_add_rows(rows, index, out); }) == Counts{16});
}
