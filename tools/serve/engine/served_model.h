// A model that is served: its scheduler, and the one thread that computes. Must not know requests.
#pragma once

#include <string>
#include <thread>

#include "tools/cli/handles.h"
#include "tools/serve/api/request.h"
#include "tools/serve/engine/line.h"

namespace serve {

// Throws api::Refused with the HTTP status that belongs to a status of the library.
void require(stasis_status status, const stasis_error &error);
api::Refused refusal(stasis_status status, const char *message);
command::Cancel make_cancel(); // throws api::Refused

// Hears of one session in the scheduler, on the computing thread; must return soon.
class Listener {
  public:
    virtual ~Listener() = default;
    // The last event has `end`; nothing follows it.
    virtual void hear(const stasis_scheduler_event &event) = 0;
};

class ServedModel {
  public:
    // Throws command::Failure.
    ServedModel(std::string name, command::Model model, uint32_t sessions_max);
    ~ServedModel(); // every session has had its end before
    ServedModel(const ServedModel &) = delete;
    ServedModel &operator=(const ServedModel &) = delete;

    const std::string &name() const { return name_; }
    stasis_model *model() const { return model_.get(); }
    const stasis_model_info &info() const { return info_; }
    const std::string &identity() const { return identity_; } // hexadecimal

    Line &line() { return line_; } // of those that submit
    const Line &line() const { return line_; }

    // Throws api::Refused. The listener must live until its end.
    void submit(stasis_session *session, stasis_generate_options options,
                const stasis_prompt &prompt, Listener &listener);
    void cancel(const stasis_session *session);
    stasis_scheduler_stats stats() const;
    stasis_model_stats memory() const;

  private:
    using Scheduler = std::unique_ptr<stasis_scheduler, command::Releaser<stasis_scheduler_close>>;
    void compute();

    const std::string name_;
    const command::Model model_;
    stasis_model_info info_{};
    std::string identity_;
    Line line_;
    Scheduler scheduler_;
    std::thread thread_;
};

} // namespace serve
