// placeholder
#include "tools/commands.h"
namespace command {
void add_replay(CLI::App &, int &) {}
} // namespace command
