# Run by cpack after the packages are made. Corrects what it does differently from Debian's rules:
# it counts a link in Installed-Size as the file that the link names, calls ldconfig from scripts
# instead of a trigger, and gives its own files the modes of the user who runs it.

# KiB on disk as dpkg-gencontrol counts them: whole ones for each file, one for a folder or a link.
function(installed_size OUT FOLDER)
  set(TOTAL 0)
  file(GLOB_RECURSE ENTRIES LIST_DIRECTORIES true RELATIVE ${FOLDER} ${FOLDER}/*)
  list(FILTER ENTRIES EXCLUDE REGEX "^DEBIAN")
  foreach(ENTRY ${ENTRIES})
    set(KIB 1)
    if(NOT IS_SYMLINK ${FOLDER}/${ENTRY} AND NOT IS_DIRECTORY ${FOLDER}/${ENTRY})
      file(SIZE ${FOLDER}/${ENTRY} BYTES)
      math(EXPR KIB "(${BYTES} + 1023) / 1024")
    endif()
    math(EXPR TOTAL "${TOTAL} + ${KIB}")
  endforeach()
  set(${OUT} ${TOTAL} PARENT_SCOPE)
endfunction()

foreach(PACKAGE ${CPACK_PACKAGE_FILES})
  set(FOLDER ${PACKAGE}.folder)
  file(REMOVE_RECURSE ${FOLDER})
  execute_process(COMMAND dpkg-deb -R ${PACKAGE} ${FOLDER} COMMAND_ERROR_IS_FATAL ANY)
  if(EXISTS ${FOLDER}/DEBIAN/postinst)
    file(REMOVE ${FOLDER}/DEBIAN/postinst ${FOLDER}/DEBIAN/postrm)
    file(WRITE ${FOLDER}/DEBIAN/triggers "activate-noawait ldconfig\n")
  endif()
  execute_process(COMMAND chmod -R u=rwX,go=rX ${FOLDER} COMMAND_ERROR_IS_FATAL ANY)
  installed_size(SIZE ${FOLDER})
  file(READ ${FOLDER}/DEBIAN/control CONTROL)
  string(REGEX REPLACE "Installed-Size: [0-9]+" "Installed-Size: ${SIZE}" CONTROL "${CONTROL}")
  file(WRITE ${FOLDER}/DEBIAN/control "${CONTROL}")
  execute_process(COMMAND dpkg-deb --root-owner-group -b ${FOLDER} ${PACKAGE}
    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  file(REMOVE_RECURSE ${FOLDER})
endforeach()
