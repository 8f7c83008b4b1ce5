//! Commands to the driver, on `/dev/ublk-control`: one at a time, each waited for.
//!
//! They are `IORING_OP_URING_CMD` with entries of 128 bytes, each by a ring of its own, since one may wait for another.
//! What the driver reads and writes lies in buffers of ours that live through the command.

use io_uring::{IoUring, cqueue, opcode, squeue::Entry128, types};
use std::{fs::File, io, os::fd::AsRawFd};

/// `struct ublksrv_ctrl_dev_info`.
pub(super) const INFO_BYTES: usize = 64;
/// `struct ublk_params` up to its part on discards.
pub(super) const PARAMS_BYTES: usize = 60;
/// Of a queue, where none is meant.
const NO_QUEUE: u16 = u16::MAX;

/// What is asked of the driver: `UBLK_U_CMD_*`, without direction and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Code {
    AddDev = 0x04,
    DelDev = 0x05,
    StartDev = 0x06,
    StopDev = 0x07,
    SetParams = 0x08,
    StartUserRecovery = 0x10,
    EndUserRecovery = 0x11,
    GetDevInfo2 = 0x12,
    GetFeatures = 0x13,
    DelDevAsync = 0x14,
    UpdateSize = 0x15,
    TryStopDev = 0x17,
}

impl Code {
    /// As `_IOR` and `_IOWR` of `'u'` and `struct ublksrv_ctrl_cmd` make it.
    fn number(self) -> u32 {
        let direction = match self {
            Self::GetDevInfo2 | Self::GetFeatures | Self::DelDevAsync => super::READ,
            _ => super::READ | super::WRITE,
        };
        super::ioctl(direction, self as u8, 32)
    }
}

/// The driver's features, by which devices differ (`UBLK_F_*`).
pub(super) mod feature {
    pub(crate) const USER_RECOVERY: u64 = 1 << 3;
    pub(crate) const USER_RECOVERY_REISSUE: u64 = 1 << 4;
    pub(crate) const UNPRIVILEGED_DEV: u64 = 1 << 5;
    pub(crate) const CMD_IOCTL_ENCODE: u64 = 1 << 6;
    pub(crate) const UPDATE_SIZE: u64 = 1 << 10;
    pub(crate) const SAFE_STOP_DEV: u64 = 1 << 17;
}

/// Whose a device is, as the driver keeps it for servers: of which array, and which process added it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    array: u64,
    process: u32,
}

impl Identity {
    /// Linux has no more processes.
    const PROCESS_BITS: u32 = 22;

    /// Of a device that this process adds; of `array`, which says what is served, the upper bits are kept.
    pub(super) fn ours(array: u64) -> Self {
        Self::of(array & !((1 << Self::PROCESS_BITS) - 1) | u64::from(std::process::id()))
    }

    fn of(word: u64) -> Self {
        let mask = (1 << Self::PROCESS_BITS) - 1;
        Self { array: word & !mask, process: (word & mask) as u32 }
    }

    fn word(self) -> u64 {
        self.array | u64::from(self.process)
    }

    pub(super) fn is_same_array(self, other: Self) -> bool {
        self.array == other.array
    }

    /// Whether who added it lives, or another process by now has its number.
    pub(super) fn has_process(self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process));
        // Behind the name, which may hold anything, stands whether it has only to be reaped.
        stat.is_ok_and(|stat| !stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
    }
}

/// What becomes of a device without its server, and with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It has no disk.
    Dead,
    Live,
    /// Its server has died; requests wait for another.
    Quiesced,
    /// One of those that we never ask for.
    Other,
}

/// A device as the driver tells of it.
#[derive(Clone, Debug)]
pub(super) struct Info {
    pub(super) number: u32,
    pub(super) queues: u16,
    pub(super) depth: u16,
    pub(super) request_bytes: u32,
    pub(super) flags: u64,
    pub(super) identity: Identity,
    pub(super) state: State,
}

impl Info {
    fn bytes(&self) -> [u8; INFO_BYTES] {
        let mut bytes = [0; INFO_BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &self.queues.to_ne_bytes());
        put(2, &self.depth.to_ne_bytes());
        put(8, &self.request_bytes.to_ne_bytes());
        put(12, &self.number.to_ne_bytes());
        put(24, &self.flags.to_ne_bytes());
        put(32, &self.identity.word().to_ne_bytes());
        bytes
    }

    fn of(bytes: &[u8; INFO_BYTES]) -> Self {
        let u16_at = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four"));
        let u64_at = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight"));
        let state = match u16_at(4) {
            0 => State::Dead,
            1 => State::Live,
            2 => State::Quiesced,
            _ => State::Other,
        };
        Self {
            number: u32_at(12),
            queues: u16_at(0),
            depth: u16_at(2),
            request_bytes: u32_at(8),
            flags: u64_at(24),
            identity: Identity::of(u64_at(32)),
            state,
        }
    }
}

/// See the module.
pub(super) struct Control(File);

