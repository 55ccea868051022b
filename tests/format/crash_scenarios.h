// The state that is saved while the disk fails, and the judgement of the file afterwards: an
// allowed state, whole, or a failed test. Must not know how a save is made.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "disk.h"
#include "format/state/state.h"
#include "sample.h"

namespace stasis::format {

inline const char *const kPath = "/disk/s.stasis";

// A session at `position` of one story, or of another that leaves it at `parting`: equal positions
// before that have equal bits. The tokens at 0 are always the same.
State at(uint64_t position, uint64_t parting = UINT64_MAX);

struct Scenario {
    const char *name;
    std::vector<State> earlier; // saved one after the other, undisturbed
    State next;                 // what the file holds once `save` is done
    std::function<void(const FileOperations &files)> save;
    bool streamed = false; // the last of `earlier` is in the file, in the stream form
    bool leftover = false; // a whole new file was being written when an earlier save was killed
};
std::vector<Scenario> scenarios();
Disk before(const Scenario &scenario);

// Runs a save under a fault that `disk` is struck with; the status it ended with.
Status attempt(Disk &disk, const std::function<void(const FileOperations &files)> &save,
               const Fault &fault, std::string *message = nullptr);

// Returns the index of the state at kPath among `states`, read and compared whole, or -1 if there
// is no file. Fails the test case, and returns -2, for anything else.
int found(Disk &disk, const std::vector<const State *> &states);

// The next save of `state` succeeds, leaves nothing else, and outlives a power loss at once.
void check_next_save(Disk &disk, const State &state);

} // namespace stasis::format
