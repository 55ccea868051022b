# Run by cpack between installing and packing: adds the files that Debian requires of a package in
# addition to those that are installed everywhere.
set(COPYRIGHT "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Stasis

Files: *
Copyright: 2026 the Stasis authors
License: Apache-2.0
 On Debian systems the full text of the Apache License 2.0 is in
 /usr/share/common-licenses/Apache-2.0.
")
set(CHANGELOG "stasis (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * Built from the sources of this version.

 -- ${CPACK_PACKAGE_CONTACT}  Thu, 01 Jan 1970 00:00:00 +0000
")

# `gzip`, because Debian requires its -9, without a name and a time.
function(compress FILE)
  execute_process(COMMAND gzip -9nf ${FILE} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

foreach(PART runtime=libstasis0 dev=libstasis-dev command=stasis doc=libstasis-doc
    cuda=libstasis-cuda0 s3=libstasis-s3-0)
  string(REGEX MATCH "(.*)=(.*)" PART ${PART})
  set(FOLDER ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${CMAKE_MATCH_1}/usr)
  if(NOT EXISTS ${FOLDER}) # not built
    continue()
  endif()
  set(DOCUMENTS ${FOLDER}/share/doc/${CMAKE_MATCH_2})
  file(WRITE ${DOCUMENTS}/copyright "${COPYRIGHT}")
  file(WRITE ${DOCUMENTS}/changelog "${CHANGELOG}")
  compress(${DOCUMENTS}/changelog)

  file(GLOB PAGES ${FOLDER}/share/man/man1/*.1)
  foreach(PAGE ${PAGES})
    compress(${PAGE})
  endforeach()
  file(GLOB COMMANDS ${FOLDER}/bin/*)
  foreach(COMMAND ${COMMANDS})
    file(RPATH_REMOVE FILE ${COMMAND}) # the library is in the system's search path
  endforeach()
  file(GLOB_RECURSE PACKAGE_CONFIGS ${FOLDER}/*.pc)
  foreach(PACKAGE_CONFIG ${PACKAGE_CONFIGS}) # and so for the programs that link it
    file(READ ${PACKAGE_CONFIG} TEXT)
    string(REPLACE " -Wl,-rpath,\${libdir}" "" TEXT "${TEXT}")
    file(WRITE ${PACKAGE_CONFIG} "${TEXT}")
  endforeach()
  file(GLOB_RECURSE ARCHIVES ${FOLDER}/*.a)
  foreach(ARCHIVE ${ARCHIVES})
    execute_process(COMMAND strip --strip-debug --enable-deterministic-archives ${ARCHIVE}
      COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
endforeach()
