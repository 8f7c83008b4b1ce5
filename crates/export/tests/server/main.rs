//! Arrays served over NBD by the server as a whole, in one program.

mod clients;
mod faults;
mod gateway;
mod hostile;
mod overlay;
mod states;
mod support;
mod vhost_user;
