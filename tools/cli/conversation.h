// A conversation that is held as JSON messages, as stasis_chat.h describes it, and rendered by the
// model's own template: with tools, or with thoughts switched on or off. Must not know the
// terminal.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/terminal.h"

namespace command {

// Returns the text of a JSON file that lists function definitions. Throws Failure if it does not.
std::string read_tools(const std::string &path);

// What a call of a function asks for.
struct ToolCall {
    std::string id, name;
    Json shown; // name and arguments
};

class Conversation {
  public:
    enum Thinking : uint32_t { as_it_is, on, off };

    // `tools` is what read_tools returns; "": none. Throws Failure if the model's template ignores
    // the tools, or knows no thoughts to switch.
    Conversation(const stasis_model *model, std::string tools, Thinking thinking);

    // Puts a message behind the others. Throws Failure unless its texts are UTF-8.
    void add(const Json &message);
    size_t size() const { return messages_.size(); }
    // Drops the messages behind the first `size` ones.
    void drop_to(size_t size);

    // Returns what `restore` takes: the messages, and how many calls got an id.
    Json kept() const;
    // Takes over what `kept` returned. Throws Failure, or what Json throws, unless it makes sense.
    void restore(const Json &kept);
    // Returns the calls of the last message, which wait for their results.
    std::vector<ToolCall> pending_calls() const;

    // Appends to the session what its log lacks, and the prompt for a reply.
    stasis_status append(stasis_session *session, const stasis_run_options *options,
                         stasis_error *error) const;
    // Reads the reply that has been generated, puts it behind the messages and returns it. Calls
    // without an id get one, for templates that ask for it.
    const Json &take_reply(const stasis_session *session);

  private:
    std::string text() const;

    std::string tools_, switches_;
    std::vector<Json> messages_;
    size_t calls_ = 0;
};

// Returns the calls in a message.
std::vector<ToolCall> calls_of(const Json &message);

} // namespace command
