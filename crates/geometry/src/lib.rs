//! Where each byte of an md array lives on its members
#![no_std]
