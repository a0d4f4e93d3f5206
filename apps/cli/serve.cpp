// heed serve: serves the page of a run, which follows its training and answers texts typed into it.
// serve() in apps/report/page/report.js is the client.

#include <httplib.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <list>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "heed/apps/cli/program.h"
#include "heed/apps/data/text_file.h"
#include "heed/apps/report/report.h"
#include "heed/apps/tasks/report.h"
#include "heed/apps/tasks/run.h"
#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/base/json.h"
#include "heed/training/run_folder.h"

namespace heed::programs {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* address = "127.0.0.1";
constexpr std::size_t most_bytes = 1 << 20;  // of a request's body
// Bytes of an oversized body to read before closing, so that the client receives the error message
// instead of a closed connection.
constexpr std::size_t most_read = 16 * most_bytes;
constexpr std::size_t most_of_head = 32 << 10;  // of a request; browsers send some 1000 bytes, and cookies
constexpr std::chrono::seconds head_time{5}, body_time{60}, answer_time{60};
constexpr std::size_t most_connections = 64;
constexpr int most_waiting = most_connections / 2;  // for their turn; the others get pages meanwhile
constexpr std::size_t alternatives_shown = 10;

/// The refusal of a request: its HTTP status and the message for the page.
struct Refusal {
  int status;
  std::string message;
};

/// Returns the input fields of the page. Their texts, joined by tabs, form the line to answer.
std::vector<std::string> input_fields(std::string_view task) {
  if (task == "match") return {"First text", "Second text"};
  if (task == "recommend") return {"Clicked news, oldest first", "Candidates"};
  return {"Text"};
}

/// Compares two texts of the same length in constant time.
bool are_equal(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

/// Lets one request in at a time; the others wait for their turn.
class Turns {
 public:
  /// Throws a Refusal if too many wait, if one waits too long, or if the server ends.
  std::unique_lock<std::timed_mutex> wait() {
    std::unique_lock turn(mutex_, std::defer_lock);
    bool may_wait = ++waiting_ <= most_waiting;
    const auto until = std::chrono::steady_clock::now() + answer_time;
    while (!turn.try_lock_for(std::chrono::milliseconds(100)) && may_wait)
      may_wait = std::chrono::steady_clock::now() < until && !InterruptGuard::interrupted();
    --waiting_;
    if (!turn) throw Refusal{503, "the model is busy with other requests; try again"};
    return turn;
  }

 private:
  std::timed_mutex mutex_;
  std::atomic<int> waiting_ = 0;
};

/// The content served for a run. Texts are answered with the weights of its newest checkpoint.
class RunPage {
 public:
  RunPage(const fs::path& folder, std::string weights, const ReportOptions& options)
      : folder_(folder), weights_(std::move(weights)), options_(options) {
    open_run(folder_, options_.verify);  // which says what is wrong if there is no run
  }

  std::string html(const std::string& nonce) const {
    const Now now = look();  // before the files are read, so that what comes in between is asked for
    Json live = Json::parse(recorded_parts(folder_, options_));
    const Json name = live["name"], task = live["task"];
    live.update(
        {{"fields", input_fields(task.get<std::string>())}, {"version", now.version}, {"state", now.state}});
    return page::html({{"title", name}, {"task", task}, {"live", std::move(live)}}, nonce);
  }

  /// Returns the changes since the version that a page has.
  Json state(const std::string& have) const {
    const Now now = look();
    Json json = {{"version", now.version}, {"training", now.training}, {"state", now.state}};
    if (have == now.version) return json;
    const Json run = Json::parse(recorded_parts(folder_, options_));
    json["summary"] = run["summary"];
    json["curves"] = run["curves"];
    return json;
  }

  Json model() {
    const auto turn = measuring_.wait();
    return {{"sections", Json::parse(model_parts(folder_, options_))}};
  }

  Json answer(const std::string& body) {
    const auto turn = answering_.wait();
    Run& run = newest_run();
    CaptureFile capture;
    const Prediction answer = run.predict(std::vector<std::string>{line_of(body, run.task_name())},
                                          {.capture = &capture, .return_errors = true})
                                  .front();
    if (!answer.error.empty()) throw Refusal{422, answer.error};
    Json section = {
        {"said", {{"text", answer.text}, {"probability", answer.probability}, {"step", saved_.step}}}};
    Json rows = Json::array({{"answer", "probability"}});
    for (std::size_t i = 0; i < std::min(answer.alternatives.size(), alternatives_shown); ++i)
      rows.push_back(Json::array({answer.alternatives[i].text, percent(answer.alternatives[i].probability)}));
    if (rows.size() > 2) section["words"] = std::move(rows);
    if (Json maps = Json::parse(report_maps(capture)); !maps.is_null()) section["examples"] = std::move(maps);
    return {{"step", saved_.step},
            {"answer", answer.text},
            {"probability", answer.probability},
            {"sections", Json::array({section})}};
  }

 private:
  static std::string percent(double share) {
    return concat_text(page::rounded(std::round(1e4 * share) / 100), " %");
  }

  /// Returns the run, reopened if there are newer weights. Throws a Refusal while there are none.
  Run& newest_run() {
    const std::shared_ptr<const RunFiles> files = open_run(folder_, options_.verify);
    if (!files->has_checkpoint() || (weights_ == "best" && !files->has_best()))
      throw Refusal{
          409,
          concat_text(
              "the run has no ", weights_,
              " weights yet: training writes them after an evaluation, or every training.save_every steps")};
    for (SavedFile newest = files->saved(weights_); !run_ || newest.digest != saved_.digest;
         newest = files->saved(weights_)) {  // another checkpoint may be written meanwhile
      run_.reset();
      run_.emplace(
          Run::open(folder_, {.device = options_.device, .weights = weights_, .verify = options_.verify}));
      saved_ = newest;
    }
    return *run_;
  }

  struct Now {
    bool training;
    std::string version;  ///< of the curves: another one whenever they may have changed
    std::string state;
  };
  Now look() const {
    std::error_code none;
    const std::uintmax_t bytes = fs::file_size(folder_ / "metrics.jsonl", none);
    const bool training = is_training(folder_);
    return {training, concat_text(none ? 0 : bytes), training ? "Training runs." : "Training has ended."};
  }

  /// Returns the input line of a request: {"parts": ["...", "..."]}, a text for each field.
  static std::string line_of(const std::string& body, std::string_view task) {
    const std::size_t fields = input_fields(task).size();
    std::vector<std::string> parts;
    try {
      parts = parse_json<Json>(body, "the request").at("parts").get<std::vector<std::string>>();
    } catch (const Error&) {  // refused below
    } catch (const Json::exception&) {
    }
    if (parts.size() != fields)
      throw Refusal{400, concat_text("expected {\"parts\": [...]} with ", fields,
                                     fields == 1 ? " text, in UTF-8" : " texts, in UTF-8")};
    std::string line;
    bool has_text = false;
    for (std::string& part : parts) {
      if (task != "language_model")  // which alone reads on behind the end of a line
        std::ranges::replace_if(
            part, [](char c) { return c == '\n' || c == '\r'; }, ' ');
      if (fields > 1) std::ranges::replace(part, '\t', ' ');
      has_text = has_text || !is_blank(part);
      line += (&part == &parts.front() ? "" : "\t") + part;
    }
    if (!has_text) throw Refusal{400, "the text is blank"};
    return line;
  }

  const fs::path folder_;
  const std::string weights_;
  const ReportOptions options_;
  Turns measuring_, answering_;
  std::optional<Run> run_;  // guarded by answering_
  SavedFile saved_;         // its weights
};

// --- HTTP

void send(httplib::Response& response, int status, const std::string& body, const char* type,
          const std::string& policy = "default-src 'none'") {
  response.status = status;
  response.set_header("Content-Security-Policy",
                      policy + "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
  response.set_header("X-Content-Type-Options", "nosniff");
  response.set_header("Referrer-Policy", "no-referrer");
  response.set_header("Cross-Origin-Resource-Policy", "same-origin");
  response.set_header("Cache-Control", "no-store");
  response.set_header("Accept-Ranges", "none");
  response.set_content(body, type);
}

void send(httplib::Response& response, int status, const Json& json) {
  send(response, status, dumped(json), "application/json");
}

void refuse(httplib::Response& response, int status, std::string_view message) {
  send(response, status, Json{{"error", message}});
}

/// Sends the reply of `make`; exceptions become error messages for the page.
void reply(httplib::Response& response, const std::function<void()>& make) {
  const StopCheck stop(InterruptGuard::interrupted);
  try {
    make();
  } catch (const Refusal& refusal) {
    refuse(response, refusal.status, refusal.message);
  } catch (const Interrupted&) {
    refuse(response, 503, "heed serve is shutting down");
  } catch (const std::bad_alloc&) {
    refuse(response, 500, "out of memory");
  } catch (const std::exception& error) {
    refuse(response, 500, error.what());
  }
}

/// Returns a header without its parameters, in lower case, as media types are read (RFC 9110, 8.3.1).
std::string plain_header(const httplib::Request& request, const char* name) {
  std::string value = request.get_header_value(name);
  value.resize(std::min(value.size(), value.find(';')));
  value.resize(value.find_last_not_of(" \t") + 1);
  for (char& c : value) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  return value;
}

/// Returns the body of a request.
std::string read_body(const httplib::Request& request, const httplib::ContentReader& read) {
  if (plain_header(request, "Content-Type") != "application/json")
    throw Refusal{415, "expected Content-Type: application/json"};
  std::string body;
  std::size_t bytes_read = 0;
  const bool is_whole = read([&](const char* bytes, std::size_t count) {
    bytes_read += count;
    if (bytes_read <= most_bytes) body.append(bytes, count);
    return bytes_read <= most_read;
  });
  const std::string announced = request.get_header_value("Content-Length");
  const bool fits = bytes_read <= most_bytes && std::strtoull(announced.c_str(), nullptr, 10) <= most_bytes;
  if (!fits) throw Refusal{413, concat_text("more than ", most_bytes, " bytes")};
  if (!is_whole) throw Refusal{400, "the request was cut off"};
  return body;
}

/// A connection with its own thread and with limits on bytes and time in both directions.
/// cpp-httplib's own streams restart the timeout for every byte, and accept heads of any length.
class Connection final : public httplib::Stream {
 public:
  explicit Connection(socket_t socket) : socket_(socket) { allow(most_of_head, head_time); }
  ~Connection() override {
    if (thread_.joinable())
      thread_.join();
    else
      ::close(socket_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Starts the thread. Throws a std::system_error if the system cannot create one.
  void start(std::function<void(Connection&)> answer) {
    thread_ = std::thread([this, answer = std::move(answer)] {
      try {
        answer(*this);
      } catch (const std::exception&) {  // out of memory for the request: the connection ends
      }
      const std::lock_guard alone(ending_);
      ::close(socket_);
      has_ended_ = true;
    });
  }
  void head_is_read() {
    allow(most_read, body_time);
    has_head_ = true;
  }
  /// Shuts the connection down, which ends any waiting of its thread.
  void shut() {
    const std::lock_guard alone(ending_);
    if (!has_ended_) ::shutdown(socket_, SHUT_RDWR);
    is_shut_ = true;
  }
  bool is_silent() const { return !has_head_ && !is_shut_; }
  bool has_ended() const { return has_ended_; }

  ssize_t read(char* bytes, std::size_t count) override {
    const ssize_t got = transfer(POLLIN, until_, [&] {
      return ::recv(socket_, bytes, std::min(count, bytes_left_), MSG_DONTWAIT);  // 0 bytes: as at the end
    });
    if (got > 0) bytes_left_ -= static_cast<std::size_t>(got);
    return got;
  }
  ssize_t write(const char* bytes, std::size_t count) override {
    const Clock::time_point until = Clock::now() + answer_time;
    for (std::size_t sent = 0; sent < count;) {
      const ssize_t more = transfer(POLLOUT, until, [&] {
        return ::send(socket_, bytes + sent, count - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
      });
      if (more < 0) return -1;
      sent += static_cast<std::size_t>(more);
    }
    return static_cast<ssize_t>(count);
  }
  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  socket_t socket() const override { return socket_; }
  void get_remote_ip_and_port(std::string&, int&) const override {}  // which nobody asks
  void get_local_ip_and_port(std::string&, int&) const override {}

 private:
  using Clock = std::chrono::steady_clock;

  void allow(std::size_t bytes, std::chrono::seconds time) {
    bytes_left_ = bytes;
    until_ = Clock::now() + time;
  }
  template <typename Call>
  ssize_t transfer(short event, Clock::time_point until, const Call& call) const {
    for (;;) {
      const ssize_t count = call();
      if (count >= 0 || (errno != EAGAIN && errno != EINTR)) return count;
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
      if (left <= 0) return -1;
      pollfd waiting{socket_, event, 0};
      ::poll(&waiting, 1, static_cast<int>(left));
    }
  }

  const socket_t socket_;
  std::size_t bytes_left_ = 0;
  Clock::time_point until_;
  bool is_shut_ = false;
  std::atomic<bool> has_head_ = false, has_ended_ = false;
  std::mutex ending_;  // the number of a closed socket may be another's
  std::thread thread_;
};

/// cpp-httplib's server with a limit on connections instead of its thread pool, which eight slow
/// clients can exhaust and which aborts if the system cannot create threads.
class LimitedServer final : public httplib::Server {
 public:
  LimitedServer() {
    new_task_queue = [this] {
      ::listen(svr_sock_, most_connections);  // cpp-httplib's five make who comes sixth wait a second
      return new Accepting(connections_);
    };
  }

 private:
  /// Passes accepted connections to process_and_close_socket() at once, on the accepting thread.
  class Accepting final : public httplib::TaskQueue {
   public:
    explicit Accepting(std::list<Connection>& connections) : connections_(connections) {}
    using Taken = decltype(std::declval<httplib::TaskQueue&>().enqueue({}));  // void or bool, by its version
    Taken enqueue(std::function<void()> process) override {
      process();
      return Taken(true);
    }
    void shutdown() override {
      for (Connection& connection : connections_) connection.shut();
      connections_.clear();
    }

   private:
    std::list<Connection>& connections_;
  };

  bool process_and_close_socket(socket_t socket) override {
    if (!has_room()) return ::close(socket), false;
    Connection& added = connections_.emplace_back(socket);
    try {
      added.start([this](auto& connection) { answer(connection); });
    } catch (const std::system_error&) {
      connections_.pop_back();
      return false;
    }
    if (connections_.size() > most_connections / 2) {  // drop the oldest idle connections
      const auto silent = std::ranges::find_if(connections_, &Connection::is_silent);
      if (silent != connections_.end()) silent->shut();
    }
    return true;
  }

  /// Waits briefly for the threads of closed connections.
  bool has_room() {
    for (int tries = 0; tries < 100; ++tries) {
      connections_.remove_if([](const Connection& connection) { return connection.has_ended(); });
      if (connections_.size() < most_connections) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  /// Answers the requests of a connection. It is a template only because of `requires`: later
  /// versions of cpp-httplib take the addresses here.
  template <typename Stream>
  void answer(Stream& stream) {
    bool closed = false;
    const auto has_head = [&](httplib::Request& request) {
      request.ranges.clear();  // the whole page is sent
      stream.head_is_read();
    };
    if constexpr (requires { this->process_request(stream, true, closed, has_head); })
      this->process_request(stream, true, closed, has_head);
    else
      this->process_request(stream, "", 0, "", 0, true, closed, has_head);
  }

  std::list<Connection> connections_;  // of the thread that accepts
};

class PageServer {
 public:
  explicit PageServer(RunPage& page) : token_(random_hex(32)) {
    // cpp-httplib's own options would let other programs listen on the same port.
    server_.set_socket_options([](socket_t socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    server_.set_payload_max_length(most_read);  // read_body() refuses what is smaller
    server_.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      const std::string refusal = check_request(request);
      if (!refusal.empty())
        refuse(response, 403, refusal);
      else if (request.method != "GET" && request.method != "HEAD" && !has_length(request))
        refuse(response, 411, "give the Content-Length of the request's body");
      else
        return httplib::Server::HandlerResponse::Unhandled;
      return httplib::Server::HandlerResponse::Handled;
    });
    server_.set_error_handler([](const httplib::Request&, httplib::Response& response) {
      if (response.body.empty())
        refuse(response, response.status, response.status == 404 ? "there is no such page" : "bad request");
    });
    server_.Get("/", [&page](const httplib::Request&, httplib::Response& response) {
      reply(response, [&] {
        const std::string nonce = random_hex(32);
        send(response, 200, page.html(nonce), "text/html; charset=utf-8",
             concat_text("default-src 'none'; script-src 'nonce-", nonce,
                         "'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'"));
      });
    });
    const auto get = [&](const char* path, auto make) {
      server_.Get(path, [make](const httplib::Request& request, httplib::Response& response) {
        reply(response, [&] { send(response, 200, make(request)); });
      });
    };
    get("/state", [&page](const auto& request) { return page.state(request.get_param_value("have")); });
    get("/model", [&page](const auto&) { return page.model(); });
    server_.Post("/answer", [&page](const httplib::Request& request, httplib::Response& response,
                                    const httplib::ContentReader& read) {
      reply(response, [&] { send(response, 200, page.answer(read_body(request, read))); });
    });
  }

  /// Opens the port; 0: a free one. Throws an Error if it is in use.
  void listen(int port) {
    port_ = port == 0 ? server_.bind_to_any_port(address) : server_.bind_to_port(address, port) ? port : -1;
    check(port_ > 0, "cannot listen on ", address, port == 0 ? "" : concat_text(", port ", port),
          ": is another program using it?");
  }
  std::string url() const { return concat_text("http://", address, ':', port_, "/?token=", token_); }

  /// Serves until `is_over` returns true. Throws an Error if the system ends it.
  void run(const std::function<bool()>& is_over) {
    std::atomic<bool> closed = false;
    std::thread listening;
    try {
      listening = std::thread([&] {
        server_.listen_after_bind();
        closed = true;
      });
    } catch (const std::system_error& error) {
      throw Error(
          concat_text("no thread for the server: ", error.what(), "; raise its limits (ulimit -u, -v)"));
    }
    const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
    while (!is_over() && !closed) pause();
    const bool failed = closed;
    while (!server_.is_running() && !closed) pause();  // stop() is for a server that runs
    server_.stop();
    listening.join();
    check(!failed, "the system accepts no more connections to ", url());
  }

 private:
  /// Returns whether a request says where its body ends; cpp-httplib would wait for the end of the
  /// connection.
  static bool has_length(const httplib::Request& request) {
    return request.has_header("Content-Length") || plain_header(request, "Transfer-Encoding") == "chunked";
  }

  /// Returns the reason to refuse a request, or "". Pages of other origins know neither the token
  /// nor, if they use another name for this address, the host.
  std::string check_request(const httplib::Request& request) const {
    const std::string host = request.get_header_value("Host"), port = concat_text(':', port_);
    if (request.get_header_value_count("Host") != 1 || (host != address + port && host != "localhost" + port))
      return concat_text("this is ", address, port, ", not the host that was asked for");
    if (!are_equal(request.get_param_value("token"), token_))
      return "give the address that heed serve printed, with its token";
    return "";
  }

  LimitedServer server_;
  const std::string token_;
  int port_ = -1;
};

struct ServeFlags {
  std::string run;
  TextFlag port, weights, device;
  bool unverified = false;
};

int serve(const ServeFlags& flags) {
  const std::string weights = flags.weights.value("last");
  if (weights != "best" && weights != "last")
    throw SettingsError("--weights must be best or last, not " + weights);
  const int port = flags.port.count(0, 65'535);
  RunPage page(flags.run, weights, {.device = flags.device.value(), .verify = !flags.unverified});
  PageServer server(page);
  server.listen(port);
  const InterruptGuard guard;
  std::cout << server.url() << '\n';
  flush_output();
  server.run(InterruptGuard::interrupted);
  return exit_success;
}

}  // namespace

std::function<int()> add_serve_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "serve",
      "Serves the page of a run to a browser on this machine; it follows training and answers texts");
  auto flags = std::make_shared<ServeFlags>();
  command->add_option("run", flags->run, "Folder of the run, which may still be training")
      ->required()
      ->type_name("RUN");
  flags->port.add(*command, "--port", "PORT", "Port to listen on at 127.0.0.1 (default: a free port)");
  flags->weights.add(*command, "--weights", "WHICH",
                     "Weights to answer with: last (the default), of the newest checkpoint, or best");
  flags->device.add(*command, "--device", "DEVICE", "Device to compute on (default: the run's device)");
  command->add_flag("--unverified", flags->unverified,
                    "Also accepts files that were changed after the run wrote them");
  command->footer(
      "Prints an address with a token that is new each time; open exactly this address. Ctrl-C ends the "
      "server.\n");
  return [flags] { return serve(*flags); };
}

}  // namespace heed::programs
