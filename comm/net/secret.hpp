// The secret of a run: what a process must know to be taken as one of its ranks.
#pragma once

#include <string>

namespace ppengine::comm::net {

// A new one, as text.
std::string make_secret();

// The secret that this process was given: PPENGINE_SECRET (our launcher sets it), or the contents of PPENGINE_SECRET_FILE; empty where
// there is neither.
std::string given_secret();

// For launchers that hand nothing over (torchrun, srun): a file in the user's configuration folder (XDG_CONFIG_HOME/ppengine/secret),
// readable by the user alone and made when it is missing. Ranks on machines with a home folder each need PPENGINE_SECRET.
std::string user_secret();

}  // namespace ppengine::comm::net
