// What a program writes every day: making tensors, numbers beside them, indexing, printing, and messages that
// name what was called. Gradients of the ops are checked in ops_test.cpp, over the table of cases.

#include <exception>
#include <type_traits>

#include "heed/autograd/cases/op_cases.h"
#include "heed/tests/support.h"

namespace {

template <class T>
concept CanBeMadeFrom = requires(const std::vector<T>& values) {
  Tensor::from(values, Shape{1});
};
template <class T>
concept PartsCanBeAssigned = requires(T x) {
  x[0] = x;
};

static_assert(CanBeMadeFrom<float> && CanBeMadeFrom<double> && CanBeMadeFrom<std::int32_t>);
static_assert(!CanBeMadeFrom<std::int64_t>, "would lose digits");
static_assert(!CanBeMadeFrom<bool>);
static_assert(std::is_assignable_v<Tensor&, const Tensor&>);
static_assert(!PartsCanBeAssigned<Tensor>, "would change nothing");

std::string text_of(const Tensor& x) {
  std::ostringstream text;
  text << x;
  return text.str();
}

Tensor counted_tensor(const Shape& shape) {
  return reshape(Tensor::arange(shape.count()), shape);
}

}  // namespace

TEST_CASE("tensors are made from lists") {
  CHECK(Tensor::from({1, 2, 3}, {3}).to_vector<std::int32_t>() == Ints{1, 2, 3});
  CHECK(Tensor::from({0.5, 1.5}, {2, 1}).dtype() == DType::f64);
  CHECK(Tensor::from<float>({0.5, 1}, {2}).to_vector<float>() == Floats{0.5, 1});
  const Tensor matrix = Tensor::from<float>({{1, 2, 3}, {4, 5, 6}});
  CHECK(matrix.shape() == Shape{2, 3});
  CHECK(matrix.to_vector<float>() == Floats{1, 2, 3, 4, 5, 6});
  CHECK_THROWS_WITH_AS(Tensor::from<float>({{1, 2}, {3}}), "from: the rows of a matrix have 2 and 1 elements",
                       Error);
  CHECK_THROWS_WITH_AS(Tensor::from({1, 2, 3}, {2}), "from: 3 values do not fill shape [2]", Error);
  CHECK(stack({matrix, matrix}, 0).shape() == Shape{2, 2, 3});
  CHECK(eye(2, DType::i32).to_vector<std::int32_t>() == Ints{1, 0, 0, 1});
  CHECK(one_hot(Tensor::from({1, -1}, {2}), 3).to_vector<float>() == Floats{0, 1, 0, 0, 0, 0});
  CHECK_ERROR(one_hot(Tensor::from({1, 3}, {2}), 3), "one_hot: ");
  CHECK_ERROR(one_hot(Tensor::from({1, 3}, {2}), 3), "outside [0, 3)");
}

TEST_CASE("parts of a tensor by their index") {
  const Tensor x = counted_tensor({2, 3});
  CHECK(x[1].to_vector<std::int32_t>() == Ints{3, 4, 5});
  CHECK(x[-1][0].item() == 3);
  CHECK_THROWS_WITH_AS(x[2], "[2]: the first axis of shape [2, 3] has 2 elements", Error);
  CHECK_ERROR(x[0][0][0], "rank 0");
}

