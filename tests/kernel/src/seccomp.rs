//! Lets user-mode-linux before 6.13 run on CPUs whose extended state is larger than it expects.
//!
//! It keeps the vector registers of its processes with
//! `ptrace(PTRACE_GETREGSET, NT_X86_XSTATE)`, into a buffer whose size was fixed when it was
//! built (2696 bytes). On CPUs with AMX the state is about 11 KiB; the buffer no longer holds
//! it, and the guest's processes die at once with "ptrace set regs failed". When the very first
//! such call fails, however, user-mode-linux falls back to the old FXSAVE registers, which
//! always fit. So a seccomp filter makes these calls, and no others, fail with EIO.
//!
//! FXSAVE keeps only the lower halves of the AVX registers: a guest process that uses
//! AVX would find the upper halves changed after a page fault. [`GLIBC_TUNABLES`] therefore
//! keeps the guest's C library off AVX; nothing else in the guest uses it.
//!
//! The fallback behaves the same on every CPU, so it is always installed: one way to test. From 6.13 on
//! user-mode-linux asks how large the state is, keeps all of it, and does not boot where it is refused.

use std::io;
use std::mem::offset_of;

/// For the guest's kernel command line: unknown `name=value` words become init's environment.
pub const GLIBC_TUNABLES: &str = "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512CD,-AVX512DQ,-AVX2,-AVX,\
     -AVX2_Usable,-AVX_Usable,-AVX_Fast_Unaligned_Load";

/// `linux/audit.h`: EM_X86_64 | 64-bit | little-endian.
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
/// `linux/ptrace.h`; libc lacks them for some targets.
const PTRACE_GETREGSET: u32 = 0x4204;
const PTRACE_SETREGSET: u32 = 0x4205;
/// `linux/elf.h`.
const NT_X86_XSTATE: u32 = 0x202;

/// Installs the filter on the calling process and all it starts.
///
/// Makes two system calls and allocates nothing, so it may run between `fork` and `exec`.
///
/// # Errors
/// What `prctl` reports, where seccomp filters are not allowed.
pub fn refuse_xstate() -> io::Result<()> {
    let filter = filter();
    let program = libc::sock_fprog {
        len: filter.len() as libc::c_ushort,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: PR_SET_NO_NEW_PRIVS takes plain numbers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `program` and the filter it points to live until the call has copied them.
    if unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn filter() -> [libc::sock_filter; 11] {
    use libc::seccomp_data as data;
    let low_half = |argument: usize| offset_of!(data, args) + 8 * argument;
    // A jump's numbers count the instructions to skip when equal, and when not.
    [
        load(offset_of!(data, arch)),
        jump_if(AUDIT_ARCH_X86_64, 0, 8),
        load(offset_of!(data, nr)),
        jump_if(libc::SYS_ptrace as u32, 0, 6),
        load(low_half(0)),
        jump_if(PTRACE_GETREGSET, 1, 0),
        jump_if(PTRACE_SETREGSET, 0, 3),
        load(low_half(2)),
        jump_if(NT_X86_XSTATE, 0, 1),
        give(libc::SECCOMP_RET_ERRNO | libc::EIO as u32),
        give(libc::SECCOMP_RET_ALLOW),
    ]
}

fn load(offset: usize) -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset as u32)
}

fn jump_if(value: u32, equal: u8, unequal: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, equal, unequal, value)
}

fn give(value: u32) -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, value)
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}
