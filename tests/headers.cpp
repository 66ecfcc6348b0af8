// Empty: compiled with the headers that all tests share (cmake/Modules.cmake), so that there is a precompiled one for the others to use.
