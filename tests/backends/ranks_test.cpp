// Several processes: what they send each other, and that it does not matter how many there are. Programs with
// ranks are in ranks_program_test.cpp.

#include "heed/core/ranks.h"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <iostream>

#include "heed/tests/child_process.h"
#include "heed/tests/run_records.h"
#include "heed/tests/training_objectives.h"
#include "heed/training/gradient_exchange.h"
#include "heed/training/trainer.h"

namespace {

/// Runs the body in `count` ranks; an exception becomes status 1, "false" 3.
int status_of_ranks(int count, const std::function<bool(Ranks&)>& body) {
  return run_local_ranks(count, [&](Ranks& ranks) { return body(ranks) ? 0 : 3; });
}

/// What rank a sends rank b in round i: texts of very different lengths, of all bytes.
std::string letter(int a, int b, int i) {
  const std::size_t lengths[] = {0, 1, 70'000, 3'000'000};
  std::string text(lengths[(a + 2 * b + i) % 4], '\0');
  for (std::size_t k = 0; k < text.size(); ++k)
    text[k] = static_cast<char>(k * 31 + static_cast<std::size_t>(a * 7 + b));
  return text;
}

/// A rank whose peer answers every message with a copy of it, of which some bytes are changed.
class MirrorRanks : public Ranks {
 public:
  MirrorRanks() : Ranks(0, 2, std::make_unique<WorkerThread>()) {}
  ~MirrorRanks() override { finish_transfers(); }
  [[noreturn]] void abandon(int status) override { std::_Exit(status); }
  std::function<void(std::span<std::byte>)> change = [](std::span<std::byte>) {};

 protected:
  void transfer(std::span<const std::span<const std::byte>> out,
                std::span<const std::span<std::byte>> in) override {
    std::memcpy(in[1].data(), out[1].data(), std::min(in[1].size(), out[1].size()));
    if (!in[1].empty()) change(in[1]);
  }
};

/// Everything that a step may have: a tied weight, dropout, accumulation over the end of an epoch, averages,
/// clipping, part rates; of the optimizers the one with most state.
TrainerOptions options_of_all(std::int64_t steps) {
  TrainerOptions options;
  options.steps = steps;
  options.accumulation = 4;
  options.clip_norm = 0.5;
  options.ema_decay = 0.9;
  options.seed = 3;
  options.log_every = 3;
  options.save_every = 4;
  options.evaluate_every = 7;
  options.optimizer.kind = OptimizerKind::adamw;
  options.optimizer.weight_decay = 0.01;
  options.schedule = {ScheduleKind::cosine, 0.01, 5, 0};
  options.part_rates = {{"norm", 0.5}, {"second", 0}};
  return options;
}

/// The tensors of a safetensors file, without the header, which has no identity of a run either.
std::string weights_in(const std::filesystem::path& run) {
  return content_of(run / "model.safetensors") + content_of(run / "optimizer.safetensors") +
         content_of(run / "best.safetensors");
}

/// Trains in a folder of its own, or goes on with what is there. Ranks other than the first have none.
template <class Objective>
bool train_in(const std::filesystem::path& path, const TrainerOptions& options, Ranks* ranks,
              Objective&& objective, const TrainerCallbacks& callbacks = {}) {
  const RunStart start{"tiny", "{}", {}, {}};
  std::optional<RunFolder> run;
  if (!ranks || ranks->is_first())
    run.emplace(std::filesystem::exists(path / "config.json") ? RunFolder::resume(path, start, {})
                                                              : RunFolder::create(path, start));
  return Trainer(objective, options, callbacks, ranks).run(run ? &*run : nullptr).finished;
}

}  // namespace

TEST_CASE("ranks: everybody gets what was sent to him, whatever its length, in every order of lengths") {
  for (const int count : {1, 2, 5}) {
    CAPTURE(count);
    const int status = status_of_ranks(count, [&](Ranks& ranks) {
      bool good =
          ranks.count() == count && ranks.local_count() == count && ranks.local_rank() == ranks.rank();
      for (int i = 0; i < 4; ++i) {
        std::vector<std::string> out, in;
        for (int r = 0; r < count; ++r) {
          out.push_back(letter(ranks.rank(), r, i));
          in.emplace_back(letter(r, ranks.rank(), i).size(), '?');
        }
        const std::vector<std::string> texts =
            ranks.exchange_texts(std::vector<std::string_view>(out.begin(), out.end()));
        std::vector<std::span<const std::byte>> from;
        std::vector<std::span<std::byte>> to;
        for (int r = 0; r < count; ++r) {
          from.push_back(std::as_bytes(std::span(out[static_cast<std::size_t>(r)])));
          to.push_back(std::as_writable_bytes(std::span(in[static_cast<std::size_t>(r)])));
        }
        ranks.exchange(from, to);
        for (int r = 0; r < count; ++r) {
          const std::string expected = letter(r, ranks.rank(), i);
          good = good && texts[static_cast<std::size_t>(r)] == expected;
          good = good && (r == ranks.rank() || in[static_cast<std::size_t>(r)] == expected);
        }
        good = good && ranks.broadcast(concat_text("from ", ranks.rank())) == "from 0";
      }
      return good;
    });
    CHECK(status == 0);
  }
}

TEST_CASE("ranks: exchanges go on while their caller does, and who asks for more waits for them") {
  int go[2];
  REQUIRE(pipe(go) == 0);
  const int status = status_of_ranks(2, [&](Ranks& ranks) {
    // Rank 1 takes part only when rank 0 has gone on, which it could not if it waited.
    char byte = 0;
    if (ranks.rank() == 1 && read(go[0], &byte, 1) != 1) return false;
    std::vector<std::string> first, second;
    ranks.start([&] {
      first = ranks.all_gather(concat_text("one of ", ranks.rank()));
      second = ranks.all_gather(std::string(2'000'000, static_cast<char>('a' + ranks.rank())));
    });
    if (ranks.is_first() && write(go[1], &byte, 1) != 1) return false;
    const std::vector<std::string> third = ranks.all_gather(concat_text("three of ", ranks.rank()));
    ranks.finish();
    return first == std::vector<std::string>{"one of 0", "one of 1"} && second[1][1'999'999] == 'b' &&
           third == std::vector<std::string>{"three of 0", "three of 1"};
  });
  close(go[0]);
  close(go[1]);
  CHECK(status == 0);
}

TEST_CASE("ranks: what goes wrong in the background is thrown to who waits, once") {
  MirrorRanks ranks;
  ranks.change = [](std::span<std::byte> bytes) { bytes[0] ^= std::byte{1}; };
  ranks.start([&] { ranks.all_gather("a"); });
  CHECK_THROWS_AS(ranks.finish(), RankLost);
  ranks.change = [](std::span<std::byte>) {};
  ranks.finish();
  CHECK(ranks.all_gather("b")[0] == "b");
  ranks.start([&] { ranks.broadcast("what nobody waits for"); });  // the destructor does
}

TEST_CASE("ranks: the processors are shared, and each rank has at least one") {
  const int alone = run_local_ranks(1, [](Ranks& ranks) { return std::min(ranks.thread_share(), 200); });
  CHECK(alone >= 1);
  if (alone == 200) return;  // more than a status can say
  CHECK(status_of_ranks(4, [&](Ranks& ranks) { return ranks.thread_share() == std::max(1, alone / 4); }) ==
        0);
}

TEST_CASE("ranks: a message of another job, of another place in the order or of another length is refused") {
  const std::string text = "0123456789";
  const auto refusal = [&](const std::function<void(std::span<std::byte>)>& change) {
    MirrorRanks ranks;
    CHECK(ranks.all_gather(text)[1] == text);  // as long as nothing is changed
    ranks.change = change;
    try {
      ranks.all_gather(text);
    } catch (const RankLost& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  const auto at = [](std::size_t place) {  // of five words: mark, job, order, length, largest
    return [place](std::span<std::byte> bytes) {
      if (bytes.size() == 40) bytes[place] ^= std::byte{1};
    };
  };
  CHECK(contains(refusal(at(0)), "not from heed"));
  CHECK(contains(refusal(at(8)), "another job"));
  CHECK(contains(refusal(at(16)), "out of order"));
  CHECK(contains(refusal(at(31)), "invalid length"));
  CHECK(contains(refusal(at(39)), "invalid length"));

  MirrorRanks ranks;
  std::string shorter(9, ' ');
  const std::vector<std::span<const std::byte>> out{{}, std::as_bytes(std::span(text))};
  const std::vector<std::span<std::byte>> in{{}, std::as_writable_bytes(std::span(shorter))};
  CHECK_THROWS_AS(ranks.exchange(out, in), RankLost);
}

TEST_CASE("ranks: ranks that do not do the same notice it") {
  const int status = run_local_ranks(3, [](Ranks& ranks) {
    try {
      if (ranks.rank() == 1) ranks.all_gather("");
      ranks.exchange_texts(std::vector<std::string_view>{"a", "b", "c"});
      ranks.all_gather("");
    } catch (const RankLost&) {
      return 7;
    }
    return 0;
  });
  CHECK(status == 7);
}

TEST_CASE("ranks: the status of the first that fails is that of all, and a signal is named") {
  CHECK(run_local_ranks(3, [](Ranks&) { return 0; }) == 0);
  CHECK(run_local_ranks(3, [](Ranks& ranks) { return ranks.is_first() ? 143 : 0; }) == 143);
  const auto start = std::chrono::steady_clock::now();
  CHECK(run_local_ranks(3, [](Ranks& ranks) {
          if (ranks.rank() == 2) return 9;
          ranks.all_gather("waits for rank 2, who never comes");
          return 0;
        }) > 0);
  const std::string message = error_of([] {
    run_local_ranks(3, [](Ranks& ranks) {
      if (ranks.rank() == 1) std::raise(SIGKILL);
      try {
        ranks.all_gather("");
      } catch (const RankLost&) {
        ::sleep(60);
      }
      return 0;
    });
  });
  CHECK(contains(message, "rank 1 of 3 was ended by signal 9"));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
  CHECK_THROWS_AS(run_local_ranks(0, [](Ranks&) { return 0; }), Error);
}

TEST_CASE("ranks: a stop that is asked of the starting process reaches all, whenever they look") {
  const int status = run_local_ranks(
      2,
      [](Ranks& ranks) {
        if (ranks.asked_to_stop()) return 4;
        while (!ranks.asked_to_stop()) ::usleep(1000);
        ::usleep(20'000 * static_cast<unsigned>(ranks.rank()));
        return ranks.asked_to_stop() ? 0 : 5;
      },
      [asked = 0]() mutable { return ++asked > 50; });
  CHECK(status == 0);
  CHECK(run_local_ranks(2, [](Ranks& ranks) { return ranks.asked_to_stop() ? 4 : 0; }) == 0);
}

TEST_CASE("ranks: one that is stopped at its end is named") {
  const RankPatience patience{.remark_after = 1, .timeout = 2};
  const std::string message = error_of([&] {
    run_local_ranks(
        2,
        [](Ranks& ranks) {
          ranks.all_gather("a");
          if (ranks.rank() == 1) std::raise(SIGSTOP);
          return 0;
        },
        {}, patience);
  });
  CHECK(contains(message, "rank 1 has not ended for "));
}

TEST_CASE("ranks: one that computes while its gradients travel misses nobody") {
  RankPatience patience{.remark_after = 1, .timeout = 2};
  CHECK(run_local_ranks(
            2,
            [](Ranks& ranks) {
              ranks.start([&] { ranks.all_gather("a"); });
              ::sleep(4);
              if (ranks.rank() == 1) ::usleep(300'000);
              ranks.finish();
              if (ranks.rank() == 1) ::sleep(4);
              ranks.start([&] { ranks.all_gather("b"); });
              ::sleep(ranks.rank() == 0 ? 4 : 0);
              ranks.finish();
              return 0;
            },
            {}, patience) == 0);
}

TEST_CASE("ranks: one that is stopped does not keep the others from their end") {
  const auto start = std::chrono::steady_clock::now();
  CHECK(run_local_ranks(
            2,
            [](Ranks& ranks) {
              ranks.all_gather("a");
              if (ranks.rank() == 1) std::raise(SIGSTOP);
              ranks.all_gather("b");
              return 4;
            },
            [&] { return std::chrono::steady_clock::now() - start > std::chrono::milliseconds(500); }) == 4);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
}

TEST_CASE("ranks: signals that ask for an end are for the starting process") {
  CHECK(run_local_ranks(2, [](Ranks& ranks) {
          for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) std::raise(signal);
          ranks.all_gather("");
          return 0;
        }) == 0);
}

TEST_CASE("child: ranks without room for their threads" * doctest::skip()) {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit limit{pages * 4096 + (rlim_t{4} << 20), RLIM_INFINITY};
  REQUIRE(::setrlimit(RLIMIT_AS, &limit) == 0);
  std::cout << "message: " << error_of([] { run_local_ranks(3, [](Ranks&) { return 0; }); }) << '\n';
}

TEST_CASE("ranks: those that cannot begin say why") {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which leave nothing to limit
  const ChildResult result = run_in_child("child: ranks without room for their threads");
  INFO(result.text());
  CHECK(contains(result.output, "cannot begin: a thread cannot be started"));
#endif
}

TEST_CASE("ranks: where there are fewer GPUs than ranks that want one each, they are told") {
  CHECK_THROWS_AS(find_device("vulkan", 0, 1000), Error);
  CHECK(find_device("cpu", 999, 1000) == Device{});
}

TEST_CASE("ranks: MPI is refused where no launcher started the process") {
  if (started_by_mpi()) return;
  CHECK_ERROR(open_mpi(), "no launcher");
}

TEST_CASE("ranks: the files of a run have the same bytes for any number of ranks, f32 and f64") {
  const TemporaryFolder folder;
  const TrainerOptions options = options_of_all(20);
  REQUIRE(train_in(folder / "alone", options, nullptr, TinyObjective()));
  TrainerOptions of_muon = options;  // of whose matrices two and more of one shape are computed together
  of_muon.optimizer.kind = OptimizerKind::muon;
  of_muon.part_rates = {};
  REQUIRE(train_in(folder / "muon", of_muon, nullptr, TinyObjective()));
  TrainerOptions of_line = options;
  of_line.part_rates = {};
  const auto line_task = [] {
    auto objective = std::make_unique<LineObjective>();
    objective->with_auxiliary = true;
    return objective;
  };
  REQUIRE(train_in(folder / "line", of_line, nullptr, *line_task()));
  for (const int count :
       {1, 2, 3, 4, 6}) {  // of the last two have nothing to compute; two parameters, six ranks
    CAPTURE(count);
    const std::string name = std::to_string(count);
    CHECK(status_of_ranks(count, [&](Ranks& ranks) {
            return train_in(folder / name, options, &ranks, TinyObjective()) &&
                   train_in(folder / ("muon" + name), of_muon, &ranks, TinyObjective()) &&
                   train_in(folder / ("line" + name), of_line, &ranks, *line_task());
          }) == 0);
    CHECK(weights_in(folder / name) == weights_in(folder / "alone"));
    CHECK(records_of(folder / name) == records_of(folder / "alone"));
    CHECK(weights_in(folder / ("muon" + name)) == weights_in(folder / "muon"));
    CHECK(weights_in(folder / ("line" + name)) == weights_in(folder / "line"));
    CHECK(records_of(folder / ("line" + name)) == records_of(folder / "line"));
  }
  CHECK(contains(records_of(folder / "line"), "size"));  // the auxiliary loss
}

TEST_CASE("ranks: pieces of work are dealt out, and all get every result in order") {
  const auto piece = [](std::size_t i) { return letter(0, static_cast<int>(i), static_cast<int>(i)); };
  const std::vector<std::string> alone = distribute_work(nullptr, 7, piece);
  REQUIRE(alone.size() == 7);
  for (const int count : {1, 2, 3, 9}) {
    CAPTURE(count);
    CHECK(status_of_ranks(count, [&](Ranks& ranks) {
            std::size_t computed = 0;
            const bool same =
                distribute_work(&ranks, 7, [&](std::size_t i) { return ++computed, piece(i); }) == alone;
            const auto share = static_cast<std::size_t>((7 - ranks.rank() + count - 1) / count);
            const auto numbers =
                distribute_numbers<double>(&ranks, 2, [](std::size_t i) { return Doubles(i, 0.1); });
            return same && computed == (ranks.rank() < 7 ? share : 0) &&
                   distribute_work(&ranks, 0, piece).empty() && numbers == std::vector<Doubles>{{}, {0.1}};
          }) == 0);
  }
}

TEST_CASE(
    "ranks: an evaluation is shared with the averaged weights, after a resumption too, to the same figures") {
  struct DealingObjective : TinyObjective {
    heed::Evaluation evaluate() override {
      double loss = 0;
      for (const auto& part : share_work<double>(5, [&](std::size_t batch) {
             ++computed;
             heed::Context context = heed::Context::inference();
             const heed::Loss one = TinyObjective::loss(9, static_cast<std::int64_t>(batch), context);
             return Doubles{one.sum.item()};
           }))
        loss += part[0];
      return {{{"loss", loss}}, "loss"};
    }
    int computed = 0;
  };
  const TemporaryFolder folder;
  TrainerOptions options = options_of_all(8);
  options.evaluate_every = 2;
  options.ema_decay = 0.99;
  DealingObjective all;
  REQUIRE(train_in(folder / "alone", options, nullptr, all));
  CHECK(all.computed == 4 * 5);
  CHECK(status_of_ranks(2, [&](Ranks& ranks) {
          DealingObjective some;
          TrainerCallbacks callbacks;
          callbacks.stop_requested = [&, steps = 0]() mutable { return ++steps == 5; };
          train_in(folder / "two", options, &ranks, some, callbacks);
          return some.computed == 2 * (ranks.is_first() ? 3 : 2);
        }) == 0);
  CHECK(status_of_ranks(3, [&](Ranks& ranks) {
          return train_in(folder / "two", options, &ranks, DealingObjective());
        }) == 0);
  CHECK(weights_in(folder / "two") == weights_in(folder / "alone"));
  CHECK(records_of(folder / "two") == records_of(folder / "alone"));
}

TEST_CASE("ranks: a run goes on with another number of ranks") {
  const TemporaryFolder folder;
  TrainerOptions options = options_of_all(16);
  options.optimizer.kind = OptimizerKind::muon;  // whose matrices lack a moment that other parameters have
  REQUIRE(train_in(folder / "alone", options, nullptr, TinyObjective()));
  const auto train_until = [&](std::int64_t step, Ranks* ranks) {
    TrainerCallbacks callbacks;
    // Asked of the last rank alone.
    if (!ranks || ranks->rank() == ranks->count() - 1)
      callbacks.stop_requested = [step, asked = std::int64_t{0}]() mutable { return ++asked == step; };
    train_in(folder / "run", options, ranks, TinyObjective(), callbacks);
    return true;
  };
  CHECK(status_of_ranks(3, [&](Ranks& ranks) { return train_until(5, &ranks); }) == 0);
  train_until(3, nullptr);
  CHECK(status_of_ranks(4, [&](Ranks& ranks) { return train_until(2, &ranks); }) == 0);
  CHECK(weights_in(folder / "run") != weights_in(folder / "alone"));
  CHECK(status_of_ranks(2, [&](Ranks& ranks) { return train_until(100, &ranks); }) == 0);
  CHECK(weights_in(folder / "run") == weights_in(folder / "alone"));
  CHECK(records_of(folder / "run") == records_of(folder / "alone"));
}

TEST_CASE(
    "ranks: one that is killed in any phase of a step ends all within ten seconds, with a whole checkpoint") {
  struct KilledObjective : TinyObjective {
    heed::Loss loss(std::int64_t epoch, std::int64_t batch, heed::Context& context) override {
      if (phase == "forward") meet();
      return TinyObjective::loss(epoch, batch, context);
    }
    heed::Evaluation evaluate() override {
      if (phase == "evaluation" && rank == 1) std::raise(SIGKILL);
      return TinyObjective::evaluate();
    }
    std::int64_t batches(std::int64_t epoch) override {
      if (phase == "between batches") meet();
      return TinyObjective::batches(epoch);
    }
    void meet() {
      if (rank == 1 && ++calls == (phase == "forward" ? 9 : 30)) std::raise(SIGKILL);
    }
    std::string phase;
    int rank = 0, calls = 0;
  };
  const TemporaryFolder folder;
  const TrainerOptions options = options_of_all(14);
  REQUIRE(train_in(folder / "alone", options, nullptr, TinyObjective()));
  for (const std::string phase : {"forward", "between batches", "evaluation", "after a step"}) {
    CAPTURE(phase);
    const auto start = std::chrono::steady_clock::now();
    const std::string message = error_of([&] {
      run_local_ranks(3, [&](Ranks& ranks) {
        KilledObjective objective;
        objective.phase = phase;
        objective.rank = ranks.rank();
        std::int64_t steps = 0;
        TrainerCallbacks callbacks;
        callbacks.stop_requested = [&] {
          if (phase == "after a step" && ranks.rank() == 2 && ++steps == 9) std::raise(SIGKILL);
          return false;
        };
        try {
          train_in(folder / phase, options, &ranks, objective, callbacks);
        } catch (const RankLost&) {
          ::sleep(60);  // whoever started the ranks ends them
        }
        return 0;
      });
    });
    CHECK(contains(message, "was ended by signal 9"));
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
    REQUIRE(train_in(folder / phase, options, nullptr, TinyObjective()));
    CHECK(weights_in(folder / phase) == weights_in(folder / "alone"));
  }
}

TEST_CASE("ranks: a rank steps and keeps the moments of its own parameters alone, and all are owned") {
  CHECK(run_local_ranks(3, [](Ranks& ranks) {
          TinyObjective objective;
          const GradientExchange exchange(objective.model(), objective.model().parameters(), ranks);
          std::string mine;
          for (const bool owned : exchange.owned()) mine += owned ? '1' : '0';
          const std::vector<std::string> all = ranks.all_gather(mine);
          for (std::size_t i = 0; i < mine.size(); ++i)
            if ((all[0][i] == '1') + (all[1][i] == '1') + (all[2][i] == '1') != 1) return 3;
          const Optimizer optimizer(objective.model().parameters(), {}, {}, exchange.owned());
          const auto own = static_cast<std::size_t>(std::ranges::count(mine, '1'));
          return optimizer.state().size() == 2 * own + 1 && own > 0 && own < mine.size() ? 0 : 4;
        }) == 0);
}

TEST_CASE("ranks: a weight that is used twice gets its gradients batch by batch") {
  // (a + b) + (c + d), not ((a + b) + c) + d: with these numbers the two differ.
  class TwiceModel : public Module {
   public:
    TwiceModel() { add_parameter("weight", weight, Tensor::zeros({1})); }
    Tensor weight;
  };
  struct TwiceObjective : Objective {
    Module& model() override { return model_; }
    std::int64_t batches(std::int64_t) override { return 2; }
    Loss loss(std::int64_t, std::int64_t batch, Context&) override {
      const double big = batch == 0 ? 16777216 : 1, small = batch == 0 ? 0 : 1;
      return {sum(model_.weight * big) + sum(model_.weight * small), 1};
    }
    TwiceModel model_;
  } objective;
  TrainerOptions options;
  options.steps = 1;
  options.accumulation = 2;
  options.optimizer = {OptimizerKind::sgd, 0};
  options.schedule.learning_rate = 1;
  options.schedule.warmup_steps = 0;
  double norm = 0;
  options.log_every = 1;
  Trainer(objective, options, {.progress = [&](const Progress& progress) { norm = progress.gradient_norm; }})
      .run();
  CHECK(norm == 16777218.0 / 2);  // 2^24 + 2; one after the other, 2^24 + 1 + 1 stays 2^24
}
