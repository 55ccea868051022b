// Run options in the form that the runtime takes: the caller's callbacks, wrapped for the length of
// a call. Must not know what is run.
#pragma once

#include "abi/cancel.h"
#include "abi/options.h"
#include "runtime/session/session.h"

namespace stasis::abi {

class Run {
  public:
    Run(const Caller &caller, const stasis_run_options *options)
        : caller_(caller), given_(read_struct(options, "options")), watch_(caller, given_) {}

    // Returns the options of the runtime. They refer to this object.
    AppendOptions options() {
        AppendOptions options;
        options.chunk = given_.chunk;
        options.watch = watch_.watch();
        options.logits = given_.logits != nullptr ? logits : nullptr;
        options.logits_user = this;
        return options;
    }

  private:
    static bool logits(void *user, uint64_t position, const float *row, size_t count) {
        const Run &self = *static_cast<const Run *>(user);
        return self.caller_.lend([&] {
            return self.given_.logits(self.given_.logits_user, position, row, count);
        }) == 0;
    }

    const Caller &caller_;
    const stasis_run_options given_;
    CallWatch watch_;
};

// Reads session options: in the ABI 0 stands for the default, in the runtime a window_retain of 0
// keeps nothing.
TimelineOptions read_session_options(const stasis_session_options *given, const char *name);

} // namespace stasis::abi
