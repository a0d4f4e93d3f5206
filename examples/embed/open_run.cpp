// How an application uses what the sample programs trained: opens a run, of whatever task, and answers lines.
//
//   open_run RUN < lines

#include <heed/heed.h>

#include <iostream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: open_run RUN < lines\n";
    return 2;
  }
  std::vector<std::string> lines;
  for (std::string line; std::getline(std::cin, line);) lines.push_back(line);
  try {
    auto run = heed::Run::open(argv[1]);
    for (const heed::Prediction& answer : run.predict(lines)) std::cout << answer.text << '\n';
  } catch (const heed::Error& error) {
    std::cerr << "open_run: " << error.what() << '\n';
    return 1;
  }
}
