#pragma once

/// Everything that a program using heed needs.

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/core/error.h"
#include "heed/core/profile.h"
#include "heed/core/random.h"
#include "heed/core/tensor.h"
#include "heed/core/version.h"
#include "heed/models/encoder_classifier.h"
#include "heed/models/encoder_decoder.h"
#include "heed/models/language_model.h"
#include "heed/models/search.h"
