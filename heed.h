#pragma once

/// The header for programs that use heed. It includes tensors and ops, gradients and custom ops,
/// attention mechanisms, models, tokenizers and training. Unless heed was built without
/// applications, it also includes apps/apps.h: readers of data, tasks, their runs and published
/// models. You can also include single headers.
///
/// It leaves out what few programs extend: helpers for new tasks (apps/tasks/examples.h,
/// apps/tasks/labelled.h, apps/tasks/text_to_text.h), the framework of published architectures
/// (apps/hub/architecture.h), comparisons (apps/compare/comparison.h), event files
/// (training/tensorboard.h), readers of single formats (apps/data/formats.h), and
/// headers that are internal to their folder.

#include "heed/autograd/autograd.h"
#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/core/device.h"
#include "heed/core/profile.h"
#include "heed/core/random.h"
#include "heed/core/ranks.h"
#include "heed/core/tensor.h"
#include "heed/core/version.h"
#include "heed/models/attention/attention.h"
#include "heed/models/classifier.h"
#include "heed/models/config.h"
#include "heed/models/decoding.h"
#include "heed/models/encoder_decoder.h"
#include "heed/models/language_model.h"
#include "heed/models/layers.h"
#include "heed/models/module.h"
#include "heed/models/news_recommender.h"
#include "heed/models/pairs.h"
#include "heed/models/search.h"
#include "heed/text/batching.h"
#include "heed/text/safetensors.h"
#include "heed/text/token_stream.h"
#include "heed/text/tokenizer.h"
#include "heed/training/checkpoint.h"
#include "heed/training/muon.h"
#include "heed/training/optimizer.h"
#include "heed/training/perplexity.h"
#include "heed/training/precision.h"
#include "heed/training/ranking.h"
#include "heed/training/run_folder.h"
#include "heed/training/text_metrics.h"
#include "heed/training/trainer.h"

#if __has_include("heed/apps/apps.h")
#include "heed/apps/apps.h"
#endif
