# The symbols of libheed.so, as a version script: the C API (bindings/c/heed.h), and functions, objects,
# vtables and type information of namespace heed (names of the Itanium C++ ABI), but not of heed::cpu and
# heed::vulkan, the backends, whose headers are not installed. A version script cannot exclude names from a
# pattern, so the patterns are spelled around these two.

set(HEED_EXPORTS ${PROJECT_BINARY_DIR}/exports.map)
set(patterns "    heed_*;\n")
foreach(kind _ZN _ZNK _ZT?N _ZTh*N _ZTv*N _ZGVN _ZGVZN _ZZN _ZZNK)
  foreach(name [!36]* 3[!c]* 3c[!p]* 3cp[!u]* 6[!v]* 6v[!u]* 6vu[!l]* 6vul[!k]*)
    string(APPEND patterns "    ${kind}4heed${name};\n")
  endforeach()
endforeach()
file(CONFIGURE OUTPUT ${HEED_EXPORTS} CONTENT "{\n  global:\n${patterns}  local:\n    *;\n};\n" @ONLY)