TEST_CASE("a number beside a tensor has its type, on either side") {
  const Tensor x = Tensor::from<float>({-1, 0.5, 2}, {3}), ids = Tensor::from({1, 2, 3}, {3});
  CHECK((2 / x).to_vector<float>() == Floats{-2, 4, 1});
  CHECK((1 - x).to_vector<float>() == Floats{2, 0.5, -1});
  CHECK(pow(2, ids.to(DType::f32)).to_vector<float>() == Floats{2, 4, 8});
  CHECK(maximum(0.75, x).to_vector<float>() == Floats{0.75, 0.75, 2});
  CHECK((x < 0.5).to_vector<std::int32_t>() == Ints{1, 0, 0});
  CHECK((0.5 >= x).to_vector<std::int32_t>() == Ints{1, 1, 0});
  CHECK(less(0.5, x).to_vector<std::int32_t>() == Ints{0, 0, 1});
  CHECK((5 - ids).to_vector<std::int32_t>() == Ints{4, 3, 2});
  CHECK((-ids).to_vector<std::int32_t>() == Ints{-1, -2, -3});
  CHECK((2 > ids).to_vector<std::int32_t>() == Ints{1, 0, 0});
  CHECK(sum(ids).item() == 6);
  CHECK(sum(ids).dtype() == DType::i32);
  CHECK(prod(ids, 0).item() == 6);
  CHECK(max(ids).item() == 3);
  CHECK_THROWS_WITH_AS(ids / 2, "div: needs a floating type, got i32; cast() makes one", Error);
  CHECK_ERROR(1.5 + ids, "add: 1.5 cannot be represented as i32");
  CHECK_ERROR(clamp(ids, 0.5, 2), "clamp: 0.5 cannot be represented as i32");
  CHECK_THROWS_WITH_AS(exp(ids), "exp: needs a floating type, got i32; cast() makes one", Error);
  CHECK_THROWS_WITH_AS(mean(ids), "mean: needs a floating type, got i32", Error);
  CHECK_ERROR(where(ids, ids, 0.5), "where: 0.5 cannot be represented as i32");
}

TEST_CASE("+= makes a new tensor, which autograd follows") {
  const Tensor p = parameter(Tensor::from<double>({1, 2}, {2}));
  Tensor x = p;
  x *= 3;
  x += p;
  CHECK(p.to_vector<double>() == Doubles{1, 2});
  CHECK(x.to_vector<double>() == Doubles{4, 8});
  backward(sum(x));
  CHECK(gradient(p).to_vector<double>() == Doubles{4, 4});
}

TEST_CASE("reductions over several axes are those over one after the other") {
  const Tensor x = uniform({3, 4, 5, 2}, -1, 1, {1, 0, 0}, DType::f64);
  const auto close = [](const Tensor& a, const Tensor& b) {
    return a.shape() == b.shape() && max(abs(reshape(a - b, {-1, 1})), 0).item() < 1e-14;
  };
  CHECK(close(sum(x, {0, 2}), sum(sum(x, 2), 0)));
  CHECK(close(sum(x, {-1, 0, 1}, true), sum(sum(sum(x, 3, true), 1, true), 0, true)));
  CHECK(close(max(x, {1, 2}), max(max(x, 1), 1)));
  CHECK(close(mean(x, {0, 1, 2, 3}), mean(x)));
  CHECK(close(prod(x, {3, 2}), prod(prod(x, 3), 2)));
  CHECK(close(sum(x, {}), x));
  CHECK(close(variance(x, {1, 3}), mean(square(x), {1, 3}) - square(mean(x, {1, 3}))));
  CHECK(close(variance(x, {1}, false, 1) * 0.75, variance(x, 1)));
  CHECK(close(norm(x, {0, 2}), sqrt(sum(square(x), {0, 2}))));
  CHECK(prod(Tensor::ones({2, 0}), 1).to_vector<float>() == Floats{1, 1});
  CHECK(argmax(x).item() == argmax(reshape(x, {-1}), 0).item());
  CHECK_THROWS_WITH_AS(sum(x, {1, -3}), "sum: axis 1 is named twice", Error);
  CHECK_ERROR(max(x, {0, 4}), "max: axis 4 is out of range");
  CHECK_ERROR(variance(x[0][0][0], 0, false, 2), "leave nothing to divide by");
}

TEST_CASE("the gradient of a norm at 0 is 0, and that of a product is right beside zeros") {
  const Tensor x = parameter(Tensor::zeros({3}, DType::f64));
  backward(norm(x));
  CHECK(gradient(x).to_vector<double>() == Doubles{0, 0, 0});
  const Tensor y = parameter(Tensor::from<double>({2, 0, 5}, {3}));
  backward(prod(y));
  CHECK(gradient(y).to_vector<double>() == Doubles{0, 10, 0});
}

