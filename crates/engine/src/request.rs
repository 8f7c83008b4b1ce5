//! A client's request while a shard has it.
//!
//! `pending` counts what of it is under way; it ends when that is nothing and all of it was issued.

use crate::{behind::Copies, gate::Admission, stripe::StreamId, types::*};

#[derive(Debug)]
pub(crate) struct Req {
    pub id: RequestId,
    pub kind: RequestKind,
    pub start: u64,
    pub end: u64,
    /// First sector not issued yet.
    pub cursor: u64,
    pub pending: u32,
    pub error: Option<RequestError>,
    /// How often a read has been begun anew.
    pub retries: u8,
    /// What the gate let through of it.
    pub admission: Admission,
    /// The stream that the write is part of.
    pub stream: Option<StreamId>,
    /// Copies that are left behind.
    pub copies: Option<Copies>,
    /// A read of sectors that other shards own.
    pub is_foreign: bool,
}

impl Req {
    pub(crate) fn fua(&self) -> bool {
        matches!(
            self.kind,
            RequestKind::Write { fua: true, .. } | RequestKind::WriteZeroes { fua: true, .. }
        )
    }

    /// The request's memory for an array sector of it.
    pub(crate) fn buf_at(&self, sector: u64) -> Buf {
        match self.kind {
            RequestKind::Read(buf) | RequestKind::Write { buf, .. } => {
                buf.advance_sectors((sector - self.start) as u32)
            }
            _ => Buf::ZERO,
        }
    }
}
