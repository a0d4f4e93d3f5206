#include "heed/text/safetensors.h"

#include "heed/tests/support.h"

namespace {

/// A file from a header as given and some bytes of data.
std::string file_of(const std::string& header, std::size_t data_bytes = 0) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data_bytes, '\0');
}

std::string one_tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"x":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

void check_refused(const std::string& bytes, const char* reason) {
  CAPTURE(reason);
  CHECK_ERROR(parse_safetensors(bytes, "test.safetensors"), reason);
}

TensorFile sample() {
  TensorFile file;
  file.tensors["b.weight"] = Tensor::from(Floats{1.5f, -2, 3, 1e-30f, 5, 6}, {2, 3});
  file.tensors["a.steps"] = Tensor::from(Ints{-7}, {1});
  file.tensors["c.precise"] = Tensor::from(Doubles{0.1, 1e300}, {2, 1});
  file.tensors["scalar"] = Tensor::from(Floats{42}, {});
  file.metadata = {{"format", "pt"}, {"note", "gr\xc3\xbc\xc3\x9f \"dich\""}};
  return file;
}

}  // namespace

TEST_CASE("safetensors: what is saved is loaded") {
  const TemporaryFolder folder;
  const TensorFile saved = sample();
  save_safetensors(folder / "x.safetensors", saved);
  const TensorFile loaded = load_safetensors(folder / "x.safetensors");
  CHECK(loaded.metadata == saved.metadata);
  REQUIRE(loaded.tensors.size() == 4);
  CHECK(loaded.tensors.at("b.weight").to_vector<float>() == saved.tensors.at("b.weight").to_vector<float>());
  CHECK(loaded.tensors.at("b.weight").shape() == Shape{2, 3});
  CHECK(loaded.tensors.at("a.steps").to_vector<std::int32_t>() == Ints{-7});
  CHECK(loaded.tensors.at("c.precise").to_vector<double>() == Doubles{0.1, 1e300});
  CHECK(loaded.tensors.at("scalar").rank() == 0);
  CHECK(loaded.tensors.at("scalar").item() == 42);
}

TEST_CASE("safetensors: equal content gives equal bytes, aligned to 8") {
  const TemporaryFolder folder;
  save_safetensors(folder / "x", sample());
  save_safetensors(folder / "y", sample());
  const std::string bytes = read_file(folder / "x");
  CHECK(bytes == read_file(folder / "y"));
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  CHECK(header % 8 == 0);
  // The wide type comes first, so that it is aligned.
  CHECK(bytes.find(R"("c.precise":{"data_offsets":[0,16])") != std::string::npos);
}

TEST_CASE("safetensors: a strided view is saved in the order of its elements") {
  const TemporaryFolder folder;
  const Tensor x = Tensor::from(Floats{1, 2, 3, 4, 5, 6}, {2, 3});
  save_safetensors(folder / "x", {{{"x", x.view({3, 2}, {1, 3}, 0)}}, {}});
  CHECK(load_safetensors(folder / "x").tensors.at("x").to_vector<float>() == Floats{1, 4, 2, 5, 3, 6});
}

TEST_CASE("safetensors: 64-bit integers become 32-bit when they fit") {
  std::string bytes = file_of(one_tensor("I64", "[2]", "[0,16]"));
  const std::int64_t values[2] = {-5, std::numeric_limits<std::int32_t>::max()};
  bytes.append(reinterpret_cast<const char*>(values), 16);
  CHECK(parse_safetensors(bytes, "x").tensors.at("x").to_vector<std::int32_t>() == Ints{-5, 2147483647});
  bytes.back() = 1;
  check_refused(bytes, "does not fit 32 bits");
}

