//! What a client's monitor is told without having asked: that its disk's size has changed. It reads the configuration space
//! then, and tells its guest.
//!
//! - The monitor opens a channel for that (SET_BACKEND_REQ_FD). vhost takes its descriptor out of the client's socket and
//!   shows it as a type that lacks this message and waits for answers. So the descriptor is copied out of the socket before,
//!   and the request itself left to vhost.
//! - Nobody waits for a monitor. No answer is asked for; if the channel is full, it is tried again at the next look.
//! - It is told once of a size, and not of one that it has read, so that notices do not pile up where it reads none.
//! - It is told while its device runs only, and again when the device starts: QEMU takes no notice before, and QEMU before
//!   7.2 would end.

use std::{
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    ptr,
};
use tracing::warn;
use vhost::vhost_user::message::{BackendReq, FrontendReq};

/// The version of the protocol, in a message's flags.
const VERSION: u32 = 1;

/// The channel to a client's monitor.
#[derive(Debug)]
pub(super) struct Channel(OwnedFd);

impl Channel {
    /// The one that the client's next request brings, if that is there and brings one. The request stays there. (Of one that
    /// comes in pieces nothing is known yet; clients send the head of a request at once.)
    pub(super) fn offered(client: &UnixStream) -> Option<Self> {
        let mut code = [0; 4];
        let (count, line) = peek(client.as_raw_fd(), &mut code).ok()?;
        let is_whole = count == code.len();
        let is_offer = u32::from_ne_bytes(code) == FrontendReq::SET_BACKEND_REQ_FD as u32;
        line.filter(|_| is_whole && is_offer).map(Self)
    }

    /// Says that the configuration space has changed.
    fn say_changed(&self) -> io::Result<()> {
        let message = [BackendReq::CONFIG_CHANGE_MSG as u32, VERSION, 0];
        let bytes = size_of_val(&message);
        // Its flags are the monitor's, too.
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: one buffer, valid for its length through the call.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), message.as_ptr().cast(), bytes, flags) };
        match usize::try_from(sent) {
            Ok(sent) if sent == bytes => Ok(()),
            Ok(_) => Err(io::ErrorKind::WriteZero.into()),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}

/// The first bytes of what has come, and the descriptor that came with it; all of it stays there.
fn peek(socket: RawFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // Room for the head of one control message, and one descriptor: of more, the kernel gives the first.
    let mut control = [0u64; 4];
    let mut message = MaybeUninit::<libc::msghdr>::zeroed();
    // SAFETY: of zeroes, it names no memory; what it names from here on lives through the call.
    let message = unsafe { message.assume_init_mut() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: it computes.
    message.msg_controllen = unsafe { libc::CMSG_LEN(size_of::<RawFd>() as u32) } as _;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: see above.
    let count = unsafe { libc::recvmsg(socket, message, flags) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has filled it, as far as it says.
    let head = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: none, or within `control`.
    let is_line = unsafe { head.as_ref() }.is_some_and(|head| {
        (head.cmsg_level, head.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS)
    });
    let line = is_line.then(|| {
        // SAFETY: then there is a descriptor behind it, perhaps not aligned, which is new and nobody else's.
        unsafe { OwnedFd::from_raw_fd(ptr::read_unaligned(libc::CMSG_DATA(head).cast())) }
    });
    Ok((count, line))
}

/// What a client knows of its disk's size, and how it is told of another.
#[derive(Debug, Default)]
pub(super) struct SizeNotices {
    channel: Option<Channel>,
    /// What it has read last.
    read: Option<u64>,
    /// What it was told of since then.
    told: Option<u64>,
}

impl SizeNotices {
    /// It is told by this channel from now on.
    pub(super) fn open(&mut self, channel: Channel) {
        self.channel = Some(channel);
        self.told = None;
    }

    /// It has read this size.
    pub(super) fn was_read(&mut self, bytes: u64) {
        self.read = Some(bytes);
        self.told = None;
    }

    /// Tells it of this size, if that is new to it and its device runs.
    pub(super) fn look(&mut self, bytes: u64, is_running: bool) {
        if !is_running {
            self.told = None;
            return;
        }
        if self.read == Some(bytes) || self.told == Some(bytes) {
            return;
        }
        match self.channel.as_ref().map(Channel::say_changed) {
            Some(Ok(())) => self.told = Some(bytes),
            Some(Err(error)) if error.kind() != io::ErrorKind::WouldBlock => {
                self.channel = None;
                warn!(
                    "a vhost-user client cannot be told that its disk has {bytes} bytes now: {error}; its guest sees that \
                     when it starts again"
                );
            }
            Some(Err(_)) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    const CHANGED: [u32; 3] = [2, 1, 0];

    /// What is told, and the monitor's end of its channel.
    fn notices() -> (SizeNotices, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut notices = SizeNotices::default();
        notices.open(Channel(ours.into()));
        (notices, theirs)
    }

    /// How often the monitor was told since it heard last.
    fn heard(mut monitor: &UnixStream) -> usize {
        let mut bytes = Vec::new();
        let end = monitor.read_to_end(&mut bytes).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::WouldBlock);
        let messages = bytes.chunks(12).inspect(|message| {
            let words = message.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap()));
            assert!(words.eq(CHANGED), "{message:?}");
        });
        messages.count()
    }

    #[test]
    fn a_monitor_is_told_once_of_a_size_that_it_has_not_read() {
        let (mut notices, monitor) = notices();
        notices.was_read(10);
        notices.look(10, true);
        assert_eq!(heard(&monitor), 0);
        for _ in 0..3 {
            notices.look(20, true);
        }
        assert_eq!(heard(&monitor), 1);
        notices.was_read(20);
        notices.look(20, true);
        assert_eq!(heard(&monitor), 0);
        notices.look(10, true);
        assert_eq!(heard(&monitor), 1, "also of one that it has read before another");
    }

    #[test]
    fn a_monitor_whose_device_does_not_run_is_told_when_it_starts() {
        let (mut notices, monitor) = notices();
        notices.was_read(10);
        notices.look(20, false);
        assert_eq!(heard(&monitor), 0);
        notices.look(20, true);
        assert_eq!(heard(&monitor), 1);
        notices.look(20, false);
        notices.look(20, true);
        assert_eq!(heard(&monitor), 1, "again, since it has not read");
    }

    #[test]
    fn one_that_has_come_back_and_has_read_nothing_is_told() {
        let (mut notices, monitor) = notices();
        notices.look(10, true);
        assert_eq!(heard(&monitor), 1);
    }

    #[test]
    fn a_monitor_that_does_not_read_is_not_waited_for() {
        let (mut notices, mut monitor) = notices();
        let channel = notices.channel.as_ref().unwrap();
        let mut count = 0;
        while channel.say_changed().is_ok() {
            count += 1;
        }
        notices.look(20, true);
        notices.look(30, true);
        assert_eq!(heard(&monitor), count);
        notices.look(30, true);
        assert_eq!(heard(&monitor), 1, "it is told once there is room");
        monitor.write_all(b"what nobody has asked for").unwrap();
        notices.look(40, true);
        assert_eq!(heard(&monitor), 1);
    }

    #[test]
    fn a_channel_that_was_closed_is_used_no_more() {
        let (mut notices, monitor) = notices();
        drop(monitor);
        notices.look(20, true);
        assert!(notices.channel.is_none());
        notices.look(30, true);
    }
}
