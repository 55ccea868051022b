// Run options as the runtime takes them: the caller's callbacks, wrapped for the length of a call.
#pragma once

#include "abi/cancel.h"
#include "abi/options.h"
#include "runtime/session/session.h"

namespace stasis::abi {

class Run {
  public:
    Run(const Caller &caller, const stasis_run_options *options)
        : caller_(caller), given_(read_struct(options, "options")),
          watch_(caller, given_.cancel, given_.progress, given_.progress_user) {}

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

// Window options: 0 stands for the default in the ABI, and for nothing in the runtime.
TimelineOptions read_session_options(const stasis_session_options *given, const char *name);

} // namespace stasis::abi
