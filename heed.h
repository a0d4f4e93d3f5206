#pragma once

/// All of heed: tensors and ops, autodiff, models, training and data. One can also include the parts one
/// needs.

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/core/cpu_info.h"
#include "heed/core/cpu_threads.h"
#include "heed/core/error.h"
#include "heed/core/profile.h"
#include "heed/core/random.h"
#include "heed/core/tensor.h"
#include "heed/core/version.h"
#include "heed/data/batching.h"
#include "heed/data/parallel_text.h"
#include "heed/data/safetensors.h"
#include "heed/data/tokenizer.h"
#include "heed/models/encoder_classifier.h"
#include "heed/models/encoder_decoder.h"
#include "heed/models/language_model.h"
#include "heed/models/search.h"
#include "heed/training/bleu.h"
#include "heed/training/model_file.h"
#include "heed/training/optimizer.h"
#include "heed/training/schedule.h"
#include "heed/training/trainer.h"
