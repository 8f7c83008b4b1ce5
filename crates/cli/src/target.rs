//! A served array, as the commands that speak to its server name it.

use crate::{complete, options};
use lapstrake::control::{Detail, Request};
use lapstrake_host::control::{self, ControlError};
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::time::Duration;
use tracing::warn;

/// Where control sockets are.
#[derive(clap::Args)]
pub struct Place {
    /// Where the control sockets are [default: as for serve]
    #[arg(long, value_name = "DIR")]
    control_dir: Option<PathBuf>,
}

impl Place {
    /// The directory.
    pub fn dir(&self) -> PathBuf {
        self.control_dir.clone().unwrap_or_else(control::directory)
    }
}

/// One array, and how to report about it.
#[derive(clap::Args)]
pub struct Target {
    /// The array's name; /dev/mdN and /dev/md/NAME are taken as N and NAME
    #[arg(value_parser = options::array_name, add = complete::arrays())]
    pub name: String,
    #[command(flatten)]
    place: Place,
    /// Report in JSON
    #[arg(long)]
    pub json: bool,
}

impl Target {
    /// Sends a request to the array's server, and waits for the answer however long it takes.
    pub fn ask<A: DeserializeOwned>(&self, request: &Request) -> Result<A, ControlError> {
        control::ask(&self.place.dir(), &self.name, request, || {
            warn!(
                "{}: its server has not answered for {} s: it waits for a disk, or is stopped (SIGSTOP) or stuck; \
                 still waiting (after Ctrl-C it may yet do what was asked)",
                self.name,
                control::PATIENCE.as_secs()
            );
        })
    }

    /// Where its control socket is, and others'.
    pub fn dir(&self) -> PathBuf {
        self.place.dir()
    }

    /// All that the server tells, if it tells it within a time.
    pub fn detail(&self, limit: Option<Duration>) -> Result<Detail, ControlError> {
        control::ask_detail(&self.place.dir(), &self.name, limit)
    }
}
