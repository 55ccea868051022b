# Compiles llama.cpp's products of quantised weights on AMX so that they work with gcc 12: see
# amx_tiles.h. tools/peer/build has CMake include this after project(ggml), so that the package's
# files stay as published.
set(STASIS_AMX_TILES ${CMAKE_CURRENT_LIST_DIR}/amx_tiles.h)
cmake_language(DEFER CALL set_source_files_properties
  ${CMAKE_CURRENT_SOURCE_DIR}/src/ggml-cpu/amx/mmq.cpp TARGET_DIRECTORY ggml-cpu
  PROPERTIES COMPILE_OPTIONS "-include;${STASIS_AMX_TILES}")