TEST_CASE("triangles, flips and permutations") {
  const Tensor x = counted_tensor({2, 3}) + 1;
  CHECK(tril(x).to_vector<std::int32_t>() == Ints{1, 0, 0, 4, 5, 0});
  CHECK(triu(x, 1).to_vector<std::int32_t>() == Ints{0, 2, 3, 0, 0, 6});
  CHECK(tril(x, -100).to_vector<std::int32_t>() == Ints(6, 0));
  CHECK(triu(x, -100).to_vector<std::int32_t>() == Ints{1, 2, 3, 4, 5, 6});
  CHECK(flip(x, 1).to_vector<std::int32_t>() == Ints{3, 2, 1, 6, 5, 4});
  CHECK(flip(x, {0, 1}).to_vector<std::int32_t>() == Ints{6, 5, 4, 3, 2, 1});
  const Ints order = permutation(1000, {7, 0, 0}).to_vector<std::int32_t>();
  CHECK(std::set<std::int32_t>(order.begin(), order.end()).size() == 1000);
  CHECK(*std::min_element(order.begin(), order.end()) == 0);
  CHECK(*std::max_element(order.begin(), order.end()) == 999);
  CHECK(order == permutation(1000, {7, 0, 0}).to_vector<std::int32_t>());
  CHECK(order != permutation(1000, {8, 0, 0}).to_vector<std::int32_t>());
  // Every place is as likely for every element: of 6000 draws of 3, each order about 1000 times (4
  // deviations: 115).
  std::map<Ints, int> seen;
  for (std::uint64_t seed = 0; seed < 6000; ++seed)
    ++seen[permutation(3, {seed, 0, 0}).to_vector<std::int32_t>()];
  CHECK(seen.size() == 6);
  for (const auto& [each, times] : seen) CHECK(std::abs(times - 1000) < 116);
}

TEST_CASE("matmul takes vectors as NumPy does") {
  const Tensor a = uniform({2, 3}, -1, 1, {1, 0, 0}, DType::f64), row = a[0];
  CHECK(matmul(row, row).shape() == Shape{});
  CHECK(matmul(row, row).item() == sum(row * row).item());
  CHECK(matmul(a, row).to_doubles() == sum(a * row, 1).to_doubles());
  CHECK(matmul(row, transpose(a, 0, 1)).to_doubles() == sum(a * row, 1).to_doubles());
  CHECK(matmul(row, Tensor::ones({5, 3, 4}, DType::f64)).shape() == Shape{5, 4});
  CHECK(matmul(Tensor::ones({5, 4, 3}, DType::f64), row).shape() == Shape{5, 4});
  CHECK_THROWS_WITH_AS(matmul(row, a), "matmul: shapes [3] and [2, 3] do not multiply", Error);
  CHECK_THROWS_WITH_AS(matmul(a, Tensor::ones({2}, DType::f64)),
                       "matmul: shapes [2, 3] and [2] do not multiply", Error);
}

TEST_CASE("small ops of arrays give what NumPy's do, of integers too") {
  const Tensor x = counted_tensor({2, 3});  // [[0, 1, 2], [3, 4, 5]]
  CHECK(roll(x, 1, 1).to_vector<std::int32_t>() == Ints{2, 0, 1, 5, 3, 4});
  CHECK(roll(x, -7, -1).to_vector<std::int32_t>() == Ints{1, 2, 0, 4, 5, 3});
  CHECK(roll(x, 1, 0).to_vector<std::int32_t>() == Ints{3, 4, 5, 0, 1, 2});
  CHECK(repeat(x, 2, 1).to_vector<std::int32_t>() == Ints{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5});
  CHECK(repeat(x, 2, 0).to_vector<std::int32_t>() == Ints{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5});
  CHECK(tile(x, {1, 2}).to_vector<std::int32_t>() == Ints{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5});
  CHECK(tile(x, {2, 1}).to_vector<std::int32_t>() == Ints{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5});
  CHECK(tile(x, {3, 1, 2}).shape() == Shape{3, 2, 6});
  CHECK(repeat(x, 0, 1).shape() == Shape{2, 0});
  CHECK_ERROR(repeat(x, -1, 1), "repeat: a count of -1");
  CHECK_ERROR(tile(x, {2}), "fewer than the axes of shape [2, 3]");

  const Tensor y = counted_tensor({5}) - 2.0;  // -2 ... 2
  CHECK(sign(y).to_vector<std::int32_t>() == Ints{-1, -1, 0, 1, 1});
  CHECK(round(y).to_vector<std::int32_t>() == y.to_vector<std::int32_t>());
  CHECK(logical_not(y).to_vector<std::int32_t>() == Ints{0, 0, 1, 0, 0});
  CHECK(logical_and(y, y + 1.0).to_vector<std::int32_t>() == Ints{1, 0, 0, 1, 1});
  CHECK(logical_or(y, y + 1.0).to_vector<std::int32_t>() == Ints{1, 1, 1, 1, 1});
  CHECK(isfinite(y).to_vector<std::int32_t>() == Ints(5, 1));
  CHECK(where(y, 0.5, -0.25).to_doubles() == Doubles{0.5, 0.5, -0.25, 0.5, 0.5});
  CHECK(where(y, 3, 4, DType::i32).to_vector<std::int32_t>() == Ints{3, 3, 4, 3, 3});
  CHECK_ERROR(where(y, 3, 0.5, DType::i32), "0.5 cannot be represented as i32");
  const Tensor odd = Tensor::from<double>({1, std::nan(""), infinity, -infinity, 0}, {5});
  CHECK(isnan(odd).to_vector<std::int32_t>() == Ints{0, 1, 0, 0, 0});
  CHECK(isfinite(odd).to_vector<std::int32_t>() == Ints{1, 0, 0, 0, 1});
  CHECK(logical_not(odd).to_vector<std::int32_t>() == Ints{0, 0, 0, 0, 1});
}

