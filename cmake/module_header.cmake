# Writes a SPIR-V module (MODULE) as an array named NAME to HEADER, as glslang --vn does.
file(READ ${MODULE} bytes HEX)
string(REGEX REPLACE "(..)(..)(..)(..)" "0x\\4\\3\\2\\1," words "${bytes}")
file(WRITE ${HEADER} "#pragma once\nconst uint32_t ${NAME}[] = {${words}};\n")
