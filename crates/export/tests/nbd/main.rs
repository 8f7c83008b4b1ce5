//! The state machine of an NBD connection, without a socket and with clients that others wrote, in one program.

mod clients;
mod handshake;
mod splits;
mod support;
mod transmission;