TEST_CASE("ops are found beside the whole of namespace std") {
  using namespace std;  // NOLINT: what docs/guides/cpp.md says of it
  const Tensor x = Tensor::from<float>({{1, 2}, {3, 4}});
  CHECK(max(x).item() == 4);
  CHECK(max(x, -1).to_vector<float>() == Floats{2, 4});
  CHECK(min(x, {0, 1}).item() == 1);
  CHECK(sum(where(x < 2, abs(x), sqrt(square(x)))).item() == 10);
  CHECK(pow(x, 2.0)[1].to_vector<float>() == Floats{9, 16});
  CHECK(clamp(round(exp(x)), 0, 5)[0].to_vector<float>() == Floats{3, 5});
  CHECK(equal(sort(x).first, x).to_vector<std::int32_t>() == Ints{1, 1, 1, 1});
}

TEST_CASE("einsum is what its equation says") {
  const Tensor a = uniform({2, 3}, -1, 1, {1, 0, 0}, DType::f64),
               b = uniform({3, 4}, -1, 1, {1, 0, 1}, DType::f64);
  const auto same = [](const Tensor& x, const Tensor& y) {
    return x.shape() == y.shape() && max(abs(x - y)).item() < 1e-14;
  };
  CHECK(same(einsum("ij,jk->ik", {a, b}), matmul(a, b)));
  CHECK(same(einsum("ij,jk", {a, b}), matmul(a, b)));
  CHECK(same(einsum("ji", {a}), transpose(a, 0, 1)));
  CHECK(same(einsum("ij,jk->", {a, b}), sum(matmul(a, b))));
  const Tensor square_one = matmul(b, transpose(b, 0, 1));
  CHECK(same(einsum("ii->", {square_one}), sum(square_one * eye(3, DType::f64))));
  const Tensor outer = einsum("i,j->ij", {a[0], b[0]});
  CHECK(same(outer, unsqueeze(a[0], 1) * unsqueeze(b[0], 0)));
  const Tensor many = uniform({5, 1, 2, 3}, -1, 1, {1, 0, 2}, DType::f64),
               others = uniform({6, 3, 4}, -1, 1, {1, 0, 3}, DType::f64);
  CHECK(same(einsum("...ij,...jk", {many, others}), matmul(many, others)));
  CHECK(same(einsum("j...,jk->k...", {transpose(a, 0, 1), b}), transpose(matmul(a, b), 0, 1)));
  CHECK(same(einsum("...,...->...", {a, a[0]}), a * a[0]));
  CHECK(same(einsum("i...->...i", {many}), permute(many, {1, 2, 3, 0})));
  const std::pair<const char*, const char*> wrong[] = {{"ij,jk->ik,", "expected"},
                                                       {"ij,jk->iz", "'z', which no operand has"},
                                                       {"ij,jk->ii", "names 'i' twice"},
                                                       {"i...,jk->ik", "lacks the '...'"},
                                                       {"......,jk", "'...' twice"},
                                                       {"ij,jk->...", "'...', which no operand has"},
                                                       {"...ijk,jk", "does not fit shape [2, 3]"},
                                                       {"...,...", "axis '...' has extent 2 and 3"},
                                                       {"i..,jk", "expected at '..,jk'"},
                                                       {"ij", "has 1 operands, but 2 are given"},
                                                       {"ijk,jk", "does not fit shape [2, 3]"},
                                                       {"ij,ik", "axis 'i' has extent 2 and 3"},
                                                       {"ij,j1", "expected at '1'"}};
  for (const auto& row : wrong) {
    const auto& [equation, message] = row;
    CAPTURE(row.first);
    CHECK_ERROR(einsum(equation, {a, b}), message);
  }
}

