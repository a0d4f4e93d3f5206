# What the C header declares is what the shared library exports under heed_, and of C++ it exports namespace heed alone,
# without the backends.
# Run as: cmake -D HEADER=<heed.h> -D LIBRARY=<libheed.so> -D NM=<nm> -P exports_test.cmake

cmake_minimum_required(VERSION 3.25)
file(READ ${HEADER} text)
string(REGEX REPLACE "/\\*([^*]|\\*+[^*/])*\\*+/|//[^\n]*" "" text "${text}") # comments name functions too
string(REGEX MATCHALL "(heed_[a-z0-9_]+)\\(" declared "${text}")
list(TRANSFORM declared REPLACE "\\($" "")
list(REMOVE_ITEM declared heed_status) # what begins a declaration of a pointer to a function
list(SORT declared)

execute_process(COMMAND ${NM} -D --defined-only ${LIBRARY} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[ \t][A-Za-z] heed_[A-Za-z0-9_]+" exported "${symbols}")
list(TRANSFORM exported REPLACE "^.* " "")
list(SORT exported)

list(LENGTH declared count)
if(count LESS 40)
  message(FATAL_ERROR "only ${count} functions were found in ${HEADER}: the test reads it wrongly")
endif()
set(missing ${declared})
list(REMOVE_ITEM missing ${exported})
set(undeclared ${exported})
list(REMOVE_ITEM undeclared ${declared})
if(missing OR undeclared)
  message(FATAL_ERROR "declared but not exported: ${missing}\nexported but not declared: ${undeclared}")
endif()
string(REGEX MATCHALL "_Z[^\n]*4heed(3cpu|6vulkan)[^\n]*" backends "${symbols}")
string(REGEX REPLACE "[^\n]* heed_[^\n]*\n|[^\n]* _Z[NTGZ][^\n]*4heed[^\n]*\n" "" others "${symbols}")
if(others OR backends)
  message(FATAL_ERROR "exported, but not of the public interface: ${others} ${backends}")
endif()
message(STATUS "${count} functions, declared and exported")
