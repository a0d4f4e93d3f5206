// recurrence(): what the table of cases leaves out, sizes beyond one tile, the ends of the range, pieces,
// errors.

#include "heed/core/backend.h"
#include "heed/tests/support.h"

namespace {

Tensor drawn(const Shape& shape, std::uint32_t stream, double low = -1, double high = 1,
             DType dtype = DType::f64) {
  return parameter(uniform(shape, low, high, {5, 0, stream}, dtype));
}

/// All operands, of B = 1, H = 2; r and w small enough that the state does not grow.
Recurrence all_of(std::int64_t length, std::int64_t keys, std::int64_t width, int decay_axes,
                  DType dtype = DType::f64) {
  const Shape k{1, 2, length, keys}, v{1, 2, length, width};
  const double small = 1 / static_cast<double>(keys);
  Recurrence of{.query = drawn(k, 1, -1, 1, dtype),
                .key = drawn(k, 2, -1, 1, dtype),
                .value = drawn(v, 3, -1, 1, dtype)};
  of.log_decay = decay_axes == 4 ? drawn(k, 4, -1, 0, dtype) : drawn({1, 2, length}, 4, -1, 0, dtype);
  of.reading = drawn(k, 5, -small, small, dtype), of.writing = drawn(k, 6, -1, 1, dtype);
  of.target = drawn(v, 7, -1, 1, dtype), of.state = drawn({1, 2, keys, width}, 8, -1, 1, dtype);
  return of;
}

std::vector<const Tensor*> operands(const Recurrence& of) {
  std::vector<const Tensor*> all;
  for (const Tensor* x :
       {&of.query, &of.key, &of.value, &of.log_decay, &of.reading, &of.writing, &of.target, &of.state})
    if (x->defined()) all.push_back(x);
  return all;
}

/// Both results, and the gradients of all operands for a loss of both.
std::vector<Doubles> results(const Recurrence& of) {
  const RecurrenceResult found = recurrence(of);
  std::vector<Doubles> all{found.output.to_doubles(), found.state.to_doubles()};
  backward(sum(sin(found.output)) + sum(square(found.state)));
  for (const Tensor* x : operands(of)) {
    if (!x->tracked()) continue;
    all.push_back(gradient(*x).to_doubles());
    zero_gradient(*x);
  }
  return all;
}

void check_near(const std::vector<Doubles>& found, const std::vector<Doubles>& expected, double tolerance) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t t = 0; t < found.size(); ++t) {
    REQUIRE(found[t].size() == expected[t].size());
    double worst = 0, largest = 1;
    for (std::size_t i = 0; i < found[t].size(); ++i) {
      worst = std::max(worst, std::abs(found[t][i] - expected[t][i]));
      largest = std::max(largest, std::abs(expected[t][i]));
    }
    CHECK_MESSAGE(worst <= tolerance * largest, "result ", t, ": ", worst, " of ", largest);
  }
}

}  // namespace

TEST_CASE("recurrence: heads wider than a tile, and with many rows, agree with single ops") {
  struct Row {
    std::int64_t length, keys, width;
    int decay_axes;
  };
  for (const Row& row : {Row{3, 5, 150, 4}, {3, 300, 40, 3}, {35, 7, 70, 4}}) {
    for (const bool overwrites : {true, false}) {
      for (const bool learns_decay : {true, false}) {
        CAPTURE_ALL(row.keys, overwrites, learns_decay);
        Recurrence of = all_of(row.length, row.keys, row.width, row.decay_axes);
        if (!overwrites) of.reading = of.writing = of.target = {};
        if (!learns_decay) of.log_decay = of.log_decay.detach();
        const auto fused = results(of);
        const ComposeOnly compose_only;
        check_near(fused, results(of), 1e-12);
      }
    }
  }
}

TEST_CASE("recurrence: a sequence in pieces gives the bits of the whole") {
  const Recurrence of = all_of(41, 6, 5, 4, DType::f32);
  const RecurrenceResult whole = recurrence(of);
  Tensor state = of.state;
  std::vector<Tensor> outputs;
  for (const auto& [begin, end] :
       {std::pair<std::int64_t, std::int64_t>{0, 1}, {1, 34}, {34, 34}, {34, 41}}) {
    const auto part = [&](const Tensor& x) { return slice(x, 2, begin, end); };
    const RecurrenceResult piece = recurrence({.query = part(of.query),
                                               .key = part(of.key),
                                               .value = part(of.value),
                                               .log_decay = part(of.log_decay),
                                               .reading = part(of.reading),
                                               .writing = part(of.writing),
                                               .target = part(of.target),
                                               .state = state});
    outputs.push_back(piece.output);
    state = piece.state;
  }
  CHECK(concat(outputs, 2).to_doubles() == whole.output.to_doubles());
  CHECK(state.to_doubles() == whole.state.to_doubles());
}

