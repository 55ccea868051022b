// Loads the tests' device module.
#include "tests/abi/device_module.h"
#include "tests/places.h"

#include <dlfcn.h>

namespace abi_test {

const bool device_module_loaded = dlopen(places::device_module, RTLD_NOW | RTLD_LOCAL) != nullptr;

} // namespace abi_test
