/* Which loops over pixels this chip runs: those for AVX2 and F16C where it has both. */
#include "kernels.h"

#if HAS_AVX2_LOOPS
#include <cpuid.h>
#endif

const struct loops *chosen_loops = &baseline_loops;

void choose_loops(void)
{
#if HAS_AVX2_LOOPS
    unsigned int eax, ebx, ecx, edx;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) &&
        (ecx & bit_F16C) != 0) /* clang 14 cannot be asked for it by name */
        chosen_loops = &avx2_loops;
#endif
}
