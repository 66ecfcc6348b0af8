// The progress line on a terminal (one that is written over), or one line now and then where stderr is not a terminal; nothing with
// --quiet.
#pragma once

#include <chrono>
#include <string>

namespace ppengine::cli {

class Progress {
 public:
  Progress();
  ~Progress();
  // Shows the text: at once on a terminal, at most every few seconds elsewhere. `last`: shown in any case.
  void show(const std::string& text, bool last = false);
  // A line of its own that stays.
  void note(const std::string& text);
  // Ends a line that was written over, before something else is printed.
  void finish();

 private:
  void clear();
  bool terminal_, silent_, dirty_ = false;
  std::chrono::steady_clock::time_point shown_{};
};

// 75 -> "1:15", 4000 -> "1:06:40"
std::string duration_text(double seconds);

}  // namespace ppengine::cli
