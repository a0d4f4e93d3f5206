// heed serve: who gets the page, answers with their maps, a training that is followed, the page in a browser.

#include <doctest/doctest.h>
#include <fcntl.h>
#include <httplib.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <list>
#include <nlohmann/json.hpp>
#include <thread>

#include "heed/apps/tasks/task.h"
#include "heed/tests/browser.h"
#include "heed/tests/hostile/small_runs.h"
#include "heed/tests/page_json.h"
#include "heed/tests/temporary_folder.h"

namespace {

using namespace heed;
using namespace heed::test;
namespace fs = std::filesystem;
using nlohmann::json;

void wait_until(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(sanitized ? 600 : 120);
  while (!holds()) {
    REQUIRE(std::chrono::steady_clock::now() < end);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

/// A run that is served by a program of its own.
class Served {
 public:
  /// `prepare`: commands of the shell that starts it.
  explicit Served(const fs::path& run, const std::string& prepare = {})
      : program_("/bin/sh", in_shell(prepare, "heed", {"serve", run.string()})) {
    std::string address;
    wait_until([&] {
      address = program_.output();
      return address.ends_with("\n") || !program_.running();
    });
    REQUIRE(address.starts_with("http://127.0.0.1:"));
    REQUIRE(address.ends_with("\n"));
    address.pop_back();
    const std::size_t port = address.find(':', 5) + 1, path = address.find('/', port);
    this->port = std::stoi(address.substr(port, path - port));
    query = address.substr(path + 1);
    url = address;
    client.emplace("127.0.0.1", this->port);
    client->set_read_timeout(sanitized ? 600 : 120);
  }

  httplib::Result get(const std::string& path) { return client->Get("/" + path + query); }
  json state() {
    const httplib::Result reply = get("state");
    REQUIRE(reply);
    REQUIRE(reply->status == 200);
    return json::parse(reply->body);
  }
  httplib::Result post(const std::string& body, const std::string& type = "application/json") {
    return client->Post("/answer" + query, body, type);
  }
  /// The answer to texts, which must be given with `status`.
  json ask(const std::vector<std::string>& parts, int status = 200) {
    const httplib::Result reply = post(json{{"parts", parts}}.dump());
    REQUIRE(reply);
    CHECK_MESSAGE(reply->status == status, reply->body);
    return json::parse(reply->body);
  }
  int end_by(int signal) {
    program_.send(signal);
    return program_.wait();
  }

  std::int64_t bytes_held() const {
    std::ifstream numbers(concat_text("/proc/", program_.id(), "/statm"));
    std::int64_t addresses = 0, resident = 0;
    numbers >> addresses >> resident;
    return resident * ::sysconf(_SC_PAGESIZE);
  }

  int port = 0;
  std::string query, url;  ///< query: "?token=..."
  std::optional<httplib::Client> client;

 private:
  BackgroundProgram program_;
};

/// Checks that a request was refused, with a reason.
void check_refused(const httplib::Result& reply, int status, const std::string& says = {}) {
  REQUIRE(reply);
  CHECK_MESSAGE(reply->status == status, reply->body);
  const std::string error = json::parse(reply->body)["error"];
  CHECK_FALSE(error.empty());
  CHECK_MESSAGE(contains(error, says), error);
}

/// The texts of the fields of a line.
std::vector<std::string> parts_of(std::string line) {
  line.pop_back();
  const std::size_t tab = line.find('\t');
  if (tab == line.npos) return {line};
  return {line.substr(0, tab), line.substr(tab + 1)};
}

std::size_t points_in(const json& curves) {
  return curves[0]["rows"].size();
}

/// While it lives, a connection that the server closes is an error of the client, not the end of this
/// process.
class NoPipeSignal {
 public:
  NoPipeSignal() : before_(std::signal(SIGPIPE, SIG_IGN)) {}
  ~NoPipeSignal() { std::signal(SIGPIPE, before_); }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

 private:
  void (*before_)(int);
};

/// A client that sends what it likes, at its own pace.
class RawClient {
 public:
  explicit RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience{sanitized ? 50 : 5, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    REQUIRE(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  ~RawClient() { ::close(socket_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool send(std::string_view bytes) {
    for (ssize_t sent; !bytes.empty(); bytes.remove_prefix(static_cast<std::size_t>(sent)))
      if ((sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL)) <= 0) return false;
    return true;
  }
  /// The first bytes of an answer; "" if none comes.
  std::string begin_of_answer() {
    char bytes[64];
    const ssize_t count = ::recv(socket_, bytes, sizeof bytes, MSG_WAITALL);
    return {bytes, static_cast<std::size_t>(std::max<ssize_t>(count, 0))};
  }
  /// By the server.
  bool is_closed() const {
    pollfd now{socket_, POLLRDHUP, 0};
    return ::poll(&now, 1, 0) == 1;
  }

 private:
  int socket_;
};

/// As a training holds it.
class Held {
 public:
  explicit Held(const fs::path& run) : descriptor_(::open(run.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    REQUIRE(::flock(descriptor_, LOCK_EX | LOCK_NB) == 0);
  }
  ~Held() { ::close(descriptor_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  int descriptor_;
};

}  // namespace

TEST_CASE("heed serve: the page is for who has the token, and for no other host") {
  Served served(small_run("classify"));
  for (const char* path :
       {"/", "/state", "/model", "/nothing", "/?token=", "/?token=0123456789abcdef0123456789abcdef"})
    check_refused(served.client->Get(path), 403, "token");
  check_refused(served.client->Post("/answer", R"({"parts":["a day"]})", "application/json"), 403, "token");
  for (const std::string& host : {std::string("example.org"), concat_text("example.org:", served.port),
                                  std::string("127.0.0.1"), std::string()})
    check_refused(served.client->Get("/" + served.query, {{"Host", host}}), 403, "host");
  const httplib::Result local =
      served.client->Get("/state" + served.query, {{"Host", concat_text("localhost:", served.port)}});
  REQUIRE(local);
  CHECK(local->status == 200);
  httplib::Client elsewhere("127.0.0.2", served.port);  // loopback, too, but another address
  CHECK_FALSE(elsewhere.Get("/" + served.query));

  const httplib::Result page = served.get("");
  REQUIRE(page);
  CHECK(page->status == 200);
  CHECK(page->get_header_value_count("Content-Security-Policy") == 1);
  const std::string policy = page->get_header_value("Content-Security-Policy");
  CHECK(contains(policy, "default-src 'none'"));
  CHECK(contains(policy, "frame-ancestors 'none'"));
  const std::size_t at = policy.find("'nonce-") + 7;
  const std::string nonce = policy.substr(at, policy.find('\'', at) - at);
  CHECK(nonce.size() == 32);
  CHECK(contains(page->body, concat_text("<script nonce=\"", nonce, "\">")));
  CHECK_FALSE(contains(page->body, "<script>"));
  CHECK_FALSE(contains(page->body, "src=\"http"));
  CHECK_FALSE(contains(served.get("")->body, nonce));  // the next page has its own
  const json live = page_json(page->body)["live"];
  CHECK(live["state"] == "Training has ended.");
  CHECK(holds(live["curves"][0]["curves"], "training loss"));
  CHECK(contains(live["settings"][0]["words"].dump(), "[\"training.steps\",\"20\","));
  CHECK(page->body.find(served.query.substr(7)) == std::string::npos);  // no token in it
}

TEST_CASE("heed serve: every task answers what is typed, with its maps") {
  for (const TaskEntry* entry : task_table()) {
    const std::string task(entry->name);
    CAPTURE(task);
    Served served(small_run(task));
    const std::vector<std::string> parts = parts_of(small_line(task));
    CHECK(page_json(served.get("")->body)["live"]["fields"].size() == parts.size());
    const json answer = served.ask(parts);
    CHECK(answer["step"] == 20);
    CHECK(answer["sections"][0]["said"]["step"] == 20);
    CHECK(answer["sections"][0]["said"]["text"] == answer["answer"]);
    CHECK(has_maps(answer["sections"][0]["examples"]));
    if (task == "language_model") continue;  // whose program has another command for it
    const ProgramResult predicted = run_program(
        task, {"predict", "--run", small_run(task).string(), "--weights", "last"}, small_line(task));
    CHECK(answer["answer"].get<std::string>() + "\n" == predicted.output);
  }
}

TEST_CASE("heed serve: nonsense is answered with what is wrong, and changes nothing") {
  const TemporaryFolder folder;
  const auto run = folder / "run";
  REQUIRE(
      run_program("classify", small_run_train("classify", run, {"--set", "data.long_texts=error"})).status ==
      0);
  const auto before = snapshot(run);
  Served served(run);
  const NoPipeSignal scope;
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"),
        std::string(R"({"parts":1})"), std::string(R"({"parts":[]})"), std::string(R"({"parts":[1]})"),
        std::string(R"({"parts":["a","b"]})"), std::string(R"({"parts":["\ud800"]})"),
        std::string("{\"parts\":[\"\xff\"]}"), std::string(R"({"parts":[" \n"]})"),
        std::string(R"({"parts":[""]})"), std::string(100'000, '[')}) {
    CAPTURE(body.substr(0, 30));
    check_refused(served.post(body), 400);
  }
  check_refused(served.post(R"({"parts":["a day"]})", "text/plain"), 415);
  check_refused(served.client->Post("/answer" + served.query, {{"parts", "a day", "", ""}}), 415);
  const std::string large = json{{"parts", {std::string(2 << 20, 'a')}}}.dump();
  check_refused(served.post(large), 413);
  check_refused(served.client->Post(
                    "/answer" + served.query,  // in chunks, which say no length
                    [&](std::size_t at, httplib::DataSink& sink) {
                      if (at >= large.size()) return sink.done(), true;
                      return sink.write(large.data() + at, std::min<std::size_t>(large.size() - at, 65'536));
                    },
                    "application/json"),
                413);
  check_refused(served.get("nothing"), 404);
  check_refused(served.get("answer"), 404);
  std::string words;
  for (int i = 0; i < 3000; ++i) words += "day ";
  CHECK(contains(served.ask({words}, 422)["error"], "data.max_tokens"));
  served.ask({std::string("a\0b", 3)});
  // Ranges, of which cpp-httplib makes something by itself, and headers without end.
  const std::string whole = served.get("state")->body;
  for (const char* const range : {"bytes=0-10", "bytes=-5", "bytes=3-", "bytes=0-0,5-9", "bytes=999999-"}) {
    CAPTURE(range);
    const httplib::Result reply = served.client->Get("/state" + served.query, {{"Range", range}});
    REQUIRE(reply);
    CHECK(reply->status == 200);
    CHECK(reply->body == whole);
  }
  CHECK(served.client->Get("/state" + served.query, {{"Range", "bytes=" + std::string(7000, '9') + "-"}}));
  served.client->Get("/" + std::string(20'000, 'a') + served.query);

  const json marked = served.ask({"<img src=x onerror=throw(1)> </script><script>throw(2)</script>"});
  CHECK(contains(marked["sections"].dump(), "<img src=x onerror=throw(1)>"));
  CHECK(difference(before, snapshot(run)) == "");
  CHECK(served.end_by(SIGTERM) == 0);
}

TEST_CASE("heed serve: the parameters and the case of a media type do not matter") {
  Served served(small_run("classify"));
  for (const char* const type :
       {"application/json; charset=utf-8", "Application/JSON", "application/json;charset=\"UTF-8\" ; a=b",
        "application/json ; charset=utf-8"}) {
    CAPTURE(type);
    const httplib::Result reply = served.post(R"({"parts":["a day"]})", type);
    REQUIRE(reply);
    CHECK_MESSAGE(reply->status == 200, reply->body);
  }
  for (const char* const type : {"application/jsonx", "application/json-seq; charset=utf-8", ";", ""})
    check_refused(served.post(R"({"parts":["a day"]})", type), 415);
}

TEST_CASE("heed serve: a request that does not say where its body ends is refused at once") {
  Served served(small_run("classify"));
  for (const char* const request : {"POST /answer", "POST /nothing", "PUT /answer", "DELETE /state"})
    for (const char* const header : {"", "Transfer-Encoding: identity\r\n"}) {
      CAPTURE(request);
      RawClient client(served.port);
      client.send(concat_text(request, served.query, " HTTP/1.1\r\nHost: 127.0.0.1:", served.port,
                              "\r\nContent-Type: application/json\r\n", header, "\r\n"));
      CHECK(client.begin_of_answer().starts_with("HTTP/1.1 411 "));
    }
}

TEST_CASE("heed serve: eight clients at a time are all answered") {
  Served served(small_run("classify"));
  std::atomic<int> answered = 0;
  std::list<std::thread> clients;
  for (int i = 0; i < 8; ++i)
    clients.emplace_back([&] {
      httplib::Client client("127.0.0.1", served.port);
      client.set_read_timeout(120);
      for (int request = 0; request < 25; ++request) {
        const httplib::Result reply =
            client.Post("/answer" + served.query, R"({"parts":["a day"]})", "application/json");
        answered += reply && reply->status == 200;
      }
    });
  for (std::thread& client : clients) client.join();
  CHECK(answered == 200);
}

TEST_CASE("heed serve: a head without end is cut off, and takes no memory") {
  Served served(small_run("classify"));
  REQUIRE(served.get("state"));
  const std::int64_t before = served.bytes_held();
  std::string chunk = "a: b\r\n";
  while (chunk.size() < (64 << 10)) chunk += chunk;
  for (const std::string& bytes : {chunk, std::string(64 << 10, 'a')}) {
    for (const std::string line : {"", "GET / HTTP/1.1\r\n"}) {
      CAPTURE(line);
      CAPTURE(bytes.substr(0, 6));
      RawClient client(served.port);
      client.send(line);
      std::size_t sent = 0;
      while (sent < (64 << 20) && client.send(bytes)) sent += bytes.size();
      CHECK(sent < (32 << 20));  // what the system's buffers take
    }
  }
  CHECK(served.bytes_held() - before < (sanitized ? 256 : 16) * (1 << 20));
  CHECK(served.get("state"));
}

TEST_CASE(
    "heed serve: slow clients keep neither the page nor Ctrl-C waiting, and are not waited for without end") {
  Served served(small_run("classify"));
  served.client->set_read_timeout(3);
  std::list<RawClient> slow;
  for (int i = 0; i < 20; ++i) slow.emplace_back(served.port).send("GET /");
  const httplib::Result reply = served.get("state");
  REQUIRE(reply);
  CHECK(reply->status == 200);
  wait_until([&] {  // a byte at a time does not prolong it
    for (RawClient& client : slow) client.send("a");
    return std::ranges::all_of(slow, &RawClient::is_closed);
  });
  for (int i = 0; i < 300; ++i) slow.emplace_back(served.port).send("GET /");  // more than it takes
  CHECK(served.get("state"));
  const auto start = std::chrono::steady_clock::now();
  CHECK(served.end_by(SIGINT) == 0);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(sanitized ? 20 : 2));
}

TEST_CASE("heed serve: without threads for all connections it answers some") {
  if (sanitized) return;  // which need addresses without end
  // Every thread takes 1 GiB of 6 GiB of addresses.
  Served served(small_run("classify"),
                "ulimit -s 1048576; ulimit -v 6291456; export OPENBLAS_NUM_THREADS=1; ");
  std::list<RawClient> waiting;
  for (int i = 0; i < 12; ++i) waiting.emplace_back(served.port);
  wait_until([&] { return std::ranges::any_of(waiting, &RawClient::is_closed); });
  CHECK_FALSE(std::ranges::all_of(waiting, &RawClient::is_closed));
  waiting.clear();
  wait_until([&] { return bool(served.get("state")); });
  CHECK(served.end_by(SIGINT) == 0);
}

TEST_CASE("heed serve: what cannot be served ends with a message") {
  const TemporaryFolder folder;
  const std::string run = small_run("classify").string();
  CHECK(run_program("heed", {"serve", (folder / "none").string()}).status == 1);
  CHECK(run_program("heed", {"serve", run, "--weights", "initial"}).status == 2);
  CHECK(run_program("heed", {"serve", run, "--port", "70000"}).status == 2);
  Served served(small_run("classify"));
  const ProgramResult second = run_program("heed", {"serve", run, "--port", std::to_string(served.port)});
  CHECK(second.status == 1);
  CHECK(contains(second.errors, "is another program using it?"));
  CHECK(served.end_by(SIGINT) == 0);
}

TEST_CASE("heed serve: the model's part of the report") {
  Served served(small_run("classify"));
  const httplib::Result reply = served.get("model");
  REQUIRE(reply);
  CHECK(reply->status == 200);
  const json model = json::parse(reply->body);
  CHECK(section_of(model, "Quality")["classes"].contains("confusion"));
  CHECK(has_maps(section_of(model, "What the model looks at")["examples"]));
  CHECK_FALSE(contains(reply->body, "not_shown"));
}

TEST_CASE("heed serve: a training is followed, and its newest weights answer") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  // Without an evaluation before its end, which would leave weights.
  BackgroundProgram training(
      "classify", small_run_train("classify", run,
                                  {"--steps", "1000000", "--save-every", "1000000", "--set",
                                   "training.evaluate_every=1000000", "--set", "training.shown_evaluations=0",
                                   "--set", "training.log_every=20"}));
  REQUIRE(training.wait_for_file(run / "config.json"));
  Served served(run);
  const json first = served.state();
  CHECK(first["training"] == true);
  CHECK(contains(served.ask({"a fine day"}, 409)["error"], "no last weights yet"));
  wait_until([&] { return points_in(served.state()["curves"]) > points_in(first["curves"]) + 10; });
  const json later = served.state();
  CHECK(holds(later["curves"][0]["curves"], "training loss"));
  training.send(SIGTERM);
  CHECK(training.wait() == 143);
  const json ended = served.state();
  CHECK(ended["training"] == false);
  CHECK(ended["state"] == "Training has ended.");
  const json unchanged = json::parse(
      served.client->Get("/state" + served.query + "&have=" + ended["version"].get<std::string>())->body);
  CHECK_FALSE(unchanged.contains("curves"));
  const std::int64_t step = served.ask({"a fine day"})["step"];
  CHECK(step > 5);
  const ProgramResult more = run_program(
      "classify", {"train", "--out", run.string(), "--resume", "--steps", std::to_string(step + 10)});
  REQUIRE_MESSAGE(more.status == 0, more.errors);
  CHECK(served.ask({"a fine day"})["step"] == step + 10);
}

TEST_CASE("heed serve: in a browser the page follows the run, answers, and keeps what its reader chose") {
  const std::string program = browser();
  if (program.empty()) {
    MESSAGE("skipped: no browser (chromium) is installed");
    return;
  }
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  copy_run(small_run("match"), run);
  Served served(run);

  // The page as it is served, but in a frame, and with a script in it that uses it.
  constexpr const char* use = R"(
const until = async holds => { for (let i = 0; i < 200 && !holds(); ++i) await new Promise(done => setTimeout(done, 50)); };
const rows = () => document.querySelectorAll("#curves details tr").length;
window.prepare = async () => {
  const state = document.getElementById("state"), model = document.getElementById("model");
  const chart = Chart.getChart(document.querySelector("#curves canvas")), [smooth] = [...document.querySelectorAll(".tools button")].slice(-1);
  const other = Chart.getChart(document.querySelectorAll("#curves canvas")[1]);
  document.querySelector("#curves details").open = true;
  smooth.click();
  chart.options.plugins.legend.onClick({}, {datasetIndex: 0});
  const before = rows(), training = state.textContent;
  await until(() => rows() > before);
  const kept = {before, after: rows(), smooth: smooth.getAttribute("aria-pressed"), open: document.querySelector("#curves details").open,
    hidden: !chart.isDatasetVisible(0), other: other.isDatasetVisible(0),
    points: Math.max(...chart.data.datasets.map(set => set.data.length))};
  await until(() => model.querySelector(".maps canvas"));
  document.querySelectorAll("#ask textarea").forEach((field, i) => { field.value = i ? "emma waits <img src=x onerror=throw(1)> ." : "where is emma ?"; });
  document.querySelector("#ask textarea").dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", bubbles: true, cancelable: true}));
  const answer = document.getElementById("answer");
  await until(() => answer.querySelector(".maps canvas"));
  window.more = {kept, states: [training, state.textContent], answer: answer.textContent.slice(0, 300), asked: answer.textContent.includes("emma waits <img src=x onerror=throw(1)> ."), model: model.textContent.includes("Quality"),
    maps: answer.querySelectorAll(".overview canvas").length};
};
)";
  std::optional<Held> training;
  std::atomic<int> looks = 0;
  const auto pass = [&](const httplib::Request& request, httplib::Response& response) {
    if (request.path == "/state" && ++looks == 2) {  // the run goes on, and ends
      std::ofstream metrics(run / "metrics.jsonl", std::ios::app);
      json record = {{"step", 21}, {"steps", 22}, {"loss", 0.5}};
      std::string line;
      std::ifstream lines(run / "metrics.jsonl");
      while (std::getline(lines, line))
        if (json::parse(line).contains("gradient_norm")) record = json::parse(line);
      for (int step = 21; step < 25; ++step) {
        record["step"] = step;
        metrics << record.dump() << '\n';
      }
      metrics.close();
      training.reset();
    }
    httplib::Client client("127.0.0.1", served.port);
    client.set_read_timeout(120);
    const httplib::Result reply = request.method == "POST"
                                      ? client.Post(request.target, request.body, "application/json")
                                      : client.Get(request.target);
    if (!reply) return;
    response.status = reply->status;
    std::string body = reply->body, policy = reply->get_header_value("Content-Security-Policy");
    policy.erase(policy.find("; frame-ancestors"));
    if (request.path == "/") {
      const std::size_t at = policy.find("'nonce-") + 7;
      body.insert(body.find("<style>"),
                  concat_text("<script nonce=\"", policy.substr(at, 32), "\">", probe, use, "</script>"));
    }
    response.set_header("Content-Security-Policy", policy);
    response.set_content(body, reply->get_header_value("Content-Type"));
  };
  httplib::Server proxy;
  std::string frame;
  proxy.Get("/frame", [&](const httplib::Request&, httplib::Response& response) {
    response.set_content(frame, "text/html");
  });
  proxy.Get(".*", pass).Post(".*", pass);
  const int port = proxy.bind_to_any_port("127.0.0.1");
  std::thread listening([&] { proxy.listen_after_bind(); });
  for (const int width : {420, 900, 1400}) {
    CAPTURE(width);
    fs::copy_file(small_run("match") / "metrics.jsonl", run / "metrics.jsonl",
                  fs::copy_options::overwrite_existing);
    looks = 0;
    training.emplace(run);
    frame = frame_html({{"/" + served.query, width}});
    const json said = said_in_frames(program, folder.path(), concat_text("http://127.0.0.1:", port, "/frame"),
                                     1600, width == 420)[0];
    CHECK(said["width"].get<int>() <= width);
    CHECK_MESSAGE(said["findings"].empty(), said["findings"].dump());
    CHECK(said["charts"].get<int>() >= 5);
    CHECK(said["maps"].get<int>() > 0);
    const json& kept = said["kept"];
    CAPTURE(kept.dump());
    CHECK(kept["after"].get<int>() == kept["before"].get<int>() + 4);
    CHECK(kept["smooth"] == "true");
    CHECK(kept["open"] == true);
    CHECK(kept["hidden"] == true);
    CHECK(kept["other"] == true);
    CHECK(said["states"] == json({"Training runs.", "Training has ended."}));
    CHECK(contains(said["answer"], "Answered with the weights of step 20."));
    CHECK(said["asked"] == true);
    CHECK(said["model"] == true);
  }
  proxy.stop();
  listening.join();
}
