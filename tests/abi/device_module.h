// The device of these tests: the host module (tests/device) in the place of the CUDA module.
#pragma once

namespace abi_test {

// Loaded when the program starts, before the library searches for a module: the library then finds
// this one by its name, whichever test asks first.
extern const bool device_module_loaded;

} // namespace abi_test
