//! md's on-disk metadata: bytes to values and back
#![no_std]
