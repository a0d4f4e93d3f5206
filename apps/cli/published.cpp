// Linked with every program: published folders are opened as runs are.

#include "heed/apps/hub/exchange.h"

namespace {

[[maybe_unused]] const bool reads_published = [] {
  heed::read_published_runs();
  return true;
}();

}  // namespace
