// The paths of places.h, as CMake gives them.
#include "tests/places.h"

namespace places {
const char *const source = STASIS_SOURCE_DIR;
const char *const binary = STASIS_BINARY_DIR;
#ifdef STASIS_LIBRARY
const char *const library = STASIS_LIBRARY;
const char *const device_module = STASIS_DEVICE_MODULE;
const char *const c_compiler = STASIS_C_COMPILER;
const char *const cxx_compiler = STASIS_CXX_COMPILER;
const char *const nm = STASIS_NM;
#else
const char *const library = "", *const device_module = "", *const c_compiler = "",
                  *const cxx_compiler = "", *const nm = "";
#endif
} // namespace places