TEST_CASE("a tensor prints as NumPy prints an array") {
  CHECK(text_of(counted_tensor({2, 3})) == "[[0, 1, 2],\n [3, 4, 5]] i32 [2, 3]");
  CHECK(text_of(Tensor::from<float>({{1, -2.5}, {0.125, 10}})) ==
        "[[ 1.000, -2.500],\n [ 0.125, 10.000]] f32 [2, 2]");
  CHECK(text_of(Tensor::full({}, 0.5, DType::f64)) == "0.5 f64 []");
  CHECK(text_of(Tensor::from<float>({1, 2}, {2})) == "[1., 2.] f32 [2]");
  CHECK(text_of(Tensor::from<double>({1e-9, 1}, {2})) == "[1.0000e-09, 1.0000e+00] f64 [2]");
  CHECK(text_of(Tensor::from<double>({std::nan(""), -infinity, 0.5}, {3})) == "[ nan, -inf,  0.5] f64 [3]");
  CHECK(text_of(Tensor::zeros({0, 3})) == "[] f32 [0, 3]");
  CHECK(text_of(Tensor()) == "undefined");
  CHECK(text_of(counted_tensor({2, 1, 2})) == "[[[0, 1]],\n\n [[2, 3]]] i32 [2, 1, 2]");
  CHECK(text_of(transpose(counted_tensor({2, 2}), 0, 1)) == "[[0, 2],\n [1, 3]] i32 [2, 2]");
  const Tensor large = counted_tensor({1000, 100});
  CHECK(text_of(large) ==
        "[[    0,     1,     2, ...,    97,    98,    99],\n"
        " [  100,   101,   102, ...,   197,   198,   199],\n"
        " [  200,   201,   202, ...,   297,   298,   299],\n"
        " ...,\n"
        " [99700, 99701, 99702, ..., 99797, 99798, 99799],\n"
        " [99800, 99801, 99802, ..., 99897, 99898, 99899],\n"
        " [99900, 99901, 99902, ..., 99997, 99998, 99999]] i32 [1000, 100]");
  CHECK(text_of(slice(large, 1, 0, 2)).starts_with("[[    0,     1],\n [  100,   101],\n"));
}

TEST_CASE("another type keeps the gradient, and another device has to exist") {
  const Tensor p = parameter(Tensor::from<float>({1, 2}, {2}));
  const Tensor wide = p.to(DType::f64);
  CHECK(wide.dtype() == DType::f64);
  backward(sum(wide * wide));
  CHECK(gradient(p).to_vector<float>() == Floats{2, 4});
  CHECK(p.to(Device{}).storage() == p.storage());
  CHECK_THROWS_AS(p.to(Device{DeviceType::cpu, 1}), Error);
  CHECK_ERROR(p.to(DType::f16), "Vulkan");
}

