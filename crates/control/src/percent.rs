//! Percent-encoding, as in URIs and in the names of control sockets.

/// The bytes that a text stands for, in which %XX is a byte; none if a % is followed by something else.
#[must_use]
pub fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            _ => byte,
        });
    }
    Some(bytes)
}
