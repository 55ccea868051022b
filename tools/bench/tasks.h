// What `stasis bench` measures: each figure's name, how long a context it needs, and how it is
// taken, through the public interface as a host would, between measurements of what it comes up
// against.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tools/bench/matrices.h"
#include "tools/bench/results.h"
#include "tools/cli/model.h"

namespace command::bench {

struct Bench {
    const ModelChoice &choice;
    stasis_model *model;
    stasis_model_info info;
    Matrices matrices;
    unsigned repetitions;
    stasis_cancel *cancel;
    ceilings::Meter &meter;
    std::vector<stasis_token> tokens{}; // random ones, to append
    std::map<uint64_t, Session> live{}; // by position; forked, never changed
    std::set<std::string> warm{};       // figures that have run once
    std::vector<Result> results{};
    std::string draft{}; // path of a draft model
};

// Throws Failure unless every name, which is from `where`, is that of a figure.
void check_names(const std::vector<std::string> &names, const std::string &where);
// Throws Failure unless a context of so many positions has room for one of them (none: all).
void check_room(const std::vector<std::string> &names, uint64_t context);

// Takes the figures of these names (none: all but those of drafts) that the model's context has
// room for, and those that follow from them. Throws Failure.
void run_tasks(Bench &bench, const std::vector<std::string> &names);

// "a, b, c"
std::string task_names();

} // namespace command::bench