TEST_CASE("every call on a tensor that was never given a value is an error that names the call") {
  const Tensor nothing;
  CHECK_FALSE(nothing.defined());
  CHECK_FALSE(nothing.tracked());
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"shape", [&] { (void)nothing.shape(); }},
      {"strides", [&] { (void)nothing.strides(); }},
      {"rank", [&] { (void)nothing.rank(); }},
      {"size", [&] { (void)nothing.size(0); }},
      {"stride", [&] { (void)nothing.stride(0); }},
      {"count", [&] { (void)nothing.count(); }},
      {"offset", [&] { (void)nothing.offset(); }},
      {"dtype", [&] { (void)nothing.dtype(); }},
      {"device", [&] { (void)nothing.device(); }},
      {"is_contiguous", [&] { (void)nothing.is_contiguous(); }},
      {"data", [&] { (void)nothing.data<float>(); }},
      {"to_vector", [&] { (void)nothing.to_vector<float>(); }},
      {"to_doubles", [&] { (void)nothing.to_doubles(); }},
      {"item", [&] { (void)nothing.item(); }},
      {"assign", [&] { nothing.assign(std::span<const float>()); }},
      {"view", [&] { (void)nothing.view({1}); }},
      {"view", [&] { (void)nothing.view({1}, {1}, 0); }},
      {"to", [&] { (void)nothing.to(DType::f64); }},
      {"to", [&] { (void)nothing.to(Device{}); }},
      {"[]", [&] { (void)nothing[0]; }},
      {"parameter", [&] { (void)parameter(nothing); }},
      {"gradient", [&] { (void)gradient(nothing); }},
      {"backward", [&] { backward(nothing); }},
      {"+=", [&] {
         Tensor x;
         x += 1;
       }}};
  for (const auto& row : calls) {
    const auto& [name, call] = row;
    CAPTURE(row.first);
    const std::string message = error_of(call);
    CAPTURE(message);
    CHECK(message.starts_with(name == std::string("+=") ? "add" : name));
  }
}

TEST_CASE("every op refuses an undefined operand by its own name") {
  // Operands that may be left out.
  const std::set<std::string> optional = {"linear 2",         "linear_maps 2",    "add_layer_norm 2",
                                          "add_layer_norm 3", "add_rms_norm 2",   "layer_norm 1",
                                          "layer_norm 2",     "rms_norm 1",       "linear_cross_entropy 2",
                                          "attention 3",      "attention_part 3", "attention_weights 2",
                                          "feed_forward 2",   "feed_forward 4"};
  int refused = 0;
  for (const OpCase& op_case : op_cases()) {
    const std::string op = op_case.name.substr(0, op_case.name.find('/'));
    if (op == "operators" || op == "eye" || op == "recompute_in_backward" || op == "[]" ||
        op == "join_attention" || op == "recurrence")  // recurrence_test.cpp: which may be left out depends
      continue;
    for (std::size_t i = 0; i < op_case.inputs.size(); ++i) {
      std::vector<Tensor> inputs = op_case.inputs;
      inputs[i] = {};
      if (optional.contains(op + " " + std::to_string(i))) continue;
      CAPTURE_ALL(op_case.name, i);
      const std::string message = error_of([&] { op_case.function(inputs); });
      CAPTURE(message);
      CHECK(!message.empty());
      if (op_case.name.find('/') == std::string::npos) {
        CHECK(message.starts_with(op + ":"));
        ++refused;
      }
    }
  }
  CHECK(refused > 70);
}

namespace {

template <class Thrown>
void passes_with_context(const std::string& message) {
  const auto inner = [&] {
    try {
      throw Thrown(message);
    } catch (Error& error) {
      error.add_context("layer 3: ");
      throw;
    }
  };
  const auto outer = [&] {
    try {
      inner();
    } catch (Error& error) {
      error.add_context("model: ");
      throw;
    }
  };
  CHECK_THROWS_WITH_AS(outer(), ("model: layer 3: " + message).c_str(), Thrown);
}

}  // namespace

TEST_CASE("error: what adds context keeps the type of the error") {
  passes_with_context<Error>("shapes differ");
  passes_with_context<OutOfMemory>("no room for 5 bytes");
  passes_with_context<DeviceLost>("the device was lost");
}

TEST_CASE("error: a copy keeps the message, and is made without throwing") {
  static_assert(std::is_nothrow_copy_constructible_v<Error>);
  OutOfMemory error("no room");
  CHECK(std::string(error.what()) == "no room");
  const OutOfMemory before = error;
  error.add_context("cpu: ");
  const OutOfMemory after = error;
  CHECK(std::string(before.what()) == "no room");
  CHECK(std::string(after.what()) == "cpu: no room");
  const std::exception& base = after;
  CHECK(std::string(base.what()) == "cpu: no room");
}
