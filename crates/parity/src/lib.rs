//! XOR and P+Q parity kernels, chosen at run time
#![no_std]
