// How tasks that tell classes apart are measured.

#include "heed/tasks/labelled.h"

#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

using namespace heed;
using Json = nlohmann::json;

TEST_CASE("Quality of classes: a case worked out by hand") {
  const std::vector<std::string> classes = {"a", "b", "c"};
  // Expected a a a b b; predicted a b a b a.
  const std::vector<std::int32_t> labels = {0, 0, 0, 1, 1};
  const ClassScores a = {std::log(0.5F), std::log(0.3F), std::log(0.2F)},
                    b = {std::log(0.1F), std::log(0.8F), std::log(0.1F)};
  const std::vector<ClassScores> scores = {a, b, a, b, a};
  const ClassQuality quality = quality_of(scores, labels, 3);
  CHECK(quality.accuracy == doctest::Approx(0.6));
  CHECK(quality.loss ==
        doctest::Approx(-(2 * std::log(0.5) + std::log(0.1) + std::log(0.8) + std::log(0.3)) / 5));
  // F1: a 2 * 2 / (3 + 3), b 2 * 1 / (2 + 2), c 0, for it has neither texts nor predictions.
  CHECK(quality.macro_f1 == doctest::Approx((4.0 / 6 + 0.5 + 0) / 3));
  CHECK(quality.confusion == std::vector<std::vector<std::int64_t>>{{2, 1, 0}, {1, 1, 0}, {0, 0, 0}});

  LabelledText text;
  for (int i = 0; i < 5; ++i)
    text.add("text", classes[static_cast<std::size_t>(labels[i])], "f:" + std::to_string(i + 1));
  const Measurement measured =
      class_measurement({{{"accuracy", 0.6, true}}}, quality, scores, labels, text, classes);
  const Json json = Json::parse(measured.json);
  CHECK(json["accuracy"] == 0.6);
  CHECK(json["texts"] == 5);
  CHECK(json["confusion"][0] == Json({2, 1, 0}));
  CHECK(json["classes"]["a"]["recall"] == doctest::Approx(0.6667));
  CHECK(json["classes"]["b"]["precision"] == 0.5);
  REQUIRE(measured.mistakes.size() == 2);
  CHECK(measured.mistakes[0].place == "f:2");  // the more confident one
  CHECK(measured.mistakes[0].predicted == "b");

  CHECK(quality_of({}, {}, 300).confusion.empty());
}

TEST_CASE("Balanced weights: a rare class counts more, and the mean over the texts is 1") {
  const std::vector<float> weights = balanced_weights({0, 0, 0, 1}, 2);
  CHECK(weights[0] == doctest::Approx(4.0 / (2 * 3)));
  CHECK(weights[1] == doctest::Approx(4.0 / (2 * 1)));
}
