#pragma once

/// What programs need of heed: tensors and ops, gradients and ops of your own, attention mechanisms, models,
/// training and data; and of the applications (apps/apps.h), unless heed was built without them, tasks, their
/// runs and published models. You can also include only the headers that you need.
///
/// Left out is what few programs extend or take apart: what a task of your own shares with others
/// (apps/tasks/examples.h, apps/tasks/labelled.h, apps/tasks/text_to_text.h), the frame of a published
/// architecture (apps/hub/architecture.h), comparisons (apps/compare/comparison.h), event files
/// (training/tensorboard.h), the readers of single formats (data/idx.h, data/mind.h,
/// data/dialogues.h, ...), and headers that only other headers of their folder use.

#include "heed/autograd/autograd.h"
#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"
#include "heed/autograd/recurrence.h"
#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/core/device.h"
#include "heed/core/profile.h"
#include "heed/core/random.h"
#include "heed/core/ranks.h"
#include "heed/core/tensor.h"
#include "heed/core/version.h"
#include "heed/data/batching.h"
#include "heed/data/labelled_text.h"
#include "heed/data/large_text.h"
#include "heed/data/safetensors.h"
#include "heed/data/table.h"
#include "heed/data/text_file.h"
#include "heed/data/tokenizer.h"
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
