# What a wheel for Python carries (tools/wheel): the library, the command, the module for object
# storage and the CUDA module, with everything but libc inside, for glibc 2.28. The libraries that
# they use are Debian's static ones; of SentencePiece, which has none there, pkg-config tells the
# place (preset `wheel`), and libcurl is one without what Debian's needs for other protocols.
option(STASIS_WHEEL "make the targets of tools/wheel" OFF)
if(NOT STASIS_WHEEL)
  return()
endif()

# Names that have a version after 2.28, each with its older form in glibc_2_28.c.
set(LATER dladdr dlclose dlerror dlopen dlsym exp log log2 pow pthread_attr_setaffinity_np
  pthread_cond_clockwait pthread_create pthread_detach pthread_getspecific pthread_join
  pthread_key_create pthread_key_delete pthread_mutex_trylock pthread_mutexattr_destroy
  pthread_mutexattr_init pthread_mutexattr_settype pthread_once pthread_rwlock_destroy
  pthread_rwlock_init pthread_rwlock_rdlock pthread_rwlock_unlock pthread_rwlock_wrlock
  pthread_setspecific pthread_sigmask stat lstat fstat stat64 lstat64 fstat64
  __libc_single_threaded __pthread_key_create arc4random arc4random_buf _dl_find_object)
list(TRANSFORM LATER PREPEND -Wl,--wrap=)

function(stasis_for_wheel TARGET)
  set_target_properties(${TARGET} PROPERTIES LINKER_LANGUAGE CXX EXCLUDE_FROM_ALL ON
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/wheel
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/wheel)
  # In the versions before 2.34 threads and dlopen are libraries of their own.
  target_link_options(${TARGET} PRIVATE ${LATER} -static-libstdc++ -static-libgcc -s
    -Wl,--no-undefined -Wl,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2
    -Wl,--as-needed)
endfunction()

set(STATIC_LIBRARIES)
foreach(NAME sentencepiece pcre2-8 utf8proc xxhash zstd sqlite3 crypto)
  find_library(STASIS_STATIC_${NAME} lib${NAME}.a HINTS ${SENTENCEPIECE_LIBRARY_DIRS} REQUIRED)
  list(APPEND STATIC_LIBRARIES ${STASIS_STATIC_${NAME}})
endforeach()

# From its parts and not from libstasis.a, whose references to libstdc++ are weak: they would take
# nothing from an archive.
add_library(stasis_wheel SHARED glibc_2_28.c $<TARGET_OBJECTS:stasis>)
stasis_for_wheel(stasis_wheel)
set_target_properties(stasis_wheel PROPERTIES OUTPUT_NAME stasis SUFFIX .so.0 NO_SONAME ON
  LINK_DEPENDS ${CMAKE_SOURCE_DIR}/abi/exports.map)
target_link_options(stasis_wheel PRIVATE -Wl,-soname,libstasis.so.0
  -Wl,--version-script=${CMAKE_SOURCE_DIR}/abi/exports.map)
# Debian's libxxhash.a does not choose by the processor; the values are the same.
foreach(NAME XXH3_64bits XXH3_128bits)
  target_link_options(stasis_wheel PRIVATE -Wl,-u,${NAME} -Wl,--defsym=${NAME}_dispatch=${NAME})
endforeach()
target_link_libraries(stasis_wheel PRIVATE -Wl,--start-group
  $<TARGET_FILE:stasis_runtime> $<TARGET_FILE:stasis_format> $<TARGET_FILE:stasis_kernels>
  $<TARGET_FILE:stasis_state> ${STATIC_LIBRARIES}
  -Wl,--end-group)
add_dependencies(stasis_wheel stasis_runtime stasis_format stasis_kernels stasis_state)

add_executable(stasis_wheel_command glibc_2_28.c $<TARGET_OBJECTS:stasis_command>)
stasis_for_wheel(stasis_wheel_command)
target_compile_definitions(stasis_wheel_command PRIVATE STASIS_PROGRAM)
target_link_options(stasis_wheel_command PRIVATE -Wl,--wrap=__libc_start_main)
get_property(PROBES GLOBAL PROPERTY STASIS_PROBES)
foreach(PROBE ${PROBES})
  target_sources(stasis_wheel_command PRIVATE $<TARGET_OBJECTS:${PROBE}>)
