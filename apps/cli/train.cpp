#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <thread>

#include "heed/apps/cli/task_program.h"
#include "heed/apps/tasks/train.h"
#include "heed/base/file.h"
#include "heed/base/unicode.h"
#include "heed/core/profile.h"
#include "heed/models/config.h"

namespace heed::programs {
namespace {

/// Runs `body` as one of several processes. The first process to end with an error ends all,
/// through mpirun or the process that forked them. To print a single message, errors are reported
/// in this order: rank 0 with errors that all ranks found, a rank that failed alone, a rank that
/// only noticed that another is gone.
int as_rank(std::string program, Ranks& ranks, const std::function<int()>& body) {
  const auto leave = [&](std::chrono::seconds delay) {
    std::this_thread::sleep_for(delay + std::chrono::seconds(ranks.is_first() ? 0 : 1));
    if (!ranks.is_first()) program += concat_text(" (rank ", ranks.rank(), ")");
    ranks.abandon(report_exception(program));
    return exit_failure;  // never
  };
  try {
    return body();
  } catch (const RankSilent&) {
    return leave(std::chrono::seconds(0));
  } catch (const RankLost&) {
    return leave(std::chrono::seconds(2));
  } catch (const std::exception&) {
    return leave(std::chrono::seconds(0));
  }
}

class TrainCommand {
 public:
  TrainCommand(CLI::App& command, const TaskProgram& program)
      : program_(program), printer_(std::cerr, ProgressPrinter::style_of(STDERR_FILENO)) {
    out_.add(command, "--out", "RUN", "Folder of the run: configuration, weights, checkpoint, metrics");
    config_.add(command, "--config", "FILE", "JSON file of settings that override the defaults");
    add_set_flag(command, assignments_);
    flags_ = program.train_flags;
    add_encoding_flags(program.entry, flags_);
    flags_.insert(flags_.end(), {"seed",
                                 "training.steps",
                                 "training.save_every",
                                 {"training.from", "", "RUN"},
                                 {"training.ignore", "", "PARTS"},
                                 {"training.freeze", "", "PARTS"},
                                 "training.embeddings"});
    flags_.insert(flags_.end(), runtime_flags.begin(), runtime_flags.end());
    flags_.emplace_back("training.tensorboard", "", "", "true");
    const Settings settings = program.entry.settings(true);
    const bool encodes = settings.has("model.encoder_layers");
    for (SettingFlag flag : {SettingFlag("training.epochs"),
                             {"training.schedule.learning_rate"},
                             {"model.width"},
                             {encodes ? "model.encoder_layers" : "model.decoder_layers", "--layers"},
                             {"model.dropout"},
                             {"training.batch_tokens"},
                             {"data.max_tokens", "--max-length"},
                             {"training.vectors", "", "FOLDER"}})
      if (settings.has(flag.setting)) flags_.push_back(std::move(flag));
    add_setting_flags(command, program.entry, flags_);
    const bool both = program.entry.stacks == Stacks::encoder_decoder;
    command.option_defaults()->group("Model");
    attention_.add(
        command, "--attention", "NAME",
        std::string(both
                        ? "Self-attention of the encoder, and of the decoder if the mechanism can serve there"
                        : "Self-attention") +
            ": " + listed(attention_names()));
    if (both) {
      decoder_.add(command, "--decoder-attention", "NAME", "Self-attention of the decoder");
      cross_.add(command, "--cross-attention", "NAME",
                 "Cross-attention from decoder to encoder; default: dot_product");
    }
    if (program.has_preset)
      preset_.add(command, "--preset", "NAME",
                  "A model from the hard-coded Gaussian paper: " + listed(preset_names()) +
                      ". Sets all attentions; the attention flags override it");
    command.option_defaults()->group("Options");
    command.add_flag("--resume", resume_,
                     "Resumes the run in --out from its last checkpoint, with bit-identical results");
    command.add_flag("--unverified", unverified_,
                     "With --resume: continues even if files or data have changed");
    ranks_.add(
        command, "--ranks", "N",
        "Trains with N processes on this machine, which share the batches of every step "
        "(training.accumulation); the result equals that of one process. Use mpirun for several machines");
    rank_timeout_.add(command, "--rank-timeout", "SECONDS",
                      "Ends training if one of several processes has not answered for this long; default: "
                      "reports it after 10 s and keeps waiting");
    command.add_flag("--profile", profile_, "Prints the time spent in each kernel at the end");
    command.add_flag("--print-config", print_config_, "Prints the settings as JSON and exits");
    command.add_flag("--help-settings", help_settings_,
                     "Prints every setting with default, range and description, and exits");
  }

  int run() {
    if (help_settings_) {
      const Settings settings = resolve();
      std::cout << "Defaults for "
                << (program_.entry.names_data(settings) ? program_.suits
                                                        : concat_text("generated data (", program_.by_rule,
                                                                      "); with --data: for ", program_.suits))
                << "\n\n"
                << settings_table(settings);
      return exit_success;
    }
    if (started_by_mpi() && !print_config_) {
      if (ranks_.given())
        throw SettingsError("--ranks starts processes itself, as mpirun does: use only one of them");
      const std::unique_ptr<Ranks> ranks = open_mpi(rank_patience());
      muted_ = !ranks->is_first();
      return as_rank(std::string(program_.entry.name), *ranks, [&] { return train(resolve(), ranks.get()); });
    }
    const Settings settings = resolve();
    if (print_config_) {
      std::cout << settings.json("", 2) << '\n';
      return exit_success;
    }
    const int ranks = ranks_.count(1, 1024);
    if (rank_timeout_.given() && ranks == 1)
      throw SettingsError("--rank-timeout is for several processes: give --ranks, or use mpirun");
    return ranks > 1 ? train_among(ranks, settings) : train(settings, nullptr);
  }

