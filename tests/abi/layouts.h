/* Checks of the layouts of public structs; see layouts.c. */
#pragma once

#include <stddef.h>

#include "abi/stasis.h"

#define FIELD(type, field, offset, size)                                                           \
    _Static_assert(offsetof(type, field) == (offset) && sizeof(((type *)0)->field) == (size),      \
                   #type "." #field " has moved")
#define STRUCT(type, size)                                                                         \
    _Static_assert(sizeof(type) == (size), #type " has a field that is not listed here")
