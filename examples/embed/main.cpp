// The smallest program that uses ppengine as a library.
#include <iostream>
#include <ppengine/ppengine.hpp>

int main() { std::cout << "ppengine " << ppengine::version() << " (" << ppengine::commit() << ")\n"; }