TEST_CASE("recurrence: backwards is forwards of what is turned around") {
  Recurrence of = all_of(37, 4, 3, 3);
  const Tensor first = flip(recurrence(of).output, 2);
  for (Tensor* x : {&of.query, &of.key, &of.value, &of.log_decay, &of.reading, &of.writing, &of.target})
    *x = flip(*x, 2);
  of.reverse = true;
  CHECK(recurrence(of).output.to_doubles() == first.to_doubles());
}

TEST_CASE("recurrence: however fast a state fades, values and gradients are finite and right") {
  for (const double fast : {-200.0, -1e30, -infinity}) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      for (const int axes : {3, 4}) {
        CAPTURE_ALL(fast, axes);
        Recurrence of = all_of(5, 4, 3, axes, dtype);
        const Tensor rates = of.log_decay.detach();
        const Tensor at =
            axes == 3 ? Tensor::arange(5, DType::i32) : reshape(Tensor::arange(5, DType::i32), {5, 1});
        of.log_decay = parameter(where(equal(at, 2), fast, rates) * 1);
        const auto found = results(of);
        for (const auto& one : found)
          for (const double x : one) CHECK(std::isfinite(x));
        // Where everything has gone, what came before has no part.
        const Doubles of_state = found.back();
        for (const double x : found[5]) CHECK(std::abs(x) < 1e3);
        const ComposeOnly compose_only;
        if (std::isfinite(fast)) check_near(found, results(of), dtype == DType::f64 ? 1e-12 : 1e-5);
      }
    }
  }
}

TEST_CASE("recurrence: at the ends of f32's range") {
  const auto filled = [](double value, std::int64_t width) {
    return Tensor::full({1, 1, 2, width}, value, DType::f32);
  };
  const RecurrenceResult large =
      recurrence({.query = filled(1e-19, 4), .key = filled(1e19, 4), .value = filled(1e19, 3)});
  CHECK(std::abs(large.output.to_doubles()[3] / 8e19 - 1) < 1e-5);  // two tokens, four features
  const RecurrenceResult small =
      recurrence({.query = filled(1e19, 4), .key = filled(1e-19, 4), .value = filled(1e-18, 3)});
  CHECK(std::abs(small.output.to_doubles()[3] / 8e-18 - 1) < 1e-5);
}

TEST_CASE("recurrence: no tokens, samples or heads") {
  const auto none = [](std::int64_t batch, std::int64_t heads, std::int64_t length, std::int64_t width) {
    return parameter(Tensor::zeros({batch, heads, length, width}));
  };
  const Tensor state = parameter(Tensor::ones({2, 3, 4, 5}));
  const RecurrenceResult found = recurrence(
      {.query = none(2, 3, 0, 4), .key = none(2, 3, 0, 4), .value = none(2, 3, 0, 5), .state = state});
  CHECK(found.output.shape() == Shape{2, 3, 0, 5});
  CHECK(found.state.to_doubles() == state.to_doubles());
  backward(sum(found.state));
  CHECK(gradient(state).to_doubles() == state.to_doubles());
  CHECK(recurrence({.query = none(0, 3, 2, 4), .key = none(0, 3, 2, 4), .value = none(0, 3, 2, 5)})
            .state.shape() == Shape{0, 3, 4, 5});
}

TEST_CASE("recurrence: what does not fit is refused") {
  const Tensor k = Tensor::zeros({2, 3, 4, 5}), v = Tensor::zeros({2, 3, 4, 6});
  const auto refused = [](const Recurrence& of, const char* why) { CHECK_ERROR(recurrence(of), why); };
  refused({.query = k}, "recurrence: nothing changes the state");
  refused({.query = k, .key = k}, "give key and value together");
  refused({.query = k, .key = k, .value = v, .reading = k}, "give reading and writing together");
  refused({.query = k, .key = k, .value = v, .target = v}, "a target needs reading and writing");
  refused({.query = k, .reading = k, .writing = k}, "a state must be given");
  refused({.query = k, .key = v, .value = v}, "key of shape [2, 3, 4, 6] must be [2, 3, 4, 5]");
  refused({.query = k, .key = k, .value = v, .log_decay = Tensor::zeros({2, 3, 5})},
          "log_decay of shape [2, 3, 5]");
  refused({.query = k, .key = k, .value = v, .state = Tensor::zeros({2, 3, 6, 5})},
          "state of shape [2, 3, 6, 5]");
  refused({.query = k, .key = k, .value = cast(v, DType::f64)}, "operands of different types");
  refused({.query = cast(k, DType::i32), .key = k, .value = v}, "needs a floating type");
}
