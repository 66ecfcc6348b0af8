// Which ppengine this is.
#pragma once

namespace ppengine {

const char* version();   // "0.1.0"
const char* commit();    // "1a2b3c4d5e6f", with "+changes" where the sources differ from it; "unknown" without git
const char* compiler();  // "GNU 12.2.0, Release"

}  // namespace ppengine
