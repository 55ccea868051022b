# The test cases that are about threads, by their file and by their name, as filters for doctest: the
# thread sanitizer runs them alone (tools/test), and compiles no others (tests/CMakeLists.txt).
thread_files='*threads*,*device_rows*,*device_heads*,*device_product*,*device_attention*,*device_quantized*,*device_draw*'
thread_names='*thread*,*same time*,*concurren*,*busy*,*cancel*,*parallel*,*race*'
