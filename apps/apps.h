#pragma once

// Readers of data, tasks and their runs, reports, published models: what programs need of the applications.

#include "heed/apps/data/labelled_text.h"
#include "heed/apps/data/large_text.h"
#include "heed/apps/data/table.h"
#include "heed/apps/data/text_file.h"
#include "heed/apps/hub/exchange.h"
#include "heed/apps/tasks/report.h"
#include "heed/apps/tasks/run.h"
#include "heed/apps/tasks/train.h"
