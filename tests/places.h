// Where this build found its parts. Only places.cpp is compiled with these paths, so that the other
// files of a test are the same in every clone and a compiler cache knows them.
#pragma once

namespace places {
extern const char *const source; // the clone
extern const char *const binary; // the build tree
// What tests of the public interface look into, and ask; empty in other programs.
extern const char *const library; // libstasis.so
extern const char *const device_module;
extern const char *const c_compiler;
extern const char *const cxx_compiler;
extern const char *const nm;
} // namespace places
