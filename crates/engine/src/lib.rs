//! The sans-IO RAID core
#![no_std]
