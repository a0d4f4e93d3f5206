#pragma once

namespace heed {

/// How many threads the CPU backend uses. Results never depend on it. The default is the number of processors
/// this process may run on. Throws an Error unless 1 <= count <= 1000. Not to be called from inside a kernel.
void set_cpu_threads(int count);
int cpu_threads();

}  // namespace heed
