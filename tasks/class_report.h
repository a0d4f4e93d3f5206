#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "heed/tasks/learner.h"

// What a report shows of a task that tells classes apart, as parts of a page of training/chart.h.

namespace heed {

/// The CSS of what follows, for page_head().
std::string_view class_style();
/// The confusion matrix and what each class came to, from the JSON of a measurement (class_measurement() of
/// tasks/labelled.h); "" where it has none.
std::string classes_html(const Measurement& measurement);
/// The `most` most confident mistakes.
std::string mistakes_html(const Measurement& measurement, std::size_t most);
/// A line of input as a reader sees it: an image (data/idx.h), else its text, the first 600 bytes of it.
std::string line_html(std::string_view line);

}  // namespace heed
