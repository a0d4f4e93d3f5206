#pragma once

// Tasks and their runs, reports, published models: what programs need of the applications.

#include "heed/apps/hub/exchange.h"
#include "heed/apps/tasks/report.h"
#include "heed/apps/tasks/run.h"
#include "heed/apps/tasks/train.h"
