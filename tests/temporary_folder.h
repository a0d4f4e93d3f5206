#pragma once

#include "heed/base/file.h"

using heed::TemporaryFolder;