endforeach()
set_target_properties(stasis_wheel_command PROPERTIES OUTPUT_NAME stasis
  INSTALL_RPATH $ORIGIN BUILD_WITH_INSTALL_RPATH ON)
set(EDITOR) # libedit, and what it uses
foreach(NAME edit tinfo bsd md)
  find_library(STASIS_STATIC_${NAME} lib${NAME}.a REQUIRED)
  list(APPEND EDITOR ${STASIS_STATIC_${NAME}})
endforeach()
find_library(STASIS_STATIC_event_core libevent_core.a REQUIRED)
target_link_libraries(stasis_wheel_command PRIVATE stasis_wheel ${STASIS_STATIC_crypto} ${EDITOR}
  ${STASIS_STATIC_event_core})

add_library(stasis_wheel_s3 MODULE glibc_2_28.c $<TARGET_OBJECTS:stasis_s3>
  $<TARGET_OBJECTS:stasis_s3_objects>)
stasis_for_wheel(stasis_wheel_s3)
set_target_properties(stasis_wheel_s3 PROPERTIES OUTPUT_NAME stasis_s3 SUFFIX .so.0 NO_SONAME ON
  LINK_DEPENDS ${CMAKE_SOURCE_DIR}/modules/s3/exports.map)
target_link_options(stasis_wheel_s3 PRIVATE -Wl,-soname,libstasis_s3.so.0
  -Wl,--version-script=${CMAKE_SOURCE_DIR}/modules/s3/exports.map)
find_library(STASIS_STATIC_curl libcurl.a PATHS ${CMAKE_SOURCE_DIR}/build/curl/root
  NO_DEFAULT_PATH REQUIRED)
find_library(STASIS_STATIC_ssl libssl.a REQUIRED)
target_link_libraries(stasis_wheel_s3 PRIVATE ${STASIS_STATIC_curl} ${STASIS_STATIC_ssl}
  ${STASIS_STATIC_crypto})

if(TARGET stasis_cuda)
  add_library(stasis_wheel_cuda MODULE glibc_2_28.c $<TARGET_OBJECTS:stasis_cuda>)
  stasis_for_wheel(stasis_wheel_cuda)
  set_target_properties(stasis_wheel_cuda PROPERTIES OUTPUT_NAME stasis_cuda SUFFIX .so.0)
  target_compile_definitions(stasis_wheel_cuda PRIVATE STASIS_CUDA_MODULE)
  set(LATER dlmopen dlvsym pthread_condattr_setpshared pthread_kill
    pthread_mutexattr_setpshared pthread_rwlock_timedrdlock pthread_rwlock_timedwrlock
    pthread_rwlock_tryrdlock pthread_rwlock_trywrlock pthread_rwlockattr_destroy
    pthread_rwlockattr_init pthread_rwlockattr_setpshared pthread_spin_destroy pthread_spin_init
    pthread_spin_lock pthread_spin_trylock pthread_spin_unlock sem_destroy sem_init sem_post
    sem_timedwait sem_trywait sem_wait shm_open shm_unlink)
  list(TRANSFORM LATER PREPEND -Wl,--wrap=)
  target_link_options(stasis_wheel_cuda PRIVATE ${LATER}
    "SHELL:-Wl,--no-as-needed -l:librt.so.1 -Wl,--as-needed") # CMake drops repeated options
  find_library(STASIS_STATIC_cudart libcudart_static.a
    HINTS ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES} REQUIRED)
  target_link_options(stasis_wheel_cuda PRIVATE -Wl,-soname,libstasis_cuda.so.0
    -Wl,--version-script=${CMAKE_SOURCE_DIR}/runtime/kernels/cuda/exports.map)
  target_link_libraries(stasis_wheel_cuda PRIVATE ${STASIS_STATIC_cudart})
endif()
