// Loads the tests' device module.
#include "tests/abi/device_module.h"

#include <dlfcn.h>

namespace abi_test {

const bool device_module_loaded = dlopen(STASIS_DEVICE_MODULE, RTLD_NOW | RTLD_LOCAL) != nullptr;

} // namespace abi_test
