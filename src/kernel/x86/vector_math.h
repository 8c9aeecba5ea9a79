// SPDX-License-Identifier: Apache-2.0
// kernel/x86/vector_math.h: vectorised exp, exp2, sigmoid, tanh, sine and cosine, with a relative error of about 1e-7.
#ifndef KERNEL_X86_VECTOR_MATH_H
#define KERNEL_X86_VECTOR_MATH_H

#include "kernel/x86/vector.h"

// e^x as 2^n times a polynomial of the remainder, at most ln 2 / 2 (Cephes). Subnormal results are flushed to 0, and x
// is clamped so that the result stays finite.
ALWAYS_INLINE vec vec_exp(vec x)
{
    const vec least = vec_set(-87.3f), most = vec_set(88.7f);
    vec bounded = vec_min(most, vec_max(least, x));
    vec n = vec_round(bounded * vec_set(1.44269504f));
    vec rest = vec_fma(n, vec_set(-0.693359375f), bounded); // ln 2 in two parts (Cody-Waite)
    rest = vec_fma(n, vec_set(2.12194440e-4f), rest);
    vec sum = vec_set(1.9875691500e-4f);
    sum = vec_fma(sum, rest, vec_set(1.3981999507e-3f));
    sum = vec_fma(sum, rest, vec_set(8.3334519073e-3f));
    sum = vec_fma(sum, rest, vec_set(4.1665795894e-2f));
    sum = vec_fma(sum, rest, vec_set(1.6666665459e-1f));
    sum = vec_fma(sum, rest, vec_set(5.0000001201e-1f));
    sum = vec_fma(sum, rest * rest, rest) + vec_set(1);
    vec result = vec_from_bits(ivec_add(vec_bits(sum), ivec_left(vec_to_int(n), 23)));
    return vec_if_less(x, least, vec_set(0), result);
}

// 2^x for x <= 127, exactly 1 for 0. Subnormal results are flushed to 0.
ALWAYS_INLINE vec vec_exp2(vec x)
{
    const vec least = vec_set(-126);
    vec bounded = vec_max(least, x), n = vec_round(bounded), rest = bounded - n;
    vec sum = vec_set(1.534581242e-4f);
    sum = vec_fma(sum, rest, vec_set(1.339993090e-3f));
    sum = vec_fma(sum, rest, vec_set(9.618489072e-3f));
    sum = vec_fma(sum, rest, vec_set(5.550328642e-2f));
    sum = vec_fma(sum, rest, vec_set(2.402264625e-1f));
    sum = vec_fma(sum, rest, vec_set(6.931471825e-1f));
    sum = vec_fma(sum, rest, vec_set(1));
    vec result = vec_from_bits(ivec_add(vec_bits(sum), ivec_left(vec_to_int(n), 23)));
    return vec_if_less(x, least, vec_set(0), result);
}

ALWAYS_INLINE vec vec_sigmoid(vec x) { return vec_set(1) / (vec_set(1) + vec_exp(-x)); }

ALWAYS_INLINE vec vec_tanh(vec x) { return vec_set(1) - vec_set(2) / (vec_set(1) + vec_exp(x + x)); }

// Sine and cosine by range reduction: quarter turns are subtracted in two parts, and the rest is at most pi / 4.
ALWAYS_INLINE void vec_sin_cos(vec angle, vec *sine, vec *cosine)
{
    vec quarters = vec_round(angle * vec_set(0.636619772f));
    vec x = vec_fma(quarters, vec_set(-1.57079637f), angle);
    x = vec_fma(quarters, vec_set(4.37113883e-8f), x);
    vec square = x * x;
    vec sin = vec_fma(vec_set(-1.9515295891e-4f), square, vec_set(8.3321608736e-3f));
    sin = vec_fma(sin, square, vec_set(-1.6666654611e-1f));
    sin = vec_fma(sin * square, x, x);
    vec cos = vec_fma(vec_set(2.443315711809948e-5f), square, vec_set(-1.388731625493765e-3f));
    cos = vec_fma(cos, square, vec_set(4.166664568298827e-2f));
    cos = vec_fma(cos, square * square, vec_fma(vec_set(-0.5f), square, vec_set(1)));
    ivec turn = vec_to_int(quarters), one = ivec_set(1), odd = ivec_and(turn, one);
    ivec sin_sign = ivec_left(ivec_and(turn, ivec_set(2)), 30);
    ivec cos_sign = ivec_left(ivec_and(ivec_add(turn, one), ivec_set(2)), 30);
    ivec a = ivec_if_less(odd, one, vec_bits(sin), vec_bits(cos));
    ivec b = ivec_if_less(odd, one, vec_bits(cos), vec_bits(sin));
    *sine = vec_from_bits(ivec_xor(a, sin_sign));
    *cosine = vec_from_bits(ivec_xor(b, cos_sign));
}

#endif
