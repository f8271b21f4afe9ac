/* The loops over pixels for x86-64 chips with AVX2 and F16C, which choose_loops() asks for at run
 * time. AVX2 alone does not bring fused multiply-adds. Wider vectors are left out: the loops are
 * bound by their stores. */
#include "kernels.h"

#if HAS_AVX2_LOOPS

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,f16c")
#endif

#define RINGFEED_AVX2
#define LOOPS avx2_loops
#include "loops.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif

#else
typedef int nothing_here; /* a file must declare something */
#endif