impl Control {
    pub(super) fn new(file: File) -> io::Result<Self> {
        // Whether there can be one.
        ring()?;
        Ok(Self(file))
    }

    pub(super) fn features(&self) -> io::Result<u64> {
        let mut features = [0; 8];
        self.command(Code::GetFeatures, u32::MAX, None, &mut features, 0)?;
        Ok(u64::from_ne_bytes(features))
    }

    /// Adds a device, whose number may be `u32::MAX` for any; what became of what was asked for.
    pub(super) fn add(&self, wanted: &Info) -> io::Result<Info> {
        let mut bytes = wanted.bytes();
        self.command(Code::AddDev, wanted.number, None, &mut bytes, 0)?;
        Ok(Info::of(&bytes))
    }

    /// What is known of a device.
    pub(super) fn info(&self, number: u32) -> io::Result<Info> {
        let mut bytes = [0; INFO_BYTES];
        // Whether it is one of an unprivileged server is told by its answer, and the path is right for either.
        self.command(Code::GetDevInfo2, number, Some(number), &mut bytes, 0)?;
        Ok(Info::of(&bytes))
    }

    /// A command on a device; `data` is its word, and `payload` what is read or written.
    pub(super) fn on(
        &self,
        device: &Info,
        code: Code,
        payload: &mut [u8],
        data: u64,
    ) -> io::Result<()> {
        let is_unprivileged = device.flags & feature::UNPRIVILEGED_DEV != 0;
        let path_of = is_unprivileged.then_some(device.number);
        self.command(code, device.number, path_of, payload, data)
    }

    /// Where `path_of` names a device, its path stands before the payload: by the rights on it the driver judges.
    fn command(
        &self,
        code: Code,
        number: u32,
        path_of: Option<u32>,
        payload: &mut [u8],
        data: u64,
    ) -> io::Result<()> {
        let mut buffer = path_of.map_or(Vec::new(), |of| super::character_path(of).into_bytes());
        if path_of.is_some() {
            buffer.push(0);
        }
        let path_bytes = buffer.len();
        buffer.extend_from_slice(payload);
        let mut command = [0; 80];
        let mut put =
            |at: usize, value: &[u8]| command[at..at + value.len()].copy_from_slice(value);
        put(0, &number.to_ne_bytes());
        put(4, &NO_QUEUE.to_ne_bytes());
        if !buffer.is_empty() {
            put(6, &(buffer.len() as u16).to_ne_bytes());
            put(8, &(buffer.as_mut_ptr() as u64).to_ne_bytes());
        }
        put(16, &data.to_ne_bytes());
        put(24, &(path_bytes as u16).to_ne_bytes());
        let fd = types::Fd(self.0.as_raw_fd());
        let entry = opcode::UringCmd80::new(fd, code.number()).cmd(command).build();
        // SAFETY: the buffer outlives the wait, and is as long as the command says.
        unsafe { carry_out(&entry) }?;
        payload.copy_from_slice(&buffer[path_bytes..]);
        Ok(())
    }
}

fn ring() -> io::Result<IoUring<Entry128, cqueue::Entry>> {
    IoUring::builder().build(1)
}

/// # Safety
/// What the entry names lives through this.
unsafe fn carry_out(entry: &Entry128) -> io::Result<()> {
    let mut ring = ring()?;
    // SAFETY: the caller's.
    unsafe { ring.submission().push(entry) }.expect("a new ring has room for one");
    loop {
        match ring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        if let Some(done) = ring.completion().next() {
            let result = done.result();
            return if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_numbers_of_the_drivers_header() {
        assert_eq!(Code::AddDev.number(), 0xc020_7504);
        assert_eq!(Code::GetFeatures.number(), 0x8020_7513);
        assert_eq!(Code::GetDevInfo2.number(), 0x8020_7512);
        assert_eq!(Code::UpdateSize.number(), 0xc020_7515);
    }

    #[test]
    fn a_device_is_told_of_as_it_was_asked_for() {
        let info = Info {
            number: 7,
            queues: 2,
            depth: 64,
            request_bytes: 512 << 10,
            flags: feature::USER_RECOVERY | feature::UPDATE_SIZE,
            identity: Identity::ours(0x1122_3344_5566_7788),
            state: State::Dead,
        };
        let mut bytes = info.bytes();
        bytes[4] = 2;
        let told = Info::of(&bytes);
        assert_eq!((told.number, told.queues, told.depth), (7, 2, 64));
        assert_eq!((told.request_bytes, told.flags), (512 << 10, info.flags));
        assert_eq!((told.identity, told.state), (info.identity, State::Quiesced));
    }

    #[test]
    fn a_device_is_known_by_its_array_whoever_added_it() {
        let (ours, other) = (Identity::ours(5 << 40), Identity::of(5 << 40 | 0x3f_ffff));
        assert!(ours.is_same_array(other) && !ours.is_same_array(Identity::ours(6 << 40)));
        assert!(ours.has_process());
        assert_eq!((ours.process, Identity::of(ours.word())), (std::process::id(), ours));
    }
}