TEST_CASE("safetensors: hostile files are refused with a reason") {
  check_refused("", "too few");
  check_refused("1234567", "too few");
  check_refused(std::string(8, '\xff'), "truncated");
  check_refused(std::string("\x05\0\0\0\0\0\0\0{}", 10), "truncated");
  check_refused(file_of(""), "not valid JSON");
  check_refused(file_of("[]"), "not a JSON object");
  check_refused(file_of("{\"a\":"), "not valid JSON");
  check_refused(file_of("{\"\xff\":1}"), "not valid JSON");
  check_refused(file_of(std::string(100'000, '[')), "nested too deeply");
  check_refused(file_of("{}", 4), "holds 4 bytes");
  check_refused(file_of(R"({"x":1})"), "not an object");
  check_refused(file_of(R"({"__metadata__":{"a":1}})"), "not a text");
  check_refused(file_of(R"({"__metadata__":[]})"), "not an object");
  check_refused(file_of(one_tensor("F8_E5M2", "[4]", "[0,4]"), 4), "dtype F8_E5M2");
  check_refused(file_of(one_tensor("F32", "[-1]", "[0,4]"), 4), "extent -1");
  check_refused(file_of(one_tensor("F32", "[1.5]", "[0,4]"), 4), "extent 1.5");
  check_refused(file_of(one_tensor("F32", "3", "[0,12]"), 12), "no shape");
  check_refused(file_of(one_tensor("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4), "9 axes");
  check_refused(file_of(one_tensor("F32", "[4294967296,4294967296]", "[0,4]"), 4), "impossible shape");
  check_refused(file_of(one_tensor("F32", "[9223372036854775807]", "[0,4]"), 4), "impossible shape");
  check_refused(file_of(one_tensor("F32", "[0,9223372036854775807,3]", "[0,0]")), "impossible shape");
  check_refused(file_of(one_tensor("F32", "[2147483648,2147483648,2147483648,0]", "[0,0]")),
                "impossible shape");
  check_refused(file_of(one_tensor("F32", "[2]", "[0,4]"), 4), "needs 8");
  check_refused(file_of(one_tensor("F32", "[1]", "[4,0]"), 4), "data_offsets [4, 0]");
  check_refused(file_of(one_tensor("F32", "[1]", "[0,8]"), 4), "data_offsets [0, 8]");
  check_refused(file_of(one_tensor("F32", "[1]", "[18446744073709551612,18446744073709551615]"), 4),
                "data_offsets");
  check_refused(file_of(one_tensor("F32", "[1]", "[4,8]"), 8), "leave a hole");
  check_refused(file_of(one_tensor("F32", "[1]", "[0]"), 4), "no data_offsets");
  check_refused(file_of(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"extra":1}})", 4), "extra");
}

TEST_CASE("safetensors: who does not use a tensor need not be able to hold it") {
  const auto reason = [](const std::string& bytes) {
    UnsupportedTensors unread;
    CHECK(parse_safetensors(bytes, "x", {}, &unread).tensors.empty());
    return unread.at("x");
  };
  for (const char* type : {"BOOL", "U8", "F8_E4M3", "U64", "F4", "new"}) {
    const std::string bytes = file_of(one_tensor(type, "[4]", "[0,4]"), 4);
    CHECK(contains(reason(bytes), std::string("tensor \"x\" has dtype ") + type));
    check_refused(bytes, "has dtype");
  }
  CHECK(contains(reason(file_of(one_tensor("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4)), "9 axes"));
  std::string wide = file_of(one_tensor("I64", "[1]", "[0,8]"));
  const std::int64_t value = std::int64_t{1} << 40;
  wide.append(reinterpret_cast<const char*>(&value), 8);
  CHECK(contains(reason(wide), "does not fit 32 bits"));
  UnsupportedTensors unread;  // a damaged file is one in any case
  CHECK_ERROR(parse_safetensors(file_of(one_tensor("U8", "[4]", "[4,8]"), 8), "x", {}, &unread),
              "leave a hole");
}

TEST_CASE("safetensors: a name twice, and tensors that overlap, are refused") {
  const std::string entry = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  check_refused(file_of(R"({"x":)" + entry + R"(,"x":)" + entry + "}", 4), "twice");
  check_refused(file_of(R"({"x":)" + entry + R"(,"y":)" + entry + "}", 4), "overlap");
}

TEST_CASE("safetensors: a header of many tensors takes time by their number") {
  const auto seconds = [](int count) {
    std::string header = "{";
    for (int i = 0; i < count; ++i) {
      if (i > 0) header += ',';
      header += '"' + std::to_string(i) + R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
    }
    const double begin = cpu_seconds();
    CHECK(parse_safetensors(file_of(header + "}"), "x").tensors.size() == static_cast<std::size_t>(count));
    return cpu_seconds() - begin;
  };
  CHECK(seconds(100'000) < 40 * seconds(10'000));  // ten times as many; their square takes a hundred times
}

TEST_CASE("safetensors: bytes behind a NUL are not left unread") {
  const std::string header = one_tensor("F32", "[1]", "[0,4]");
  check_refused(file_of(header + '\0' + "   ", 4), "the header is not valid JSON: byte ");
  CHECK(parse_safetensors(file_of(header + "   ", 4), "x").tensors.size() == 1);
}

TEST_CASE("safetensors: empty tensors are kept") {
  const TensorFile loaded = parse_safetensors(file_of(one_tensor("F32", "[0,3]", "[0,0]")), "x");
  CHECK(loaded.tensors.at("x").shape() == Shape{0, 3});
  const TemporaryFolder folder;
  save_safetensors(folder / "x", loaded);
  CHECK(load_safetensors(folder / "x").tensors.at("x").shape() == Shape{0, 3});
}

TEST_CASE("safetensors: what cannot be saved is refused before a file is made") {
  const TemporaryFolder folder;
  const Tensor x = Tensor::zeros({2});
  CHECK_ERROR(save_safetensors(folder / "x", {{{"\xff", x}}, {}}), "UTF-8");
  CHECK_ERROR(save_safetensors(folder / "x", {{{"__metadata__", x}}, {}}), "reserved");
  CHECK_ERROR(save_safetensors(folder / "x", {{{"y", Tensor()}}, {}}), "undefined");
  const FullDisk full(100);
  CHECK_ERROR(save_safetensors(folder / "x", {{{"y", Tensor::zeros({1000})}}, {}}), "cannot write");
  CHECK(std::filesystem::is_empty(folder.path()));
}