 private:
  RankPatience rank_patience() {
    RankPatience patience;
    if (rank_timeout_.given()) patience.timeout = rank_timeout_.count(0, 1'000'000);
    patience.say = [this](const std::string& text) { printer_.message(text); };
    return patience;
  }

  /// Trains with processes on this machine. Signals go to this process, which only waits.
  int train_among(int count, const Settings& settings) {
    check_flags();
    const InterruptGuard interrupt;
    const auto body = [&](Ranks& ranks) {
      return as_rank(std::string(program_.entry.name), ranks, [&] { return train(settings, &ranks); });
    };
    try {
      const int status = run_local_ranks(count, body, InterruptGuard::interrupted, rank_patience());
      return status > 128 && InterruptGuard::interrupted() ? InterruptGuard::exit_status() : status;
    } catch (const RankLost& error) {
      if (!path_exists(settings_folder(out_.value()) / "config.json")) throw;
      throw Error(concat_text(error.what(), "; --resume continues from the last checkpoint"));
    }
  }

  void check_flags() const {
    if (!out_.given()) throw SettingsError("train needs --out, the folder of the run");
    if (unverified_ && !resume_) throw SettingsError("--unverified is for resumed runs: give --resume too");
  }

  int train(const Settings& settings, Ranks* ranks) {
    check_flags();
    const InterruptGuard interrupt;
    TrainRequest request{.folder = out_.value(),
                         .resume = resume_,
                         .verify = !unverified_,
                         .ranks = ranks,
                         .report = false};  // it is made when what came of the training is said
    const bool is_first = !ranks || ranks->is_first();
    request.callbacks.progress = [&](const Progress& progress) { printer_.show(progress); };
    request.callbacks.message = [&](std::string_view text) { printer_.message(text); };
    request.callbacks.stop_requested = InterruptGuard::interrupted;
    if (ranks)
      request.callbacks.stop_requested = [ranks] {
        return InterruptGuard::interrupted() || ranks->asked_to_stop();
      };
    apply_threads(settings, ranks);
    if (profile_) start_profile();
    if (wants_all_folds(settings)) return train_in_folds(settings, request, is_first);
    const TrainResult result = heed::train(program_.entry, settings, request);
    if (!is_first) return exit_success;  // rank 0 says what came of it
    printer_.finish();
    print_profile();
    const int status = result.finished ? exit_success : interrupted(concat_text("at step ", result.step));
    write_training_report(program_.entry, request);
    if (!result.finished) return status;
    printer_.message(concat_text("done after ", result.step, " steps in ", duration_text(result.seconds),
                                 ": ", out_.value()));
    return exit_success;
  }

  void print_profile() const {
    if (!profile_) return;
    stop_profile();
    std::cerr << profile_table();
  }

  int interrupted(const std::string& where) {
    printer_.message(concat_text("interrupted ", where, "; the checkpoint is in ", out_.value(),
                                 ", and --resume continues from there"));
    return InterruptGuard::exit_status();
  }

  int train_in_folds(const Settings& settings, const TrainRequest& request, bool is_first) {
    const FoldsResult result = train_folds(program_.entry, settings, request);
    if (!is_first) return exit_success;
    printer_.finish();
    print_profile();
    if (!result.finished) return interrupted("in one of the folds");
    std::cout << unicode::printable(result.json) << std::endl;
    return exit_success;
  }

  /// Returns the settings in the order: defaults (with --resume, the settings of the run) < the
  /// model of --from < --config < --preset and the attention flags < --set < flags.
  Settings resolve() {
    GivenSettings given{.config = config_.value(), .verify = !unverified_};
    if (resume_ && out_.given()) given.resumed = out_.value();
    for (const std::string& assignment : assignments_) {
      const std::string name = assigned_name(assignment);
      given.settings.push_back({name, assignment.substr(name.size() + 1), "--set " + assignment});
    }
    for (const SettingFlag* flag : given_flags(flags_))
      given.settings.push_back({flag->setting, flag->text(), flag->flag});
    given.attention = {attention_.optional(), decoder_.optional(), cross_.optional(), preset_.optional()};
    std::vector<std::string> notes;
    Settings settings = training_settings(program_.entry, given, &notes);
    for (const std::string& note : notes)
      if (!muted_) printer_.message(note);
    return settings;
  }

  const TaskProgram& program_;
  ProgressPrinter printer_;
  TextFlag out_, config_, attention_, decoder_, cross_, preset_, ranks_, rank_timeout_;
  std::vector<std::string> assignments_;
  std::vector<SettingFlag> flags_;
  bool resume_ = false, unverified_ = false, profile_ = false, print_config_ = false, help_settings_ = false;
  bool muted_ = false;  // another rank talks
};

}  // namespace

std::function<int()> add_train(CLI::App& app, const TaskProgram& program) {
  const auto body =
      add_command<TrainCommand>(app, program, "train", "Trains a model and saves it in the folder of a run");
  app.get_subcommand("train")->footer(
      "Without data flags, it learns " + program.by_rule +
      ", from generated data.\nExample: " + std::string(program.entry.name) + " train " + program.example +
      "\nSettings: defaults < --config < --set < flags. --help-settings lists them; the run's config.json "
      "stores them.\nCtrl-C finishes the step, saves a checkpoint and exits with status 130; --resume "
      "continues from there.\n");
  return body;
}

}  // namespace heed::programs
